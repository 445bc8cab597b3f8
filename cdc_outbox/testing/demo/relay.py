"""The relay as the demo runs it: the installed command in a process of its own, started again when it dies."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

from cdc_outbox.testing.demo.supervised import Broken, Supervised

INIT_DEADLINE = 60.0


def command() -> list[str]:
    """How the relay is called here: the installed command, else the package itself."""
    installed = Path(sys.executable).with_name("cdc-outbox")
    return [str(installed)] if installed.exists() else [sys.executable, "-m", "cdc_outbox"]


class DemoRelay(Supervised):
    """`cdc-outbox start` with one configuration file. http: host:port of its `http.listen`."""

    def __init__(self, config: Path, http: str) -> None:
        super().__init__([*command(), "--config", str(config), "start"], log=config.with_name("relay.log"))
        self.http = http
        self._config = config

    def init(self, *options: str) -> str:
        """Create the tables; what the command printed. Raises Broken."""
        done = subprocess.run(
            [*command(), "--config", str(self._config), "init", *options],
            capture_output=True,
            text=True,
            timeout=INIT_DEADLINE,
            check=False,
        )
        if done.returncode:
            raise Broken(done.stderr.strip() or done.stdout.strip())
        return done.stdout

    def ready(self) -> bool:
        """True when it leads and events flow."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False
