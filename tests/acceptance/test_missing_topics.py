"""Topics that are not there: what is bound for them waits without spending retries, all else flows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.harness.judge import Judge
from tests.harness.kafka import create_topic, read_topic
from tests.harness.process import run_command
from tests.harness.world import World, wait_until

if TYPE_CHECKING:
    from tests.conftest import MakeKafka


@pytest.fixture
def world(make_world: Callable[..., World], make_kafka: MakeKafka) -> World:
    """Beside a broker that creates no topics."""
    found = make_world(kafka=make_kafka({"auto.create.topics.enable": "false"}).endpoint)
    create_topic(found.bootstrap, found.dead_letter_topic)
    create_topic(found.bootstrap, f"{found.prefix}invoice")
    return found


@pytest.mark.parametrize(
    ("client", "claim"), [("kafka-python", "leader"), ("confluent", "leader"), ("confluent", "row")]
)
def test_what_waits_for_its_topic_goes_in_order_once_it_is_there(world: World, client: str, claim: str) -> None:
    swept = [world.insert("a1"), world.insert("a2")]
    relay = world.start(kafka={"client": client}, outbox={"claim": claim}, retry={"waits": ["1h"]})
    relay.wait_for("topic_missing")
    read = [world.insert("a1") for _ in range(3)]
    world.wait_sent(world.insert("a1", kind="invoice"), world.insert("a2", kind="invoice"))
    wait_until(lambda: all(world.row(one)["next_retry_at"] for one in read), "they wait in the table")
    create_topic(world.bootstrap, world.topic)
    relay.wait_for("topic_found")
    world.wait_sent(*swept, *read)
    assert world.execute("SELECT COUNT(*) FROM outbox_event WHERE retry_count > 0")[0][0] == 0
    Judge(world).check({"a1": [swept[0], *read], "a2": [swept[1]]})


def test_nothing_waits_for_a_topic_longer_than_its_retries_would_take(world: World) -> None:
    relay = world.start(retry={"waits": ["1s", "2s"]})
    brief = world.insert("a1", max_retries=1)
    patient = world.insert("a2", max_retries=1000)
    wait_until(lambda: world.row(brief)["status"] == 3 and world.row(brief)["next_retry_at"] is None, "one is dead")
    (letter,) = read_topic(world.bootstrap, world.dead_letter_topic)
    assert (letter.event_id, letter.headers["error_class"]) == (brief, b"UNKNOWN_TOPIC_OR_PARTITION")
    assert world.row(patient)["retry_count"] == 0
    assert world.row(patient)["next_retry_at"] is not None
    assert "event_dead" in relay.events()


def test_what_waits_for_its_topic_can_be_given_up(world: World) -> None:
    config = world.config(retry={"waits": ["1h"]})
    relay = world.start(config)
    waits, follows = world.insert("a1"), world.insert("a1")
    relay.wait_for("topic_missing")
    wait_until(lambda: world.row(follows)["next_retry_at"] is not None, "they wait in the table")
    done = run_command(config, "events", "skip", waits)
    assert done.returncode == 0, done.stderr
    wait_until(lambda: world.row(waits)["status"] == 3 and world.row(waits)["next_retry_at"] is None, "it is dead")
    (letter,) = read_topic(world.bootstrap, world.dead_letter_topic)
    assert (letter.event_id, letter.headers["error_class"]) == (waits, b"skipped")
    assert world.row(follows)["status"] == 0
