"""What a clean stop leaves behind, and how long it takes. The order in which threads move is chosen here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cdc_outbox.mysql.checkpoint import set_paused
from tests.property.broker import event_of
from tests.property.database import Row
from tests.property.simulation import World

AT_ONCE = 1.0
"""Seconds; limits.shutdown_timeout is 5 s in a World."""

RELAY_THREAD = "cdc-outbox-relay"


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """One relay leads and has nothing to do."""
    made = World(**request.param)
    with made.running():
        made.start()
        until(made, lambda: made.relays[0].supervisor.ready() == (True, "leader"))
        yield made
        assert made.judge.broken == []


def until(world: World, condition: Callable[[], bool]) -> None:
    """Everything goes on."""
    for _ in range(10_000):
        if condition():
            return
        world.round()
    raise AssertionError("it does not come about")


def threads_run_until(world: World, condition: Callable[[], bool], *, but: str = "") -> None:
    """All but the one of that name; nothing lands at the broker."""
    for _ in range(10_000):
        if condition():
            return
        for task in [one for one in world.scheduler.runnable() if one.name != but]:
            world.step(task)
        world.advance(0.01)
    raise AssertionError("it does not come about")


def insert(world: World, *rows: Row) -> None:
    world.judge.committed(list(rows))
    world.database.insert(rows)


def seconds_of_a_stop(world: World) -> float:
    relay, began = world.relays[0], world.scheduler.now
    relay.request_stop()
    until(world, lambda: relay.exit is not None)
    assert relay.exit == "stopped"
    return world.scheduler.now - began


def statuses(world: World) -> set[int]:
    return {row.status for row in world.database.rows.values()}


@pytest.mark.parametrize("world", [{"claim": "row"}, {"claim": "leader"}], ids=["row", "leader"], indirect=True)
def test_what_was_claimed_when_a_pause_came_is_put_back(world: World) -> None:
    """With `claim: row` it would be taken for another worker's, and stand at 1 until sending_timeout."""
    due = world.database.now
    insert(world, *(Row(id, f"e{id}", aggregate, next_retry_at=due) for id, aggregate in enumerate("abc", 1)))
    threads_run_until(world, lambda: statuses(world) == {1}, but=RELAY_THREAD)
    person = world.database.connect(None, 60.0)
    set_paused(person, world.settings.name, True)  # type: ignore[arg-type]
    threads_run_until(world, lambda: world.relays[0].supervisor._brake.paused, but=RELAY_THREAD)
    assert seconds_of_a_stop(world) < AT_ONCE
    assert [(row.status, row.retry_count) for row in world.database.rows.values()] == [(3, 0)] * 3
    assert not world.broker.wire


@pytest.mark.parametrize(
    "world",
    [
        {"claim": claim, "ordering": ordering, "max_rate": 0.1}
        for claim in ("leader", "row")
        for ordering in ("aggregate", "strict")
    ],
    ids=lambda settings: " ".join(map(str, settings.values())),
    indirect=True,
)
def test_what_a_rate_holds_back_is_not_waited_for(world: World) -> None:
    insert(world, Row(1, "e1", "a"), Row(2, "e2", "a"), Row(3, "e3", "b"))
    insert(world, Row(4, "e4", "a"), Row(5, "e5", "b"))
    until(world, lambda: world.database.rows[1].status == 2)
    assert seconds_of_a_stop(world) < AT_ONCE
    assert 1 not in statuses(world)
    assert {row.status for row in world.database.rows.values()} & {0, 3}


@pytest.mark.parametrize("world", [{"transient": True, "ordering": "strict"}], indirect=True)
def test_what_has_no_row_and_was_not_sent_gets_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would be read again, and with it what was sent behind it, since no row says that it was."""
    landed: list[str] = []
    judge = world.judge.landed
    monkeypatch.setattr(world.judge, "landed", lambda record: landed.append(event_of(record)) or judge(record))
    insert(world, Row(1, "e1", "a"), Row(2, "e2", "a"), Row(3, "e3", "b"))
    threads_run_until(world, lambda: len(world.broker.wire) == 2)
    world.relays[0].request_stop()
    threads_run_until(world, lambda: list(world.database.rows) == [2])
    until(world, lambda: world.relays[0].exit is not None)
    assert landed == ["e1", "e3"]
    world.start()
    until(world, lambda: len(landed) > 2)
    later = world.scheduler.now + 5.0
    until(world, lambda: world.scheduler.now > later)
    assert landed == ["e1", "e3", "e2"]
