"""One suite for both Kafka clients, on real brokers: what `publisher.Publisher` promises."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cdc_outbox.config import KafkaSettings
from cdc_outbox.errors import Hold, RecordRefused
from cdc_outbox.kafka.murmur2 import partition_of
from cdc_outbox.kafka.publisher import Delivery, Publisher, Record, describe_broker, make_publisher
from cdc_outbox.kafka.topics import record_bytes
from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, wait_until
from cdc_outbox.testing.services.server import Server
from tests.harness.kafka import create_topic, read_topic, set_topic_config

pytestmark = [
    pytest.mark.parametrize("client", ["confluent", "kafka-python"]),
    # kafka-python leaves a socket that could not connect to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

Open = Callable[..., "Outlet"]


class Outlet:
    """A publisher, and what it has delivered."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.deliveries: list[Delivery] = []
        self.batches = 0
        self._arrived = threading.Condition()
        self.publisher: Publisher = make_publisher(settings, self._deliver)

    def _deliver(self, deliveries: list[Delivery]) -> None:
        with self._arrived:
            self.deliveries += deliveries
            self.batches += 1
            self._arrived.notify_all()

    def wait(self, count: int, seconds: float = 30.0) -> list[Delivery]:
        """The deliveries once there are `count`."""
        with self._arrived:
            self._arrived.wait_for(lambda: len(self.deliveries) >= count, seconds)
            assert len(self.deliveries) == count
            return list(self.deliveries)

    def send(self, *records: Record) -> None:
        for one in records:
            refusal = self.publisher.refusal(one)
            assert refusal is None, refusal
            self.publisher.send([one])

    def tokens(self, count: int, seconds: float = 30.0) -> list[object]:
        """The tokens of `count` deliveries, all of which succeeded."""
        deliveries = self.wait(count, seconds)
        assert [one.error for one in deliveries if one.error is not None] == []
        return [one.token for one in deliveries]


@pytest.fixture
def threads_end() -> Iterator[None]:
    """No thread is left when the test is over: Python's, nor librdkafka's own."""
    before, native_before = set(threading.enumerate()), native_threads()
    yield
    gc.collect()
    assert set(threading.enumerate()) - before == set()
    assert wait_until(lambda: native_threads() <= native_before, seconds=5)


@pytest.fixture
def open_outlet(client: str, kafka_broker: KafkaEndpoint, threads_end: None) -> Iterator[Open]:
    outlets: list[Outlet] = []

    def make(bootstrap: str = "", **kafka: object) -> Outlet:
        settings = KafkaSettings(bootstrap_servers=bootstrap or kafka_broker.bootstrap, client=client, **kafka)  # type: ignore[arg-type]
        outlets.append(Outlet(settings))
        return outlets[-1]

    yield make
    ended = [one.publisher.close(10.0) for one in outlets]
    outlets.clear()
    assert all(ended)


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server[KafkaEndpoint]]:
    """A broker to be hurt, which makes no topics by itself."""
    server = providers.make_kafka({"auto.create.topics.enable": "false"}, print)
    yield server
    server.remove()


@pytest.fixture
def own_broker(own_server: Server[KafkaEndpoint]) -> Iterator[Server[KafkaEndpoint]]:
    yield own_server
    own_server.resume()
    own_server.start()


def native_threads() -> int:
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0  # noqa: PTH112, PTH208


def new_topic(bootstrap: str, partitions: int = 1, **configs: Any) -> str:
    return create_topic(bootstrap, f"t-{uuid.uuid4().hex[:12]}", partitions, **configs)


def record(topic: str, token: int = 0, *, size: int = 100, **fields: object) -> Record:
    values: dict[str, object] = {
        "key": b"k",
        "value": b"%d " % token + b"x" * size,
        "headers": [("event_id", b"e-%d" % token)],
        "timestamp": int(time.time() * 1000),
    }
    return Record(topic, token=token, **{**values, **fields})  # type: ignore[arg-type]


def numbers(bootstrap: str, topic: str) -> list[int]:
    """The tokens of the records in the topic, in their order. Waits for a broker that was frozen to lead again."""
    found: list[int] = []

    def read() -> bool:
        with contextlib.suppress(KafkaException):
            found[:] = [int((one.value or b"-1").split()[0]) for one in read_topic(bootstrap, topic)]
            return True
        return False

    assert wait_until(read, seconds=60)
    return found


def test_who_leads_a_topics_partitions(open_outlet: Open, kafka_broker: KafkaEndpoint) -> None:
    topic = new_topic(kafka_broker.bootstrap, partitions=3)
    publisher = open_outlet().publisher
    assert list(publisher.leaders(topic)) == [True] * 3


# -- what arrives ----------------------------------------------------------------------------------------------------


def test_order_within_a_key_and_javas_partitions(open_outlet: Open, kafka_broker: KafkaEndpoint) -> None:
    topic = new_topic(kafka_broker.bootstrap, partitions=5)
    outlet = open_outlet()
    keys = [b"order-%d" % number for number in range(40)] + ["bestellung-größe".encode()]
    count = 5000
    outlet.send(*(record(topic, token, key=keys[token % len(keys)]) for token in range(count)))
    assert sorted(outlet.tokens(count)) == list(range(count))  # type: ignore[type-var]
    assert outlet.batches < count / 2
    seen = read_topic(kafka_broker.bootstrap, topic)
    assert len(seen) == count
    for key in keys:
        of_key = [one for one in seen if one.key == key]
        assert {one.partition for one in of_key} == {partition_of(key, 5)}
        order = [int((one.value or b"").split()[0]) for one in of_key]
        assert order == sorted(order)


def test_partitions_of_javas_golden_keys(open_outlet: Open, kafka_broker: KafkaEndpoint) -> None:
    golden = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-longer-string": -1486304829, b"abc": 479470107}
    topic = new_topic(kafka_broker.bootstrap, partitions=12)
    outlet = open_outlet()
    outlet.send(*(record(topic, token, key=key) for token, key in enumerate(golden)))
    outlet.tokens(len(golden))
    seen = {one.key: one.partition for one in read_topic(kafka_broker.bootstrap, topic)}
    assert seen == {key: (signed & 0x7FFFFFFF) % 12 for key, signed in golden.items()}


def test_a_record_arrives_as_it_was_given(open_outlet: Open, kafka_broker: KafkaEndpoint) -> None:
    topic = new_topic(kafka_broker.bootstrap)
    outlet = open_outlet()
    headers = [("event_id", b"e-1"), ("größe", "✓".encode()), ("empty", b"")]
    outlet.send(
        record(
            topic, 0, key="ключ".encode(), value='{"a": "✓"}'.encode(), headers=headers, timestamp=1_700_000_000_123
        ),
        record(topic, 1, key=b"tombstone", value=None, headers=[]),
        record(topic, 2, key=b"", value=b""),
        record(topic, 3, key=None, value=b"no key"),
    )
    outlet.tokens(4)
    full, tombstone, empty, keyless = read_topic(kafka_broker.bootstrap, topic)
    assert (full.key, full.value) == ("ключ".encode(), '{"a": "✓"}'.encode())
    assert full.headers == dict(headers)
    assert full.timestamp == 1_700_000_000_123
    assert (tombstone.key, tombstone.value, tombstone.headers) == (b"tombstone", None, {})
    assert (empty.key, empty.value) == (b"", b"")
    assert (keyless.key, keyless.value) == (None, b"no key")


@pytest.mark.parametrize("compression", ["gzip", "lz4", "zstd", "snappy"])
def test_compression(client: str, open_outlet: Open, kafka_broker: KafkaEndpoint, compression: str) -> None:
    if client == "kafka-python" and compression != "gzip":
        pytest.skip("needs a further package")
    topic = new_topic(kafka_broker.bootstrap)
    outlet = open_outlet(compression=compression)
    outlet.send(*(record(topic, token) for token in range(100)))
    outlet.tokens(100)
    assert numbers(kafka_broker.bootstrap, topic) == list(range(100))


# -- what is refused -------------------------------------------------------------------------------------------------


def test_the_topics_limit_is_known_to_the_byte(open_outlet: Open, kafka_broker: KafkaEndpoint) -> None:
    topic = new_topic(kafka_broker.bootstrap, max_message_bytes="2000")
    outlet = open_outlet()
    size = 2000 - record_bytes(record(topic, size=1700)) + 1700
    largest = record(topic, size=size)
    assert record_bytes(largest) == 2000
    outlet.send(largest)
    assert outlet.tokens(1) == [0]
    refusal = outlet.publisher.refusal(record(topic, size=size + 1))
    assert refusal is not None
    assert refusal.name == "MESSAGE_TOO_LARGE"


def test_a_record_that_only_the_broker_finds_too_large(open_outlet: Open, kafka_broker: KafkaEndpoint) -> None:
    topic = new_topic(kafka_broker.bootstrap, max_message_bytes="2000")
    outlet = open_outlet()
    outlet.send(record(topic, 0))
    outlet.tokens(1)
    set_topic_config(kafka_broker.bootstrap, topic, "max.message.bytes", "1000")
    outlet.send(record(topic, 1, size=1500))
    refused = outlet.wait(2)[1]
    assert isinstance(refused.error, RecordRefused)
    assert refused.error.name == "MESSAGE_TOO_LARGE"
    outlet.send(*(record(topic, token) for token in range(2, 102)))
    assert outlet.wait(102)[2:] == [Delivery(token, None, 0) for token in range(2, 102)]
    assert numbers(kafka_broker.bootstrap, topic) == [0, *range(2, 102)]


def test_a_refused_batch_ends_nothing_else(open_outlet: Open, kafka_broker: KafkaEndpoint) -> None:
    topic = new_topic(kafka_broker.bootstrap)
    outlet = open_outlet(linger=0.2)
    outlet.send(record(topic, 0))
    outlet.tokens(1)
    set_topic_config(kafka_broker.bootstrap, topic, "message.timestamp.before.max.ms", "60000")
    outlet.send(*(record(topic, token) for token in (1, 2)), record(topic, 3, timestamp=1_700_000_000_000))
    refused = outlet.wait(4)[3]
    assert isinstance(refused.error, RecordRefused)
    assert refused.error.name == "INVALID_TIMESTAMP"
    assert not any(isinstance(one.error, Hold) for one in outlet.deliveries)
    outlet.send(record(topic, 4))
    assert outlet.wait(5)[4] == Delivery(4, None, 0)


def test_batches_fit_the_topic_however_many_records_there_are(open_outlet: Open, kafka_broker: KafkaEndpoint) -> None:
    topic = new_topic(kafka_broker.bootstrap, max_message_bytes="10000")
    outlet = open_outlet(linger=0.05)
    outlet.send(*(record(topic, token, size=400) for token in range(1000)))
    outlet.tokens(1000)
    assert numbers(kafka_broker.bootstrap, topic) == list(range(1000))


def test_a_missing_topic_is_made_by_a_broker_that_does_so(
    client: str, open_outlet: Open, kafka_broker: KafkaEndpoint, topic_prefix: str
) -> None:
    if not describe_broker(KafkaSettings(bootstrap_servers=kafka_broker.bootstrap, client=client)).creates_topics:  # type: ignore[arg-type]
        pytest.skip("this broker makes no topics")
    topic = f"{topic_prefix}new"
    outlet = open_outlet()
    outlet.send(record(topic, 7))
    outlet.tokens(1)
    assert numbers(kafka_broker.bootstrap, topic) == [7]


def test_create_topics_decides_how_many_partitions(
    open_outlet: Open, kafka_broker: KafkaEndpoint, topic_prefix: str
) -> None:
    topic = f"{topic_prefix}created"
    outlet = open_outlet(create_topics={"partitions": 7, "replication_factor": 1})
    outlet.send(record(topic))
    outlet.tokens(1)
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap, "log_level": 0})
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 7


def test_a_topic_that_cannot_be_created_says_why(
    open_outlet: Open, own_broker: Server[KafkaEndpoint], topic_prefix: str
) -> None:
    outlet = open_outlet(own_broker.endpoint.bootstrap, create_topics={"partitions": 1, "replication_factor": 3})
    refusal = outlet.publisher.refusal(record(f"{topic_prefix}three"))
    assert refusal is not None
    assert refusal.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert "INVALID_REPLICATION_FACTOR" in refusal.message


def test_a_missing_topic_is_refused_until_it_exists(open_outlet: Open, own_broker: Server[KafkaEndpoint]) -> None:
    bootstrap = own_broker.endpoint.bootstrap
    outlet = open_outlet(bootstrap)
    began = time.monotonic()
    refusal = outlet.publisher.refusal(record("t-missing"))
    assert time.monotonic() - began < 5.5
    assert refusal is not None
    assert refusal.name == "UNKNOWN_TOPIC_OR_PARTITION"
    topic = new_topic(bootstrap)
    outlet.send(record(topic))
    outlet.tokens(1)
    create_topic(bootstrap, "t-missing")
    assert wait_until(lambda: outlet.publisher.refusal(record("t-missing")) is None, seconds=20)
    outlet.send(record("t-missing"))
    outlet.tokens(2)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics(["t-missing"])["t-missing"].result(30)


def test_what_a_broker_says_of_itself(client: str, own_broker: Server[KafkaEndpoint]) -> None:
    topic = new_topic(own_broker.endpoint.bootstrap)
    settings = KafkaSettings(bootstrap_servers=own_broker.endpoint.bootstrap, client=client)  # type: ignore[arg-type]
    facts = describe_broker(settings)
    assert client in facts.client
    assert facts.brokers == [own_broker.endpoint.bootstrap]
    assert facts.cluster_id
    assert facts.controller
    assert topic in facts.topics
    assert facts.creates_topics is False


# -- outages ---------------------------------------------------------------------------------------------------------


def test_a_frozen_broker_delays_and_loses_nothing(open_outlet: Open, own_broker: Server[KafkaEndpoint]) -> None:
    topic = new_topic(own_broker.endpoint.bootstrap)
    outlet = open_outlet(own_broker.endpoint.bootstrap)
    outlet.send(record(topic, 0))
    outlet.tokens(1)
    own_broker.pause()
    outlet.send(*(record(topic, token) for token in range(1, 500)))
    assert wait_until(lambda: outlet.publisher.trouble() is not None, seconds=20)
    assert "acknowledged none of 499 records" in str(outlet.publisher.trouble())
    assert len(outlet.deliveries) == 1
    own_broker.resume()
    assert outlet.tokens(500) == list(range(500))
    assert wait_until(lambda: outlet.publisher.trouble() is None, seconds=20)
    assert numbers(own_broker.endpoint.bootstrap, topic) == list(range(500))


def test_a_broker_that_crashes_and_comes_back(
    client: str, open_outlet: Open, own_broker: Server[KafkaEndpoint], caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(own_broker.endpoint.bootstrap)
    outlet = open_outlet(own_broker.endpoint.bootstrap)
    outlet.send(record(topic, 0))
    outlet.tokens(1)
    own_broker.kill()
    outlet.send(*(record(topic, token) for token in range(1, 500)))
    assert wait_until(lambda: outlet.publisher.trouble() is not None, seconds=20)
    assert len(outlet.deliveries) == 1
    own_broker.start()
    assert outlet.tokens(500) == list(range(500))
    assert wait_until(lambda: outlet.publisher.trouble() is None, seconds=20)
    assert numbers(own_broker.endpoint.bootstrap, topic) == list(range(500))
    loud = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert [one.getMessage() for one in loud if not one.name.startswith("kafka.")] == []
    if client == "kafka-python":
        assert not logging.getLogger("kafka").propagate  # caplog hears it all the same


def test_an_idle_publisher_knows_of_an_outage_and_of_its_end(
    open_outlet: Open, own_broker: Server[KafkaEndpoint]
) -> None:
    topic = new_topic(own_broker.endpoint.bootstrap)
    outlet = open_outlet(own_broker.endpoint.bootstrap)
    outlet.send(record(topic))
    outlet.tokens(1)
    own_broker.kill()
    assert wait_until(lambda: outlet.publisher.trouble() is not None, seconds=20)
    own_broker.start()
    assert wait_until(lambda: outlet.publisher.trouble() is None, seconds=20)


@pytest.mark.long
def test_a_topic_deleted_under_way_is_a_hold(open_outlet: Open, own_broker: Server[KafkaEndpoint]) -> None:
    bootstrap = own_broker.endpoint.bootstrap
    topic, other = new_topic(bootstrap), new_topic(bootstrap)
    outlet = open_outlet(bootstrap)
    outlet.send(record(topic, 0), record(other, 1))
    outlet.tokens(2)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    for token in range(2, 5):
        outlet.publisher.send([record(topic, token)])
    assert all(isinstance(one.error, Hold) for one in outlet.wait(5, 60.0)[2:])


def test_a_look_up_without_answer_is_a_hold(open_outlet: Open, own_broker: Server[KafkaEndpoint]) -> None:
    outlet = open_outlet(own_broker.endpoint.bootstrap)
    own_broker.pause()
    began = time.monotonic()
    with pytest.raises(Hold) as held:
        outlet.publisher.refusal(record("t-never-seen"))
    assert held.value.reason == "kafka"
    assert time.monotonic() - began < 8


# -- the end ---------------------------------------------------------------------------------------------------------


def test_purge_drops_what_is_not_on_the_wire(open_outlet: Open, own_broker: Server[KafkaEndpoint]) -> None:
    bootstrap = own_broker.endpoint.bootstrap
    topic = new_topic(bootstrap)
    outlet = open_outlet(bootstrap)
    outlet.send(record(topic, 0))
    outlet.tokens(1)
    own_broker.pause()
    count = 20_000
    outlet.send(*(record(topic, token, size=1000) for token in range(1, count)))
    outlet.publisher.purge()
    unknown = outlet.wait(count)[1:]  # nothing else is asked of the client yet: a later send may end it, too
    assert all(isinstance(one.error, Hold) for one in unknown)
    with pytest.raises(Hold):
        outlet.publisher.send([record(topic, count)])
    own_broker.resume()
    assert outlet.publisher.close(10)
    arrived = numbers(bootstrap, topic)
    assert arrived == list(range(len(arrived)))
    assert len(arrived) < count / 2


def test_close_tells_the_outcome_of_everything(open_outlet: Open, kafka_broker: KafkaEndpoint) -> None:
    topic = new_topic(kafka_broker.bootstrap)
    outlet = open_outlet()
    outlet.send(*(record(topic, token) for token in range(5000)))
    assert outlet.publisher.close(10)
    settled = outlet.wait(5000)
    assert sorted(one.token for one in settled) == list(range(5000))  # type: ignore[type-var]
    assert all(one.error is None or isinstance(one.error, Hold) for one in settled)
    arrived = set(numbers(kafka_broker.bootstrap, topic))
    assert {one.token for one in settled if one.error is None} <= arrived
    assert outlet.publisher.close(1)


@pytest.mark.parametrize("state", ["frozen", "away"])
def test_while_the_broker_does_not_answer_close_ends_and_nothing_new_is_made(
    client: str, open_outlet: Open, own_broker: Server[KafkaEndpoint], state: str
) -> None:
    topic = new_topic(own_broker.endpoint.bootstrap)
    outlet = open_outlet(own_broker.endpoint.bootstrap)
    outlet.send(record(topic, 0))
    outlet.tokens(1)
    if state == "frozen":
        own_broker.pause()
    else:
        own_broker.kill()
    outlet.send(*(record(topic, token) for token in range(1, 1000)))
    began = time.monotonic()
    assert outlet.publisher.close(5)
    assert time.monotonic() - began < 5
    assert all(isinstance(one.error, Hold) for one in outlet.wait(1000)[1:])

    settings = KafkaSettings(bootstrap_servers=own_broker.endpoint.bootstrap, client=client)  # type: ignore[arg-type]
    for attempt in (lambda: make_publisher(settings, lambda _: None), lambda: describe_broker(settings)):
        began = time.monotonic()
        with pytest.raises(Hold) as held:
            attempt()
        assert held.value.reason == "kafka"
        assert own_broker.endpoint.bootstrap in held.value.message
        assert time.monotonic() - began < 8
