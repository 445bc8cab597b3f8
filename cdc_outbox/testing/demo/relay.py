"""The relay as the demo runs it: the installed command in a process of its own, started again when it dies."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from cdc_outbox.errors import EXIT_REFUSED
from cdc_outbox.testing.services.child import Child

INIT_DEADLINE = 60.0
RESTART_AFTER = 1.0
"""Seconds between the relay's death and its new start, as a process supervisor would take."""


SHORT_LIFE = 3.0
SHORT_LIVES = 4
"""A relay that dies so many times within SHORT_LIFE seconds of its start is broken, not killed by a curious person."""


class RelayFailed(Exception):
    """The relay does not run; the message is its own."""


def command() -> list[str]:
    """How the relay is called here: the installed command, else the package itself."""
    installed = Path(sys.executable).with_name("cdc-outbox")
    return [str(installed)] if installed.exists() else [sys.executable, "-m", "cdc_outbox"]


class DemoRelay:
    """`cdc-outbox start` with one configuration file. http: host:port of its `http.listen`."""

    def __init__(self, config: Path, http: str) -> None:
        self.http = http
        self._child = Child([*command(), "--config", str(config), "start"], log=config.with_name("relay.log"))
        self._config = config
        self._started_at = 0.0
        self._died_at: float | None = None
        self._short_lives = 0
        self.starts = 0

    def init(self) -> str:
        """Create the tables; what the command printed. Raises RelayFailed."""
        done = subprocess.run(
            [*command(), "--config", str(self._config), "init"],
            capture_output=True,
            text=True,
            timeout=INIT_DEADLINE,
            check=False,
        )
        if done.returncode:
            raise RelayFailed(done.stderr.strip() or done.stdout.strip())
        return done.stdout

    def start(self) -> None:
        self._child.start()
        self._started_at = time.monotonic()
        self._died_at = None
        self.starts += 1

    def keep_running(self) -> None:
        """Start it again when it has died. Raises RelayFailed when it refuses to run or never runs for long."""
        if self._child.alive:
            return
        if self._died_at is None:
            self._died_at = time.monotonic()
            short = self._died_at - self._started_at < SHORT_LIFE
            self._short_lives = self._short_lives + 1 if short else 0
        if self._child.exit_code == EXIT_REFUSED or self._short_lives == SHORT_LIVES:
            raise RelayFailed(self._child.last_lines(20))
        if time.monotonic() - self._died_at >= RESTART_AFTER:
            self.start()

    def ready(self) -> bool:
        """True when it leads and events flow."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stop(self) -> None:
        """SIGTERM: it drains, then ends."""
        self._child.stop()

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child.alive else None

    @property
    def log(self) -> Path:
        return self._child.log
