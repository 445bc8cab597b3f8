"""Partitions that acknowledge nothing while others do: what is bound for them waits in the table, all else flows."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import pytest

from cdc_outbox.kafka.murmur2 import partition_of
from tests.harness.cluster import Broker, create_spread_topic, two_brokers
from tests.harness.judge import Judge
from tests.harness.world import World, wait_until

WINDOW = 40
"""limits.max_in_flight: half of it is enough to hold a partition."""

AGGREGATES = [[f"{n}" for n in range(200) if partition_of(f"{n}".encode(), 2) == number][:10] for number in (0, 1)]
"""Of each partition."""

PARKED = "SELECT COUNT(*) FROM outbox_event WHERE next_retry_at IS NOT NULL"


@pytest.fixture(scope="module")
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with two_brokers(lambda text: print(text, file=sys.stderr)) as found:
        yield found


@pytest.mark.parametrize(
    ("client", "claim", "ordering"),
    [
        ("confluent", "leader", "aggregate"),
        ("kafka-python", "row", "strict"),
        pytest.param("confluent", "row", "strict", marks=pytest.mark.long),
        pytest.param("kafka-python", "leader", "aggregate", marks=pytest.mark.long),
        pytest.param("kafka-python", "leader", "none", marks=pytest.mark.long),
    ],
)
def test_what_waits_for_a_stuck_partition_goes_in_order_once_it_answers(
    make_world: Callable[..., World], brokers: tuple[Broker, Broker], client: str, claim: str, ordering: str
) -> None:
    first, second = brokers
    world = make_world(kafka=first.endpoint)
    create_spread_topic(world.bootstrap, world.topic)
    relay = world.start(
        kafka={"client": client},
        outbox={"claim": claim, "ordering": ordering},
        limits={"max_in_flight": WINDOW, "batch": 10},
    )
    commits: dict[str, list[str]] = {one: [world.insert(one)] for one in AGGREGATES[0] + AGGREGATES[1]}
    world.wait_settled()
    second.kill()
    flowing: list[str] = []
    for number in range(3 * WINDOW):
        for of_partition in AGGREGATES:
            aggregate = of_partition[number % len(of_partition)]
            commits[aggregate].append(world.insert(aggregate))
            if aggregate in AGGREGATES[0]:
                flowing.append(commits[aggregate][-1])
    world.wait_sent(*flowing)
    relay.wait_for("partition_stuck")
    relay.wait_for("partition_held")
    wait_until(lambda: world.execute(PARKED)[0][0] >= WINDOW, "they wait in the table")
    relay_was_there = time.monotonic()
    second.start()
    relay.wait_for("partition_back")
    world.wait_settled()
    print(f"all sent {time.monotonic() - relay_was_there:.1f} s after the broker was started")
    assert world.execute("SELECT COUNT(*) FROM outbox_event WHERE retry_count > 0")[0][0] == 0
    judge = Judge(world)
    judge.check_complete(commits)
    judge.check_no_duplicates()
    if ordering != "none":
        judge.check_order(commits)
