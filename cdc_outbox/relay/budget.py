"""How much may be in flight at once: the one brake between what is read and what is settled."""

from __future__ import annotations

import threading

from cdc_outbox.errors import Stopped


class Budget:
    """Counts events and bytes in flight. A single event larger than max_bytes travels alone, or beside what may stay
    for long."""

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self.max_events = max_events
        self.max_bytes = max_bytes
        self.events = 0
        self.bytes = 0
        self._aside = (0, 0)
        self._held = 0
        self._closed = False
        self._changed = threading.Condition()

    def take(self, events: int, size: int, timeout: float | None = None) -> bool:
        """Wait until there is room, then take it; False after `timeout` seconds without. Raises Stopped when closed."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or self._has_room(size), timeout):
                return False
            if self._closed:
                raise Stopped("the relay is stopping")
            self.events += events
            self.bytes += size
            return True

    def _has_room(self, size: int) -> bool:
        events, used = self.events - self._aside[0], self.bytes - self._aside[1]
        if events <= 0 or (self.events <= self._held and 2 * used <= self.max_bytes):
            return True
        return events < self.max_events and used + size <= self.max_bytes

    def free(self) -> tuple[int, int]:
        """(events, bytes) that may still be taken without waiting."""
        with self._changed:
            if self.events == 0:
                return self.max_events, self.max_bytes
            events, size = self._aside
            return max(0, self.max_events - self.events + events), max(0, self.max_bytes - self.bytes + size)

    def add(self, events: int, size: int) -> None:
        """Count what is in flight already; the tail waits the longer for it."""
        with self._changed:
            self.events += events
            self.bytes += size

    def give_back(self, events: int, size: int) -> None:
        with self._changed:
            self.events -= events
            self.bytes -= size
            self._changed.notify_all()

    def set_aside(self, events: int, size: int, *, held: int = 0) -> None:
        """Of the `held` events in flight that may stay for long so much leaves its room to others."""
        with self._changed:
            if (events, size, held) != (*self._aside, self._held):
                self._aside, self._held = (events, size), held
                self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
