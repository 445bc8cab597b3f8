"""Which partitions are stuck, and which are held: what is out, for how long, and what others acknowledge meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cdc_outbox.kafka.murmur2 import partition_of
from cdc_outbox.model import Aggregate
from cdc_outbox.relay.budget import Budget
from cdc_outbox.relay.in_flight import Envelope, Stage
from cdc_outbox.relay.partition_holds import ASK_EVERY, MARGIN, PATIENCE, PartitionHolds
from tests.unit.relay.test_pipeline import TABLE, event

TOPIC = "outbox.event.order"
STUCK, OTHER = 1, 0
"""Partitions of two."""


def key(partition: int, number: int = 0) -> str:
    """The `number`th key of a partition."""
    return [f"k{n}" for n in range(1000) if partition_of(f"k{n}".encode(), 2) == partition][number]


class Bench:
    """A window of ten events; time and acknowledgements are the test's."""

    def __init__(self) -> None:
        self.led: Sequence[bool] | None = (True, True)
        self.asked = 0
        self.holds = PartitionHolds({"order": TOPIC}, self._leaders, max_events=10, max_bytes=100_000)
        self.out: list[Envelope] = []
        self.latest = 0.0
        self.now = 0.0

    def _leaders(self, topic: str) -> Sequence[bool] | None:
        assert topic == TOPIC
        self.asked += 1
        return self.led

    def send(self, partition: int, count: int = 1, stage: Stage = Stage.HANDED) -> list[Envelope]:
        sent = [Envelope(event(n, key(partition, n)), None, stage) for n in range(count)]
        for envelope in sent:
            envelope.handed_at = self.now
        self.out += sent
        return sent

    def pass_time(self, seconds: float, *, others_acknowledge: bool = False, **options: bool) -> None:
        for _ in range(round(seconds / 0.25)):
            self.now += 0.25
            if others_acknowledge:
                self.latest = self.now - 0.01
            self.holds.look(self.now, self.out, self.latest, **options)

    def is_held(self, partition: int) -> bool:
        aggregate: Aggregate = (TABLE, "order", key(partition))
        return aggregate in self.holds.held


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_partition_is_held_once_it_fills_half_the_window_and_others_go_on(bench: Bench) -> None:
    bench.send(STUCK, 5)
    bench.pass_time(PATIENCE + 1, others_acknowledge=True)
    assert bench.holds.stuck == {(TOPIC, STUCK)}
    assert bench.is_held(STUCK)
    assert not bench.is_held(OTHER)


def test_below_half_of_the_window_it_is_stuck_and_not_held(bench: Bench) -> None:
    bench.send(STUCK, 4)
    bench.pass_time(PATIENCE + 1, others_acknowledge=True)
    assert bench.holds.stuck
    assert not bench.holds.held
    bench.send(STUCK, 1, Stage.READ)  # waits its turn
    bench.pass_time(0.25, others_acknowledge=True)
    assert bench.is_held(STUCK)


def test_half_of_the_bytes_is_enough(bench: Bench) -> None:
    (large,) = bench.send(STUCK)
    large.size = 50_000
    bench.pass_time(PATIENCE + 1, others_acknowledge=True)
    assert bench.is_held(STUCK)


def test_where_all_else_waits_for_what_is_out_one_record_is_enough(bench: Bench) -> None:
    bench.send(STUCK)
    bench.pass_time(PATIENCE + 1, others_acknowledge=True, hold_all=True)
    assert bench.is_held(STUCK)


def test_an_outage_of_all_is_nobodys(bench: Bench) -> None:
    bench.send(STUCK, 5)
    bench.send(OTHER, 5)
    bench.pass_time(60)
    assert not bench.holds.stuck


def test_the_end_of_an_outage_is_nobodys_either(bench: Bench) -> None:
    bench.send(STUCK, 5)
    bench.pass_time(60)
    bench.pass_time(PATIENCE - 0.5, others_acknowledge=True)
    assert not bench.holds.stuck


def test_what_others_acknowledge_before_it_fills_all_of_the_window_is_enough(bench: Bench) -> None:
    bench.send(STUCK, 10)
    bench.pass_time(0.5, others_acknowledge=True)
    bench.pass_time(PATIENCE)
    assert bench.is_held(STUCK)
    assert bench.holds.aside == (5, 0)  # and the others get half of it back
    budget = Budget(10, 100_000)
    budget.add(10, 100)
    assert not budget.take(1, 10, timeout=0.0)
    budget.set_aside(*bench.holds.aside)
    assert budget.free() == (5, 99_900)
    assert budget.take(1, 10, timeout=0.0)


def test_a_row_larger_than_half_of_the_window_travels_beside_what_is_held(bench: Bench) -> None:
    for envelope in bench.send(STUCK, 5):
        envelope.size = 10_000
    bench.pass_time(PATIENCE + 1, others_acknowledge=True)
    budget = Budget(10, 100_000)
    budget.add(5, 50_000)
    budget.set_aside(*bench.holds.aside, held=bench.holds.waiting)
    assert budget.take(1, 60_000, timeout=0.0)
    assert not budget.take(1, 1, timeout=0.0)
    bench.out.clear()
    bench.pass_time(0.25)
    budget.set_aside(*bench.holds.aside, held=bench.holds.waiting)
    budget.give_back(5, 50_000)
    assert not budget.take(1, 60_000, timeout=0.0)


def test_what_was_sent_at_the_same_time_and_acknowledged_says_nothing(bench: Bench) -> None:
    bench.send(STUCK, 5)
    bench.latest = MARGIN
    bench.pass_time(60)
    assert not bench.holds.stuck


def test_a_partition_that_moves_is_slow_and_not_stuck(bench: Bench) -> None:
    for _ in range(20):
        bench.send(STUCK, 1)
        bench.pass_time(1, others_acknowledge=True)
        bench.out = bench.out[-5:]
    assert not bench.holds.stuck


def test_without_a_leader_it_is_stuck_although_nobody_else_has_anything_to_acknowledge(bench: Bench) -> None:
    bench.led = (True, False)
    bench.send(STUCK, 5)
    bench.pass_time(PATIENCE + 1)
    assert bench.is_held(STUCK)


def test_it_is_held_until_it_acknowledges(bench: Bench) -> None:
    first, *_ = bench.send(STUCK, 5)
    bench.pass_time(60, others_acknowledge=True)
    assert bench.is_held(STUCK)
    bench.out.remove(first)
    bench.pass_time(0.25, others_acknowledge=True)
    assert not bench.holds.held
    assert not bench.holds.stuck


def test_those_that_are_stuck_together_fill_the_window_together() -> None:
    bench = Bench()
    bench.led = [True] * 4
    three = [f"k{n}" for n in range(40) if partition_of(f"k{n}".encode(), 4) != 0][:6]
    bench.out = [Envelope(event(n, one), None, Stage.HANDED) for n, one in enumerate(three)]
    bench.pass_time(PATIENCE + 1, others_acknowledge=True)
    assert {number for _, number in bench.holds.held.partitions} == {partition_of(one.encode(), 4) for one in three}


def test_a_topic_that_gets_more_partitions_is_counted_again() -> None:
    bench = Bench()
    names = [f"k{n}" for n in range(100)]
    stuck = [one for one in names if partition_of(one.encode(), 3) == 2]
    bench.send(OTHER)
    bench.pass_time(1, others_acknowledge=True)  # its partitions are counted: two
    bench.led = [True] * 3
    bench.out = [Envelope(event(n, one), None, Stage.HANDED) for n, one in enumerate(stuck[:10])]
    for envelope in bench.out:
        envelope.handed_at = bench.now
    bench.pass_time(2 * PATIENCE + ASK_EVERY, others_acknowledge=True)
    assert bench.holds.stuck == {(TOPIC, 2)}
    assert [one for one in names if (TABLE, "order", one) in bench.holds.held] == stuck


def test_also_while_some_of_it_is_held() -> None:
    bench = Bench()
    bench.send(STUCK, 5)
    bench.pass_time(PATIENCE + 1, others_acknowledge=True)
    assert bench.is_held(STUCK)
    bench.led = [True] * 3
    numbers = {partition_of(envelope.event.aggregate_id.encode(), 3) for envelope in bench.out}
    bench.pass_time(2 * PATIENCE + ASK_EVERY, others_acknowledge=True)
    assert bench.holds.held.partitions == {(TOPIC, number) for number in numbers}
    assert bench.holds.held.counts[TOPIC] == 3


def test_while_no_broker_answers_nothing_is_held_and_few_questions_are_asked(bench: Bench) -> None:
    bench.led = None
    bench.send(STUCK, 5)
    bench.pass_time(60, others_acknowledge=True)
    assert not bench.holds.stuck
    assert bench.asked <= 13


def test_one_pass_sees_one_state(bench: Bench) -> None:
    bench.send(STUCK, 5)
    bench.pass_time(PATIENCE + 1, others_acknowledge=True)
    seen = bench.holds.held
    bench.out.clear()
    bench.pass_time(0.25)
    assert seen
    assert not bench.holds.held


def test_what_more_than_the_aggregate_decides_is_never_held() -> None:
    holds = PartitionHolds({}, lambda topic: pytest.fail("asked"), max_events=10, max_bytes=1000)
    out = [Envelope(event(n, key(STUCK, n)), None, Stage.HANDED) for n in range(10)]
    for now in range(60):
        holds.look(float(now), out, float(now))
    assert not holds.stuck
