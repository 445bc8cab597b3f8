"""The small interface that both Kafka clients stand behind, and the choice between them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cdc_outbox.errors import Hold, RecordRefused, Refused

if TYPE_CHECKING:
    from cdc_outbox.config import KafkaSettings

START_TIMEOUT = 5.0
"""Seconds that the brokers get to answer when a publisher is made or a broker described."""

LEADERS_TIMEOUT = 0.5
"""Seconds that the brokers get to say who leads a topic's partitions."""


@dataclass(slots=True, eq=False)
class Record:
    """One record for Kafka. timestamp: ms since the epoch. token: comes back with its delivery."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    timestamp: int
    token: object


class Delivery(NamedTuple):
    """What became of a record: acknowledged by all in-sync replicas (None), refused for good, or unknown (Hold)."""

    token: object
    error: RecordRefused | Hold | None
    partition: int = -1
    """-1: not known."""


OnDeliveries = Callable[[list[Delivery]], None]


class Publisher(Protocol):
    """A producer with acks=all, idempotence and Java's partitions. `send` and `refusal` belong to one thread.

    Records never expire; those of one partition are delivered in the order sent.
    """

    name: str
    """For the start-up lines: `confluent 2.16.1 (librdkafka 2.16.0)`."""

    def refusal(self, record: Record) -> RecordRefused | None:
        """Why the record would be refused, as far as it can be known before sending.

        Size, topic name, timestamp, missing key; a topic that is unknown or forbidden (kafka.create_topics may create
        it). A topic that is new to us is looked up, in at most 5 s. Raises Hold when the broker does not answer.
        """

    def send(self, records: Sequence[Record]) -> None:
        """Hand over records whose refusal is None; their deliveries follow. Raises Hold when none can be sent now."""

    def leaders(self, topic: str) -> Sequence[bool]:
        """Whether each of the topic's partitions has a leader right now, by number; none: no such topic.

        Takes up to half a second; raises Hold when no broker answers.
        """

    def purge(self) -> None:
        """Drop what is not yet on the wire and take no more: `send` raises Hold from here on. From any thread."""

    def trouble(self) -> str | None:
        """One line while the brokers cannot be reached or acknowledge nothing, else None. From any thread."""

    def close(self, timeout: float) -> bool:
        """Purge, and end the client's threads within `timeout` seconds; False when one still runs. Never raises."""


@dataclass(frozen=True)
class BrokerFacts:
    """What a cluster says of itself. controller: its id or address, None when it has none right now."""

    client: str
    cluster_id: str | None
    brokers: list[str]
    controller: str | None
    topics: frozenset[str]
    creates_topics: bool | None
    """auto.create.topics.enable; None when we may not see it."""


def make_publisher(settings: KafkaSettings, on_deliveries: OnDeliveries, timeout: float = START_TIMEOUT) -> Publisher:
    """Connect with the chosen client; `auto` is confluent where it is installed.

    on_deliveries gets every outcome, in batches, on a thread of the client: it must be quick and must not raise.
    Raises Hold (reason kafka) when no broker answers within `timeout` seconds, Refused for options or a login that are
    not accepted.
    """
    if chosen_client(settings) == "confluent":
        from cdc_outbox.kafka.confluent import ConfluentPublisher  # noqa: PLC0415 - an optional dependency

        return ConfluentPublisher(settings, on_deliveries, timeout)
    from cdc_outbox.kafka.kafka_python import KafkaPythonPublisher  # noqa: PLC0415 - 0.3 s that confluent users save

    return KafkaPythonPublisher(settings, on_deliveries, timeout)


def describe_broker(settings: KafkaSettings) -> BrokerFacts:
    """Ask the cluster about itself with the chosen client, within 5 s. Raises Hold or Refused as `make_publisher`."""
    if chosen_client(settings) == "confluent":
        from cdc_outbox.kafka import confluent_admin  # noqa: PLC0415

        return confluent_admin.describe_broker(settings)
    from cdc_outbox.kafka import kafka_python_admin  # noqa: PLC0415

    return kafka_python_admin.describe_broker(settings)


def chosen_client(settings: KafkaSettings) -> str:
    """`confluent` or `kafka-python`. Raises Refused where it is not installed."""
    installed = importlib.util.find_spec("confluent_kafka") is not None
    if settings.client == "auto":
        return "confluent" if installed else "kafka-python"
    if settings.client == "confluent" and not installed:
        raise Refused(
            "kafka.client is confluent, but confluent-kafka is not installed",
            hint="pip install 'cdc-outbox[fast]', or set kafka.client: kafka-python",
        )
    return settings.client
