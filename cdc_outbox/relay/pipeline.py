"""The relay thread: takes what the reader and the poller bring, decides, hands records to Kafka, hears the outcome.

Owns the publisher and is the only thread that decides about an event. It must never wait for the settler.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from cdc_outbox.errors import Hold, LeadershipLost, RecordRefused
from cdc_outbox.kafka.outcomes import UNKNOWN_TOPIC
from cdc_outbox.model import SKIPPED, Aggregate, Event, Transaction
from cdc_outbox.relay.in_flight import Envelope, InFlight, Stage
from cdc_outbox.relay.worker import Worker
from cdc_outbox.testing.kill_points import kill_point

if TYPE_CHECKING:
    from cdc_outbox.kafka.publisher import Delivery, Publisher, Record
    from cdc_outbox.kafka.routing import Router
    from cdc_outbox.mysql.leadership import Lease
    from cdc_outbox.ops.log import Alerts
    from cdc_outbox.ops.metrics import Metrics
    from cdc_outbox.ops.tracing import Tracing
    from cdc_outbox.relay.brake import Brake
    from cdc_outbox.relay.budget import Budget
    from cdc_outbox.relay.intake import Intake
    from cdc_outbox.relay.partition_watch import PartitionWatch
    from cdc_outbox.relay.refusals import Refusals
    from cdc_outbox.relay.suspects import Suspects
    from cdc_outbox.relay.topic_holds import TopicHolds
    from cdc_outbox.relay.turns import Turns

WAKE = 0.25
"""Seconds between looks at the lease while nothing arrives."""

MESSAGES = 100
"""Messages taken at most before the tail's events go on: acknowledgements must not keep them waiting."""

HANDFUL = 50
"""Records given to the client between two looks at the lease: as many may still go out after a freeze in between."""

LONG_HOLD = 600.0
"""Seconds without room for what the reader brought, after which the binlog connection is closed."""

BARRIER_WAKE = 0.02
"""Seconds between looks whether everything before a barrier is settled."""


@dataclass(frozen=True)
class Read:
    """What the reader brought."""

    transactions: Sequence[Transaction]


@dataclass(frozen=True)
class Delivered:
    """What became of records."""

    deliveries: Sequence[Delivery]


@dataclass(frozen=True)
class Queued:
    """Rows that the poller claimed."""

    envelopes: Sequence[Envelope]


@dataclass(frozen=True)
class Freed:
    """Aggregates that a poller pass, by its number, found empty."""

    number: int
    aggregates: Sequence[Aggregate]


class Pipeline(Worker):
    """The relay thread. `tail`, `deliver` and `submit` may be called from any thread."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        router: Router,
        intake: Intake,
        ledger: InFlight,
        budget: Budget,
        lease: Lease,
        refusals: Refusals,
        metrics: Metrics,
        alerts: Alerts,
        suspects: Suspects,
        brake: Brake,
        topic_holds: TopicHolds,
        partitions: PartitionWatch,
        turns: Turns | None,
        batch: int,
        on_failure: Callable[[BaseException], None],
        transient: bool = False,
        tracing: Tracing | None = None,
    ) -> None:
        super().__init__("relay", on_failure)
        self._tracing = tracing
        self._inbox: queue.SimpleQueue[Read | Delivered | Queued | Freed | None] = queue.SimpleQueue()
        self._tail: deque[Transaction] = deque()
        self._found: deque[Queued | Freed] = deque()
        self._line: deque[Envelope] = deque()
        """While it is not empty its first goes alone, or is out, and all others wait behind it."""
        self._publisher = publisher
        self._router = router
        self._intake = intake
        self._ledger = ledger
        self._budget = budget
        self._lease = lease
        self._refusals = refusals
        self._metrics = metrics
        self._alerts = alerts
        self._suspects = suspects
        self._brake = brake
        self._topic_holds = topic_holds
        self._partitions = partitions
        self._latest = 0.0
        """Of what was ever acknowledged, when the last was handed over."""
        self._turns = turns
        self._batch = batch
        self._transient = transient
        self._finishing = False
        self.finished = False
        """Nothing is handed over any more; what is out may still be acknowledged."""
        self.close_dump: Callable[[], None] = lambda: None
        """Ends the reader's connection; it goes on after its last whole transaction once it reads again."""

    # -- from other threads -----------------------------------------------------------------------------------

    def tail(self, transactions: list[Transaction]) -> None:
        """The reader's sink: waits for room in the budget. Raises Stopped when the relay stops."""
        events = sum(len(t.events) for t in transactions)
        if events:
            size = sum(e.size for t in transactions for e in t.events)
            if not self._budget.take(events, size, LONG_HOLD):
                # A dump that is not read pins the primary's binlog files; the reader opens another one later.
                self.close_dump()
                self._budget.take(events, size)
            kill_point("read")
        self._inbox.put(Read(transactions))

    def deliver(self, deliveries: list[Delivery]) -> None:
        """The Kafka client's report; called on its thread."""
        kill_point("delivered")
        self._inbox.put(Delivered(deliveries))

    def submit(self, message: Queued | Freed) -> None:
        """The poller's rows and findings."""
        self._inbox.put(message)

    def finish(self) -> None:
        """Hand over nothing more, put back what was claimed for it, and hear of what is out. From any thread."""
        self._finishing = True
        self._inbox.put(None)

    def request_stop(self) -> None:
        super().request_stop()
        self._inbox.put(None)

    # -- the thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._relay()
        except LeadershipLost:
            self._publisher.purge()  # before anything else: another relay may publish from now on
            raise

    def _relay(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(queue.Empty):
                self._take(self._inbox.get(timeout=self._patience()))
                for _ in range(MESSAGES):  # whatever has come meanwhile makes one batch
                    self._take(self._inbox.get_nowait())
            self._lease.check()
            if self._finishing:
                self._give_up_the_rest()
                continue
            if self._topic_holds.types:
                self._refusals.look_for_topics()
            self._partitions.look(self._latest, all_wait=bool(self._line))
            if self._line and self._brake.room:
                self._serve_line()
            while self._found and not self._line and self._brake.room:
                self._serve(self._found.popleft())
            if self._tail:
                self._advance()

    def _give_up_the_rest(self) -> None:
        """Whoever leads next finds it pending or due. Without a row it would be read again, and with it all that was
        sent behind it: with `rows: transient` it gets one."""
        queued = [one for found in self._found if isinstance(found, Queued) for one in found.envelopes]
        queued.extend(self._line)
        if self._turns is not None:
            queued.extend(self._turns.end())
        self._tail.clear()
        self._found.clear()
        self._line.clear()
        self._ledger.give_up(queued, unclaimed=self._transient)
        self.finished = True

    def _patience(self) -> float:
        """Seconds until the next look when no message comes: what waits for a barrier or for the rate has none."""
        waits = self._found or (self._tail and not self._line)
        return BARRIER_WAKE if waits and not self._brake.paused else WAKE

    def _take(self, message: Read | Delivered | Queued | Freed | None) -> None:
        match message:
            case Read(transactions):
                self._append(transactions)
            case Delivered(deliveries):
                self._delivered(deliveries)
            case Queued() | Freed():
                self._found.append(message)

    def _append(self, transactions: Sequence[Transaction]) -> None:
        """While a pause holds the first event, other tables' traffic behind it must not fill the memory."""
        if self._tail and self._tail[-1].quiet and transactions[0].quiet:
            self._tail[-1].absorb(transactions[0])
            transactions = transactions[1:]
        self._tail.extend(transactions)

    def _serve(self, found: Queued | Freed) -> None:
        match found:
            case Queued(envelopes):
                kill_point("queued-taken")
                self._publish(envelopes)
            case Freed(number, aggregates):
                for aggregate in aggregates:
                    self._dispatch(self._ledger.release(aggregate, number))

    def _close(self) -> None:
        self._intake.close()

    # -- the tail ---------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Admit what the reader brought, up to a barrier: before it everything in flight is settled first."""
        while self._tail and not self._line:
            room = min(self._batch, self._brake.room)
            if self._tail[0].events and not room:
                return
            if self._tail[0].barrier is not None and not self._ledger.idle():
                return
            transactions = [self._tail.popleft()]
            events = len(transactions[0].events)
            while self._tail and self._tail[0].barrier is None and events < room:
                events += len(self._tail[0].events)
                transactions.append(self._tail.popleft())
            read = [event for transaction in transactions for event in transaction.events]
            envelopes = self._ledger.admit(transactions)
            if len(envelopes) < len(read):
                self._give_back_doubles(read, envelopes)
            if envelopes or self._intake.catching_up:
                kill_point("admitted")
                go, dropped = self._intake.sift(envelopes)
                self._skip(dropped)
                self._dispatch(go)

    def _give_back_doubles(self, read: Iterable[Event], admitted: Iterable[Envelope]) -> None:
        """What the ledger held already takes its room only once."""
        known = {id(envelope.event) for envelope in admitted}
        doubles = [event for event in read if id(event) not in known]
        self._budget.give_back(len(doubles), sum(e.size for e in doubles))

    def _skip(self, envelopes: Sequence[Envelope]) -> None:
        for envelope in envelopes:
            self._ledger.skip(envelope)
        if envelopes:
            self._metrics.events["skipped"].inc(len(envelopes))
            self._budget.give_back(len(envelopes), sum(e.size for e in envelopes))

    def _dispatch(self, envelopes: list[Envelope]) -> None:
        """Tail events that are pending, in stream order: behind a block they are parked or wait, else they go."""
        free: list[Envelope] = []
        held = self._partitions.held
        for envelope in envelopes:
            block = self._ledger.blocks(envelope.event)
            if block is not None:
                self._ledger.wait_or_park(envelope, block)
            elif held and envelope.event.aggregate in held:
                self._ledger.hold_back(envelope)
            else:
                free.append(envelope)
        claimed, dropped = self._intake.claim(free)
        self._skip(dropped)
        self._publish(claimed)

    # -- to Kafka ---------------------------------------------------------------------------------------------

    def _publish(self, envelopes: Iterable[Envelope], *, wary: bool = False) -> None:
        """In order, one by one: a refusal here is what blocks or overtakes the next.

        wary: some may have to go alone, which otherwise only a line or a suspect tells.
        """
        ready: list[Record] = []
        wary = wary or bool(self._line or self._suspects)
        for envelope in envelopes:
            if not wary or not self._in_line(envelope):
                self._prepare_in_turn(envelope, ready)
        self._hand_over(ready)

    def _hand_over(self, ready: Sequence[Record]) -> None:
        """Give the client all at once, so that it can make large batches of them; what is refused is not among them."""
        for start in range(0, len(ready), HANDFUL):
            self._lease.check()
            self._publisher.send(ready[start : start + HANDFUL])
        if ready:
            kill_point("sent")
            self._ledger.hand(cast("list[Envelope]", [record.token for record in ready]), time.monotonic())
            self._brake.spend(len(ready))

    def _prepare_in_turn(self, envelope: Envelope, ready: list[Record]) -> None:
        if self._turns is None:
            self._prepare_unless_blocked(envelope, ready)
        elif self._turns.take(envelope):
            before = len(ready)
            self._prepare_unless_blocked(envelope, ready)
            if len(ready) == before:
                self._turn_over(envelope)

    def _turn_over(self, envelope: Envelope) -> None:
        """The next of its aggregate goes; what is blocked by then is parked, and so are those behind it."""
        assert self._turns is not None
        following = self._turns.over(envelope)
        ready: list[Record] = []
        while following is not None and not ready:
            if self._line or following.alone or not self._brake.room:
                self._line.append(following)
                return
            self._prepare_unless_blocked(following, ready)
            if not ready:
                following = self._turns.over(following)
        self._hand_over(ready)

    def _prepare_unless_blocked(self, envelope: Envelope, ready: list[Record]) -> None:
        """The rule is checked again: what the poller queued, too, may have been overtaken by a refusal meanwhile."""
        ledger, event, held = self._ledger, envelope.event, self._partitions.held
        if held and event.aggregate in held and not event.skipped:
            ledger.hold_back(envelope)
            return
        if envelope.transaction is None:
            if ledger.overtaken(envelope):
                ledger.put_back(envelope)
            elif event.skipped:
                self._refusals.bury(envelope, RecordRefused(SKIPPED, envelope.reason))
            else:
                self._prepare(envelope, ready)
            return
        block = ledger.blocks(event)
        if block is None:
            self._prepare(envelope, ready)
        elif envelope.sending:
            ledger.put_back(envelope)
        else:
            ledger.wait_or_park(envelope, block)

    def _in_line(self, envelope: Envelope) -> bool:
        """True: it goes later, alone or behind one that does.

        A suspect first waits aside: whether others succeed meanwhile tells whose fault it is. What has been claimed
        cannot, since what waits is claimed afterwards.
        """
        if envelope.event.key in self._suspects and not envelope.alone:
            envelope.alone = True
            if envelope.transaction is not None and not envelope.sending:
                self._ledger.wait(envelope)
                return True
        if not self._line and not envelope.alone:
            return False
        self._line.append(envelope)
        return True

    def _serve_line(self) -> None:
        """Once nothing is with the client its first goes, and stays the first until its outcome is known.

        What goes nowhere makes room for the next at once: no delivery would wake us for it.
        """
        if self._awaits_delivery():
            return
        while self._line and self._brake.room:
            first = self._line[0]
            if first.stage is Stage.HANDED:  # and its partition is held
                self._line.popleft()
                continue
            if not first.alone:
                behind, self._line = self._line, deque()
                self._publish(behind, wary=True)
                return
            if first.error is not None:
                self._refusals.send_letter(first, first.error)
            else:
                ready: list[Record] = []
                self._prepare_in_turn(first, ready)
                self._hand_over(ready)
            if first.stage in (Stage.HANDED, Stage.DYING):
                return
            self._line.popleft()

    def _awaits_delivery(self) -> bool:
        """Something is with the client, beside what held partitions keep: nothing shares a batch with that."""
        held = self._partitions.held
        return self._ledger.with_the_client(lambda aggregate: aggregate not in held)

    def _prepare(self, envelope: Envelope, ready: list[Record]) -> None:
        """Make its record, or refuse it by what can be known before it is sent."""
        event = envelope.event
        if event.retry_count:
            self._metrics.retries.inc()  # an attempt, also when it goes no further than the checks
        try:
            record = self._router.record(event)
        except RecordRefused as error:
            self._refusals.refuse(envelope, error)  # no record, so no topic of its own to wait for
            return
        record.token = envelope
        refusal = self._publisher.refusal(record)
        if refusal is not None:
            self._refusals.turned_away(envelope, record, refusal)
            return
        ready.append(record)

    def _delivered(self, deliveries: Sequence[Delivery]) -> None:
        acknowledged: list[Envelope] = []
        refused: list[Envelope] = []
        failed: list[Envelope] = []
        held: Hold | None = None
        for token, error, partition in deliveries:
            assert isinstance(token, Envelope)
            envelope = token
            if self._line and self._line[0] is envelope:
                self._line.popleft()
            if error is None:
                acknowledged.append(envelope)
                if self._suspects:
                    self._suspects.acknowledged(envelope.event.key, self._partition(envelope, partition))
                continue
            refusal = self._of_the_record(envelope, error, partition) if isinstance(error, Hold) else error
            if isinstance(refusal, Hold):
                held = held or refusal
                continue
            if not envelope.alone:
                refused.append(envelope)
                continue
            failed.append(envelope)
            self._refused_alone(envelope, refusal)
        self._observe(acknowledged)
        if acknowledged:
            self._latest = max(self._latest, acknowledged[-1].handed_at)
        self._ledger.acknowledge(acknowledged)
        kill_point("acknowledged")
        if held is not None:
            raise held  # now that the settler knows what was acknowledged beside it: that need not be sent again
        if refused:
            self._send_again(refused)
        if self._turns is not None:
            for envelope in (*acknowledged, *failed):
                self._turn_over(envelope)

    def _refused_alone(self, envelope: Envelope, refusal: RecordRefused) -> None:
        """It went by itself, so that the refusal is its own."""
        if envelope.stage is Stage.DYING:
            self._alerts.alert(
                "dead_letter_refused",
                f"the dead letter of event {envelope.event.event_id} was refused ({refusal.name});"
                " the row keeps the event",
            )
            self._ledger.bury(envelope)
        elif refusal.name == UNKNOWN_TOPIC:  # it was there when we looked: deleted meanwhile
            self._refusals.turned_away(envelope, self._router.record(envelope.event), refusal)
        else:
            self._refusals.refuse(envelope, refusal)

    def _send_again(self, refused: Sequence[Envelope]) -> None:
        """A refused batch takes innocent records along: each goes again alone, and only then is it refused."""
        self._metrics.reordered.inc(self._ledger.take_back(refused))
        for envelope in refused:
            envelope.alone = True
        self._line.extend(refused)

    def _of_the_record(self, envelope: Envelope, error: Hold, partition: int) -> RecordRefused | Hold:
        """An unlisted error that one record alone meets again and again is its own; any other hold remains one."""
        where = self._partition(envelope, partition)
        if error.suspect and self._suspects.accuse(envelope.event.key, where, alone=envelope.alone):
            return RecordRefused(error.suspect, error.message)
        return error

    def _partition(self, envelope: Envelope, number: int) -> tuple[str, int]:
        """Where its record went; a dead letter, and what no topic can be made for, has none."""
        with contextlib.suppress(RecordRefused):
            if envelope.error is None:
                return self._router.record(envelope.event).topic, number
        return "", number

    def _observe(self, acknowledged: Sequence[Envelope]) -> None:
        if self._tracing is not None:
            self._tracing.published(acknowledged)
        now = time.time() * 1000
        commits = (envelope.event.committed_at for envelope in acknowledged)
        self._metrics.delivery_seconds.observe(max(0.0, (now - ms) / 1000) for ms in commits if ms is not None)
