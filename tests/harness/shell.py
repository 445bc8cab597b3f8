"""The pages' shell blocks as a person would run them: bash, and the commands they name on its path."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.harness.process import environment

_PAUSE = "\n".join(
    (
        'case " $* " in *" tail "*|*" start "*|*"--watch"*)',
        '  case " $* " in *"--count"*) ;; *)',
        # --foreground: to the command alone, or it gets the signal twice, as one of its group.
        '    timeout --foreground --preserve-status -s INT 4 "$python" -m cdc_outbox "$@" || [ $? -eq 130 ]; exit;;',
        "  esac;;",
        "esac",
    )
)


def commands(folder: Path, *, ends: bool = False, yes: bool = False, client: bool = False) -> Path:
    """A folder for PATH with `cdc-outbox` and, where none is installed, `mysql`.

    ends: what runs until Ctrl-C gets one after four seconds, and has then done well.
    yes: a command that would ask is given --yes.
    client: `mysql` is the stand-in in any case: the real one would ask for a password.
    """
    here = folder / "bin"
    here.mkdir()
    asking = "*' checkpoint set '*|*' checkpoint reset '*|*' events re'*|*' events skip '*|*' events purge '*"
    _script(
        here / "cdc-outbox",
        f"python={shlex.quote(sys.executable)}",
        _PAUSE if ends else "",
        f'case " $* " in *--yes*) ;; {asking}) set -- "$@" --yes;; esac' if yes else "",
        'exec "$python" -m cdc_outbox "$@"',
    )
    if client or shutil.which("mysql") is None:
        _script(here / "mysql", f'exec {shlex.quote(sys.executable)} -m tests.harness.mysql_client "$@"')
    return here


def _script(path: Path, *lines: str) -> None:
    path.write_text("#!/usr/bin/env bash\n" + "\n".join(lines) + "\n")
    path.chmod(0o755)


def bash(script: str, folder: Path, path: Path, timeout: float, **env: str) -> subprocess.CompletedProcess[str]:
    """Run it in `folder`, stopping at the first command that fails; output and errors together.

    timeout: seconds after which it counts as hanging; never a measure of speed.
    """
    searched = {"PATH": f"{path}:{os.environ['PATH']}", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = ["bash", "-euo", "pipefail", "-c", script]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment(**searched, **env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            said, _ = running.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            said, _ = running.communicate()
            raise AssertionError(f"still running after {timeout:g} s:\n{said}") from None
    return subprocess.CompletedProcess(command, running.returncode, said)


def in_order(said: str, expected: Sequence[str]) -> str | None:
    """The first of these lines that `said` does not have behind the one before it; None when all are there."""
    at = 0
    for line in expected:
        found = said.find(line.strip(), at)
        if found < 0:
            return line
        at = found + len(line.strip())
    return None
