"""Processes that outlived the tests which started them. Linux only: elsewhere nothing is found."""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from pathlib import Path

from cdc_outbox.testing.services.endpoint import wait_until

SESSION_VARIABLE = "TEST_SESSION_OF_CDC_OUTBOX"
"""In the environment of all that a test session starts, orphans included. No CDC_OUTBOX_ name: tests drop those."""

GRACE = 3.0
"""Seconds that a process which is just ending gets."""


def begin_session() -> str:
    """Name what this process starts from now on. The name of the session that it was begun in stands before its own:
    what it leaves behind when it is killed, that one finds."""
    outer = os.environ.get(SESSION_VARIABLE)
    session = (f"{outer}." if outer else "") + uuid.uuid4().hex
    os.environ[SESSION_VARIABLE] = session
    return session


def leftovers(session: str) -> list[tuple[int, str]]:
    """(pid, command line) of our children and of all processes of this session and those in it, but the guard."""
    marker = f"{SESSION_VARIABLE}={session}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            environ = (folder / "environ").read_bytes().split(b"\0")
            ours = parent == os.getpid() or any(one == marker or one.startswith(marker + b".") for one in environ)
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if ours and command and int(folder.name) != os.getpid() and "services/guard.py" not in command:
                found.append((int(folder.name), command[:200]))
    return sorted(found)


def end_leftovers(session: str) -> list[tuple[int, str]]:
    """Kill those that do not end by themselves at once; says what they were."""
    wait_until(lambda: not leftovers(session), seconds=GRACE)
    found = leftovers(session)
    for pid, _ in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return found
