"""The consumer's side: process each event once, by recording it first (`from cdc_outbox import IdempotentConsumer`).

What a row of processed_event means is in `processed_events`; guarantees and crash points are in docs/consumer.md.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from cdc_outbox.app.consumer_attempt import Attempt, AttemptRunner, Offset
from cdc_outbox.app.consumer_calls import Bridge, Call, call_here, one_event_loop
from cdc_outbox.app.consumer_clients import client_for
from cdc_outbox.app.consumer_connections import Connections, work_on
from cdc_outbox.app.consumer_loop import ConsumerLoop, EventIdOf, Polling
from cdc_outbox.app.consumer_retry import Failure, Outcome, RetryHook, RetryPolicy
from cdc_outbox.app.outbox_connection import require_transaction, target
from cdc_outbox.app.processed_events import Claim, Done, Free, Held, ProcessedEvents
from cdc_outbox.errors import EventBusy, LeaseLost, NotInTransaction, Refused

Mode = Literal["transactional", "record_first"]

GROUP_LENGTH = 128
EVENT_ID_LENGTH = 64


@dataclass(frozen=True)
class Processed:
    """An event that may be acknowledged. value: what the handler returned, None where it did not run."""

    outcome: Outcome
    value: Any = None
    attempts: int = 0


class IdempotentConsumer:
    """Runs a handler once for each event, for one consumer group. May be used by several threads at once.

    mode `transactional`: the record, what the handler writes through the connection it is given, and the offset
    (`keep_progress`) are committed together. No effect is lost or doubled. The handler must not commit or roll back.
    mode `record_first`: for effects outside this database. The record is committed with a lease, the handler runs, the
    record is set to done; a failure takes it back, a crash is made good by whoever comes after the lease has ended.
    """

    def __init__(
        self,
        group: str,
        connect: Any,
        *,
        mode: Mode = "transactional",
        lease: float = 30.0,
        renew: bool = True,
        max_attempts: int | None = None,
        retry_waits: Sequence[float] = (1.0, 10.0, 60.0),
        retry: RetryHook | None = None,
        dead_letter: Callable[[Failure], Any] | None = None,
        keep_progress: bool = False,
        table: str = "processed_event",
        offset_table: str = "consumer_offset",
    ) -> None:
        """Opens nothing yet.

        group           consumer groups know nothing of each other's records; 1 to 128 characters
        connect         opens a connection: a function giving a DB-API connection, a sessionmaker, or an Engine
        lease           `record_first`: seconds after which a crashed consumer's event is another's
        renew           renew the lease while the handler runs; False: a handler that takes longer loses the event
        max_attempts    then the dead-letter hook gets the event; None: it is tried for ever
        retry_waits     seconds before the 2nd, 3rd … attempt, the last repeats
        retry           decides instead of retry_waits: seconds to wait, None to give up
        dead_letter     gets what was given up (may be async); the event is done when it returns. Needed with
                        max_attempts or retry, since an event would be dropped in silence without it
        keep_progress   `transactional`, with `run`: keep each partition's offset in the same transaction
        table, offset_table   other names, `database.table` too

        Raises ValueError, naming the argument.
        """
        _check(0 < len(group) <= GROUP_LENGTH, f"group must have 1 to {GROUP_LENGTH} characters, not {len(group)}")
        _check(mode in ("transactional", "record_first"), f"mode must be transactional or record_first, not {mode!r}")
        _check(lease > 0, f"lease must be more than 0 seconds, not {lease}")
        _check(max_attempts is None or max_attempts > 0, f"max_attempts must be at least 1, not {max_attempts}")
        _check(len(retry_waits) > 0 and min(retry_waits) >= 0, "retry_waits must hold at least one wait, none below 0")
        _check(
            dead_letter is not None or (max_attempts is None and retry is None),
            "max_attempts and retry need dead_letter: it gets the events that are given up",
        )
        _check(not keep_progress or mode == "transactional", "keep_progress needs mode transactional")
        self.group = group
        self.mode: Mode = mode
        self.keep_progress = keep_progress
        self.policy = RetryPolicy(max_attempts, tuple(retry_waits), retry)
        self._events = ProcessedEvents(group, _quoted(table), _quoted(offset_table))
        self._connections = Connections(connect)
        self._runner = AttemptRunner(
            self._events,
            self._connections,
            self.policy,
            dead_letter,
            lease=lease if mode == "record_first" else None,
            renew=renew,
        )
        self._stop = threading.Event()

    # -- one event ----------------------------------------------------------------------------------------------------

    def process(self, event_id: str, handler: Callable[..., Any], *args: Any) -> Processed:
        """Run the handler unless the event is done. Acknowledge the event when this returns, never when it raises.

        The handler is called with `args`, in `transactional` mode with the connection (or session) in front. An async
        one is awaited in an event loop of its own; within a running loop use `process_async`.

        Raises EventBusy while another consumer has the event or its retry is not due, LeaseLost when it took the event
        meanwhile, Refused where the table or a right is missing, the driver's errors when MySQL is away, and what the
        handler raised. In all cases the event must come again.
        """
        return _answer(self.attempt(event_id, handler, args))

    async def process_async(self, event_id: str, handler: Callable[..., Any], *args: Any) -> Processed:
        """`process` for a running event loop: statements run on a thread, an async handler on this loop.

        When it is cancelled, so is the handler, and the event is given back before CancelledError is raised.
        """
        bridge = Bridge(asyncio.get_running_loop())
        return _answer(await bridge.run(lambda: self.attempt(event_id, handler, args, call=bridge.call)))

    def attempt(
        self,
        event_id: str,
        handler: Callable[..., Any],
        args: tuple[Any, ...] = (),
        *,
        call: Call | None = None,
        offset: Offset | None = None,
    ) -> Attempt:
        """One attempt and its outcome, for consumer loops: raises only for outages and refusals.

        call: how the handler is called; offset: where the next event of this partition is, kept with the record.
        """
        _check_id(event_id)
        kept = offset if self.keep_progress else None
        return self._runner.run(event_id, handler, args, call or call_here, kept)

    def record(self, connection: Any, event_id: str) -> bool:
        """In a transaction of your own: record the event as done, to be committed with what you write.

        True: it is new, go on. False: it was done before, write nothing. For frameworks that own the transaction
        (Django's `atomic`, a request's session). connection: DB-API connection, SQLAlchemy Connection or Session.
        Raises EventBusy when a `record_first` consumer of the group has it, or its retry is not due: roll back.
        Raises NotInTransaction where the record would be committed by itself.
        """
        _check_id(event_id)
        work = work_on(connection)
        try:
            require_transaction(target(connection))
        except NotInTransaction as error:
            raise NotInTransaction(
                "the event was not recorded: no transaction is open, so that a crash before its work would lose it",
                hint=error.hint,
            ) from error
        for _ in range(3):
            found = self._events.take_in(work, event_id, None)
            if isinstance(found, Done):
                return False
            if isinstance(found, Held):
                raise EventBusy(retry_after=found.left)
            if isinstance(found, Free):
                claim = found.claim
                taken = self._events.take_over_in(work, found)
                found = Claim(claim.event_id, claim.attempts + 1, claim.created_at) if taken else None
            if found is not None:
                return self._events.finish_open(work, found)
        raise EventBusy(retry_after=0.0)

    # -- a Kafka consumer ---------------------------------------------------------------------------------------------

    def run(
        self,
        client: Any,
        topics: Sequence[str],
        handler: Callable[..., Any],
        *,
        event_id: str | EventIdOf = "event_id",
        poll_timeout: float = 0.5,
        poll_records: int = 500,
        commit_interval: float = 1.0,
    ) -> None:
        """Subscribe, process, commit, until `request_stop`. It does not close the client.

        client          a kafka-python KafkaConsumer or a confluent-kafka Consumer, with auto commit off and a group
        handler         called as by `process`, with one `Received` record
        event_id        the header that holds the id, or a function of the record
        poll_timeout, commit_interval   seconds

        Each partition is processed in order, on the calling thread. An event that must come again (failed, busy)
        holds its partition, which is paused; others go on. Offsets are committed for what is done, never beyond.
        Outages of MySQL and Kafka are waited out. Raises Refused for what a person must put right, such as a record
        without an id.
        """
        polling = Polling(poll_timeout, poll_records, commit_interval)
        with one_event_loop() as call:
            self._loop(client, topics, handler, call, event_id=event_id, polling=polling)

    async def run_async(
        self,
        client: Any,
        topics: Sequence[str],
        handler: Callable[..., Any],
        *,
        event_id: str | EventIdOf = "event_id",
        poll_timeout: float = 0.5,
        poll_records: int = 500,
        commit_interval: float = 1.0,
    ) -> None:
        """`run` beside a running event loop: polling and statements on a thread, async handlers on this loop.

        When it is cancelled the handler is cancelled, its event given back, and what is done committed.
        """
        polling = Polling(poll_timeout, poll_records, commit_interval)
        bridge = Bridge(asyncio.get_running_loop(), on_cancel=self.request_stop)
        await bridge.run(lambda: self._loop(client, topics, handler, bridge.call, event_id=event_id, polling=polling))

    def _loop(
        self,
        client: Any,
        topics: Sequence[str],
        handler: Callable[..., Any],
        call: Call,
        *,
        event_id: str | EventIdOf,
        polling: Polling,
    ) -> None:
        ConsumerLoop(self, client_for(client), handler, call, event_id=event_id, polling=polling).run(
            topics, self._stop
        )

    def request_stop(self) -> None:
        """Let `run` end after the event that it is at, now and ever after; from a signal handler or any thread."""
        self._stop.set()

    def kept_offset(self, topic: str, partition: int) -> int | None:
        """The next offset that `keep_progress` noted, None where it noted none."""
        return self._runner.steady(lambda work: self._events.offset(work, topic, partition))

    # -- upkeep -------------------------------------------------------------------------------------------------------

    def purge(self, older_than: timedelta | float, *, batch: int = 1000, pause: float = 0.05) -> int:
        """Delete this group's records older than that (seconds, or a timedelta), in transactions of `batch` rows.

        Keep records for longer than an event may come again: the topic's retention, at least. pause: seconds between
        two transactions. Gives the number of rows; may be interrupted at any moment.
        """
        age = older_than.total_seconds() if isinstance(older_than, timedelta) else float(older_than)
        _check(age > 0 and batch > 0 and pause >= 0, "older_than and batch must be above 0, pause not below 0")
        total = 0
        while True:
            deleted = self._runner.steady(lambda work: self._events.purge(work, age, batch))
            total += deleted
            if deleted < batch:
                return total
            time.sleep(pause)

    def close(self) -> None:
        """End the renewals and close idle connections. The consumer may be used again afterwards."""
        self._runner.close()
        self._connections.forget()

    def __enter__(self) -> IdempotentConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# -- checks -----------------------------------------------------------------------------------------------------------


def _check(right: bool, otherwise: str) -> None:
    if not right:
        raise ValueError(otherwise)


def _check_id(event_id: str) -> None:
    """An id that MySQL would cut, or that equals another one to it, must not be recorded."""
    if not isinstance(event_id, str) or not 0 < len(event_id) <= EVENT_ID_LENGTH or event_id.endswith(" "):
        raise Refused(
            f"an event id must be a text of 1 to {EVENT_ID_LENGTH} characters without a blank at its end; this is"
            f" {event_id!r:.80}",
            hint="give the event_id of the outbox row, which is the record's header event_id",
        )


def _quoted(table: str) -> str:
    return ".".join(f"`{part.replace('`', '``')}`" for part in table.split("."))


def _answer(attempt: Attempt) -> Processed:
    if attempt.outcome is Outcome.BUSY:
        raise EventBusy(retry_after=attempt.wait)
    if attempt.outcome is Outcome.LOST:
        raise LeaseLost(
            "the handler took longer than its lease and another consumer has the event now: its effect may be doubled",
            retry_after=attempt.wait,
        ) from attempt.error
    if attempt.outcome is Outcome.FAILED:
        assert attempt.error is not None
        raise attempt.error
    return Processed(attempt.outcome, attempt.value, attempt.attempts)
