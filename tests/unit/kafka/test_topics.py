"""What is known of topics and refused before sending; the broker is a stub that records what it is asked."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from cdc_outbox.config import KafkaSettings
from cdc_outbox.errors import Hold
from cdc_outbox.kafka.publisher import Record
from cdc_outbox.kafka.topics import KEPT, KEPT_REFUSED, TopicDirectory, record_bytes


class StubBroker:
    """topic_error gives `errors` one after the other, the last one for ever."""

    def __init__(self, *errors: str | None, configs: Mapping[str, str] | None = None) -> None:
        self.errors = list(errors or (None,))
        self.configs = dict(configs or {})
        self.auto_create: bool | None = None
        self.creation: str | None = None
        self.asked: list[str] = []

    def topic_error(self, topic: str, timeout: float, *, auto_create: bool) -> str | None:
        assert 0 < timeout <= 5
        self.asked.append(f"topic{'+' if auto_create else ''}")
        return self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]

    def topic_configs(self, topic: str, timeout: float) -> Mapping[str, str]:
        self.asked.append("configs")
        return self.configs

    def creates_topics(self, timeout: float) -> bool | None:
        self.asked.append("creates")
        return self.auto_create

    def create_topic(self, topic: str, partitions: int, replication_factor: int, timeout: float) -> str | None:
        self.asked.append(f"create {partitions} {replication_factor}")
        return self.creation


class Clock:
    """Runs ten times as fast as the real one, so that waits end soon."""

    def __init__(self) -> None:
        self.skipped = 0.0

    def __call__(self) -> float:
        return time.monotonic() * 10 + self.skipped


def directory(broker: StubBroker, clock: Clock | None = None, **kafka: object) -> TopicDirectory:
    settings = KafkaSettings(bootstrap_servers="kafka:9092", **kafka)  # type: ignore[arg-type]
    return TopicDirectory(settings, broker, clock=clock or Clock())


def record(size: int = 10, **fields: object) -> Record:
    values: dict[str, object] = {
        "topic": "orders",
        "key": b"k",
        "value": b"x" * size,
        "headers": [("event_id", b"e-1")],
        "timestamp": int(time.time() * 1000),
        "token": None,
    }
    return Record(**{**values, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 1, 62, 63, 64, 100, 8100, 8191, 8192, 100_000, 2_000_000])
@pytest.mark.parametrize("headers", [[], [("a", b"")], [("größe", b"1"), ("h" * 70, b"2" * 9000)]])
@pytest.mark.parametrize("key", [None, b"", b"k" * 64])
def test_the_size_is_that_of_a_batch_with_the_record_alone(
    size: int, headers: list[tuple[str, bytes]], key: bytes | None
) -> None:
    for value in {None, b"x" * size} if size == 0 else {b"x" * size}:
        one = record(key=key, value=value, headers=headers)
        builder = DefaultRecordBatchBuilder(
            magic=2, compression_type=0, is_transactional=0, producer_id=1, producer_epoch=0, base_sequence=0,
            batch_size=10**9,
        )  # fmt: skip
        builder.append(0, timestamp=one.timestamp, key=key, value=value, headers=headers)
        assert record_bytes(one) == len(builder.build())


def test_a_known_topic_is_asked_for_once() -> None:
    broker, clock = StubBroker(), Clock()
    topics = directory(broker, clock)
    assert [topics.refusal(record()) for _ in range(3)] == [None] * 3
    assert broker.asked == ["topic+", "configs"]
    clock.skipped += KEPT + 1
    assert topics.refusal(record()) is None
    assert broker.asked == ["topic+", "configs"] * 2


def test_a_topic_that_the_broker_makes_gets_time_to_appear() -> None:
    broker = StubBroker("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", None)
    assert directory(broker).refusal(record()) is None
    assert broker.asked == ["topic+", "creates", "topic+", "topic+", "topic+", "configs"]


def test_a_missing_topic_is_refused_at_once_where_the_broker_makes_none() -> None:
    broker = StubBroker("UNKNOWN_TOPIC_OR_PARTITION")
    broker.auto_create = False
    refusal = directory(broker).refusal(record())
    assert refusal is not None
    assert refusal.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert "kafka.create_topics" in refusal.message
    assert broker.asked == ["topic+", "creates"]


def test_a_missing_topic_is_asked_for_again_after_a_while_and_then_without_waiting() -> None:
    broker, clock = StubBroker("UNKNOWN_TOPIC_OR_PARTITION"), Clock()
    topics = directory(broker, clock)
    assert topics.refusal(record()) is not None
    count = len(broker.asked)
    assert topics.refusal(record()) is not None
    assert len(broker.asked) == count
    clock.skipped += KEPT_REFUSED + 1
    assert topics.refusal(record()) is not None
    assert len(broker.asked) == count + 1
    clock.skipped += KEPT_REFUSED + 1
    broker.errors = [None]
    assert topics.refusal(record()) is None


def test_create_topics_makes_the_topic_and_the_broker_may_not() -> None:
    broker = StubBroker("UNKNOWN_TOPIC_OR_PARTITION", None)
    topics = directory(broker, create_topics={"partitions": 6, "replication_factor": 1})
    assert topics.refusal(record()) is None
    assert broker.asked == ["topic", "create 6 1", "topic", "configs"]


def test_create_topics_that_fails_says_why() -> None:
    broker = StubBroker("UNKNOWN_TOPIC_OR_PARTITION")
    broker.creation = "INVALID_REPLICATION_FACTOR: 3 brokers are needed"
    refusal = directory(broker, create_topics={"partitions": 6, "replication_factor": 3}).refusal(record())
    assert refusal is not None
    assert refusal.name == "UNKNOWN_TOPIC_OR_PARTITION"
    assert "3 brokers are needed" in refusal.message


def test_a_forbidden_topic_is_the_records_fault_and_anything_unlisted_a_hold() -> None:
    refusal = directory(StubBroker("TOPIC_AUTHORIZATION_FAILED")).refusal(record())
    assert refusal is not None
    assert refusal.name == "TOPIC_AUTHORIZATION_FAILED"
    with pytest.raises(Hold):
        directory(StubBroker("UNKNOWN_SERVER_ERROR")).refusal(record())


def test_a_topic_without_leader_is_a_hold() -> None:
    with pytest.raises(Hold, match="LEADER_NOT_AVAILABLE"):
        directory(StubBroker("LEADER_NOT_AVAILABLE")).refusal(record())


def test_a_forgotten_topic_is_asked_for_again() -> None:
    broker = StubBroker()
    topics = directory(broker)
    topics.refusal(record())
    topics.forget("orders")
    topics.refusal(record())
    assert broker.asked == ["topic+", "configs"] * 2


@pytest.mark.parametrize("name", ["a b", "", ".", "..", "x" * 250])
def test_a_bad_name_is_refused_without_asking(name: str) -> None:
    broker = StubBroker()
    refusal = directory(broker).refusal(record(topic=name))
    assert refusal is not None
    assert refusal.name == "INVALID_TOPIC_EXCEPTION"
    assert broker.asked == []


def test_the_exact_limit_of_the_topic_and_of_the_setting() -> None:
    size = record_bytes(record(5000))
    topics = directory(StubBroker(configs={"max.message.bytes": str(size)}))
    assert topics.refusal(record(5000)) is None
    refusal = topics.refusal(record(5001))
    assert refusal is not None
    assert refusal.name == "MESSAGE_TOO_LARGE"
    assert f"max.message.bytes of topic orders, {size}" in refusal.message
    ours = directory(StubBroker(), batch_bytes=1000, max_record_bytes=size)
    assert ours.refusal(record(5000)) is None
    refusal = ours.refusal(record(5001))
    assert refusal is not None
    assert f"kafka.max_record_bytes, {size}" in refusal.message


def test_headers_count() -> None:
    topics = directory(StubBroker(configs={"max.message.bytes": "5000"}))
    assert topics.refusal(record(headers=[("h", b"x" * 6000)])) is not None


def test_compressed_records_are_left_to_the_broker() -> None:
    topics = directory(StubBroker(configs={"max.message.bytes": "1000"}), compression="gzip")
    assert topics.refusal(record(5000)) is None


def test_a_limit_that_somebody_raised_is_asked_for_before_it_refuses() -> None:
    broker, clock = StubBroker(configs={"max.message.bytes": "1000"}), Clock()
    topics = directory(broker, clock)
    assert topics.refusal(record(5000)) is not None
    broker.configs["max.message.bytes"] = "10000"
    assert topics.refusal(record(5000)) is not None
    clock.skipped += KEPT_REFUSED + 1
    assert topics.refusal(record(5000)) is None


def test_keys_and_values_that_must_be_there() -> None:
    compacted = directory(StubBroker(configs={"cleanup.policy": "compact,delete"}))
    assert compacted.refusal(record(value=None)) is None
    for topics, one in [
        (compacted, record(key=None)),
        (directory(StubBroker()), record(key=None, value=None)),
    ]:
        refusal = topics.refusal(one)
        assert refusal is not None
        assert refusal.name == "INVALID_RECORD"
    assert directory(StubBroker()).refusal(record(key=None)) is None


def test_timestamps_that_the_topic_does_not_take() -> None:
    old = int(time.time() * 1000) - 60_000
    limited = {"message.timestamp.before.max.ms": "30000"}
    refusal = directory(StubBroker(configs=limited)).refusal(record(timestamp=old))
    assert refusal is not None
    assert refusal.name == "INVALID_TIMESTAMP"
    assert directory(StubBroker(configs=limited)).refusal(record()) is None
    by_broker = {**limited, "message.timestamp.type": "LogAppendTime"}
    assert directory(StubBroker(configs=by_broker)).refusal(record(timestamp=old)) is None
    unlimited = {"message.timestamp.before.max.ms": str(2**63 - 1)}
    assert directory(StubBroker(configs=unlimited)).refusal(record(timestamp=old)) is None
    for wrong in (0, -1, 2**63):
        refusal = directory(StubBroker()).refusal(record(timestamp=wrong))
        assert refusal is not None
        assert refusal.name == "INVALID_TIMESTAMP"
