"""What can be known of a record before it is sent: its size, its topic's name, what the broker says of the topic."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from cdc_outbox.errors import Hold, RecordRefused
from cdc_outbox.kafka.outcomes import (
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    INVALID_TOPIC,
    LEADER_NOT_AVAILABLE,
    MESSAGE_TOO_LARGE,
    UNKNOWN_TOPIC,
    outcome,
)

if TYPE_CHECKING:
    from cdc_outbox.config import KafkaSettings
    from cdc_outbox.kafka.publisher import Record

LOOKUP_TIMEOUT = 5.0
"""Seconds that one look-up of a topic may take, creation included."""
AUTO_CREATE_WAIT = 2.0
"""Seconds that a broker gets to make a topic by itself: at first it says that the topic is unknown."""
KEPT = 300.0
"""Seconds that what is known of a topic that exists stays in use."""
KEPT_REFUSED = 5.0
"""Seconds after which a topic that was refused is asked for again, and a size limit too before it refuses."""

_PAUSE = 0.05
_ABSENT = frozenset({UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE})
_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")
_MAX_TIMESTAMP = 2**63 - 1
_BATCH_HEADER = 61
_FIXED_PARTS = 3
"""One byte each: attributes, and the offset and timestamp deltas of a record alone in its batch."""


class BrokerQueries(Protocol):
    """What a client library asks the broker about topics. timeout in seconds; each raises Hold without an answer."""

    def topic_error(self, topic: str, timeout: float, *, auto_create: bool) -> str | None:
        """None when the topic exists, else Kafka's error name. auto_create: the broker may make it now."""

    def topic_configs(self, topic: str, timeout: float) -> Mapping[str, str]:
        """The topic's settings in force; empty when we may not see them."""

    def creates_topics(self, timeout: float) -> bool | None:
        """Whether the broker makes topics by itself; None when we may not know."""

    def create_topic(self, topic: str, partitions: int, replication_factor: int, timeout: float) -> str | None:
        """Make the topic; None when it exists now, else Kafka's error name and text."""


def topic_name_refusal(topic: str) -> RecordRefused | None:
    """Why no topic can have this name, or None."""
    if _LEGAL.fullmatch(topic) and topic not in {".", ".."}:
        return None
    return RecordRefused(
        INVALID_TOPIC,
        f"{topic[:260]!r} cannot be a topic's name (letters, digits and . _ - only, at most 249): see kafka.topic_map",
    )


def record_bytes(record: Record) -> int:
    """Size of the record alone in an uncompressed batch, as the broker compares it with max.message.bytes.

    Record batch format v2: https://kafka.apache.org/documentation/#recordbatch
    """
    key, value, headers = record.key, record.value, record.headers
    size = (
        _FIXED_PARTS + _counted(len(key) if key is not None else 0) + _counted(len(value) if value is not None else 0)
    )
    size += _varint_bytes(len(headers))
    for name, content in headers:
        size += _counted(len(name) if name.isascii() else len(name.encode())) + _counted(len(content))
    return _BATCH_HEADER + _counted(size)


def _roughly(record: Record) -> int:
    """At least `record_bytes`, and quickly."""
    key, value = record.key, record.value
    size = 128 + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
    for name, content in record.headers:
        size += 4 * len(name) + len(content) + 10
    return size


def _counted(length: int) -> int:
    """A length, written as a varint, and the bytes it announces (-1 for "none" takes one byte, as 0 does)."""
    return length + 1 if length < 64 else length + _varint_bytes(length)


def _varint_bytes(number: int) -> int:
    """Bytes of a non-negative number as a zigzag varint: seven bits a byte."""
    return ((number << 1).bit_length() + 6) // 7 or 1


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """What a topic takes: bytes, age of the timestamp in ms, and whether a key is a must.

    Timestamps are never ahead of our clock (see routing), so that the broker's limit there is not ours to check.
    """

    max_bytes: int | None = None
    max_age: int | None = None
    needs_key: bool = False

    @classmethod
    def from_configs(cls, configs: Mapping[str, str]) -> TopicLimits:
        max_age = _number(configs, "message.timestamp.before.max.ms")
        no_limit = max_age is None or max_age > _MAX_TIMESTAMP // 2
        return cls(
            max_bytes=_number(configs, "max.message.bytes"),
            max_age=None if no_limit or configs.get("message.timestamp.type") == "LogAppendTime" else max_age,
            needs_key="compact" in configs.get("cleanup.policy", ""),
        )


def _number(configs: Mapping[str, str], name: str) -> int | None:
    value = configs.get(name, "")
    return int(value) if value.isdigit() else None


@dataclass(slots=True)
class _Topic:
    """kept_until: when to ask again. most_bytes: the largest record that we send it."""

    asked_at: float
    kept_until: float
    most_bytes: int
    refusal: RecordRefused | None = None
    limits: TopicLimits = field(default_factory=TopicLimits)


class TopicDirectory:
    """What is known of each topic; asks the broker for the others. Used by the sending thread, `forget` by any."""

    def __init__(
        self, settings: KafkaSettings, broker: BrokerQueries, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._create = settings.create_topics
        self._max_record_bytes = settings.max_record_bytes
        self._compressed = settings.compression != "none"
        self._topics: dict[str, _Topic] = {}
        self._closed = threading.Event()

    def refusal(self, record: Record) -> RecordRefused | None:
        """Why the broker would refuse this record, as far as that can be known. Raises Hold without an answer."""
        topic = self._topics.get(record.topic)
        if topic is None or topic.kept_until < self._clock():
            topic = self._look_up(record.topic, topic)
        if topic.refusal is None and _roughly(record) > topic.most_bytes:
            size = record_bytes(record)
            if size > topic.most_bytes and topic.asked_at + KEPT_REFUSED < self._clock():
                topic = self._look_up(record.topic, topic)  # somebody may have raised the limit
            if size > topic.most_bytes:
                return self._too_large(record, size, topic.limits)
        if topic.refusal is not None:
            return RecordRefused(topic.refusal.name, topic.refusal.message)
        return _content_refusal(record, topic.limits)

    def limits(self, topic: str) -> TopicLimits:
        """What is known of the topic right now, without asking."""
        known = self._topics.get(topic)
        return TopicLimits() if known is None else known.limits

    def forget(self, topic: str) -> None:
        """The broker has just refused the topic: ask again before the next record."""
        self._topics.pop(topic, None)

    def close(self) -> None:
        """End a look-up that waits for a topic to appear."""
        self._closed.set()

    def _too_large(self, record: Record, size: int, limits: TopicLimits) -> RecordRefused:
        if size > self._max_record_bytes:
            limit = f"kafka.max_record_bytes, {self._max_record_bytes}"
        else:
            limit = f"max.message.bytes of topic {record.topic}, {limits.max_bytes}"
        return RecordRefused(MESSAGE_TOO_LARGE, f"{MESSAGE_TOO_LARGE}: the record has {size} bytes, more than {limit}")

    def _look_up(self, name: str, known: _Topic | None) -> _Topic:
        bad_name = topic_name_refusal(name)
        if bad_name is not None:
            return _Topic(0.0, 0.0, 0, bad_name)
        deadline = self._clock() + LOOKUP_TIMEOUT
        refusal = self._find(name, deadline, was_missing=known is not None and known.refusal is not None)
        limits = TopicLimits()
        if refusal is None:
            limits = TopicLimits.from_configs(self._broker.topic_configs(name, self._left(deadline)))
        most_bytes = self._max_record_bytes
        if limits.max_bytes is not None and not self._compressed:  # compressed, the broker has the last word
            most_bytes = min(most_bytes, limits.max_bytes)
        now = self._clock()
        kept_until = now + (KEPT if refusal is None else KEPT_REFUSED)
        found = self._topics[name] = _Topic(now, kept_until, most_bytes, refusal, limits)
        return found

    def _find(self, name: str, deadline: float, *, was_missing: bool) -> RecordRefused | None:
        """None once the topic is there; a new one gets time to appear."""
        auto_create = self._create is None
        error = self._broker.topic_error(name, self._left(deadline), auto_create=auto_create)
        hint = "the broker does not create it (auto.create.topics.enable): create it, or set kafka.create_topics"
        if error in _ABSENT:
            if self._create is not None:
                why = self._broker.create_topic(
                    name, self._create.partitions, self._create.replication_factor, self._left(deadline)
                )
                if why is not None:
                    return _missing(name, f"kafka.create_topics could not create it: {why}")
                hint = "it was created, but does not appear"
            elif was_missing or self._broker.creates_topics(self._left(deadline)) is False:
                return _missing(name, hint)
            else:
                deadline = min(deadline, self._clock() + AUTO_CREATE_WAIT)
        while error in _ABSENT and self._clock() < deadline:
            self._closed.wait(_PAUSE)
            error = self._broker.topic_error(name, self._left(deadline), auto_create=auto_create)
        if error is None:
            return None
        if error == UNKNOWN_TOPIC:
            return _missing(name, hint)
        meaning = outcome(error, f"topic {name}")
        if isinstance(meaning, Hold):
            raise meaning
        return meaning

    def _left(self, deadline: float) -> float:
        return max(0.1, deadline - self._clock())


def _missing(topic: str, because: str) -> RecordRefused:
    return RecordRefused(UNKNOWN_TOPIC, f"{UNKNOWN_TOPIC}: topic {topic} does not exist; {because}")


def _content_refusal(record: Record, limits: TopicLimits) -> RecordRefused | None:
    if record.key is None and (record.value is None or limits.needs_key):
        lacks = "neither key nor value" if record.value is None else "no key, and the topic is compacted"
        return RecordRefused(INVALID_RECORD, f"{INVALID_RECORD}: the record for {record.topic} has {lacks}")
    if not 0 < record.timestamp <= _MAX_TIMESTAMP:
        return RecordRefused(INVALID_TIMESTAMP, f"{INVALID_TIMESTAMP}: {record.timestamp} ms is no timestamp")
    if limits.max_age is not None:
        age = int(time.time() * 1000) - record.timestamp
        if age > limits.max_age:
            return RecordRefused(
                INVALID_TIMESTAMP,
                f"{INVALID_TIMESTAMP}: the record for {record.topic} is {age} ms old, "
                f"and message.timestamp.before.max.ms is {limits.max_age}",
            )
    return None
