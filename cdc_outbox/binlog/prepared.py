"""XA transactions that are prepared and not ended: what they inserted, kept in memory up to a limit.

Only XA COMMIT makes it happen, from any connection, maybe days later; the position does not wait for it. What is not
here any more when that comes (left out for its size, or prepared before a restart) the sweep finds.
"""

from __future__ import annotations

from cdc_outbox.model import Event

XA_START, XA_COMMIT, XA_ROLLBACK = b"XA START ", b"XA COMMIT ", b"XA ROLLBACK "
"""How these statements stand in the binlog; the xid follows, always in the same form."""

_EVENT_SIZE = 256
"""Bytes of an event in memory, without its payload."""


class PreparedTransactions:
    """By xid, in the order of their preparation. limit: bytes of all together, counted as `Event.size` does."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: dict[bytes, tuple[list[Event], int]] = {}
        self._bytes = 0

    def fits(self, events: int, row_bytes: int) -> bool:
        """Whether a transaction of this size can be kept at all."""
        return events * _EVENT_SIZE + row_bytes <= self._limit

    def keep(self, xid: bytes, events: list[Event]) -> None:
        """The oldest make room: whatever is prepared for long waits for a person."""
        self.take(xid)
        size = sum(event.size for event in events)
        if not events or size > self._limit:
            return
        self._kept[xid] = (events, size)
        self._bytes += size
        while self._bytes > self._limit:
            self.take(next(iter(self._kept)))

    def take(self, xid: bytes) -> list[Event]:
        """Its events, which are kept no longer; none where it is not known."""
        events, size = self._kept.pop(xid, ([], 0))
        self._bytes -= size
        return events
