"""From an event to its record: topic, key, headers and timestamp; and to its dead letter. No I/O, no client library."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cdc_outbox.errors import RecordRefused
from cdc_outbox.kafka.outcomes import INVALID_TOPIC
from cdc_outbox.kafka.publisher import Record
from cdc_outbox.kafka.topics import record_bytes, topic_name_refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc_outbox.config import ColumnSettings, KafkaSettings
    from cdc_outbox.model import Event

Content = tuple[bytes | None, list[tuple[str, bytes]]]
"""A record's value and headers."""

_ERROR_MESSAGE_BYTES = 1000
_EVER = 2**62
_TYPES_REMEMBERED = 10_000
"""Aggregate types come from rows: a table that is misused must not fill our memory."""


class Router:
    """Builds records in the plain format; those of other formats derive from it. Used by one thread."""

    def __init__(self, columns: ColumnSettings, kafka: KafkaSettings) -> None:
        self._template = kafka.topic
        self._topic_map = kafka.topic_map
        self._topic_column = columns.topic
        self.by_type = columns.topic is None and not _names_more_than_the_type(kafka.topic)
        """The aggregate type alone decides the topic."""
        self.topics: dict[str, str] = {}
        """Where the type alone decides: the topics of the types seen so far."""
        self._key_column = None if columns.key == "aggregate_id" else columns.key
        self.by_aggregate = self.by_type and self._key_column is None and "partitioner" not in kafka.options
        """The aggregate alone decides the partition, as Java clients choose it."""
        self._header_columns = list(columns.headers.items())
        self._dead_letter_topic = kafka.dead_letter_topic
        # Without a limit no event is too old: all commits are later than 1970.
        self._max_age = _EVER if kafka.timestamp_max_age is None else int(kafka.timestamp_max_age * 1000)

    def record(self, event: Event) -> Record:
        """The event's record, with the event as its token.

        timestamp: the commit time, else the row's created_at, never later than now; now, with the header
        `committed_at` (ms since the epoch), where it is older than kafka.timestamp_max_age: a topic's retention would
        delete the record at once. A mapped header is left out where its column is NULL; a mapped key is null there.
        Raises RecordRefused when no topic name comes out, or the format has no room for the event.
        """
        topic = self.topics.get(event.aggregate_type) if self.by_type else None
        if topic is None:
            topic = self._topic_of(event)
        now = int(time.time() * 1000)
        value, headers = self._content(event)
        timestamp = event.committed_at or event.created_at or now
        if timestamp > now:
            timestamp = now
        elif timestamp < now - self._max_age:
            headers.append(("committed_at", b"%d" % timestamp))
            timestamp = now
        return Record(topic, self._key(event), value, headers, timestamp, event)

    def topic(self, event: Event) -> str:
        """Where its record goes. Raises RecordRefused when no topic name comes out."""
        topic = self.topics.get(event.aggregate_type) if self.by_type else None
        return self._topic_of(event) if topic is None else topic

    def dead_letter(
        self, event: Event, error: RecordRefused, attempts: int, original_topic: str, max_bytes: int
    ) -> Record:
        """The event's dead letter: its record, plus what happened to it.

        attempts: how often it was tried, the first time included. max_bytes: the most that the dead-letter topic takes;
        above it the letter goes without value, with header `payload_omitted`. Its timestamp is now: retention must not
        delete it by the age of the event.
        """
        message = str(error).encode()[:_ERROR_MESSAGE_BYTES].decode(errors="ignore")
        value, headers = self._letter_content(event)
        headers += [
            ("error_class", error.name.encode()),
            ("error_message", message.encode()),
            ("attempts", str(attempts).encode()),
            ("original_topic", original_topic.encode()),
        ]
        now = int(time.time() * 1000)
        letter = Record(self._dead_letter_topic, self._key(event), value, headers, now, event)
        if record_bytes(letter) > max_bytes:
            letter.value = None
            letter.headers.append(("payload_omitted", b"true"))
        return letter

    def _topic_of(self, event: Event) -> str:
        topic = self._topic_map.get(event.aggregate_type)
        if topic is None and self._topic_column is not None:
            topic = _column(event, self._topic_column)
            if topic is None:
                raise RecordRefused(
                    INVALID_TOPIC, f"{INVALID_TOPIC}: column {self._topic_column}, which names the topic, is NULL"
                )
        if topic is None:
            topic = self._template.format(
                aggregate_type=event.aggregate_type, aggregate_id=event.aggregate_id, event_type=event.event_type
            )
        refusal = topic_name_refusal(topic)
        if refusal is not None:
            raise refusal
        if self.by_type and len(self.topics) < _TYPES_REMEMBERED:
            self.topics[event.aggregate_type] = topic
        return topic

    def _key(self, event: Event) -> bytes | None:
        if self._key_column is None:
            return event.aggregate_id.encode()
        value = _column(event, self._key_column)
        return None if value is None else value.encode()

    def _content(self, event: Event) -> Content:
        """What a format decides: value and headers, the list being the caller's to extend."""
        headers = [
            ("event_id", event.event_id.encode()),
            ("event_type", event.event_type.encode()),
            ("aggregate_type", event.aggregate_type.encode()),
            ("aggregate_id", event.aggregate_id.encode()),
            ("outbox_id", b"%d" % event.id),
        ]
        if self._header_columns:
            headers += self._mapped_headers(event)
        return event.payload, headers

    def _letter_content(self, event: Event) -> Content:
        """Value and headers of its dead letter, before what happened to it."""
        return self._content(event)

    def _mapped_headers(self, event: Event) -> list[tuple[str, bytes]]:
        values = ((name, _column(event, column)) for name, column in self._header_columns)
        return [(name, value.encode()) for name, value in values if value is not None]


def _names_more_than_the_type(template: str) -> bool:
    return "{aggregate_id}" in template or "{event_type}" in template


_OWN_COLUMNS: dict[str, Callable[[Event], str]] = {
    "id": lambda event: str(event.id),
    "event_id": lambda event: event.event_id,
    "aggregate_type": lambda event: event.aggregate_type,
    "aggregate_id": lambda event: event.aggregate_id,
    "event_type": lambda event: event.event_type,
}
"""Columns that every event has as an attribute; the others come with `Event.columns`."""


def _column(event: Event, name: str) -> str | None:
    own = _OWN_COLUMNS.get(name)
    if own is not None:
        return own(event)
    return None if event.columns is None else event.columns.get(name)
