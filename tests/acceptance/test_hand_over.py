"""From Debezium's outbox to the relay, as docs/migrate.md says: nothing lost, nothing doubled, in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.harness.debezium import debezium
from tests.harness.kafka import read_topic
from tests.harness.process import run_command
from tests.harness.world import World, wait_until


def ids(world: World) -> list[str]:
    return [one.headers["id"].decode() for one in read_topic(world.bootstrap, world.topic)]


def hand_over(world: World, others: Callable[[int], None]) -> None:
    """others: waits until that many records of the old table are there."""
    old = [world.insert("a1", table="outbox") for _ in range(5)]
    others(5)
    config = world.config(kafka={**kafka_of(world), "format": "debezium"})
    assert run_command(config, "pause").returncode == 0
    world.start(config, wait_for="paused")
    new = [world.insert(f"a{number % 2}") for number in range(6)]
    old += [world.insert("a7", table="outbox") for _ in range(3)]
    others(8)
    assert {world.row(one)["status"] for one in new} == {0}
    assert run_command(config, "resume").returncode == 0
    world.wait_sent(*new)


def kafka_of(world: World) -> dict[str, object]:
    return {
        "bootstrap_servers": world.bootstrap,
        "topic": world.prefix + "{aggregate_type}",
        "dead_letter_topic": world.dead_letter_topic,
    }


def test_the_relay_waits_with_the_new_table_and_never_looks_at_the_old_one(world: World) -> None:
    world.execute("CREATE TABLE outbox LIKE outbox_event")
    hand_over(world, lambda count: None)
    sent = [one for (one,) in world.execute("SELECT event_id FROM outbox_event ORDER BY id")]
    assert sorted(ids(world)) == sorted(sent)
    assert set(world.statuses("outbox").values()) == {0}


@pytest.mark.long
def test_with_a_real_debezium(world: World) -> None:
    world.execute("CREATE TABLE outbox LIKE outbox_event")
    with debezium(world, world.prefix, table="outbox") as connect:

        def others(count: int) -> None:
            def arrived() -> bool:
                assert connect.alive, connect.last_lines(40)
                return len(ids(world)) >= count

            wait_until(arrived, f"{count} records from Debezium")

        hand_over(world, others)
        connect.stop()
    found = ids(world)
    written = [
        one
        for table in ("outbox", "outbox_event")
        for (one,) in world.execute(f"SELECT event_id FROM {table} ORDER BY id")
    ]
    assert sorted(found) == sorted(written)
    for aggregate in ("a0", "a1", "a7"):
        own = [one for one in written if one.startswith(f"{aggregate}-")]
        assert [one for one in found if one in own] == own
