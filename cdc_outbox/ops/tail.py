"""Events as they arrive in Kafka, each with the time it took; read as a bystander, nothing is changed by it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_outbox.errors import Hold, Refused
from cdc_outbox.kafka.follower import BEGINNING, Followed, make_follower

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc_outbox.config import Settings

LOOK_AGAIN = 5.0
"""Seconds between looks for topics and partitions that are new."""

WAIT = 0.5

_NAMES = {
    "event_id": ("event_id", "id", "ce_id"),
    "event_type": ("event_type", "eventType", "ce_type"),
    "aggregate_type": ("aggregate_type", "ce_aggregatetype"),
    "aggregate_id": ("aggregate_id", "ce_subject"),
}
"""What each format's headers call it."""

_STRUCTURED = {"event_id": "id", "event_type": "type", "aggregate_type": "aggregatetype", "aggregate_id": "subject"}


@dataclass(frozen=True)
class Arrival:
    """An event in Kafka. latency: seconds from its commit until it was seen here; error_class: of a dead letter."""

    record: Followed
    latency: float
    event_id: str
    event_type: str
    aggregate_type: str
    aggregate_id: str
    error_class: str | None


@dataclass(frozen=True)
class Wanted:
    """Which events. aggregate: TYPE or TYPE/ID."""

    aggregate: str | None = None
    event_type: str | None = None

    def takes(self, one: Arrival) -> bool:
        aggregates = (one.aggregate_type, f"{one.aggregate_type}/{one.aggregate_id}")
        return (self.aggregate is None or self.aggregate in aggregates) and self.event_type in (None, one.event_type)


class Topics:
    """The topics of a relay: those that its template and its map can name, and its dead letters."""

    def __init__(self, settings: Settings, named: Sequence[str]) -> None:
        """named: these and no others. Raises Refused where rows name their topics and nobody else does."""
        kafka = settings.kafka
        if settings.outbox.columns.topic is not None and not named:
            raise Refused(
                f"column {settings.outbox.columns.topic} names the topic of each row, so they cannot be known here",
                hint="name them: --topic TOPIC, as often as there are topics",
            )
        self._named = set(named) or {*kafka.topic_map.values(), kafka.dead_letter_topic}
        template = re.sub(r"\\\{\w+\\\}", ".+", re.escape(kafka.topic))
        self._pattern = None if named else re.compile(template)

    def among(self, there: set[str]) -> set[str]:
        return {one for one in there if one in self._named or (self._pattern and self._pattern.fullmatch(one))}

    def missing(self, there: set[str]) -> set[str]:
        """Topics asked for by name that are not there."""
        return set() if self._pattern else self._named - there


def follow(
    settings: Settings,
    topics: Topics,
    wanted: Wanted,
    *,
    since: float | None,
    on_trouble: Callable[[str | None], None],
    on_topics: Callable[[list[str]], None],
) -> Generator[Arrival, None, None]:
    """Events as they come, for ever; topics that come later are followed from their beginning.

    since: begin so many seconds ago, None: now. on_trouble: called with what is wrong while no broker answers, and
    with None once one does again. on_topics: with all that are followed, at first and when there are more.
    Raises Refused, and Hold where none answers to begin with.
    """
    follower = make_follower(settings.kafka)
    try:
        begin = None if since is None else max(BEGINNING, int((time.time() - since) * 1000))
        there = follower.topics()
        if missing := topics.missing(there):
            on_trouble(f"there is no topic {', '.join(sorted(missing))} yet")
        followed = topics.among(there)
        follower.follow(followed, begin)
        on_topics(sorted(followed))
        looked = time.monotonic()
        trouble = False
        while True:
            try:
                if time.monotonic() - looked > LOOK_AGAIN:
                    looked = time.monotonic()
                    now_there = topics.among(follower.topics())
                    follower.follow(now_there, BEGINNING)
                    if now_there - followed:
                        followed |= now_there
                        on_topics(sorted(followed))
                    if trouble:
                        on_trouble(None)
                        trouble = False
                records = follower.poll(WAIT)
            except Hold as away:
                if not trouble:
                    on_trouble(away.message)
                    trouble = True
                continue
            now = time.time()
            for record in records:
                arrival = arrival_of(record, now)
                if wanted.takes(arrival):
                    yield arrival
    finally:
        follower.close()


def arrival_of(record: Followed, now: float) -> Arrival:
    """What a record says of its event, in whatever format it is. now: seconds since the epoch."""
    headers = record.headers
    committed = _number(headers.get("committed_at")) or record.timestamp
    named = {name: _first(headers, names) for name, names in _NAMES.items()}
    if not named["event_id"] and headers.get("content-type", b"").startswith(b"application/cloudevents"):
        named = _structured(record.value)
    error = headers.get("error_class")
    return Arrival(
        record,
        max(0.0, now - committed / 1000),
        named["event_id"],
        named["event_type"],
        named["aggregate_type"],
        named["aggregate_id"] or (record.key or b"").decode(errors="replace"),
        None if error is None else error.decode(errors="replace"),
    )


def _first(headers: Mapping[str, bytes], names: Sequence[str]) -> str:
    return next((headers[name].decode(errors="replace") for name in names if name in headers), "")


def _number(value: bytes | None) -> int:
    return int(value) if value is not None and value.isdigit() else 0


def _structured(value: bytes | None) -> dict[str, str]:
    try:
        event = json.loads(value or b"null")
    except ValueError:
        event = None
    found = event if isinstance(event, dict) else {}
    return {name: str(found.get(field, "")) for name, field in _STRUCTURED.items()}
