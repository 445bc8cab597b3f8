"""The relay thread with a stub in Kafka's place: what goes out, what is refused, what ends the incarnation."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from cdc_outbox.config import ColumnSettings, KafkaSettings
from cdc_outbox.errors import Hold, LeadershipLost, RecordRefused
from cdc_outbox.gtid import GtidRange
from cdc_outbox.kafka.publisher import Delivery, Record
from cdc_outbox.kafka.routing import Router
from cdc_outbox.model import Event, Position, TableName, Transaction
from cdc_outbox.mysql.leadership import Lease
from cdc_outbox.ops.log import Alerts
from cdc_outbox.ops.metrics import Metrics
from cdc_outbox.relay.brake import Brake
from cdc_outbox.relay.budget import Budget
from cdc_outbox.relay.in_flight import Envelope, InFlight, Stage
from cdc_outbox.relay.partition_watch import PartitionWatch
from cdc_outbox.relay.pipeline import HANDFUL, Freed, Pipeline, Queued
from cdc_outbox.relay.refusals import Refusals
from cdc_outbox.relay.retry import RetryPolicy
from cdc_outbox.relay.suspects import Suspects
from cdc_outbox.relay.topic_holds import TopicHolds
from cdc_outbox.relay.turns import Turns

TABLE = TableName("shop", "outbox_event")


class StubPublisher:
    """Takes records; refuses the event ids it is told to."""

    name = "stub"

    def __init__(self) -> None:
        self.sent: list[Record] = []
        self.handfuls: list[int] = []
        self.on_send: Callable[[], None] = lambda: None
        self.refused: dict[str, RecordRefused] = {}
        self.leading = [True, True]

    def refusal(self, record: Record) -> RecordRefused | None:
        assert isinstance(record.token, Envelope)
        return None if record.topic == "dead" else self.refused.get(record.token.event.event_id)

    def send(self, records: Sequence[Record]) -> None:
        self.handfuls.append(len(records))
        for record in records:
            self.on_send()
            self.sent.append(record)

    def leaders(self, topic: str) -> list[bool]:
        return self.leading

    def purge(self) -> None: ...

    def trouble(self) -> str | None:
        return None

    def close(self, timeout: float) -> bool:
        return True


class StubIntake:
    """Lets everything through."""

    catching_up = False

    def sift(self, envelopes: list[Envelope]) -> tuple[list[Envelope], list[Envelope]]:
        return envelopes, []

    def claim(self, envelopes: list[Envelope]) -> tuple[list[Envelope], list[Envelope]]:
        return envelopes, []

    def close(self) -> None: ...


class Bench:
    """A pipeline on its thread, and everything around it within reach."""

    def __init__(self, ordering: str = "aggregate") -> None:
        self.time = 0.0
        self.lease = Lease(lambda: self.time)
        self.lease.renew(0.0, 100.0)
        self.publisher = StubPublisher()
        self.ledger = InFlight(Position("binlog.000001", 4))
        self.budget = Budget(1000, 1 << 20)
        self.failure: BaseException | None = None
        self.failed = threading.Event()
        self.answered = 0
        self.metrics = Metrics("test")
        self.suspects = Suspects()
        self.brake = Brake(None)
        self.topic_holds = TopicHolds()
        kafka = KafkaSettings(bootstrap_servers="nowhere:1", dead_letter_topic="dead")
        router, alerts = Router(ColumnSettings(), kafka), Alerts(self.metrics.alert)
        self.partitions = PartitionWatch(
            topics=router.topics,
            publisher=self.publisher,
            ledger=self.ledger,
            budget=Budget(10, 1 << 20),
            metrics=self.metrics,
            alerts=alerts,
            linger=0.0,
        )
        self.pipeline = Pipeline(
            publisher=self.publisher,
            router=router,
            intake=StubIntake(),  # type: ignore[arg-type]
            ledger=self.ledger,
            budget=self.budget,
            lease=self.lease,
            refusals=Refusals(
                publisher=self.publisher,
                router=router,
                ledger=self.ledger,
                lease=self.lease,
                retries=RetryPolicy((10.0,)),
                metrics=self.metrics,
                alerts=alerts,
                topic_holds=self.topic_holds,
                max_record_bytes=1000,
            ),
            metrics=self.metrics,
            alerts=alerts,
            suspects=self.suspects,
            brake=self.brake,
            topic_holds=self.topic_holds,
            partitions=self.partitions,
            turns=Turns() if ordering == "strict" else None,
            batch=100,
            on_failure=self._fail,
        )

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self.failed.set()

    def read(self, *events: Event) -> None:
        number = len(self.publisher.sent) + 1
        self.pipeline.tail([Transaction(list(events), ("binlog.000001", number * 100))])

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = threading.Event()
        for _ in range(1000):
            if condition():
                return
            deadline.wait(0.01)
        raise AssertionError("not within 10 s")

    def tick(self) -> None:
        """A little time passes."""
        threading.Event().wait(0.05)

    def answer(self, number: int, error: RecordRefused | Hold | None = None) -> None:
        """What becomes of the record that was sent as the `number`th, from 0."""
        self.until(lambda: len(self.publisher.sent) > number)
        self.answered += 1
        self.pipeline.deliver([Delivery(self.publisher.sent[number].token, error, 0)])

    def free(self, *aggregates: str) -> None:
        """A pass of the poller finds nothing in the way of these, which wait for it."""
        self.until(lambda: self.ledger.stages()[Stage.WAITING] > 0)
        number, _ = self.ledger.begin_pass()
        self.pipeline.submit(Freed(number, [(TABLE, "order", one) for one in aggregates]))

    def beside(self) -> list[int]:
        """Filled as records are sent: how many others were with the client at that moment."""
        found: list[int] = []
        self.publisher.on_send = lambda: found.append(len(self.publisher.sent) - self.answered)
        return found

    def topics(self) -> list[tuple[str, str]]:
        return [(record.topic, record.token.event.event_id) for record in self.publisher.sent]  # type: ignore[attr-defined]


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    found = Bench(getattr(request, "param", "aggregate"))
    found.pipeline.start()
    yield found
    found.pipeline.request_stop()
    assert found.pipeline.join(10)


def event(id: int, aggregate: str = "a", *, kind: str = "order", **columns: object) -> Event:
    return Event(TABLE, id, f"e{id}", kind, aggregate, "OrderPlaced", b"{}", **columns)  # type: ignore[arg-type]


def test_events_go_out_in_stream_order(bench: Bench) -> None:
    bench.read(event(1), event(2, "b"))
    bench.read(event(3))
    bench.until(lambda: len(bench.publisher.sent) == 3)
    assert [one for _, one in bench.topics()] == ["e1", "e2", "e3"]


def test_a_refused_event_is_owed_its_retry_and_blocks_its_aggregate(bench: Bench) -> None:
    bench.publisher.refused["e1"] = RecordRefused("MESSAGE_TOO_LARGE")
    bench.read(event(1), event(2), event(3, "b"))
    bench.until(lambda: bench.ledger.owed == 2)
    refused, parked = bench.ledger.take_outcomes(10)
    assert (refused.stage, refused.retry_in, parked.stage) == (Stage.REFUSED, 10, Stage.PARKING)
    assert bench.topics() == [("outbox.event.order", "e3")]


def test_an_event_that_no_record_can_be_made_of_is_refused_like_any_other(bench: Bench) -> None:
    """The topic's template cannot be filled, or what it gives is no topic's name: there is no record to send."""
    bench.read(event(1, kind="eu/order"), event(2, "b"))
    bench.until(lambda: bench.ledger.owed == 1 and len(bench.publisher.sent) == 1)
    (refused,) = bench.ledger.take_outcomes(10)
    assert (refused.stage, refused.retry_in) == (Stage.REFUSED, 10)
    assert bench.topics() == [("outbox.event.order", "e2")]
    assert bench.failure is None


def test_an_event_without_retries_left_is_dead_after_its_letter_is_acknowledged(bench: Bench) -> None:
    bench.publisher.refused["e1"] = RecordRefused("MESSAGE_TOO_LARGE")
    bench.read(event(1, max_retries=0))
    bench.until(lambda: len(bench.publisher.sent) == 1)
    assert bench.topics() == [("dead", "e1")]
    assert bench.ledger.owed == 0
    bench.pipeline.deliver([Delivery(bench.publisher.sent[0].token, None)])
    bench.until(lambda: bench.ledger.owed == 1)
    (dead,) = bench.ledger.take_outcomes(10)
    assert dead.stage is Stage.DEAD


def test_a_refused_dead_letter_leaves_the_event_in_its_row(bench: Bench) -> None:
    bench.publisher.refused["e1"] = RecordRefused("MESSAGE_TOO_LARGE")
    bench.read(event(1, max_retries=0))
    refusal = RecordRefused("UNKNOWN_TOPIC_OR_PARTITION")
    bench.answer(0, refusal)
    bench.answer(1, refusal)  # sent once more alone, and that too
    bench.until(lambda: bench.ledger.owed == 1)
    assert bench.topics() == [("dead", "e1")] * 2
    (dead,) = bench.ledger.take_outcomes(10)
    assert dead.stage is Stage.DEAD
    assert dead.error is not None
    assert dead.error.name == "MESSAGE_TOO_LARGE"


def test_the_letter_of_a_record_that_went_alone_goes_a_second_time_too(bench: Bench) -> None:
    """Its batch may have been refused for another letter's sake."""
    bench.read(event(1, max_retries=0))
    refusal = RecordRefused("MESSAGE_TOO_LARGE")
    bench.answer(0, refusal)
    bench.answer(1, refusal)
    bench.answer(2, refusal)
    bench.answer(3)
    bench.until(lambda: bench.ledger.owed == 1)
    assert bench.topics() == [("outbox.event.order", "e1")] * 2 + [("dead", "e1")] * 2


def test_an_unknown_outcome_spends_no_retry(bench: Bench) -> None:
    """An outage ends the incarnation; what the rows say decides what is sent again."""
    bench.read(event(1))
    bench.until(lambda: len(bench.publisher.sent) == 1)
    bench.pipeline.deliver([Delivery(bench.publisher.sent[0].token, Hold("timed out", reason="kafka"))])
    bench.until(lambda: bench.failed.is_set() or bench.ledger.owed > 0)
    assert isinstance(bench.failure, Hold)
    assert bench.ledger.owed == 0


def test_nothing_is_handed_over_past_the_lease(bench: Bench) -> None:
    bench.time = 99.5  # the lease ends a second before the server's own deadline
    bench.read(event(1))
    bench.until(lambda: bench.failed.is_set() or len(bench.publisher.sent) > 0)
    assert isinstance(bench.failure, LeadershipLost)
    assert bench.publisher.sent == []


def test_what_came_together_is_handed_over_together(bench: Bench) -> None:
    """A client that is given records one by one, with work in between, makes small batches of them."""
    bench.read(*(event(id, f"a{id}") for id in range(1, 81)))
    bench.until(lambda: len(bench.publisher.sent) == 80)
    assert bench.publisher.handfuls == [HANDFUL, 80 - HANDFUL]


def test_the_lease_is_looked_at_between_two_handfuls(bench: Bench) -> None:
    def freeze() -> None:
        bench.time = 99.5

    bench.publisher.on_send = freeze
    bench.read(*(event(id, f"a{id}") for id in range(1, 81)))
    bench.until(bench.failed.is_set)
    assert isinstance(bench.failure, LeadershipLost)
    assert len(bench.publisher.sent) == HANDFUL


def test_a_barrier_waits_until_everything_before_it_is_settled(bench: Bench) -> None:
    bench.read(event(1))
    bench.pipeline.tail([Transaction([], ("binlog.000001", 200), barrier="TRUNCATE outbox_event")])
    bench.read(event(2))
    bench.until(lambda: len(bench.publisher.sent) == 1)
    bench.pipeline.deliver([Delivery(bench.publisher.sent[0].token, None)])
    bench.until(lambda: bench.ledger.owed == 1)
    assert len(bench.publisher.sent) == 1
    batch = bench.ledger.take_outcomes(10)
    bench.ledger.settle(batch, bench.ledger.propose(batch))
    bench.until(lambda: len(bench.publisher.sent) == 2)


def test_behind_a_barrier_nothing_is_waited_for_at_a_stop(bench: Bench) -> None:
    """What waits in memory is freed by the poller, which has stopped: the barrier would stand for ever."""
    bench.ledger.block([event(1).aggregate])
    bench.ledger.drain([event(1).aggregate])
    bench.read(event(1))
    bench.pipeline.tail([Transaction([], ("binlog.000001", 200), barrier="TRUNCATE outbox_event")])
    bench.read(event(2, "b"))
    bench.until(lambda: bench.ledger.stages()[Stage.WAITING] == 1)
    bench.pipeline.finish()
    bench.until(lambda: bench.pipeline.finished)
    assert bench.ledger.unfinished() == 0


def test_what_goes_again_alone_is_put_back_at_a_stop(bench: Bench) -> None:
    """One by one it could take as long as there are events in memory."""
    queued = bench.ledger.queue([event(1), event(2, "b"), event(3, "c")], lambda _: True)
    bench.pipeline.submit(Queued(queued))
    for number in (0, 1, 2):
        bench.answer(number, RecordRefused("INVALID_RECORD"))
    bench.until(lambda: len(bench.publisher.sent) == 4)  # the first of them
    bench.pipeline.finish()
    bench.until(lambda: bench.ledger.owed == 2)
    assert bench.ledger.unfinished() == 3
    bench.answer(3)
    bench.until(lambda: bench.ledger.owed == 3)
    assert [one.stage for one in bench.ledger.take_outcomes(10)] == [Stage.PUT_BACK, Stage.PUT_BACK, Stage.ACKED]


def test_a_queued_row_behind_a_refusal_goes_back(bench: Bench) -> None:
    bench.publisher.refused["e1"] = RecordRefused("MESSAGE_TOO_LARGE")
    queued = bench.ledger.queue([event(1), event(2), event(3, "b")], lambda _: True)
    bench.pipeline.submit(Queued(queued))
    bench.until(lambda: bench.ledger.owed == 2)
    refused, put_back = bench.ledger.take_outcomes(10)
    assert (refused.stage, put_back.stage) == (Stage.REFUSED, Stage.PUT_BACK)
    bench.until(lambda: len(bench.publisher.sent) == 1)
    assert bench.topics() == [("outbox.event.order", "e3")]


def test_a_late_refusal_is_counted_as_reordering(bench: Bench) -> None:
    bench.read(event(1), event(2))
    bench.until(lambda: len(bench.publisher.sent) == 2)
    bench.answer(0, RecordRefused("INVALID_RECORD"))
    bench.answer(1)
    bench.answer(2, RecordRefused("INVALID_RECORD"))
    bench.until(lambda: bench.ledger.owed == 2)
    assert b'cdc_outbox_reordered_total{relay="test"} 1.0' in bench.metrics.text()


def test_records_of_a_refused_batch_go_again_one_by_one(bench: Bench) -> None:
    """A refused batch takes innocents along; only what is refused alone spends a retry."""
    bench.read(event(1), event(2, "b"), event(3, "c"))
    bench.until(lambda: len(bench.publisher.sent) == 3)
    refusal = RecordRefused("MESSAGE_TOO_LARGE")
    bench.pipeline.deliver([Delivery(record.token, refusal, 0) for record in bench.publisher.sent])
    bench.until(lambda: len(bench.publisher.sent) == 4)
    bench.read(event(4, "d"))
    bench.answer(3)
    bench.answer(4, refusal)
    bench.answer(5)
    bench.answer(6)
    assert [one for _, one in bench.topics()] == ["e1", "e2", "e3", "e1", "e2", "e3", "e4"]
    bench.until(lambda: bench.ledger.owed == 4)
    outcomes = {envelope.event.event_id: envelope.stage for envelope in bench.ledger.take_outcomes(10)}
    assert outcomes == {"e1": Stage.ACKED, "e2": Stage.REFUSED, "e3": Stage.ACKED, "e4": Stage.ACKED}


def test_also_the_last_of_a_refused_batch_goes_alone(bench: Bench) -> None:
    """Beside others it could be refused for their sake, and spend a retry."""
    bench.read(event(1), event(2, "b"))
    bench.until(lambda: len(bench.publisher.sent) == 2)
    beside = bench.beside()
    refusal = RecordRefused("MESSAGE_TOO_LARGE")
    bench.answer(0, refusal)
    bench.answer(1, refusal)
    bench.until(lambda: len(bench.publisher.sent) == 3)
    bench.read(event(3, "c"))
    bench.answer(2)
    bench.answer(3)
    bench.answer(4)
    assert [one for _, one in bench.topics()] == ["e1", "e2", "e1", "e2", "e3"]
    assert beside == [0, 0, 0]


def test_those_of_a_refused_batch_that_are_parked_hold_nobody_up(bench: Bench) -> None:
    bench.read(*(event(id) for id in range(1, 101)))
    bench.until(lambda: len(bench.publisher.sent) == 100)
    refusal = RecordRefused("INVALID_RECORD")
    bench.pipeline.deliver([Delivery(record.token, refusal, 0) for record in bench.publisher.sent])
    bench.read(event(101, "b"))
    bench.answer(100, refusal)
    bench.answer(101)
    assert bench.topics()[101] == ("outbox.event.order", "e101")
    bench.until(lambda: bench.ledger.owed == 101)


def test_what_goes_again_stays_behind_its_own_predecessor(bench: Bench) -> None:
    bench.read(event(1), event(2))
    bench.until(lambda: len(bench.publisher.sent) == 2)
    refusal = RecordRefused("INVALID_RECORD")
    bench.pipeline.deliver([Delivery(record.token, refusal, 0) for record in bench.publisher.sent])
    bench.answer(2, refusal)
    bench.until(lambda: bench.ledger.owed == 2)
    refused, parked = bench.ledger.take_outcomes(10)
    assert (refused.stage, parked.stage) == (Stage.REFUSED, Stage.PARKING)


def test_an_unlisted_error_of_one_record_alone_is_its_own_in_the_end(bench: Bench) -> None:
    """It goes alone after others to its partition, and only their success tells that the broker is well."""
    unlisted = Hold("Kafka: POLICY_VIOLATION", reason="kafka", suspect="POLICY_VIOLATION")
    key = (TABLE, 1, "e1")
    for _ in range(2):
        bench.suspects.accuse(key, ("outbox.event.order", 0), alone=True)
    bench.read(event(1), event(2), event(3, "b"))
    bench.answer(0)
    assert bench.topics() == [("outbox.event.order", "e3")]
    bench.free("a")
    bench.answer(1, unlisted)
    bench.until(lambda: bench.ledger.owed == 3)
    outcomes = {envelope.event.event_id: envelope for envelope in bench.ledger.take_outcomes(10)}
    assert {one: envelope.stage for one, envelope in outcomes.items()} == {
        "e1": Stage.REFUSED,
        "e2": Stage.PARKING,
        "e3": Stage.ACKED,
    }
    assert outcomes["e1"].error is not None
    assert outcomes["e1"].error.name == "POLICY_VIOLATION"
    assert not bench.suspects


def test_an_unlisted_error_is_a_hold_while_nothing_else_succeeds(bench: Bench) -> None:
    unlisted = Hold("Kafka: POLICY_VIOLATION", reason="kafka", suspect="POLICY_VIOLATION")
    for _ in range(5):
        bench.suspects.accuse((TABLE, 1, "e1"), ("outbox.event.order", 0), alone=True)
    bench.read(event(1))
    bench.free("a")
    bench.answer(0, unlisted)
    bench.until(bench.failed.is_set)
    assert bench.failure is unlisted
    assert bench.ledger.owed == 0


def test_a_dump_without_room_for_long_is_closed_and_goes_on_later(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dump that is not read pins the primary's binlog files."""
    monkeypatch.setattr("cdc_outbox.relay.pipeline.LONG_HOLD", 0.05)
    closed = threading.Event()
    bench.pipeline.close_dump = closed.set
    bench.budget.add(bench.budget.max_events, 0)
    reader = threading.Thread(target=bench.read, args=(event(1),), daemon=True)
    reader.start()
    assert closed.wait(10)
    assert bench.publisher.sent == []
    bench.budget.give_back(bench.budget.max_events, 0)
    reader.join(10)
    bench.until(lambda: len(bench.publisher.sent) == 1)


def test_while_paused_nothing_goes_out_and_what_is_out_is_settled(bench: Bench) -> None:
    bench.read(event(1))
    bench.until(lambda: len(bench.publisher.sent) == 1)
    bench.brake.paused = True
    bench.read(event(2))
    queued = bench.ledger.queue([event(3, "b")], lambda _: True)
    bench.pipeline.submit(Queued(queued))
    bench.answer(0)
    bench.until(lambda: bench.ledger.owed == 1)
    assert len(bench.publisher.sent) == 1
    bench.brake.paused = False
    bench.until(lambda: len(bench.publisher.sent) == 3)


def test_a_long_pause_keeps_no_memory_of_other_tables_traffic(bench: Bench) -> None:
    """Before the first event the position goes on, behind it one stretch is remembered."""

    def traffic(number: int) -> None:
        quiet = Transaction([], ("binlog.000001", number * 1000), [GtidRange("u", number, number)], traffic=10)
        bench.pipeline.tail([quiet])

    bench.brake.paused = True
    traffic(1)
    bench.until(lambda: bench.ledger.streamed_past(Position("binlog.000001", 1000)))
    bench.read(event(1))
    for number in range(2, 1002):
        traffic(number)
    bench.until(lambda: bool(bench.pipeline._tail) and bench.pipeline._tail[-1].end == ("binlog.000001", 1001000))
    assert len(bench.pipeline._tail) == 2
    assert bench.pipeline._tail[-1].gtids == [GtidRange("u", 2, 1001)]
    bench.brake.paused = False
    bench.until(lambda: bench.ledger.traffic == 10010)
    assert bench.ledger.streamed_past(Position("binlog.000001", 1001000))


def test_a_skipped_row_gets_its_dead_letter_and_is_not_published(bench: Bench) -> None:
    """A person set retry_count above max_retries; the poller has read why."""
    queued = bench.ledger.queue([event(1, retry_count=4), event(2, "b", retry_count=1)], lambda _: True)
    queued[0].reason = "skipped: customer gone"
    bench.pipeline.submit(Queued(queued))
    bench.until(lambda: len(bench.publisher.sent) == 2)
    assert sorted(bench.topics()) == [("dead", "e1"), ("outbox.event.order", "e2")]
    letter = next(record for record in bench.publisher.sent if record.topic == "dead")
    headers = dict(letter.headers)
    assert (headers["error_class"], headers["error_message"]) == (b"skipped", b"skipped: customer gone")
    assert headers["attempts"] == b"3", "the most there can have been"
    bench.pipeline.deliver([Delivery(letter.token, None)])
    bench.until(lambda: bench.ledger.owed == 1)
    (dead,) = bench.ledger.take_outcomes(10)
    assert dead.stage is Stage.DEAD


strict = pytest.mark.parametrize("bench", ["strict"], indirect=True)


@strict
def test_strictly_one_record_of_an_aggregate_is_out_at_a_time(bench: Bench) -> None:
    bench.read(event(1), event(2), event(3, "b"), event(4))
    bench.until(lambda: len(bench.publisher.sent) == 2)
    assert [one for _, one in bench.topics()] == ["e1", "e3"]
    bench.answer(0)
    bench.answer(2)
    bench.until(lambda: len(bench.publisher.sent) == 4)
    assert [one for _, one in bench.topics()] == ["e1", "e3", "e2", "e4"]


@strict
def test_strictly_nothing_overtakes_a_late_refusal(bench: Bench) -> None:
    bench.read(event(1), event(2), event(3), event(4, "b"))
    bench.answer(0, RecordRefused("INVALID_RECORD"))
    bench.answer(1)
    bench.answer(2, RecordRefused("INVALID_RECORD"))
    bench.until(lambda: bench.ledger.owed == 4)
    outcomes = {one.event.event_id: one.stage for one in bench.ledger.take_outcomes(10)}
    assert outcomes == {"e1": Stage.REFUSED, "e2": Stage.PARKING, "e3": Stage.PARKING, "e4": Stage.ACKED}
    assert b'cdc_outbox_reordered_total{relay="test"} 0.0' in bench.metrics.text()


@strict
def test_strictly_a_refusal_before_sending_gives_the_turn_on(bench: Bench) -> None:
    bench.publisher.refused["e2"] = RecordRefused("MESSAGE_TOO_LARGE")
    bench.read(event(1), event(2, max_retries=0), event(3))
    bench.answer(0)
    bench.until(lambda: len(bench.publisher.sent) == 2)
    assert bench.topics()[1] == ("dead", "e2")
    bench.until(lambda: bench.ledger.owed == 2)
    assert [one.stage for one in bench.ledger.take_outcomes(10)] == [Stage.ACKED, Stage.PARKING]


@strict
def test_strictly_the_next_turn_waits_for_a_pause_to_end(bench: Bench) -> None:
    bench.read(event(1), event(2), event(3, "b"))
    bench.until(lambda: len(bench.publisher.sent) == 2)
    bench.brake.paused = True
    bench.answer(0)
    bench.answer(1)
    bench.until(lambda: bench.ledger.owed == 2)
    assert len(bench.publisher.sent) == 2
    bench.brake.paused = False
    bench.until(lambda: len(bench.publisher.sent) == 3)


@strict
def test_strictly_what_waits_in_the_line_takes_no_refused_record_along(bench: Bench) -> None:
    bench.read(event(1), event(2), event(3, "b"), event(4, "c"))
    bench.until(lambda: len(bench.publisher.sent) == 3)
    beside = bench.beside()
    bench.brake.paused = True
    bench.answer(0)
    bench.answer(1, RecordRefused("INVALID_RECORD"))
    bench.answer(2, RecordRefused("INVALID_RECORD"))
    bench.until(lambda: bench.ledger.stages()[Stage.READ] == 3)
    bench.brake.paused = False
    for number in (3, 4, 5):
        bench.answer(number)
    assert [one for _, one in bench.topics()][3:] == ["e2", "e3", "e4"]
    assert beside == [0, 0, 0]


def test_what_has_no_topic_waits_and_spends_no_retry(bench: Bench) -> None:
    bench.publisher.refused["e1"] = RecordRefused("UNKNOWN_TOPIC_OR_PARTITION")
    bench.read(event(1), event(2), event(3, "b"))
    bench.until(lambda: bench.ledger.owed == 2)
    outcomes = {one.event.event_id: (one.stage, one.retry_in) for one in bench.ledger.take_outcomes(10)}
    assert outcomes == {"e1": (Stage.PARKING, 0), "e2": (Stage.PARKING, 0)}
    assert bench.topic_holds.types == {"order"}


def test_a_topic_that_is_deleted_after_the_look_spends_no_retry_either(bench: Bench) -> None:
    bench.read(event(1))
    refusal = RecordRefused("UNKNOWN_TOPIC_OR_PARTITION")
    bench.answer(0, refusal)
    bench.answer(1, refusal)
    bench.until(lambda: bench.ledger.owed == 1)
    assert [(one.stage, one.retry_in) for one in bench.ledger.take_outcomes(10)] == [(Stage.PARKING, 0)]
    assert bench.topic_holds.types == {"order"}


def test_what_is_acknowledged_beside_an_unknown_outcome_is_owed_its_2(bench: Bench) -> None:
    """Else every rebuild would send it again."""
    bench.read(event(1), event(2, "b"))
    bench.until(lambda: len(bench.publisher.sent) == 2)
    unknown, sent = (record.token for record in bench.publisher.sent)
    hold = Hold("Kafka: REQUEST_TIMED_OUT", reason="kafka")
    bench.pipeline.deliver([Delivery(unknown, hold, 0), Delivery(sent, None, 0)])
    assert bench.failed.wait(10)
    assert bench.failure is hold
    assert [(one.event.event_id, one.stage) for one in bench.ledger.take_outcomes(10)] == [("e2", Stage.ACKED)]


def test_a_queued_row_behind_one_that_waits_for_its_topic_goes_back(bench: Bench) -> None:
    """The topic may appear between the two."""
    bench.publisher.refused["e1"] = RecordRefused("UNKNOWN_TOPIC_OR_PARTITION")
    queued = bench.ledger.queue([event(1), event(2)], lambda _: True)
    bench.pipeline.submit(Queued(queued))
    bench.until(lambda: bench.ledger.owed == 2 or len(bench.publisher.sent) > 0)
    assert bench.topics() == []
    assert [one.stage for one in bench.ledger.take_outcomes(10)] == [Stage.PUT_BACK, Stage.PUT_BACK]


def test_a_row_that_has_waited_for_its_topic_too_long_is_dead(bench: Bench) -> None:
    bench.publisher.refused["e1"] = RecordRefused("TOPIC_AUTHORIZATION_FAILED")
    (queued,) = bench.ledger.queue([event(1, retry_count=1)], lambda _: True)
    queued.overdue = True
    bench.pipeline.submit(Queued([queued]))
    bench.answer(0)
    assert bench.topics() == [("dead", "e1")]
    bench.until(lambda: bench.ledger.owed == 1)
    assert bench.ledger.take_outcomes(10)[0].stage is Stage.DEAD


def test_what_is_bound_for_a_held_partition_is_parked_and_spends_no_retry(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_outbox.relay.partition_holds.PATIENCE", 0.1)
    monkeypatch.setattr("cdc_outbox.relay.partition_holds.MARGIN", 0.05)
    stuck, other = "a", "b"
    bench.publisher.leading = [True] * 3  # where they have different partitions
    bench.read(*(event(n, stuck) for n in range(5)))
    for number in itertools.count(5):  # others come and are acknowledged until it is noticed
        if bench.partitions.held:
            break
        bench.read(event(number, other))
        bench.answer(number)
        bench.tick()
    outcomes = bench.ledger.take_outcomes(100)
    bench.read(event(1000, stuck), event(1001, other), event(1002, stuck))
    bench.until(lambda: bench.topics()[-1][1] == "e1001")
    bench.until(lambda: bench.ledger.owed == 2)
    assert [one.stage for one in bench.ledger.take_outcomes(2)] == [Stage.PARKING] * 2
    assert {one.stage for one in outcomes} == {Stage.ACKED}
    queued = bench.ledger.queue([event(1003, "c", retry_count=1)], lambda _: True)  # of the same partition
    bench.pipeline.submit(Queued(queued))
    bench.until(lambda: bench.ledger.owed == 1)
    assert [(one.event.id, one.stage) for one in bench.ledger.take_outcomes(1)] == [(1003, Stage.PUT_BACK)]
    for number in range(5):
        bench.answer(number)
    bench.until(lambda: not bench.partitions.held)
    bench.read(event(1004, "c"))
    bench.until(lambda: bench.ledger.owed == 6)  # its predecessor's block is the poller's to lift
    assert bench.metrics.registry.get_sample_value("cdc_outbox_hold", {"relay": "test", "reason": "partition"}) == 0


def test_a_refused_batch_goes_again_beside_what_a_held_partition_keeps(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cdc_outbox.relay.partition_holds.PATIENCE", 0.1)
    monkeypatch.setattr("cdc_outbox.relay.partition_holds.MARGIN", 0.05)
    bench.publisher.leading = [True, False, True]
    bench.read(event(1, "a"), event(2, "b"))
    bench.answer(1, RecordRefused("INVALID_RECORD"))
    bench.until(lambda: len(bench.publisher.sent) == 3)
    bench.answer(2)
    bench.read(event(3, "b"))
    bench.answer(3)
    bench.until(lambda: bench.ledger.owed == 2)
