"""The watcher that ends services whose starter is gone, even by kill -9. Run as a script.

It reads lines from its standard input, which only the starter holds open. `+PID` and `folder PATH` name
process groups to end and folders to remove when the input ends; `-PID` and `keep PATH` take them off again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterable


def watch(lines: Iterable[str]) -> None:
    groups: set[int] = set()
    folders: set[str] = set()
    for line in lines:
        text = line.rstrip("\n")
        if text.startswith("+"):
            groups.add(int(text[1:]))
        elif text.startswith("-"):
            groups.discard(int(text[1:]))
        elif text.startswith("folder "):
            folders.add(text.removeprefix("folder "))
        elif text.startswith("keep "):
            folders.discard(text.removeprefix("keep "))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watch(sys.stdin)
