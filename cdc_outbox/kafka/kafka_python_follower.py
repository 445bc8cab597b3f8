"""Reading topics on kafka-python."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError

from cdc_outbox.errors import Hold, Refused
from cdc_outbox.kafka.follower import Followed
from cdc_outbox.kafka.kafka_python_admin import connection_options, meaning_at_start
from cdc_outbox.kafka.kafka_python_net import Client, LibraryLog, error_text
from cdc_outbox.kafka.options import without_secrets
from cdc_outbox.kafka.publisher import START_TIMEOUT

if TYPE_CHECKING:
    from cdc_outbox.config import KafkaSettings


class KafkaPythonFollower:
    """See `follower.Follower`."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        known = KafkaConsumer.DEFAULT_CONFIG
        # Options are the producer's; those that a consumer has, too, are about the connection.
        options = {name: value for name, value in connection_options(settings).items() if name in known}
        options |= {
            "bootstrap_timeout_ms": START_TIMEOUT * 1000,
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "metrics_enabled": False,
            "allow_auto_create_topics": False,
        }
        self._library_log = LibraryLog(lambda text, **_: None)
        client = Client(lambda: None, options)
        try:
            self._consumer: Any = KafkaConsumer(**options, kafka_client=lambda **_: client)
        except BaseException as error:
            client.close()
            self._library_log.detach()
            if isinstance(error, Exception):
                raise meaning_at_start(error, settings, client) from None
            raise
        self._behind: dict[TopicPartition, int] = {}

    def topics(self) -> set[str]:
        with self._answers_expected():
            return {name for name in self._consumer.topics() if not name.startswith("__")}

    def follow(self, topics: Iterable[str], since: int | None) -> None:
        with self._answers_expected():
            self._consumer.topics()  # else what it knows of their partitions may be minutes old
            known = self._consumer.assignment()
            places = [
                place
                for name in sorted(set(topics))
                for partition in self._consumer.partitions_for_topic(name) or ()
                if (place := TopicPartition(name, partition)) not in known
            ]
            if not places:
                return
            begins = self._consumer.beginning_offsets(places)
            ends = self._consumer.end_offsets(places)
            starts = begins
            if since is None:
                starts = ends
            elif since:
                times = self._consumer.offsets_for_times(dict.fromkeys(places, since))
                starts = {place: ends[place] if times[place] is None else times[place].offset for place in places}
            self._consumer.assign([*known, *places])
            for place in places:
                self._consumer.seek(place, starts[place])
                if starts[place] < ends[place]:
                    self._behind[place] = ends[place]

    def poll(self, seconds: float) -> list[Followed]:
        with self._answers_expected():
            found = self._consumer.poll(timeout_ms=int(seconds * 1000))
            return [_record(one) for records in found.values() for one in records]

    def caught_up(self) -> bool:
        with self._answers_expected():
            self._behind = {place: end for place, end in self._behind.items() if self._consumer.position(place) < end}
        return not self._behind

    def close(self) -> None:
        self._consumer.close(autocommit=False)
        self._library_log.detach()

    @contextlib.contextmanager
    def _answers_expected(self) -> Iterator[None]:
        try:
            yield
        except (TopicAuthorizationFailedError, GroupAuthorizationFailedError) as error:
            raise Refused(
                f"Kafka: {error_text(error)}",
                hint="the user of kafka.security needs READ and DESCRIBE on the topics it is to follow",
            ) from None
        except KafkaError as error:
            raise Hold(f"Kafka: {without_secrets(error_text(error), self._settings)}", reason="kafka") from None


def _record(one: Any) -> Followed:
    headers = {name: value for name, value in one.headers if value is not None}
    return Followed(one.topic, one.partition, one.offset, one.key, one.value, headers, one.timestamp)
