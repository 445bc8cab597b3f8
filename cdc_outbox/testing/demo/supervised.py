"""A command kept running as a process supervisor would: started again when it dies, given up when it is broken."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cdc_outbox.errors import EXIT_REFUSED
from cdc_outbox.testing.services.child import Child

RESTART_AFTER = 1.0
"""Seconds between a death and the new start, as a process supervisor would take."""

SHORT_LIFE = 3.0
SHORT_LIVES = 4
"""What ends so many times by itself within SHORT_LIFE seconds of its start is broken, not killed by somebody."""


class Broken(Exception):
    """It does not run; the message is its own."""


class Supervised:
    """log: the file its output is appended to."""

    def __init__(self, command: Sequence[str], *, log: Path, environ: Mapping[str, str] | None = None) -> None:
        self._child = Child(command, log=log, environ=environ)
        self._started_at = 0.0
        self._died_at: float | None = None
        self._short_lives = 0
        self.starts = 0

    def start(self) -> None:
        self._child.start()
        self._started_at = time.monotonic()
        self._died_at = None
        self.starts += 1

    def keep_running(self) -> None:
        """Start it again when it has died. Raises Broken when it refuses to run or never runs for long."""
        if self._child.alive:
            return
        if self._died_at is None:
            self._died_at = time.monotonic()
            killed = self._child.exit_code == -signal.SIGKILL
            short = not killed and self._died_at - self._started_at < SHORT_LIFE
            self._short_lives = self._short_lives + 1 if short else 0
        if self._child.exit_code == EXIT_REFUSED or self._short_lives == SHORT_LIVES:
            raise Broken(self._child.last_lines(20))
        if time.monotonic() - self._died_at >= RESTART_AFTER:
            self.start()

    def kill(self) -> None:
        """kill -9, from any thread; nothing happens when it does not run."""
        with suppress(LookupError, ProcessLookupError):
            os.kill(self._child.pid, signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM: it ends in good order."""
        self._child.stop()

    @property
    def pid(self) -> int | None:
        with suppress(LookupError):  # it may die between a look and the question
            return self._child.pid
        return None

    @property
    def log(self) -> Path:
        return self._child.log
