"""One publisher at a time (P6), by what the broker says of when it took each record."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness import recovery
from tests.harness.kafka import Seen, create_topic
from tests.harness.load import Load
from tests.harness.recovery import Note
from tests.harness.world import World


@pytest.fixture
def world_with_times(world: World) -> World:
    create_topic(world.bootstrap, world.topic, 1, message_timestamp_type="LogAppendTime")
    return world


def configuration(world: World, relay: str) -> Path:
    """Each relay's records bear a header of its own."""
    return world.config(outbox={"columns": {"headers": {relay: "event_type"}}})


def by_relay(records: list[Seen]) -> dict[str, list[Seen]]:
    return {relay: [one for one in records if relay in one.headers] for relay in ("first", "second")}


def test_a_clean_stop_hands_over_at_once(world_with_times: World, record_property: Note) -> None:
    world = world_with_times
    first = world.start(configuration(world, "first"))
    second = world.start(configuration(world, "second"), wait_for="standby")
    load = Load(world)
    assert first.stop() == 0
    second.wait_for("leader")
    load.flow(100)
    load.check()
    load.judge.check_no_duplicates()
    seen = by_relay(load.judge.records())
    last, next = times(seen["first"])[-1], times(seen["second"])[0]
    assert last <= next, "both published at the same time"
    assert (next - last) / 1000 < recovery.AT_MOST
    record_property("recovery", f"{(next - last) / 1000:.2f}")


def test_a_frozen_leader_publishes_no_more_than_it_had_handed_over(
    world_with_times: World, record_property: Note
) -> None:
    """When it wakes up another leads: what its client still held may arrive, and nothing that came later."""
    world = world_with_times
    first = world.start(configuration(world, "first"))
    second = world.start(configuration(world, "second"), wait_for="standby")
    load = Load(world, rate=300)
    first.pause()
    before = load.writer.committed
    second.wait_for("leader")
    load.flow(200)
    first.resume()
    first.wait_for("leadership_lost")
    first.wait_for("standby")
    load.flow(100)
    load.check()
    seen = by_relay(load.judge.records())
    takeover = times(seen["second"])[0]
    late = [one for one in seen["first"] if one.appended is not None and one.appended > takeover]
    assert {one.event_id for one in late} <= before, "published by the old leader after the other began"
    assert times(seen["first"]) and seen["second"][-1].offset > seen["first"][-1].offset


def times(records: list[Seen]) -> list[int]:
    found = [one.appended for one in records if one.appended is not None]
    assert len(found) == len(records)
    return found
