"""One process that is measured, or takes part in it: started, waited for, looked at from outside, ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from bench.failure import BenchFailed
from bench.processes import cpu_seconds, peak_rss
from cdc_outbox.testing.services.child import STOP_DEADLINE, Child

T = TypeVar("T")

READY_DEADLINE = 180.0
"""Seconds from the start to the line that says it is ready."""
_GLANCE = 0.005
"""Seconds between two looks at the log: how late `ready` may be noticed."""


class Contender:
    """A command with its log. ready: what stands in the log once it works; environ: beyond this process's own."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        ready: str,
        environ: Mapping[str, str] | None = None,
        stop_deadline: float = STOP_DEADLINE,
    ) -> None:
        self._child = Child(command, log=log, environ={**_environment(), **(environ or {})})
        self._name = log.stem
        self._ready = ready
        self._stop_deadline = stop_deadline

    def start(self) -> None:
        """Start it and wait until it is ready. Raises BenchFailed."""
        self._child.start()
        self.wait_for(self._ready)

    def wait_for(self, text: str, *, seconds: float = READY_DEADLINE) -> None:
        """Until its log has this text. Raises BenchFailed."""
        self.wait_until(lambda: text in self.log, text.strip(" :"), seconds=seconds, pause=_GLANCE)

    def wait_until(self, condition: Callable[[], T], what: str, *, seconds: float, pause: float) -> T:
        """Ask until the answer is true, and give it. Raises BenchFailed when time is up or the process has died."""
        deadline = time.monotonic() + seconds
        while True:
            answer = condition()
            if answer:
                return answer
            if not self._child.alive:
                raise BenchFailed(f"{self._name} has ended, exit code {self._child.exit_code}:\n{self._last_lines}")
            if time.monotonic() > deadline:
                raise BenchFailed(f"{self._name}: not within {seconds:.0f} s: {what}\n{self._last_lines}")
            time.sleep(pause)

    def wait_for_end(self, *, seconds: float) -> None:
        """Until it has ended by itself, without an error. Raises BenchFailed."""
        deadline = time.monotonic() + seconds
        while self._child.alive:
            if time.monotonic() > deadline:
                raise BenchFailed(f"{self._name} did not end within {seconds:.0f} s")
            time.sleep(0.05)
        if self._child.exit_code:
            raise BenchFailed(f"{self._name} failed:\n{self._last_lines}")

    def stop(self) -> None:
        self._child.stop(deadline=self._stop_deadline)

    @property
    def log(self) -> str:
        return self._child.log.read_text(errors="replace")

    @property
    def cpu(self) -> float:
        """CPU seconds used so far."""
        return cpu_seconds(self._child.pid)

    @property
    def peak_rss(self) -> int:
        """Bytes."""
        return peak_rss(self._child.pid)

    @property
    def _last_lines(self) -> str:
        return self._child.last_lines(15)


def _environment() -> dict[str, str]:
    """This process's, without anything that would change the relay's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CDC_OUTBOX_")}
