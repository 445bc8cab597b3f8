"""The pair that `scripts/services start` leaves running: its owner is a process that holds a lock."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from cdc_outbox.testing.services.child import interrupted_by_signals
from cdc_outbox.testing.services.endpoint import wait_until
from cdc_outbox.testing.services.pair import start_pair
from cdc_outbox.testing.services.providers import NoService, read_state, state_file
from cdc_outbox.testing.services.words import Say, Unavailable

START_DEADLINE = 1500.0
"""Seconds until the pair must run, downloads on a slow line included."""
STOP_DEADLINE = 60.0


def running() -> dict[str, str] | None:
    """What the owner wrote down: mysql (a URL), kafka (host:port), pid. None when no pair runs."""
    try:
        with state_file().with_name("lock").open("rb") as lock:
            if _hold(lock):
                return None  # nobody holds it: whatever the file says is left from a crash
        return read_state()
    except (OSError, Unavailable):
        return None


def start(say: Say) -> dict[str, str]:
    """Start the owner and wait until both services answer, passing on what it says. Raises NoService."""
    folder = state_file().parent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "owner.log").open("w+") as log:
        owner = subprocess.Popen(
            [sys.executable, "-m", "cdc_outbox.testing.services", "serve"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[3],
            start_new_session=True,
        )
        with (folder / "owner.log").open() as told:
            try:
                wait_until(lambda: _pass_on(told, say, owner), seconds=START_DEADLINE, pause=0.2)
            except BaseException:
                owner.terminate()
                owner.wait()
                raise
    pair = running()
    if pair is None:
        raise NoService("The services did not start; what was tried is said above.")
    return pair


def stop() -> bool:
    """Stop the pair and wait until it is gone. False when none ran."""
    pair = running()
    if pair is None:
        return False
    owner = int(pair["pid"])
    with contextlib.suppress(ProcessLookupError):
        os.kill(owner, signal.SIGTERM)
        if not wait_until(lambda: running() is None, seconds=STOP_DEADLINE):
            os.kill(owner, signal.SIGKILL)  # its guard ends the services
            wait_until(lambda: running() is None, seconds=5)
    return True


def serve(say: Say) -> int:
    """The owner's life: start both, write down where they are, wait for SIGTERM, stop both."""
    state = state_file()
    state.parent.mkdir(parents=True, exist_ok=True)
    with state.with_name("lock").open("wb") as lock:
        if not _hold(lock):
            say("A pair is running already.")
            return 1
        state.unlink(missing_ok=True)
        with interrupted_by_signals(), contextlib.suppress(KeyboardInterrupt):
            pair = start_pair(say)
            told = {
                "mysql": pair.mysql.endpoint.url,
                "kafka": pair.kafka.endpoint.bootstrap,
                "pid": str(os.getpid()),
            }
            for name, outage in (("mysql", pair.mysql.outage), ("kafka", pair.kafka.outage)):
                if outage is not None:
                    told[f"{name}_pause"], told[f"{name}_resume"] = outage
            unfinished = state.with_suffix(".new")
            unfinished.touch(mode=0o600)  # the URL may hold a password
            unfinished.write_text(json.dumps(told))
            unfinished.replace(state)
            while True:
                signal.pause()
        state.unlink(missing_ok=True)
    return 0


def _pass_on(told: IO[str], say: Say, owner: subprocess.Popen[bytes]) -> bool:
    """Pass on what the owner has said since; True when it is ready or has ended."""
    over = running() is not None or owner.poll() is not None
    for line in told.read().splitlines():
        say(line)
    return over


def _hold(lock: IO[bytes]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
