"""Reading back what is in Kafka: all records of a topic, in partition order."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its way of exporting
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.protocol.admin import AlterClientQuotasRequest

PATIENCE = 60.0
"""Seconds that a broker may take to answer."""


@dataclass(frozen=True)
class Seen:
    """One record as it stands in Kafka."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]
    timestamp: int
    appended: int | None
    """When the broker took it, ms since the epoch: known of topics with message.timestamp.type=LogAppendTime."""

    @property
    def event_id(self) -> str:
        return self.headers["event_id"].decode()


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
    )


def end_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """The next offset of each partition; none for a topic that does not exist."""
    consumer = _consumer(bootstrap)
    try:
        return _ends(consumer, topic)
    finally:
        consumer.close()


def _ends(consumer: Consumer, topic: str) -> dict[int, int]:
    """A broker that has just come back may not lead its partitions yet: asked again until it does."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            found = consumer.list_topics(timeout=20).topics.get(topic)
            if found is None or found.error is not None:
                return {}
            return {
                partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)[1]
                for partition in found.partitions
            }
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def read_topic(bootstrap: str, topic: str, timeout: float = 60) -> list[Seen]:
    """Everything in the topic up to its present end, by partition and offset."""
    consumer = _consumer(bootstrap)
    try:
        ends = {partition: end for partition, end in _ends(consumer, topic).items() if end}
        if not ends:
            return []
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
        seen: list[Seen] = []
        left = dict(ends)
        deadline = time.monotonic() + timeout
        while left:
            for message in consumer.consume(5000, 0.5):
                if message.error() is not None:
                    raise KafkaException(message.error())
                partition, offset = message.partition(), message.offset()
                assert partition is not None and offset is not None
                kind, timestamp = message.timestamp()
                seen.append(
                    Seen(
                        topic,
                        partition,
                        offset,
                        message.key(),
                        message.value(),
                        cast("dict[str, bytes]", dict(message.headers() or [])),
                        timestamp,
                        timestamp if kind == TIMESTAMP_LOG_APPEND_TIME else None,
                    )
                )
                if offset + 1 >= ends[partition]:
                    left.pop(partition, None)
            if time.monotonic() > deadline:
                raise AssertionError(f"{topic}: not all read within {timeout:g} s, missing {left}")
        return sorted(seen, key=lambda one: (one.partition, one.offset))
    finally:
        consumer.close()


def set_topic_config(bootstrap: str, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(30)


def create_topic(bootstrap: str, topic: str, partitions: int = 1, *, replication: int = 1, **configs: str) -> str:
    """Returns its name, when all partitions can be seen. configs: its settings, with `_` for each dot."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    dotted = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, replication, config=dotted)])[topic].result(30)
    deadline = time.monotonic() + PATIENCE
    while True:
        seen = admin.list_topics(timeout=10).topics.get(topic)
        if seen is not None and len(seen.partitions) == partitions:
            return topic
        assert time.monotonic() < deadline, f"topic {topic} does not appear"
        time.sleep(0.05)


def delete_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)


def set_quota(bootstrap: str, client_id: str, name: str, value: float | None) -> None:
    """A client's quota, as `producer_byte_rate`; None takes it away. Neither library has a call for it."""
    operation = AlterClientQuotasRequest.EntryData.OpData(key=name, value=value or 0.0, remove=value is None)
    entity = AlterClientQuotasRequest.EntryData.EntityData(entity_type="client-id", entity_name=client_id)
    entry = AlterClientQuotasRequest.EntryData(entity=[entity], ops=[operation])
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        answer = admin._manager.run(admin._manager.send, AlterClientQuotasRequest(entries=[entry], validate_only=False))
    finally:
        admin.close()
    assert [one.error_code for one in answer.entries] == [0]


def set_scram_password(bootstrap: str, user: str, password: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    mechanism = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    wanted = UserScramCredentialUpsertion(user, mechanism, password.encode())
    for done in admin.alter_user_scram_credentials([wanted]).values():
        done.result(30)


def consumer_of(client: str, bootstrap: str, group: str) -> Any:
    """A consumer as an application makes it, of `kafka-python` or `confluent`; quick to notice who has gone."""
    if client == "confluent":
        return Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
                "log_level": 0,
            }
        )
    return KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
    )
