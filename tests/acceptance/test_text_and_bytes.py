"""Aggregates and payloads are bytes: no collation, no charset and no guess at an encoding may change what is theirs."""

from __future__ import annotations

from tests.harness.judge import Judge
from tests.harness.kafka import read_topic
from tests.harness.world import World, wait_until


def test_aggregates_that_a_collation_takes_for_one_are_two(world: World) -> None:
    config = world.config(retry={"waits": ["1h"]})
    for one in ("A1", "a1"):
        world.insert(one, status=3, retry_count=1, next_retry_at="2099-01-01")
    world.start(config)
    behind = [world.insert("A1"), world.insert("a1")]
    world.wait_sent(world.insert("a2"))
    wait_until(lambda: all(world.row(one)["next_retry_at"] for one in behind), "both successors parked")
    assert len(Judge(world).records()) == 1


def test_an_aggregate_in_latin1_is_freed_by_its_name(world: World) -> None:
    for column in ("aggregate_type", "aggregate_id"):
        world.execute(f"ALTER TABLE outbox_event MODIFY {column} VARCHAR(64) CHARACTER SET latin1 NOT NULL")
    failed = world.insert("Zoë", status=3, retry_count=1, next_retry_at="2099-01-01")
    world.start()
    behind = world.insert("Zoë")
    wait_until(lambda: world.row(behind)["next_retry_at"] is not None, "the successor is parked")
    world.execute("UPDATE outbox_event SET next_retry_at = NOW() WHERE event_id = %s", failed)
    world.wait_sent(failed, behind)
    after = world.insert("Zoë")
    world.wait_sent(after)
    Judge(world).check({"Zoë": [failed, behind, after]})
    assert {record.key for record in Judge(world).records()} == {"Zoë".encode()}


def test_a_payload_that_is_no_text_goes_as_it_is(world: World) -> None:
    world.execute("ALTER TABLE outbox_event MODIFY payload LONGBLOB NULL")
    insert = (
        "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
        " VALUES (%s, 'order', 'a1', 'OrderPlaced', x'FFFE00AB')"
    )
    world.execute(insert, "swept")
    relay = world.start()
    relay.wait_for("sweep_done")
    world.execute(insert, "read")
    world.wait_sent("swept", "read")
    values = {record.event_id: record.value for record in read_topic(world.bootstrap, world.topic)}
    assert values == {"swept": b"\xff\xfe\x00\xab", "read": b"\xff\xfe\x00\xab"}
