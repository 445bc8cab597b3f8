"""Reading topics as a bystander: the small interface that both clients stand behind. No group, no commits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cdc_outbox.kafka.publisher import chosen_client

if TYPE_CHECKING:
    from cdc_outbox.config import KafkaSettings

BEGINNING = 0
"""As `since`: from the first record that the topic still has."""


@dataclass(frozen=True, slots=True)
class Followed:
    """One record as it stands in Kafka. timestamp: ms since the epoch."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]
    timestamp: int


class Follower(Protocol):
    """A consumer of whole topics, used by one thread. Everything raises Hold when no broker answers in time."""

    def topics(self) -> set[str]:
        """All topics that there are, Kafka's own left out."""

    def follow(self, topics: Iterable[str], since: int | None) -> None:
        """Read these topics, too, and what partitions they have gained. since: from this time on (ms since the epoch),
        None from their present end."""

    def poll(self, seconds: float) -> list[Followed]:
        """What has come, waiting at most so long for it. Raises Refused where a topic may not be read."""

    def caught_up(self) -> bool:
        """All that was there when `follow` was called has been given."""

    def close(self) -> None: ...


def make_follower(settings: KafkaSettings) -> Follower:
    """Connect with the chosen client. Raises Hold when no broker answers within 5 s, Refused as `make_publisher`."""
    if chosen_client(settings) == "confluent":
        from cdc_outbox.kafka.confluent_follower import ConfluentFollower  # noqa: PLC0415 - an optional dependency

        return ConfluentFollower(settings)
    from cdc_outbox.kafka.kafka_python_follower import KafkaPythonFollower  # noqa: PLC0415 - 0.3 s otherwise

    return KafkaPythonFollower(settings)
