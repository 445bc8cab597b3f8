"""Runs a model through spin: the installed one, or Debian's and Ubuntu's package unpacked into the cache.

spin turns a model into C, a C compiler makes a search of it, the search visits every state.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cdc_outbox.testing.services.cache import fetched
from cdc_outbox.testing.services.packages import release, unpack_closure
from cdc_outbox.testing.services.system_packages import install_as_root
from cdc_outbox.testing.services.words import Unavailable

FOLDER = Path(__file__).parent
_SEARCH = ("-O1", "-DCOLLAPSE", "-DVECTORSZ=1024", "-DMEMLIM=3000")


@dataclass(frozen=True)
class Verdict:
    """violated: the assertion that failed, "an endless run", or None when every state was visited and all held."""

    violated: str | None
    states: str


@cache
def spin() -> str:
    """The spin to run. Raises Unavailable."""
    found = shutil.which("spin")
    if found is not None:
        return found
    system, codename = release()
    if system not in ("debian", "ubuntu") or not codename:
        raise Unavailable("spin is not installed, and this is neither Debian nor Ubuntu: install spin")
    components = "main universe" if system == "ubuntu" else "main"
    root = fetched(
        f"spin-{system}-{codename}-{platform.machine()}",
        lambda folder: unpack_closure(["spin"], codename, components, folder, _say),
    )
    return str(root / "usr/bin/spin")


@cache
def compiler() -> str:
    """A C compiler, which spin also calls as its preprocessor. Raises Unavailable."""
    if shutil.which("gcc") is None:
        install_as_root(["gcc", "libc6-dev"], "a C compiler is needed to search a model", _say)
    return "gcc"


def search(model: str, switches: list[str], folder: Path, *, endless: bool, seconds: float) -> Verdict:
    """Visit every state of the model with these switches (`-DN=3`); endless: look for endless runs as well.

    folder: an empty one to work in. Raises AssertionError when it does not end in time or memory.
    """
    compiler()
    shutil.copy(FOLDER / f"{model}.pml", folder)
    _run([spin(), "-a", *switches, f"{model}.pml"], folder, 60)
    found = _pan(folder, "-DSAFETY", seconds)
    if found.violated is None and endless and _pan(folder, "-DNP", seconds, "-l").violated is not None:
        return Verdict("an endless run", found.states)
    return found


def _pan(folder: Path, kind: str, seconds: float, *options: str) -> Verdict:
    _run([compiler(), *_SEARCH, kind, "-w", "-o", "pan", "pan.c"], folder, 120)
    said = _run(["./pan", *options, "-m3000000", "-w22"], folder, seconds)
    violated = re.search(r"assertion violated (.*?) \(at depth|^pan:\d+: (non-progress cycle)", said, flags=re.M)
    states = re.search(r"([\d.e+]+) states, stored", said)
    assert violated or ("errors: 0" in said and "Search not completed" not in said), said[-1000:]
    return Verdict(violated[1] or violated[2] if violated else None, states[1] if states else "?")


def _run(command: list[str], folder: Path, seconds: float) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    assert not done.returncode or "pan" in command[0], f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def _say(text: str) -> None:
    print(f"spin: {text}", file=sys.stderr)
