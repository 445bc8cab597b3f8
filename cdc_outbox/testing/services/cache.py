"""The per-user folder that keeps downloads between runs: filled once, whole or not at all."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc_outbox.testing.services.child import PrivateFolder
from cdc_outbox.testing.services.words import Say, Unavailable

_TELL_EVERY = 3.0


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/cdc-outbox, else ~/.cache/cdc-outbox."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "cdc-outbox"


def fetched(name: str, fill: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache; where it is missing, `fill` is given an empty folder to fill.

    Runs at the same time wait for one another. Whatever `fill` raises leaves no trace.
    """
    target = cache_folder() / name
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target.with_name(target.name + ".lock")):
            if not target.is_dir():
                unfinished = PrivateFolder(target.name, under=target.parent)
                try:
                    fill(unfinished.path)
                    unfinished.path.chmod(0o755)
                    unfinished.path.rename(target)
                finally:
                    unfinished.remove()
    except OSError as error:
        raise Unavailable(f"the cache folder {target.parent} cannot be filled: {error}") from error
    return target


@contextmanager
def growing(folder: Path, what: str, say: Say) -> Iterator[None]:
    """While the block runs, say every few seconds how many megabytes have arrived in `folder`."""
    over = threading.Event()

    def tell() -> None:
        while not over.wait(_TELL_EVERY):
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            say(f"{what}: {size / 1e6:.0f} MB so far")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
