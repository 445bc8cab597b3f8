"""The command line as a subprocess: a relay that logs JSON, and commands that end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "cdc_outbox"]


def environment(**extra: str) -> dict[str, str]:
    """This process's environment without settings of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CDC_OUTBOX_")}
    return {**kept, **extra}


def run_command(config: Path, *words: str, timeout: float = 60, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "--config", str(config), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        check=False,
    )


class RelayProcess:
    """`cdc-outbox start` with its log read line by line."""

    def __init__(self, config: Path, program: Sequence[str] = (), **env: str) -> None:
        """program: arguments of Python that start the relay in another way."""
        self.config = config
        self.lines: list[dict[str, Any]] = []
        self.raw: list[str] = []
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [sys.executable, *program] if program else [*COMMAND, "--config", str(config), "start"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment(**env),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            for line in stream:
                with self._changed:
                    self.raw.append(line.rstrip("\n"))
                    with contextlib.suppress(json.JSONDecodeError):
                        self.lines.append(json.loads(line))
                    self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def log(self) -> str:
        return "\n".join(self.raw)

    def events(self) -> list[str]:
        with self._changed:
            return [line.get("event", "") for line in self.lines]

    def wait_for_any(self, *events: str, timeout: float = 60) -> str:
        """The first of these events that is in the log."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                for line in self.lines:
                    if line.get("event") in events:
                        return str(line["event"])
                if time.monotonic() > deadline or (not self.running and not self._reader.is_alive()):
                    raise AssertionError(f"none of {events} in the relay's log:\n" + "\n".join(self.raw[-60:]))
                self._changed.wait(0.2)

    def wait_for(self, event: str, *, count: int = 1, timeout: float = 60) -> None:
        """Until the log has `count` lines of this event."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while [line.get("event") for line in self.lines].count(event) < count:
                if time.monotonic() > deadline or (not self.running and not self._reader.is_alive()):
                    raise AssertionError(f"no {event!r} in the relay's log:\n" + "\n".join(self.raw[-60:]))
                self._changed.wait(0.2)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, whatever it is doing."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait(20)
        self._reader.join(20)

    def stop(self, timeout: float = 60) -> int:
        """SIGTERM; gives the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout: float = 60) -> int:
        code = self._process.wait(timeout)
        self._reader.join(20)
        return code
