"""A Kafka in memory: records on the wire, what has landed, answers that are still to come, refusals and outages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_outbox.errors import Hold, RecordRefused
from cdc_outbox.kafka.murmur2 import partition_of
from cdc_outbox.kafka.outcomes import MESSAGE_TOO_LARGE, UNKNOWN_TOPIC
from cdc_outbox.kafka.publisher import Delivery, OnDeliveries, Record
from cdc_outbox.relay.in_flight import Envelope

if TYPE_CHECKING:
    from tests.property.judge import Judge
    from tests.property.scheduler import Process

DEAD_LETTERS = "dead"
PARTITIONS = 3
"""So many, aggregates `a` and `c` share one, and `b` has another."""
UNKNOWN = Hold("time-out", reason="kafka")
UNLISTED = Hold("POLICY_VIOLATION", reason="kafka", suspect="POLICY_VIOLATION")


def event_of(record: Record) -> str:
    """The event_id of the row that a record or a dead letter was made of."""
    assert isinstance(record.token, Envelope)
    return record.token.event.event_id


@dataclass(eq=False)
class OnTheWire:
    """A record that a client was given and that has not landed."""

    publisher: MemoryPublisher
    record: Record


class Broker:
    """Lands records in the order of their wire, answers later, both when the test says so."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.away = False
        self.refused: dict[str, int] = {}
        """Attempts that are refused before sending, by event_id."""
        self.refused_late: dict[str, int] = {}
        """Attempts that are refused after all checks; the first is the whole batch's, a second is the record's own."""
        self.unlisted: dict[str, int] = {}
        """Attempts that are answered with an error that no outage explains."""
        self.topic_missing = False
        """Of the events; the dead letters' is always there."""
        self.partition_away: int | None = None
        """Which of the events' partitions takes nothing."""
        self.leader_lost = False
        """It has no leader, and metadata says so."""
        self.wire: list[OnTheWire] = []
        self.answers: list[tuple[MemoryPublisher, Delivery]] = []

    def land(self, count: int, key: bytes | None = None) -> None:
        """The first `count` records, of one key where it is given: records of other keys may overtake."""
        if self.away:
            return
        chosen = [
            one for one in self.wire if (key is None or one.record.key == key) and not self._is_stuck(one.record)
        ][:count]
        for one in chosen:
            self.wire.remove(one)
            event_id = event_of(one.record)
            error = None if one.record.topic == DEAD_LETTERS else self._refused_late(event_id)
            if error is not None:
                self.judge.refused(event_id, late=True)
                self.answers.append((one.publisher, Delivery(one.record.token, error)))
            else:
                self.judge.landed(one.record)
                self.answers.append((one.publisher, Delivery(one.record.token, None)))

    def _is_stuck(self, record: Record) -> bool:
        return (
            record.topic != DEAD_LETTERS
            and self.partition_away is not None
            and partition_of(record.key or b"", PARTITIONS) == self.partition_away
        )

    def leaders(self) -> list[bool]:
        if self.away:
            raise Hold("no broker answers", reason="kafka")
        return [not self.leader_lost or number != self.partition_away for number in range(PARTITIONS)]

    def _refused_late(self, event_id: str) -> RecordRefused | Hold | None:
        if self.topic_missing:
            return RecordRefused(UNKNOWN_TOPIC)
        if self.refused_late.get(event_id):
            self.refused_late[event_id] -= 1
            return RecordRefused("INVALID_RECORD")
        if self.unlisted.get(event_id):
            self.unlisted[event_id] -= 1
            return UNLISTED
        return None

    def answer(self, count: int) -> None:
        """Tell the clients what became of the first `count` records; a frozen one hears it when it wakes."""
        now, self.answers = self.answers[:count], self.answers[count:]
        for publisher, delivery in now:
            if publisher.process.frozen:
                self.answers.append((publisher, delivery))
            elif publisher.open and not publisher.process.dead:
                publisher.deliver([delivery])

    def lose_answers(self) -> None:
        """What is on the wire lands or not; the clients are told that nobody knows."""
        for one in self.wire[: len(self.wire) // 2]:
            self.land(1, one.record.key)
        unknown = [(p, d.token) for p, d in self.answers] + [(one.publisher, one.record.token) for one in self.wire]
        self.wire, self.answers = [], []
        for publisher, token in unknown:
            publisher.gap = True
            self.answers.append((publisher, Delivery(token, UNKNOWN)))


class MemoryPublisher:
    """One incarnation's client."""

    name = "memory"

    def __init__(
        self, broker: Broker, process: Process, lease_left: Callable[[], float], deliver: OnDeliveries
    ) -> None:
        self._broker = broker
        self.process = process
        self.lease_left = lease_left
        self.deliver = deliver
        self.open = True
        self.gap = False
        """A record of its sequence is missing: an idempotent producer's later ones are not taken."""

    def refusal(self, record: Record) -> RecordRefused | None:
        event_id = event_of(record)
        if record.topic == DEAD_LETTERS:
            return None
        if self._broker.topic_missing:
            self._broker.judge.has_no_topic(event_id)
            return RecordRefused(UNKNOWN_TOPIC)
        if not self._broker.refused.get(event_id):
            return None
        self._broker.refused[event_id] -= 1
        self._broker.judge.refused(event_id)
        return RecordRefused(MESSAGE_TOO_LARGE)

    def send(self, records: Sequence[Record]) -> None:
        if not self.open:
            raise Hold("the client was purged", reason="kafka")
        for record in records:
            self._broker.judge.handed(self, record)
            if self.gap:
                self._broker.answers.append((self, Delivery(record.token, UNKNOWN)))
            else:
                self._broker.wire.append(OnTheWire(self, record))

    def leaders(self, topic: str) -> list[bool]:
        return self._broker.leaders()

    def purge(self) -> None:
        """What is in the kernel's hands goes out all the same."""
        self.open = False
        mine = [one for one in self._broker.wire if one.publisher is self]
        for one in mine[len(mine) // 2 :]:
            self._broker.wire.remove(one)

    def trouble(self) -> str | None:
        return "no broker answers" if self._broker.away else None

    def close(self, timeout: float) -> bool:
        if self.open:
            self.purge()
        return True
