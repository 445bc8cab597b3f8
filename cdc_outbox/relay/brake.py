"""The brake: whether events go out at all, and how many a second (`pause`, `limits.max_rate`).

The poller says what the database says of it; the relay thread and the poller obey. Outlives a rebuild.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

BURST = 0.1
"""Seconds' worth of events that may go at once."""

UNLIMITED = 1 << 30


class Brake:
    """max_rate: events a second, None: as fast as it goes."""

    def __init__(self, max_rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.paused = False
        self._rate = max_rate
        self._clock = clock
        self._lock = threading.Lock()
        self._most = max(1.0, (max_rate or 0.0) * BURST)
        self._saved = self._most
        self._saved_at = clock()

    @property
    def room(self) -> int:
        """Events that may go out now."""
        if self.paused:
            return 0
        if self._rate is None:
            return UNLIMITED
        with self._lock:
            now = self._clock()
            self._saved = min(self._most, self._saved + (now - self._saved_at) * self._rate)
            self._saved_at = now
            return max(0, int(self._saved))

    def spend(self, events: int) -> None:
        """They have gone out; a transaction that is larger than the room is paid for by the time after it."""
        if self._rate is not None:
            with self._lock:
                self._saved -= events
