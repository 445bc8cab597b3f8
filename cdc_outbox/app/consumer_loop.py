"""The loop of `IdempotentConsumer.run`: poll, process in order, hold what must come again, commit what is done.

One thread. Nothing is committed that is not done, and nothing after its partition was revoked: what was fetched of it
is dropped then, and comes to its new owner.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_outbox.app.consumer_attempt import Attempt
from cdc_outbox.app.consumer_calls import Call
from cdc_outbox.app.consumer_clients import ConsumerClient
from cdc_outbox.app.consumer_connections import is_again, is_away
from cdc_outbox.app.consumer_partitions import Partitions, Place, Received
from cdc_outbox.app.consumer_retry import Outcome
from cdc_outbox.errors import Hold, Refused

if TYPE_CHECKING:
    from cdc_outbox.app.consumer import IdempotentConsumer

logger = logging.getLogger(__name__)

EventIdOf = Callable[[Received], str]

TURN = 1.0
"""Seconds of processing between two polls: the client answers rebalances only while it is polled."""
REBALANCE_POLL = 0.05
"""Seconds of a poll between two turns; it ends sooner when a record is there."""
JOIN_POLL = 5.0
"""Seconds of a poll while no partition is assigned; it ends when a record is there."""
BUSY_INTERVAL = 0.5
"""Seconds between two looks at an event that another consumer has: it may be done long before its lease ends."""
PLACING_INTERVAL = 0.05
"""Seconds between two tries to move a partition that was just assigned."""
OUTAGE_WAITS = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds to wait while MySQL is away; the last repeats."""


@dataclass(frozen=True)
class Polling:
    """timeout, commit_interval: seconds. records: at most so many a poll."""

    timeout: float
    records: int
    commit_interval: float


class ConsumerLoop:
    """One run. event_id: the header's name, or a function of the record."""

    def __init__(
        self,
        consumer: IdempotentConsumer,
        client: ConsumerClient,
        handler: Callable[..., Any],
        call: Call,
        *,
        event_id: str | EventIdOf,
        polling: Polling,
    ) -> None:
        self._consumer = consumer
        self._client = client
        self._handler = handler
        self._call = call
        self._event_id = event_id
        self._polling = polling
        self._partitions = Partitions()
        self._last_commit = time.monotonic()
        self._outages = 0

    def run(self, topics: Sequence[str], stop: threading.Event) -> None:
        self._client.subscribe(topics, self._on_assigned, self._on_revoked, self._on_lost)
        try:
            while not stop.is_set():
                records = self._poll()
                self._partitions.add(records)
                self._find_places()
                self._work(stop)
                self._balance()
                if time.monotonic() - self._last_commit >= self._polling.commit_interval:
                    self._commit()
        finally:
            self._commit()

    # -- polling ------------------------------------------------------------------------------------------------------

    def _poll(self) -> list[Received]:
        due, now = self._partitions.next_due(), time.monotonic()
        timeout, limit = self._polling.timeout, self._polling.records
        if due is not None and due <= now:
            # Work is left from the last turn: polled only so that a rebalance is answered, for long enough that
            # kafka-python can take part in one. Pausing would keep more records from coming as well, but librdkafka
            # throws away what it has fetched ahead of a partition that is paused.
            timeout, limit = min(timeout, REBALANCE_POLL), 1
        elif due is not None:
            timeout = min(timeout, due - now)
        if self._partitions.unplaced():
            timeout = min(timeout, PLACING_INTERVAL)
        if self._partitions.empty:
            # Joining the group. A join of kafka-python that ends between two polls is begun again: one long poll.
            timeout = max(timeout, JOIN_POLL)
        try:
            return self._client.poll(timeout, limit)
        except Hold as hold:
            logger.warning("%s; polling on", hold.message)
            return []

    def _balance(self) -> None:
        """Pause what is held, so that polling on brings nothing more of it."""
        if pause := self._partitions.to_pause(time.monotonic()):
            self._client.pause(pause)
        if resume := self._partitions.to_resume():
            self._client.resume(resume)

    # -- rebalance, called by the client within poll ------------------------------------------------------------------

    def _on_assigned(self, places: list[Place]) -> None:
        self._partitions.assign(places, placed=not self._consumer.keep_progress)

    def _on_revoked(self, places: list[Place]) -> None:
        """They are still ours until this returns: the last moment to commit what is done of them."""
        self._client.let_go(self._partitions.owed(places), self._partitions.not_done(places))
        self._partitions.revoke(places)

    def _on_lost(self, places: list[Place]) -> None:
        self._partitions.revoke(places)

    def _find_places(self) -> None:
        """Go to where the database says that new partitions stand."""
        for place in self._partitions.unplaced():
            try:
                kept = self._consumer.kept_offset(*place)
                if kept is not None and kept > self._client.end(place):
                    logger.warning(
                        "%s [%d] ends before the kept offset %d, as after the topic was made anew: reading on from the"
                        " group's offset in Kafka",
                        *place,
                        kept,
                    )
                    kept = None
            except Hold as hold:
                logger.warning("%s; asking again", hold.message)
                continue
            except Exception as error:
                if not (is_away(error) or is_again(error)):
                    raise
                self._outage(error)
                continue
            if kept is None:
                self._partitions.place(place, moved=False)
            elif self._client.seek(place, kept):
                self._partitions.place(place, moved=True)

    # -- work ---------------------------------------------------------------------------------------------------------

    def _work(self, stop: threading.Event) -> None:
        begun = time.monotonic()
        for record in self._partitions.ready(begun):
            if stop.is_set() or time.monotonic() - begun > TURN:
                return
            self._settle(record, self._attempt(record))

    def _attempt(self, record: Received) -> Attempt | None:
        """None: MySQL is away."""
        event_id = self._id_of(record)
        offset = (record.topic, record.partition, record.offset + 1)
        try:
            attempt = self._consumer.attempt(event_id, self._handler, (record,), call=self._call, offset=offset)
        except Exception as error:
            if not (is_away(error) or is_again(error)):
                raise
            self._outage(error)
            return None
        if self._outages:
            logger.warning("MySQL answers again")
            self._outages = 0
        return attempt

    def _outage(self, error: Exception) -> None:
        if not self._outages:
            logger.warning("MySQL does not answer (%s); nothing is acknowledged until it does", error)
        self._outages += 1

    def _settle(self, record: Received, attempt: Attempt | None) -> None:
        now = time.monotonic()
        if attempt is None:
            waits = OUTAGE_WAITS
            self._partitions.hold(record, now + waits[min(self._outages, len(waits)) - 1])
        elif attempt.outcome.acknowledged:
            self._partitions.done(record)
        elif attempt.outcome is Outcome.FAILED:
            failures = self._partitions.failures(record) + 1
            wait = attempt.wait if self._consumer.policy.counts else self._consumer.policy.wait(failures)
            logger.warning(
                "%s [%d] offset %d: the handler failed with %s; it comes again in %g s",
                *record.place,
                record.offset,
                type(attempt.error).__name__,
                wait,
                exc_info=attempt.error,
            )
            self._partitions.hold(record, now + wait, failed=True)
        else:
            self._partitions.hold(record, now + min(max(attempt.wait, 0.05), BUSY_INTERVAL))

    def _id_of(self, record: Received) -> str:
        if callable(self._event_id):
            return self._event_id(record)
        value = record.headers.get(self._event_id)
        if value is None:
            raise Refused(
                f"the record at {record.topic} [{record.partition}] offset {record.offset} has no header"
                f" {self._event_id!r}: it cannot be told from others",
                hint="name the right header in run(event_id=…), or give a function of the record; a record without any"
                " id may get one made of topic, partition and offset",
            )
        return value.decode("utf-8", "replace")

    # -- offsets ------------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        owed = self._partitions.owed()
        self._last_commit = time.monotonic()
        if owed and self._client.commit(owed):
            self._partitions.committed(owed)
