"""Partitions that acknowledge nothing while others do, and which aggregates wait for one of them. Pure.

The relay thread looks; the poller reads what is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from cdc_outbox.kafka.murmur2 import partition_of
from cdc_outbox.model import Aggregate
from cdc_outbox.relay.in_flight import Envelope, Stage

Partition = tuple[str, int]
"""(topic, number)"""

MARGIN = 0.25
"""Seconds: a partition is still while others acknowledge what was sent so much later than its oldest record. When all
stop at once, as in an outage, what was sent after that is not acknowledged."""

PATIENCE = 2.0
"""Seconds that a partition must have been so, or without a leader, to be stuck. An election of leaders takes less; and
so does the end of an outage, when not all begin to acknowledge at the same moment."""

ASK_EVERY = 5.0
"""Seconds for which what the brokers say of a topic's leaders is believed, and after which they are asked again when
none has answered."""

Leaders = Callable[[str], Sequence[bool] | None]
"""Whether each partition of a topic has a leader; None: no broker answers."""


@lru_cache(maxsize=1 << 16)
def _number(key: str, partitions: int) -> int:
    return partition_of(key.encode(), partitions)


@dataclass(frozen=True)
class HeldPartitions:
    """Those that get nothing more for now: `aggregate in held`. Never changes: what one pass decides fits together."""

    partitions: frozenset[Partition] = frozenset()
    topics: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.partitions)

    def __contains__(self, aggregate: Aggregate) -> bool:
        topic = self.topics.get(aggregate[1])
        count = self.counts.get(topic) if topic is not None else None
        return count is not None and (topic, _number(aggregate[2], count)) in self.partitions


@dataclass
class _Watched:
    """oldest: its first record out. Records of a partition are acknowledged in order: while it is out, none is."""

    oldest: Envelope
    since: float
    others_since: float | None = None
    """When others were first found to acknowledge what was sent later."""

    def is_suspicious(self, now: float) -> bool:
        return now - (self.since if self.others_since is None else self.others_since) >= PATIENCE


class PartitionHolds:
    """Watches what is out. A partition is stuck when others acknowledge meanwhile, or when it has no leader; it is
    held once what is in memory for stuck ones fills half of the window, and until it acknowledges again."""

    def __init__(
        self, topics: Mapping[str, str], leaders: Leaders, *, max_events: int, max_bytes: int, linger: float = 0.0
    ) -> None:
        """topics: of the aggregate types known so far; may grow. linger: seconds a record may wait in the client."""
        self._topics = topics
        self._leaders = leaders
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._linger = linger
        self._watched: dict[Partition, _Watched] = {}
        self._led: dict[str, tuple[float, Sequence[bool]]] = {}
        self._ask_again = float("-inf")
        self.stuck: frozenset[Partition] = frozenset()
        self.held = HeldPartitions()
        """A new one with every change, for readers on other threads."""
        self.waiting = 0
        """Events in memory for those that are stuck, once one is held."""
        self.aside = (0, 0)
        """(events, bytes) that wait for a held one and are more than half of the window: they were there before it was
        noticed, and others need the room."""

    def look(self, now: float, undelivered: Sequence[Envelope], latest: float, *, hold_all: bool = False) -> None:
        """undelivered: what waits in memory or is with the client, in order. latest: when the last of what was ever
        acknowledged was sent. hold_all: whatever is stuck is held at once, since all else waits for what is out."""
        self._count_again(now)
        oldest = self._oldest(now, undelivered)
        if not oldest:
            self._watched = {}
            self.stuck = frozenset()
            self.held = HeldPartitions()
            self.waiting, self.aside = 0, (0, 0)
            return
        before = self._watched
        self._watched = {
            where: before[where] if where in before and before[where].oldest is envelope else _Watched(envelope, now)
            for where, envelope in oldest.items()
        }
        for watched in self._watched.values():
            if watched.others_since is None and latest > watched.oldest.handed_at + MARGIN + self._linger:
                watched.others_since = now
        self.stuck = frozenset(where for where in self._watched if self._is_stuck(where, now))
        held = self.stuck & self.held.partitions
        events, size = self._load(undelivered) if self.stuck else (0, 0)
        over = (events - self._max_events // 2, size - self._max_bytes // 2)
        if self.stuck - held and (hold_all or max(over) >= 0):
            held = self.stuck
        if held != self.held.partitions:
            self.held = self._those(held)
        self.waiting, self.aside = (events, (max(0, over[0]), max(0, over[1]))) if held else (0, (0, 0))

    def _those(self, partitions: frozenset[Partition]) -> HeldPartitions:
        return HeldPartitions(partitions, self._topics, {topic: len(led) for topic, (_, led) in self._led.items()})

    def _count_again(self, now: float) -> None:
        """A topic may have got more partitions: by the old count, records of one that is stuck would seem to be of
        others that are not."""
        for topic in {topic for (topic, _), watched in self._watched.items() if watched.is_suspicious(now)}:
            asked, led = self._led[topic]
            if now - asked >= ASK_EVERY and self._ask(topic, now) and len(self._led[topic][1]) != len(led):
                self._watched = {where: watched for where, watched in self._watched.items() if where[0] != topic}
                self.held = self._those(frozenset(where for where in self.held.partitions if where[0] != topic))

    def _is_stuck(self, where: Partition, now: float) -> bool:
        watched = self._watched[where]
        return watched.is_suspicious(now) and (watched.others_since is not None or not self._has_leader(where, now))

    def _oldest(self, now: float, undelivered: Iterable[Envelope]) -> dict[Partition, Envelope]:
        """Of each partition the record that has been out for longest, where that is long."""
        oldest: dict[Partition, Envelope] = {}
        handed, before = Stage.HANDED, now - MARGIN - self._linger
        for envelope in undelivered:
            if envelope.stage is handed and envelope.handed_at < before:
                where = self._partition(envelope.event.aggregate, now)
                if where is not None and (where not in oldest or envelope.handed_at < oldest[where].handed_at):
                    oldest[where] = envelope
        return oldest

    def _load(self, undelivered: Iterable[Envelope]) -> tuple[int, int]:
        """(events, bytes) in memory for those that are stuck."""
        events = size = 0
        stuck = self._those(self.stuck)
        for envelope in undelivered:
            if envelope.stage <= Stage.HANDED and envelope.event.aggregate in stuck:
                events += 1
                size += envelope.size
        return events, size

    def _partition(self, aggregate: Aggregate, now: float) -> Partition | None:
        topic = self._topics.get(aggregate[1])
        if topic is None or (topic not in self._led and not self._ask(topic, now)):
            return None
        return topic, _number(aggregate[2], len(self._led[topic][1]))

    def _has_leader(self, where: Partition, now: float) -> bool:
        """As the brokers say; while none answers there is no telling."""
        topic, number = where
        asked, led = self._led[topic]
        return now - asked >= ASK_EVERY or led[number]

    def _ask(self, topic: str, now: float) -> bool:
        if now < self._ask_again:
            return False
        led = self._leaders(topic)
        if not led:
            self._ask_again = now + ASK_EVERY
            return False
        self._led[topic] = (now, led)
        return True
