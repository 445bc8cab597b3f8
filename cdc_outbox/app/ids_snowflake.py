"""Snowflake ids: 41 bits of milliseconds, 10 of a worker, 12 of a sequence. No two are the same, whatever clocks do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cdc_outbox.app.ids import forget_after_fork
from cdc_outbox.errors import NoWorkerId

if TYPE_CHECKING:
    from cdc_outbox.app.ids_worker import Span, WorkerLease
    from cdc_outbox.app.outbox import NewEvent

EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
TIME_BITS, WORKER_BITS, SEQUENCE_BITS = 41, 10, 12
WORKERS = 1 << WORKER_BITS

_LAST_OF_SEQUENCE = (1 << SEQUENCE_BITS) - 1


class SnowflakeIds:
    """Ids of up to 19 digits that rise within a process.

    worker: a WorkerLease, which gets a worker id through MySQL; or a number from 0 to 1023 that no other process has,
    which is then yours to see to. epoch: where the 41 bits, 69 years, begin; never change it. clock: nanoseconds since
    1970.

    The time in an id never goes back: while the clock is behind it, and when the 4,096 ids of a millisecond are used
    up, it goes on from where it was. With a lease it also stays within what this process has reserved in the table, so
    that a process that comes after it, on a host with another clock, gives none of its ids again.
    """

    def __init__(
        self, worker: WorkerLease | int, *, epoch: datetime = EPOCH, clock: Callable[[], int] = time.time_ns
    ) -> None:
        if epoch.tzinfo is None:
            raise ValueError("epoch has no time zone: datetime(2024, 1, 1, tzinfo=UTC)")
        if isinstance(worker, int) and not 0 <= worker < WORKERS:
            raise ValueError(f"worker is {worker}; it must be from 0 to {WORKERS - 1}")
        self._epoch = int(epoch.timestamp() * 1000)
        self._clock = clock
        self._worker = worker if isinstance(worker, int) else 0
        self._lease = None if isinstance(worker, int) else worker
        self._last = -1
        self._sequence = 0
        self._lock = threading.Lock()
        self._span: Span | None = None
        self._forked = False
        forget_after_fork(self)

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._span = None
        self._forked = self._lease is None

    def __call__(self, event: NewEvent | None = None) -> str:
        return str(self.next())

    def next(self) -> int:
        """The next id. Raises NoWorkerId where no worker id can be had or kept; then no id was given."""
        with self._lock:
            if self._forked:
                raise NoWorkerId(
                    f"This process was forked from one that makes ids as worker {self._worker}",
                    hint="Make SnowflakeIds in each process with a number of its own, or give it a WorkerLease",
                )
            now = self._clock() // 1_000_000
            if self._lease is not None:
                self._hold(self._lease, now)
            if now > self._last:
                moment, sequence = now, 0
            elif self._sequence < _LAST_OF_SEQUENCE:
                moment, sequence = self._last, self._sequence + 1
            else:
                moment, sequence = self._last + 1, 0
            since = moment - self._epoch
            if since >> TIME_BITS:
                raise NoWorkerId(
                    "The clock is before the Snowflake epoch, or 69 years past it", hint="Set the clock, or the epoch"
                )
            self._last, self._sequence = moment, sequence
            return since << (WORKER_BITS + SEQUENCE_BITS) | self._worker << SEQUENCE_BITS | sequence

    def _hold(self, lease: WorkerLease, now: int) -> None:
        """Have a span in which the next id's time lies."""
        span = self._span
        if span is not None and span.covers(max(now, self._last + 1)):
            return
        kept = lease.extend(span, max(now, self._last + 1))
        if span is None or kept.owner != span.owner:
            # Another worker's ids may be lower at the same time: begin behind our own, and behind its last holder's.
            self._last, self._sequence = max(self._last, kept.floor), _LAST_OF_SEQUENCE
        self._span, self._worker = kept, kept.worker

    def close(self) -> None:
        """Give the worker id back, for others to use at once."""
        with self._lock:
            span, self._span = self._span, None
            if self._lease is not None and span is not None:
                self._lease.release(span, self._last)
