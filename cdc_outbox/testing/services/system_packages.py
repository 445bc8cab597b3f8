"""What only root can do: install a missing tool (Java, Maven) from the machine's own archive, and say so."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Sequence

from cdc_outbox.testing.services.words import Say, Unavailable

INSTALL_DEADLINE = 900.0
_one_at_a_time = threading.Lock()


def install_as_root(names: Sequence[str], why: str, say: Say) -> None:
    """Install packages with apt-get. Raises Unavailable where that cannot be, naming the command to run."""
    if shutil.which("apt-get") is None:
        raise Unavailable(f"{why}, and there is no apt-get to install {' '.join(names)} with")
    if os.geteuid() != 0:
        raise Unavailable(f"{why}: run `sudo apt-get install {' '.join(names)}`")
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _one_at_a_time:
        say(f"{why}: installing {' '.join(names)} with apt-get, as root; this takes a minute")
        for command in (["update"], ["install", "--yes", "--no-install-recommends", *names]):
            try:
                done = subprocess.run(
                    ["apt-get", "-qq", *command],
                    env=environ,
                    capture_output=True,
                    text=True,
                    timeout=INSTALL_DEADLINE,
                    check=False,
                    start_new_session=True,  # an installation that Ctrl-C cuts off would need repair
                )
            except subprocess.TimeoutExpired:
                raise Unavailable(f"{why}, and apt-get {command[0]} did not end") from None
            if done.returncode:
                lines = done.stderr.strip().splitlines()
                raise Unavailable(f"{why}, and apt-get {command[0]} failed: {lines[0] if lines else 'no reason given'}")
