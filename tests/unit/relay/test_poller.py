"""What the poller decides without asking a server."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from cdc_outbox.kafka.murmur2 import partition_of
from cdc_outbox.kafka.publisher import Record
from cdc_outbox.model import Position
from cdc_outbox.relay.brake import Brake
from cdc_outbox.relay.budget import Budget
from cdc_outbox.relay.in_flight import InFlight
from cdc_outbox.relay.partition_holds import HeldPartitions
from cdc_outbox.relay.pipeline import Freed, Queued
from cdc_outbox.relay.poller import RESERVE, Poller
from cdc_outbox.relay.topic_holds import TopicHolds
from tests.unit.relay.test_pipeline import TABLE, event

EVENTS, BYTES = 1000, 1 << 20


@pytest.fixture
def ledger() -> InFlight:
    return InFlight(Position())


@pytest.fixture
def budget() -> Budget:
    return Budget(EVENTS, BYTES)


@pytest.fixture
def brake() -> Brake:
    return Brake(None)


@pytest.fixture
def topic_holds() -> TopicHolds:
    return TopicHolds()


@pytest.fixture
def partitions() -> SimpleNamespace:
    return SimpleNamespace(held=HeldPartitions())


@pytest.fixture
def submitted() -> list[Queued | Freed]:
    return []


@pytest.fixture
def poller(
    *,
    ledger: InFlight,
    budget: Budget,
    brake: Brake,
    topic_holds: TopicHolds,
    partitions: SimpleNamespace,
    submitted: list[Queued | Freed],
) -> Poller:
    nothing: dict[str, object] = dict.fromkeys(
        ("session", "fence", "lease", "metrics", "alerts", "on_swept", "on_failure")
    )
    return Poller(
        **nothing,  # type: ignore[arg-type]
        tables={},
        ledger=ledger,
        budget=budget,
        brake=brake,
        topic_holds=topic_holds,
        partitions=partitions,  # type: ignore[arg-type]
        submit=submitted.append,
        waits=(10.0,),
        batch=EVENTS,
        poll_interval=1.0,
        sending_timeout=300.0,
        ping_every=3.0,
        watermark=Position(),
        bootstrap=False,
    )


def test_a_tail_that_fills_the_budget_leaves_the_poller_its_share(
    poller: Poller, ledger: InFlight, budget: Budget
) -> None:
    budget.add(EVENTS, BYTES)
    assert poller._room() == (EVENTS // RESERVE, BYTES // RESERVE)
    ledger.queue([event(1)], lambda _: True)
    assert poller._room() is None  # its share is in use


def test_with_room_for_all_it_takes_a_batch(poller: Poller) -> None:
    assert poller._room() == (EVENTS, BYTES)


def test_while_paused_it_takes_nothing(poller: Poller, brake: Brake) -> None:
    brake.paused = True
    assert poller._room() is None


def test_what_waits_for_its_topic_is_not_freed(
    poller: Poller, ledger: InFlight, topic_holds: TopicHolds, submitted: list[Queued | Freed]
) -> None:
    """The topic may be there before the poller takes the parked rows: new events must not overtake them."""
    waiting, free = (TABLE, "order", "a"), (TABLE, "payment", "b")
    ledger.block([waiting, free])
    topic_holds.add("order", Record("outbox.event.order", b"a", b"{}", [], 1, None), 0.0)
    number, quiet = ledger.begin_pass()
    poller._free(number, quiet, set())
    assert submitted == [Freed(number, [free])]


def test_what_waits_for_its_partition_is_not_freed_either(
    poller: Poller, ledger: InFlight, partitions: SimpleNamespace, submitted: list[Queued | Freed]
) -> None:
    waiting, free = (TABLE, "order", "a"), (TABLE, "order", "b")
    ledger.block([waiting, free])
    number = partition_of(b"a", 3)
    assert partition_of(b"b", 3) != number
    partitions.held = HeldPartitions(frozenset({("orders", number)}), {"order": "orders"}, {"orders": 3})
    number, quiet = ledger.begin_pass()
    poller._free(number, quiet, set())
    assert submitted == [Freed(number, [free])]
