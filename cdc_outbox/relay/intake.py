"""Which of the tail's events may be published: statuses read first after a take-over, claims with `claim: row`,
rows that the binlog does not show whole read from the table. Owns the relay thread's SQL session."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from pymysql.err import MySQLError

from cdc_outbox.model import Aggregate, Position, Status, TableName
from cdc_outbox.mysql.checkpoint import Fence
from cdc_outbox.mysql.outbox_table import Lock, OutboxTable, Row, RowStatus
from cdc_outbox.mysql.session import Session, is_retriable
from cdc_outbox.relay.in_flight import Envelope, InFlight
from cdc_outbox.testing.kill_points import kill_point

if TYPE_CHECKING:
    from cdc_outbox.mysql.leadership import Lease

TRIES = 10
"""Times that a claim which met a deadlock or a lock wait is tried again."""

_T = TypeVar("_T")


class Intake:
    """Sifts envelopes in stream order. What it drops is skipped in the ledger; what is open elsewhere blocks.

    check_until: the server's position after the epoch was raised; until the stream has passed it, events may be
    settled already.
    """

    def __init__(
        self,
        open_session: Callable[[], Session],
        fence: Fence,
        tables: Mapping[TableName, OutboxTable],
        ledger: InFlight,
        *,
        lease: Lease,
        claim_rows: bool,
        check_until: Position,
        session_lifetime: float,
    ) -> None:
        """open_session: makes the relay thread's session when it is needed; the server ends it after
        session_lifetime seconds of silence, so that it is made anew rather than kept alive."""
        self._open_session = open_session
        self._session_lifetime = session_lifetime
        self._opened: Session | None = None
        self._used_at = 0.0
        self._fence = fence
        self._tables = tables
        self._ledger = ledger
        self._lease = lease
        self._claim_rows = claim_rows
        self._check_until: Position | None = check_until

    def sift(self, envelopes: list[Envelope]) -> tuple[list[Envelope], list[Envelope]]:
        """(to be published, no longer ours), by what the binlog and, where needed, the table say."""
        incomplete = [envelope for envelope in envelopes if envelope.event.incomplete]
        if incomplete:
            self._complete(incomplete)
        if self._check_until is not None:
            if self._ledger.streamed_past(self._check_until):
                self._check_until = None
            return self._by_status(envelopes)
        go: list[Envelope] = []
        dropped: list[Envelope] = []
        for envelope in envelopes:
            event = envelope.event
            if event.status == Status.PENDING and not event.parked and not event.incomplete:
                go.append(envelope)
            else:
                self._drop(envelope, event.status, event.parked, dropped, gone=event.incomplete)
        return go, dropped

    def _by_status(self, envelopes: list[Envelope]) -> tuple[list[Envelope], list[Envelope]]:
        by_table = _by_table(envelopes)
        if all(self._tables[table].all_pending(self._session, _rows(part)) for table, part in by_table.items()):
            return envelopes, []
        return self._judge(envelopes, self._statuses(envelopes))

    @property
    def catching_up(self) -> bool:
        return self._check_until is not None

    def check_again_until(self, position: Position) -> None:
        """Before the tail starts after a sweep: what that handed over lies before `position`."""
        self._check_until = position

    def claim(self, envelopes: list[Envelope]) -> tuple[list[Envelope], list[Envelope]]:
        """With `claim: row`: 0 → 1 for the batch. (claimed, taken by others or gone); as is with `claim: leader`.

        A COMMIT without an answer raises: the rebuild reads the rows, never takes them for another worker's.
        """
        if not self._claim_rows or not envelopes:
            return envelopes, []
        if not any(envelope.contended for envelope in envelopes):
            try:
                if self._claim_all(envelopes):
                    return envelopes, []
            except MySQLError as error:
                if not is_retriable(error):
                    raise
        return self._claim_one_by_one(envelopes)

    def _claim_all(self, envelopes: Sequence[Envelope]) -> bool:
        """The usual case: all are pending. False, with nothing changed, when the count came short.

        Rows are waited for, until their transactions are committed, before the checkpoint row is locked: a wait with
        that one in hand would hold up every other writer of the relay.
        """
        session, by_table = self._session, _by_table(envelopes)
        for table, part in by_table.items():
            if not self._tables[table].all_pending(session, _rows(part), "LOCK IN SHARE MODE"):
                return False
        with session.transaction():
            self._fence.check(session)
            matched = sum(self._tables[table].mark_sending(session, _rows(part)) for table, part in by_table.items())
            kill_point("claim-not-committed")
            if matched != len(envelopes):
                session.execute("ROLLBACK")
                return False
        kill_point("claimed")
        for envelope in envelopes:
            envelope.sending = True
        return True

    def _claim_one_by_one(self, envelopes: list[Envelope]) -> tuple[list[Envelope], list[Envelope]]:
        """Lock what can be locked and claim exactly those still pending, in the same transaction.

        Rows locked by others are waited for in memory, and nothing of their aggregates overtakes them. Behind another
        worker's row nothing is claimed: it goes on as it is, at 0, and will be parked.
        """
        there = {t: self._there(t, [e.event.id for e in part]) for t, part in _by_table(envelopes).items()}
        for attempt in range(TRIES):
            try:
                with self._session.transaction():
                    self._fence.check(self._session)
                    ours = self._lock_free(envelopes)
                    claimed = _claimable(envelopes, ours, there, self._ledger)
                    for table, part in _by_table(claimed).items():
                        self._tables[table].mark_sending(self._session, _rows(part))
                break
            except MySQLError as error:
                if not is_retriable(error) or attempt == TRIES - 1:
                    raise
        for envelope in claimed:
            envelope.sending = True
        go: list[Envelope] = []
        dropped: list[Envelope] = []
        for envelope in envelopes:
            event = envelope.event
            row = ours[event.table].get(event.id)
            if row is None and event.id in there[event.table]:
                envelope.contended = True
                self._ledger.wait(envelope)
            elif self._is_pending(envelope, row, dropped):
                go.append(envelope)
        return go, dropped

    def _lock_free(self, envelopes: Iterable[Envelope]) -> dict[TableName, dict[int, RowStatus]]:
        """Lock those rows that nobody else has locked, and say what they are."""
        return {
            table: self._tables[table].statuses(self._session, [e.event.id for e in part], "FOR UPDATE SKIP LOCKED")
            for table, part in _by_table(envelopes).items()
        }

    def _there(self, table: TableName, ids: Sequence[int]) -> set[int]:
        """Rows that exist, also those whose transaction has not let go of them yet."""
        found = set(self._tables[table].statuses(self._session, ids))
        missing = [id for id in ids if id not in found]
        if missing:
            try:
                found.update(self._tables[table].statuses(self._session, missing, "LOCK IN SHARE MODE"))
            except MySQLError as error:
                if not is_retriable(error):
                    raise
                found.update(missing)
        return found

    def _judge(
        self, envelopes: Sequence[Envelope], statuses: Mapping[TableName, Mapping[int, RowStatus]]
    ) -> tuple[list[Envelope], list[Envelope]]:
        """Only 0 without next_retry_at goes on; behind an open row of other hands its aggregate is blocked."""
        go: list[Envelope] = []
        dropped: list[Envelope] = []
        for envelope in envelopes:
            if self._is_pending(envelope, statuses[envelope.event.table].get(envelope.event.id), dropped):
                go.append(envelope)
        return go, dropped

    def _is_pending(self, envelope: Envelope, row: RowStatus | None, dropped: list[Envelope]) -> bool:
        if row is None or row.event_id != envelope.event.event_id:
            self._drop(envelope, Status.SENT, False, dropped, gone=True)
        elif row.status == Status.PENDING and not row.parked:
            return True
        else:
            self._drop(envelope, row.status, row.parked, dropped)
        return False

    def _drop(
        self, envelope: Envelope, status: int, parked: bool, dropped: list[Envelope], *, gone: bool = False
    ) -> None:
        dropped.append(envelope)
        still_open = status == Status.SENDING or (parked and status in (Status.PENDING, Status.FAILED))
        if still_open and not gone:
            self._ledger.block([envelope.event.aggregate])

    def _statuses(self, envelopes: Iterable[Envelope]) -> dict[TableName, dict[int, RowStatus]]:
        """Statuses by table and id; a row not visible yet is waited for by a locking read."""
        found: dict[TableName, dict[int, RowStatus]] = {}
        for table, part in _by_table(envelopes).items():
            ids = [envelope.event.id for envelope in part]
            rows = self._tables[table].statuses(self._session, ids)
            missing = [id for id in ids if id not in rows]
            if missing:
                rows.update(self._once_committed(self._tables[table].statuses, missing))
            found[table] = rows
        return found

    def _once_committed(
        self, read: Callable[[Session, Sequence[int], Lock], dict[int, _T]], ids: list[int]
    ) -> dict[int, _T]:
        """A locking read of rows that the binlog shows before their transaction has let go of them, which takes as long
        as a semi-synchronous replica does."""
        while True:
            try:
                return read(self._session, ids, "LOCK IN SHARE MODE")
            except MySQLError as error:
                if not is_retriable(error):
                    raise
                self._lease.check()

    def _complete(self, envelopes: Iterable[Envelope]) -> None:
        """Take the final values of these rows from the table; what is gone stays incomplete."""
        for table, part in _by_table(envelopes).items():
            ids = [envelope.event.id for envelope in part]
            rows = self._tables[table].fetch(self._session, ids)
            missing = [id for id in ids if id not in rows]
            if missing:
                rows.update(self._once_committed(self._tables[table].fetch, missing))
            for envelope in part:
                row = rows.get(envelope.event.id)
                if row is not None and row.event_id == envelope.event.event_id:
                    row.committed_at = envelope.event.committed_at
                    envelope.event = row

    @property
    def _session(self) -> Session:
        now = time.monotonic()
        if self._opened is not None and now - self._used_at > self._session_lifetime / 2:
            self.close()
        if self._opened is None:
            self._opened = self._open_session()
        self._used_at = now
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _claimable(
    envelopes: Iterable[Envelope],
    ours: Mapping[TableName, Mapping[int, RowStatus]],
    there: Mapping[TableName, set[int]],
    ledger: InFlight,
) -> list[Envelope]:
    """Those whose rows are pending, with nothing open of their aggregate in their way or before them in the batch."""
    claimable: list[Envelope] = []
    barred: set[Aggregate] = set()
    for envelope in envelopes:
        event = envelope.event
        row = ours[event.table].get(event.id)
        if row is None or row.event_id != event.event_id:
            if event.id in there[event.table]:
                barred.add(event.aggregate)  # locked by somebody else
        elif row.status == Status.PENDING and not row.parked:
            if event.aggregate not in barred and ledger.blocks(event) is None:
                claimable.append(envelope)
        elif row.status == Status.SENDING or row.parked:
            barred.add(event.aggregate)
    return claimable


def _by_table(envelopes: Iterable[Envelope]) -> dict[TableName, list[Envelope]]:
    parts: dict[TableName, list[Envelope]] = defaultdict(list)
    for envelope in envelopes:
        parts[envelope.event.table].append(envelope)
    return parts


def _rows(envelopes: Iterable[Envelope]) -> list[Row]:
    return [(envelope.event.id, envelope.event.event_id) for envelope in envelopes]
