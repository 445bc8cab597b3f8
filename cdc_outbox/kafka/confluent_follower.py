"""Reading topics on confluent-kafka."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from cdc_outbox.errors import Refused
from cdc_outbox.kafka.confluent_admin import (
    OURS,
    Errors,
    answers_expected,
    callbacks,
    connection_options,
    first_metadata,
    options_judged,
)
from cdc_outbox.kafka.follower import Followed
from cdc_outbox.kafka.options import check_options
from cdc_outbox.kafka.outcomes import official
from cdc_outbox.kafka.publisher import START_TIMEOUT

if TYPE_CHECKING:
    from cdc_outbox.config import KafkaSettings

_AT_ONCE = 1000
_FORBIDDEN = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED}


class ConfluentFollower:
    """See `follower.Follower`."""

    def __init__(self, settings: KafkaSettings) -> None:
        check_options(settings, OURS)
        self._settings = settings
        errors = Errors(settings)
        options = {
            **connection_options(settings),
            **settings.options,
            "group.id": "cdc-outbox-tail",  # must be there; nothing is ever asked of it
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **callbacks(settings, errors),
        }
        with options_judged(settings):
            self._consumer = Consumer(options)
        try:
            first_metadata(self._consumer, settings, errors)
        except BaseException:
            self._consumer.close()
            raise
        self._known: set[tuple[str, int]] = set()
        self._behind: dict[tuple[str, int], int] = {}

    def topics(self) -> set[str]:
        with answers_expected(self._settings):
            found = self._consumer.list_topics(timeout=START_TIMEOUT).topics
        return {name for name in found if not name.startswith("__")}

    def follow(self, topics: Iterable[str], since: int | None) -> None:
        wanted = set(topics)
        with answers_expected(self._settings):
            found = self._consumer.list_topics(timeout=START_TIMEOUT).topics
            places = [
                TopicPartition(name, partition, 0 if since is None else since)
                for name in sorted(wanted & found.keys())
                for partition in found[name].partitions
                if (name, partition) not in self._known
            ]
            if not places:
                return
            if since:
                places = self._consumer.offsets_for_times(places, timeout=START_TIMEOUT)
            for place in places:
                low, high = self._consumer.get_watermark_offsets(place, timeout=START_TIMEOUT)
                # A fixed offset: the end as a word would be looked up later, after the first records.
                if since is None or place.offset < 0:
                    place.offset = high
                place.offset = max(place.offset, low)
                self._known.add((place.topic, place.partition))
                if place.offset < high:
                    self._behind[place.topic, place.partition] = high
            self._consumer.incremental_assign(places)

    def poll(self, seconds: float) -> list[Followed]:
        """Gives what has come as soon as something has: the first is waited for, the others are not."""
        first = self._consumer.poll(seconds)
        messages = [] if first is None else [first, *self._consumer.consume(_AT_ONCE, 0)]
        return [record for message in messages if (record := self._record(message)) is not None]

    def _record(self, message: Message) -> Followed | None:
        place = (str(message.topic()), int(message.partition() or 0))
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._behind.pop(place, None)
            elif error.code() in _FORBIDDEN:
                raise Refused(
                    f"Kafka: {official(error.name())}: {place[0]} may not be read",
                    hint="the user of kafka.security needs READ and DESCRIBE on the topics it is to follow",
                )
            return None  # an outage: the library goes on by itself
        offset = int(message.offset() or 0)
        if self._behind.get(place, offset + 2) <= offset + 1:
            del self._behind[place]
        pairs: Any = message.headers() or []
        headers = {name: value for name, value in pairs if value is not None}
        return Followed(*place, offset, _bytes(message.key()), _bytes(message.value()), headers, message.timestamp()[1])

    def caught_up(self) -> bool:
        return not self._behind

    def close(self) -> None:
        self._consumer.close()


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
