"""What systemd is told (sd_notify): READY, STATUS, STOPPING, and WATCHDOG while the relay can answer for itself.

https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
Does nothing where nobody listens, and never fails.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Mapping


class ServiceManager:
    """Usable from any thread. NOTIFY_SOCKET says where to, WATCHDOG_USEC how often a sign of life is expected."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._ready = False
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = environ.get("WATCHDOG_USEC", "")
        self._every = int(usec) / 2e6 if address and ours and usec.isdigit() and int(usec) else None

    def watch(self, alive: Callable[[], bool]) -> None:
        """From now on a sign of life twice in each WATCHDOG_USEC, as long as `alive()`."""
        if self._every is not None and self._thread is None:
            self._thread = threading.Thread(target=self._watch, args=(self._every, alive), name="watchdog", daemon=True)
            self._thread.start()

    def ready(self, status: str) -> None:
        """The start is over: it leads, stands by or holds. Called again, only the status is new."""
        self._tell(f"STATUS={status}" if self._ready else f"READY=1\nSTATUS={status}")
        self._ready = True

    def stopping(self) -> None:
        self._tell("STOPPING=1\nSTATUS=stopping")

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, every: float, alive: Callable[[], bool]) -> None:
        while True:
            if alive():
                self._tell("WATCHDOG=1")
            if self._closed.wait(every):
                return

    def _tell(self, text: str) -> None:
        if not self._address:
            return
        # A status is no reason to stop, and a manager that does not read is none to wait.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
            link.setblocking(False)
            link.sendto(text.encode(), self._address)
