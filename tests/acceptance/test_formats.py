"""Record formats from the row to the consumer: CloudEvents read by their SDK, Debezium's beside a real Debezium's."""

from __future__ import annotations

import json

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event

from tests.harness import debezium
from tests.harness.kafka import read_topic
from tests.harness.world import World, wait_until


@pytest.mark.parametrize("form", ["cloudevents", "cloudevents-structured"])
def test_a_consumer_with_the_sdk_reads_cloud_events(world: World, form: str) -> None:
    relay = world.start(kafka={"format": form, "bootstrap_servers": world.bootstrap, "topic": world.topic})
    event_id = world.insert("A-1", event_type="OrderPaid", payload='{"cents": 1250}')
    world.wait_sent(event_id)
    assert relay.stop() == 0
    (seen,) = read_topic(world.bootstrap, world.topic)
    found = from_kafka_event(KafkaMessage(seen.headers, seen.key, seen.value or b""))
    assert found.get_data() == {"cents": 1250}
    assert (found.get_id(), found.get_type(), found.get_subject()) == (event_id, "OrderPaid", "A-1")
    assert found.get_source() == f"/{world.database}/outbox_event"
    time = found.get_time()
    assert time is not None and round(time.timestamp() * 1000) == seen.timestamp


@pytest.mark.long
def test_records_are_those_of_a_real_debezium(world: World) -> None:
    kafka = {"format": "debezium", "bootstrap_servers": world.bootstrap, "topic": world.prefix + "{aggregate_type}"}
    relay = world.start(kafka=kafka)
    debezium.insert_rows(world)
    world.wait_settled()
    assert relay.stop() == 0
    printed = debezium.printed_payloads(world)
    theirs = debezium.records_of(world, len(debezium.ROWS), f"{world.prefix}debezium.")
    ours = wait_until(lambda: read_topic(world.bootstrap, world.topic), "our records")
    partitions = {one.headers["id"]: one.partition for one in theirs}
    assert {one.headers["id"]: one.partition for one in ours} == partitions
    for mine, other in zip(debezium.described(ours, printed), debezium.described(theirs, printed), strict=True):
        assert (mine["key"], mine["headers"]) == (other["key"], other["headers"])
        assert json.loads(mine["value"]) == json.loads(other["value"])
    assert debezium.described(theirs, printed) == json.loads(debezium.GOLDEN.read_text("utf-8")), (
        "another Debezium: python -m tests.harness.debezium"
    )
