"""Other people's checkers for what is deployed: found on this machine, or fetched from its package mirror, once."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cdc_outbox.testing.services.cache import fetched
from cdc_outbox.testing.services.child import finish
from cdc_outbox.testing.services.words import Unavailable

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "config"


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Output of a command that must succeed."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=120, cwd=cwd, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def tool(name: str) -> str:
    """Its path. Where this machine does not have it the test is skipped: it checks files, not our code."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed here")
    return found


def prometheus_tool(name: str) -> str:
    """promtool or prometheus: installed, or unpacked from Debian's package, which needs nothing else to run."""
    found = shutil.which(name)
    if found is not None:
        return found
    try:
        return str(fetched("prometheus", _unpack_prometheus) / "usr/bin" / name)
    except Unavailable as reason:
        pytest.skip(f"{name} is neither installed nor to be had: {reason}")


def _unpack_prometheus(folder: Path) -> None:
    if shutil.which("apt-get") is None:
        raise Unavailable("no apt-get")
    environ = {**os.environ, "LC_ALL": "C"}
    command = ["sh", "-c", f"cd {folder} && apt-get -qq download prometheus"]
    if finish(command, deadline=300, environ=environ).returncode:
        finish(["apt-get", "-qq", "update"], deadline=300, environ=environ)  # a new machine has no package lists
        if finish(command, deadline=300, environ=environ).returncode:
            raise Unavailable("apt-get does not have the package")
    for archive in folder.glob("*.deb"):
        if finish(["dpkg-deb", "--extract", str(archive), str(folder)], deadline=120).returncode:
            raise Unavailable("the package cannot be unpacked")
        archive.unlink()
