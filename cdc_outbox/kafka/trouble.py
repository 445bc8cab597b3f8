"""Whether the brokers take our records right now: written by a client's threads, read by any."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

STALL = 3.0
"""Seconds without any acknowledgement, while some are owed, that count as trouble."""


class Trouble:
    """Two signs: the client complains of its connections, or acknowledgements stay away (a frozen broker, too few
    replicas: the clients retry those without a word)."""

    def __init__(self, linger: float, clock: Callable[[], float] = time.monotonic) -> None:
        """linger: seconds that a record may wait in the client before it is sent at all."""
        self._patience = STALL + linger
        self._clock = clock
        self._lock = threading.Lock()
        self._sent = 0
        self._settled = 0
        self._waiting_since = 0.0
        self.complaint: str | None = None
        """What the client says of its connections; None once a broker has answered."""
        self.fatal: str | None = None
        """Why this client will not recover by itself."""

    def records_sent(self, count: int) -> None:
        """Called by the sending thread alone, before the records are handed to the client."""
        if self._sent == self._settled:
            self._waiting_since = self._clock()
        self._sent += count

    def records_settled(self, count: int) -> None:
        """Called by the delivering threads."""
        with self._lock:
            self._settled += count
            self._waiting_since = self._clock()

    def line(self) -> str | None:
        """The trouble in one line, None without."""
        if self.fatal is not None:
            return self.fatal
        owed = self._sent - self._settled
        silence = self._clock() - self._waiting_since
        if owed > 0 and silence > self._patience:
            because = self.complaint or "a broker is frozen, or a partition has no leader or too few in-sync replicas"
            return f"Kafka has acknowledged none of {owed} records for {silence:.0f} s: {because}"
        return self.complaint
