"""The promises, checked at every commit, at every hand-over and at every landing, and once more when all is quiet."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cdc_outbox.gtid import GtidSet
from cdc_outbox.kafka.publisher import Record
from cdc_outbox.model import Position
from cdc_outbox.mysql.outbox_table import Row as Name
from tests.property.broker import DEAD_LETTERS, MemoryPublisher, event_of
from tests.property.database import Change, Database, Row, Session

STEPS = {(0, 0), (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (3, 1)}
"""Changes of status that a relay may make."""


@dataclass
class Fact:
    """What is known of one event beside its row."""

    number: int
    """Its place in commit order."""
    row: Row
    unordered: bool = False
    """P2 says nothing of it: the binlog does not show it, or a person or another worker had it in hands."""
    touched: bool = False
    """Somebody else changed its row, so that a change of ours may miss it."""
    refusals: int = 0
    landed: bool = False
    refused_late: bool = False
    letter: bool = False
    without_topic: bool = False
    """It waited for its topic, and may have died of it."""
    skipped: bool = False
    published_elsewhere: bool = False
    gone: bool = False
    """Only a server that is not the primary any more had it."""
    handed_by: MemoryPublisher | None = None
    """The client that has it, or had it acknowledged, with no refusal since."""


class Judge:
    """Collects what is broken. The test looks after every step: the relay must not be able to swallow it."""

    def __init__(self, *, ordered: bool = True) -> None:
        self._ordered = ordered
        self._failed_over = False
        self.broken: list[str] = []
        self.facts: dict[str, Fact] = {}
        self.alerts: set[str] = set()
        self.database: Database | None = None
        self.leader: object = None
        """The process that raised the epoch last."""
        self._epoch = 0
        self.commits = 0

    def violated(self, what: str) -> None:
        self.broken.append(what)

    def bug(self, error: Exception) -> None:
        """An error that the relay does not know. Known ones are part of life."""
        self.violated("unexpected error: " + "".join(traceback.format_exception(error)))

    def committed(self, rows: Iterable[Row], *, unordered: bool = False) -> None:
        """An application committed these events."""
        for row in rows:
            self.facts[row.event_id] = Fact(len(self.facts), row, unordered or not self._ordered)

    def checkpoint_lost(self) -> None:
        """Epochs begin again."""
        self._epoch = 0

    def failed_over(self, rows: Mapping[int, Row]) -> None:
        """rows: what the new primary has. Outcomes that it lacks are lost, and so are what it has of the epochs."""
        self._epoch, self._failed_over = 0, True
        for fact in self.facts.values():
            fact.gone = fact.gone or fact.row.id not in rows
            fact.handed_by = None

    # -- the broker ------------------------------------------------------------------------------------------

    def refused(self, event_id: str, *, late: bool = False) -> None:
        fact = self.facts[event_id]
        fact.refusals += 1
        fact.refused_late = fact.refused_late or late
        fact.handed_by = None

    def has_no_topic(self, event_id: str) -> None:
        self.facts[event_id].without_topic = True

    def handed(self, publisher: MemoryPublisher, record: Record) -> None:
        event_id = event_of(record)
        if publisher.lease_left() <= 0:
            self.violated(f"P6: {event_id} was handed over past the lease")
        if record.topic == DEAD_LETTERS:
            return
        fact = self.facts[event_id]
        if fact.handed_by is publisher:
            self.violated(f"P7: {event_id} was handed over twice by one incarnation")
        fact.handed_by = publisher
        assert self.database is not None
        row = self.database.rows.get(fact.row.id)
        if self.leader is publisher.process and row is not None and row.status == 2:
            self.violated(f"P7: {event_id} was handed over by the leader although its row says sent")

    def landed(self, record: Record) -> None:
        fact = self.facts[event_of(record)]
        if record.topic == DEAD_LETTERS:
            fact.letter = True
            return
        if not fact.landed and not fact.unordered and not fact.gone:
            for other_id, other in self.facts.items():
                if self._must_precede(other, fact):
                    self.violated(f"P2: {event_of(record)} of {fact.row.aggregate_id} came before {other_id}")
        fact.landed = True

    def _must_precede(self, other: Fact, fact: Fact) -> bool:
        """Committed before and with a lower id; overlapping transactions may differ in the two."""
        assert self.database is not None
        if other.row.aggregate_id != fact.row.aggregate_id or other.unordered or other.refused_late or other.landed:
            return False
        if other.number >= fact.number or other.row.id >= fact.row.id:
            return False
        row = self.database.rows.get(other.row.id)
        died = (row is not None and row.dead) or (self._failed_over and other.letter)
        return not died and not other.gone

    # -- the database ----------------------------------------------------------------------------------------

    def on_count(self, asked: Sequence[Name], matched: Sequence[Name]) -> None:
        missed = [event_id for id, event_id in set(asked) - set(matched) if not self.facts[event_id].touched]
        if missed:
            self.violated(f"P4: a status change missed {missed}, which nobody else has touched")

    def on_commit(self, session: Session, changes: Sequence[Change], position: bool) -> None:
        self.commits += 1
        database = session.database
        now = session.checkpoint or database.checkpoint
        if now is not None and now.epoch != self._epoch:
            self._epoch, self.leader = now.epoch, session.process
        if not changes and not position:
            return
        if now is None or session.fence != (now.epoch, now.owner) or now.server_uuid != database.uuid:
            self.violated(f"P6: a relay wrote with the fence {session.fence} although the checkpoint row is {now}")
        for change in changes:
            self._changed(change)
        if position and session.checkpoint is not None:
            written = session.checkpoint
            gtids = None if written.gtid_set is None else GtidSet.parse(written.gtid_set)
            place = Position(written.binlog_file or "", written.binlog_pos or 0, gtids)
            self.position_stands(place, {change.after.id: change.after for change in changes})

    def _changed(self, change: Change) -> None:
        before, after = change.before, change.after
        fact = self.facts[after.event_id]
        if (before.status, after.status) not in STEPS or before.dead:
            self.violated(f"P4: {after.event_id} went from {before} to {after}")
        died_waiting = after.dead and fact.without_topic
        excused = fact.skipped or died_waiting
        if after.retry_count > before.retry_count and after.retry_count > fact.refusals and not excused:
            self.violated(f"P3: {after.event_id} has {after.retry_count} retries after {fact.refusals} refusals")
        if after.dead and fact.refusals <= after.max_retries and not excused:
            self.violated(f"P3: {after.event_id} is dead after {fact.refusals} refusals")
        if after.dead and not fact.letter:
            self.violated(f"P1: {after.event_id} is marked dead before its letter has landed")

    def position_stands(self, position: Position, changed: Mapping[int, Row]) -> None:
        """Nothing that was shown before the position may still be pending: nobody would read it again.

        changed: rows as the transaction that writes the position leaves them.
        """
        database = self.database
        assert database is not None
        gtids = position.gtid_set
        for number, entry in enumerate(database.binlog, start=1):
            if gtids is None and not position.reached(Position(*database.place(number))):
                break
            if not entry.rows or (gtids is not None and not GtidSet(database.gtid_ranges(number)).issubset(gtids)):
                continue
            for one in entry.rows:
                if database.transient and one.status == 0:
                    self._passes(one.event_id, changed.get(one.id) or database.rows.get(one.id))
                    continue
                row = changed.get(one.id) or database.rows.get(one.id) or (one if number in database.unseen else None)
                if row is None or self.facts[row.event_id].touched:
                    continue
                if row.status == 0 and row.next_retry_at is None:
                    self.violated(f"P1: the position passes {row.event_id}, which is pending")

    def _passes(self, event_id: str, row: Row | None) -> None:
        """What has no row must have been sent before the position passes it."""
        fact = self.facts[event_id]
        if row is None and not fact.landed:
            self.violated(f"P1: the position passes {event_id}, which was not sent and has no row")

    # -- when all is quiet -----------------------------------------------------------------------------------

    def check_complete(self) -> None:
        """P1: every event that was not deleted has landed and says sent, or is dead with a letter or an alert."""
        assert self.database is not None
        for event_id, fact in self.facts.items():
            row = self.database.rows.get(fact.row.id)
            if row is None:
                if self.database.transient and not fact.landed:
                    self.violated(f"P1: {event_id} was not sent and has no row")
                continue
            if not row.settled:
                self.violated(f"P1: {event_id} is left at {row}")
            elif row.status == 2 and not (fact.landed or fact.published_elsewhere):
                self.violated(f"P1: {event_id} says sent and never reached Kafka")
            elif row.dead and "event_dead" not in self.alerts:
                self.violated(f"P1: {event_id} is dead without an alert")
