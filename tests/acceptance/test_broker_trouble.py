"""A broker that is there and will not have us as before: slowed down, another password, the topic deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.harness import recovery
from tests.harness.judge import Judge
from tests.harness.kafka import create_topic, delete_topic, set_quota, set_scram_password
from tests.harness.kafka_by_proxy import kafka_by_proxy
from tests.harness.load import Load, no_retry_spent
from tests.harness.recovery import Note
from tests.harness.world import World

if TYPE_CHECKING:
    from tests.conftest import MakeKafka

CLIENTS = pytest.mark.parametrize("client", [pytest.param("kafka-python", marks=pytest.mark.long), "confluent"])


@CLIENTS
def test_a_quota_slows_down_and_is_no_outage(
    make_world: Callable[..., World], make_kafka: MakeKafka, client: str
) -> None:
    """The broker takes what comes and is then silent for as long as it was too much."""
    broker = make_kafka()
    world = make_world(kafka=broker.endpoint)
    set_quota(world.bootstrap, "cdc-outbox", "producer_byte_rate", 50_000)
    relay = world.start(kafka={"client": client, "batch_bytes": 50_000})
    commits: dict[str, list[str]] = {f"a{n}": [] for n in range(10)}
    for _ in range(50):
        for aggregate, events in commits.items():
            events.append(world.insert(aggregate, payload='"' + "x" * 1000 + '"'))
    assert world.statuses()[commits["a9"][-1]] != 2, "it was not slowed down"
    world.wait_settled()
    Judge(world).check(commits)
    assert no_retry_spent(world)
    assert relay.events().count("leader") == 1, "it was rebuilt"
    assert not {"hold", "leadership_lost"} & set(relay.events())


@CLIENTS
def test_a_topic_deleted_while_events_flow(
    make_world: Callable[..., World], make_kafka: MakeKafka, record_property: Note, client: str
) -> None:
    """What was in it is gone; all that comes waits for another of its name."""
    world = make_world(kafka=make_kafka({"auto.create.topics.enable": "false"}).endpoint)
    create_topic(world.bootstrap, world.topic)
    relay = world.start(kafka={"client": client}, retry={"waits": ["1h"]})
    load = Load(world)
    delete_topic(world.bootstrap, world.topic)
    relay.wait_for("topic_missing")
    load.pile_up(100)
    create_topic(world.bootstrap, world.topic)
    load.flow(200)
    commits = load.writer.stop()
    world.wait_settled()
    load.judge.check_order(commits)
    assert no_retry_spent(world)
    assert relay.running


@CLIENTS
def test_a_kafka_password_that_stops_working_is_waited_for(
    make_world: Callable[..., World], record_property: Note, client: str
) -> None:
    """At a start it would be refused; a relay that has led waits until the password works again."""
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    with kafka_by_proxy(
        "SASL_PLAINTEXT", **{"sasl.enabled.mechanisms": "SCRAM-SHA-256", "scram-sha-256.sasl.jaas.config": login}
    ) as broker:
        world = make_world(kafka=broker.endpoint)
        set_scram_password(world.bootstrap, "relay", "first")
        security = {
            "protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "username": "relay",
            "password": "first",
        }
        relay = world.start(
            kafka={"client": client, "bootstrap_servers": broker.bootstrap, "security": security},
        )
        load = Load(world)
        set_scram_password(world.bootstrap, "relay", "second")
        broker.proxy.cut()
        relay.wait_for("hold")
        load.pile_up(100)

        def put_back() -> None:
            set_scram_password(world.bootstrap, "relay", "first")

        assert recovery.measure(world, put_back, record_property) < recovery.AT_MOST
        load.check()
        assert relay.running
        assert "first" not in relay.log
