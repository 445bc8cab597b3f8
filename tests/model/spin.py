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
_SEARCH = ("-DCOLLAPSE", "-DVECTORSZ=1024", "-DMEMLIM=6000")
"""Megabytes at most; a search that needs more fails."""


@dataclass(frozen=True)
class Verdict:
    """violated: the assertion that failed, "an endless run", or None when every state was visited and all held.

    states, depth: of the search for violations; mebibytes: the most that a search took.
    """

    violated: str | None
    states: int
    depth: int
    mebibytes: int


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


def search(
    model: str, switches: list[str], folder: Path, *, endless: bool, seconds: float, small: bool = False
) -> Verdict:
    """Visit every state of the model with these switches (`-DN=3`); endless: look for endless runs as well.

    folder: an empty one to work in. small: a search shorter than what optimizing it would take. Raises AssertionError
    when it does not end in memory, subprocess.TimeoutExpired when not in time.
    """
    optimized = "-O0" if small else "-O2"
    compiler()
    shutil.copy(FOLDER / f"{model}.pml", folder)
    _run([spin(), "-a", *switches, f"{model}.pml"], folder, 60)
    found = _pan(folder, (optimized, "-DSAFETY"), seconds)
    if found.violated is None and endless:
        loops = _pan(folder, (optimized, "-DNP"), seconds, "-l")
        most = max(found.mebibytes, loops.mebibytes)
        return Verdict(loops.violated and "an endless run", found.states, found.depth, most)
    return found


def _pan(folder: Path, kind: tuple[str, str], seconds: float, *options: str) -> Verdict:
    _run([compiler(), *_SEARCH, *kind, "-w", "-o", "pan", "pan.c"], folder, 120)
    said = _run(["./pan", *options, "-m3000000", "-w23"], folder, seconds)
    violated = re.search(r"assertion violated (.*?) \(at depth|^pan:\d+: (non-progress cycle)", said, flags=re.M)
    assert violated or ("errors: 0" in said and "Search not completed" not in said), said[-1000:]
    states, depth, memory = (
        float(found[1]) if (found := re.search(looks, said)) else 0
        for looks in (r"([\d.e+]+) states, stored", r"depth reached (\d+)", r"([\d.]+)\s+total actual memory")
    )
    return Verdict(violated[1] or violated[2] if violated else None, int(states), int(depth), round(memory))


def _run(command: list[str], folder: Path, seconds: float) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    assert not done.returncode or "pan" in command[0], f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def _say(text: str) -> None:
    print(f"spin: {text}", file=sys.stderr)
