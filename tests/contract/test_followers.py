"""One suite for both Kafka clients' readers, on a real broker: what `follower.Follower` promises."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # its way

from cdc_outbox.config import KafkaSettings
from cdc_outbox.errors import Hold
from cdc_outbox.kafka.follower import BEGINNING, Followed, Follower, make_follower
from cdc_outbox.testing.services.endpoint import KafkaEndpoint
from tests.harness.kafka import create_topic

pytestmark = [
    pytest.mark.parametrize("client", ["confluent", "kafka-python"]),
    # kafka-python leaves a socket that could not connect to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


class Topic:
    """A topic of one test."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def make(self, partitions: int = 2) -> None:
        create_topic(self._bootstrap, self.name, partitions)

    def widen(self, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(self.name, partitions)])[self.name].result(30)

    def put(self, *values: str, partition: int = 0, at: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for value in values:
            producer.produce(
                self.name,
                value.encode(),
                b"key",
                partition,
                timestamp=at,
                headers=[("event_id", value.encode()), ("empty", None)],
            )
        assert producer.flush(30) == 0


@pytest.fixture
def topic(kafka_broker: KafkaEndpoint, topic_prefix: str) -> Topic:
    return Topic(kafka_broker.bootstrap, f"{topic_prefix}order")


@pytest.fixture
def follower(kafka_broker: KafkaEndpoint, client: str) -> Iterator[Follower]:
    before = set(threading.enumerate())
    opened = make_follower(KafkaSettings(bootstrap_servers=kafka_broker.bootstrap, client=client))  # type: ignore[arg-type]
    yield opened
    opened.close()
    assert set(threading.enumerate()) - before == set()


def read(follower: Follower, until: Callable[[list[Followed]], bool]) -> list[Followed]:
    seen: list[Followed] = []
    deadline = time.monotonic() + 60
    while not until(seen):
        assert time.monotonic() < deadline, f"only {len(seen)} came"
        seen += follower.poll(0.2)
    return seen


def test_it_follows_from_the_end_on(topic: Topic, follower: Follower) -> None:
    topic.make()
    topic.put("old")
    follower.follow([topic.name], None)
    assert follower.caught_up()
    topic.put("new", partition=1, at=1_700_000_000_000)
    (record,) = read(follower, lambda seen: len(seen) == 1)
    assert record == Followed(topic.name, 1, 0, b"key", b"new", {"event_id": b"new"}, 1_700_000_000_000)


def test_it_reads_from_the_beginning_and_knows_when_it_has_all(topic: Topic, follower: Follower) -> None:
    topic.make(3)
    topic.put(*(f"a{n}" for n in range(2000)))
    topic.put("b", partition=2)
    follower.follow([topic.name], BEGINNING)
    assert not follower.caught_up()
    seen = read(follower, lambda seen: follower.caught_up())
    assert sorted(record.value or b"" for record in seen) == sorted([*(b"a%d" % n for n in range(2000)), b"b"])


def test_it_reads_from_a_time_on(topic: Topic, follower: Follower) -> None:
    topic.make()
    topic.put("old", at=1_700_000_000_000)
    topic.put("young", at=1_700_000_060_000)
    follower.follow([topic.name], 1_700_000_030_000)
    seen = read(follower, lambda seen: follower.caught_up())
    assert [record.value for record in seen] == [b"young"]


def test_topics_and_partitions_that_come_later(topic: Topic, follower: Follower) -> None:
    assert topic.name not in follower.topics()
    follower.follow([topic.name], None)
    topic.make(1)
    topic.put("first")
    deadline = time.monotonic() + 30
    while topic.name not in follower.topics() and time.monotonic() < deadline:
        time.sleep(0.1)
    follower.follow([topic.name], BEGINNING)
    assert [one.value for one in read(follower, lambda seen: len(seen) == 1)] == [b"first"]
    topic.widen(2)
    topic.put("second", partition=1)
    seen: list[Followed] = []
    while not seen and time.monotonic() < deadline + 30:
        follower.follow([topic.name], BEGINNING)
        seen += follower.poll(0.2)
    assert [one.value for one in seen] == [b"second"]


def test_no_broker_is_said_within_moments(client: str) -> None:
    with pytest.raises(Hold, match=r"kafka\.bootstrap_servers"):
        make_follower(KafkaSettings(bootstrap_servers="127.0.0.1:9", client=client))  # type: ignore[arg-type]
    gc.collect()  # while the filter above is in force
