"""The main job, as a user runs it: insert, Kafka, status 2."""

from __future__ import annotations

import json

import pytest

from tests.harness.judge import Judge
from tests.harness.kafka import read_topic
from tests.harness.process import run_command
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer

CLIENTS = ["kafka-python", "confluent"]
CLAIMS = ["leader", "row"]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("claim", CLAIMS)
def test_insert_reaches_kafka_and_the_row_says_sent(world: World, client: str, claim: str) -> None:
    before = world.insert("a0")
    relay = world.start(kafka={"client": client}, outbox={"claim": claim})
    payload = '{"total": 12.5, "name": "Zoë \\"quoted\\"", "none": null}'
    event_id = world.insert("a1", payload=payload)
    world.wait_sent(before, event_id)

    (expected,) = world.execute("SELECT CAST(payload AS CHAR), id FROM outbox_event WHERE event_id = %s", event_id)
    record = next(one for one in Judge(world).records() if one.event_id == event_id)
    assert record.value is not None
    assert record.value.decode() == expected[0]
    assert record.key == b"a1"
    assert record.headers == {
        "event_id": event_id.encode(),
        "event_type": b"OrderPlaced",
        "aggregate_type": b"order",
        "aggregate_id": b"a1",
        "outbox_id": str(expected[1]).encode(),
    }
    assert relay.stop() == 0


def test_what_was_there_before_the_first_start_comes_first(world: World) -> None:
    """The binlog is read from now on; what is pending already is swept, in id order."""
    old = [world.insert("a1") for _ in range(30)]
    relay = world.start()
    relay.wait_for("sweep_done")
    new = [world.insert("a1") for _ in range(5)]
    world.wait_settled()
    Judge(world).check({"a1": old + new})


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("claim", CLAIMS)
def test_writers_and_relay_together(world: World, client: str, claim: str) -> None:
    relay = world.start(kafka={"client": client}, outbox={"claim": claim})
    commits = Writer(world, limit=2000, threads=2).start().join()
    world.wait_settled()
    Judge(world).check(commits)
    assert relay.stop() == 0
    assert "Traceback" not in relay.log


def test_several_tables_in_one_relay(world: World) -> None:
    world.execute("CREATE TABLE invoice_event LIKE outbox_event")
    world.start(outbox={"tables": ["outbox_event", "invoice_event"]})
    world.insert("a1", event_id="from-orders")
    world.insert("a1", event_id="from-invoices", kind="invoice", table="invoice_event")
    world.wait_settled()
    world.wait_settled("invoice_event")
    assert [r.event_id for r in read_topic(world.bootstrap, f"{world.prefix}invoice")] == ["from-invoices"]
    assert [r.event_id for r in Judge(world).records()] == ["from-orders"]


def test_start_tells_where_it_is_and_who_leads(world: World) -> None:
    relay = world.start()
    assert [event for event in relay.events() if event in TOLD] == TOLD


TOLD = ["connected_mysql", "connected_kafka", "tables", "reading", "leader"]


def test_status_tells_the_state_of_relay_and_rows(world: World) -> None:
    config = world.config()
    relay = world.start(config)
    world.wait_sent(world.insert("a1"))
    status = json.loads(run_command(config, "status", "--json").stdout)
    assert status["state"] == "leader"
    assert status["leader"]
    assert status["counts"]["sent"] == 1
    assert status["counts"]["pending"] == 0
    relay.stop()
    status = json.loads(run_command(config, "status", "--json").stdout)
    assert status["state"] == "stopped"
    assert status["leader"] is None


def test_emit_puts_an_event_in(world: World) -> None:
    config = world.config()
    world.start(config)
    done = run_command(config, "emit", "--aggregate-type", "order")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: Judge(world).records(), "the emitted event in Kafka")


def test_sigterm_drains_and_leaves_nothing_half_done(world: World) -> None:
    relay = world.start()
    writer = Writer(world, threads=2).start()
    wait_until(lambda: writer.count > 500, "500 events written")
    assert relay.stop() == 0
    commits = writer.stop()
    in_between = world.execute("SELECT COUNT(*) FROM outbox_event WHERE status = 1")[0][0]
    assert in_between == 0, "a drained relay leaves no row at 1"
    world.start()
    world.wait_settled()
    Judge(world).check(commits)
    Judge(world).check_no_duplicates()
