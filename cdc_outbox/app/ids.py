"""Event ids that need nothing else: UUIDv7, the default, and business keys."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from cdc_outbox.app.outbox_columns import plain_text
from cdc_outbox.errors import EventRefused

if TYPE_CHECKING:
    from cdc_outbox.app.outbox import NewEvent

_COUNTER_BITS = 42
_RANDOM_BYTES = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KEY_LENGTH = 64
_DIGEST_CHARACTERS = 16


class _Forked(Protocol):
    def forget(self) -> None:
        """Called in a child after fork: give up what only one process may have."""


_forked: weakref.WeakSet[_Forked] = weakref.WeakSet()


def forget_after_fork(one: _Forked) -> None:
    """Call one.forget() in every process that is forked from here on, as long as the object lives."""
    _forked.add(one)


def _after_fork() -> None:
    for one in list(_forked):
        one.forget()


os.register_at_fork(after_in_child=_after_fork)


class Uuid7Ids:
    """UUIDv7 (RFC 9562): 48 bits of milliseconds, a 42-bit counter that begins at random, 32 random bits.

    The ids of one process rise, also when its clock goes back. 36 characters; random enough for any number of writers.
    clock: nanoseconds since the epoch.
    """

    def __init__(self, clock: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self.forget()
        forget_after_fork(self)

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._milliseconds = -1
        self._counter = 0
        self._random = b""

    def __call__(self, event: NewEvent | None = None) -> str:
        text = f"{self._next():032x}"  # making a UUID first would take longer than all the rest
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def next(self) -> UUID:
        return UUID(int=self._next())

    def _next(self) -> int:
        now = self._clock() // 1_000_000
        with self._lock:
            if not self._random:
                self._random = os.urandom(_RANDOM_BYTES * 64)  # asking the system for each id would be half its cost
            random = int.from_bytes(self._random[:_RANDOM_BYTES])
            self._random = self._random[_RANDOM_BYTES:]
            begin = random >> 39  # 41 bits: the counter has as many ids ahead of it as it may be begun at
            if now > self._milliseconds:
                self._milliseconds, self._counter = now, begin
            else:
                self._counter += 1
                if self._counter >> _COUNTER_BITS:
                    self._milliseconds, self._counter = self._milliseconds + 1, begin
            milliseconds, counter = self._milliseconds, self._counter
        return (
            milliseconds << 80
            | 7 << 76  # version
            | counter >> 30 << 64
            | 0b10 << 62  # variant
            | (counter & 0x3FFFFFFF) << 32
            | random & 0xFFFFFFFF
        )


uuid7 = Uuid7Ids()
"""What an Outbox makes its ids with unless it is told otherwise."""


def business_key(event: NewEvent) -> str:
    """`A-1001.OrderPaid.1769860800123456.2e7f8631d16e5835`: the same event, told again, has the same id.

    aggregate_id, event_type and occurred_at in microseconds, to be read by people, and 16 hexadecimal digits of the
    SHA-256 of these and aggregate_type: they keep apart what would look alike to the unique key. Texts that are too
    long for 64 characters are cut. Raises EventRefused without occurred_at, or where it has no time zone.
    """
    at = event.occurred_at
    if at is None or at.tzinfo is None:
        raise EventRefused(
            "business_key needs occurred_at, with a time zone" if at is None else f"occurred_at {at} has no time zone",
            hint="Pass when the event became true, as your tables have it: the same value gives the same event_id",
        )
    microseconds = str((at - _EPOCH) // timedelta(microseconds=1))
    texts = (plain_text(event.aggregate_type), plain_text(event.aggregate_id), plain_text(event.event_type))
    kind_of, aggregate, kind = (text or "" for text in texts)  # what is no text the Outbox refuses
    encoded = [text.encode("utf-8", "surrogatepass") for text in (kind_of, aggregate, kind, microseconds)]
    exact = b"".join(b"%d:%s" % (len(part), part) for part in encoded)
    digest = hashlib.sha256(exact).hexdigest()[:_DIGEST_CHARACTERS]
    room = _KEY_LENGTH - len(digest) - len(microseconds) - 3
    kind = kind[: max(room - len(aggregate), room // 2)]
    return f"{aggregate[: room - len(kind)]}.{kind}.{microseconds}.{digest}"
