"""One outbox table of the simulated server: what each statement of cdc_outbox.mysql.outbox_table does, without SQL.

test_database.py runs the same random operations on this and on a real server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from cdc_outbox.model import Aggregate, Event, TableName
from cdc_outbox.mysql.event_copies import Copy
from cdc_outbox.mysql.outbox_table import Candidate, Lock, RowStatus
from cdc_outbox.mysql.outbox_table import Row as RowName
from tests.property.database import KIND, PAYLOAD, Row, Session


class MemoryTable:
    """Stands for OutboxTable."""

    extra_columns: tuple[str, ...] = ()
    has_last_error = False

    def __init__(self, name: TableName, *, extra_columns: Sequence[str] = (), has_last_error: bool = False) -> None:
        self.name = name

    def event(self, row: Row, *, whole: bool = True) -> Event:
        return Event(
            self.name,
            row.id,
            row.event_id,
            KIND,
            row.aggregate_id,
            "OrderPlaced",
            PAYLOAD if whole else None,
            status=row.status,
            retry_count=row.retry_count,
            max_retries=row.max_retries,
            parked=row.next_retry_at is not None,
        )

    def _aggregate(self, row: Row) -> Aggregate:
        return (self.name, KIND, row.aggregate_id)

    # -- reading ---------------------------------------------------------------------------------------------

    def _read(self, session: Session, ids: Iterable[int], lock: Lock) -> list[Row]:
        wanted = set(ids)
        if lock:
            there = wanted & {*session.view(), *(r.id for rows in session.database.unseen.values() for r in rows)}
            wanted = session.lock(there, skip="SKIP" in lock, share="SHARE" in lock)  # type: ignore[assignment]
        return sorted((row for id, row in session.view().items() if id in wanted), key=lambda row: row.id)

    def statuses(self, session: Session, ids: Sequence[int], lock: Lock = "") -> dict[int, RowStatus]:
        if not ids:
            return {}
        with session.statement():
            rows = self._read(session, ids, lock)
            return {row.id: RowStatus(row.event_id, row.status, row.next_retry_at is not None) for row in rows}

    def all_pending(self, session: Session, rows: Sequence[RowName], lock: Lock = "") -> bool:
        if not rows:
            return True
        with session.statement():
            found = self._read(session, [id for id, _ in rows], lock)
            pending = [row for row in found if (row.id, row.event_id) in set(rows) and _pending(row)]
            return len(pending) == len(rows)

    def fetch(self, session: Session, ids: Sequence[int], lock: Lock = "") -> dict[int, Event]:
        with session.statement():
            return {row.id: self.event(row) for row in self._read(session, ids, lock)}

    def due(
        self,
        session: Session,
        limit: int,
        above: int,
        without: Collection[Aggregate],
        *,
        ordered: bool,
        held: Collection[str],
        waits: Sequence[float],
    ) -> list[Candidate]:
        with session.statement():
            now = session.database.now
            later = {self._aggregate(row): row.id for row in reversed(self._by_id(session)) if _later(row, now)}
            due = [
                row.id
                for row in self._by_id(session)
                if row.id > above
                and _due(row, now)
                and self._aggregate(row) not in without
                and (not ordered or row.id < later.get(self._aggregate(row), row.id + 1))
                and (KIND not in held or _due(row, now - _whole_schedule(row, waits)))
            ][:limit]
            rows = self._read(session, due, "FOR UPDATE SKIP LOCKED")
            return [Candidate(self.event(row, whole=False), len(PAYLOAD)) for row in rows]

    def last_errors(self, session: Session, ids: Collection[int]) -> dict[int, str]:
        return {}

    def due_or_stuck(self, session: Session, relay: str) -> tuple[bool, bool, bool, bool]:
        with session.statement():
            rows, now = self._by_id(session), session.database.now
            return (
                any(row.status == 3 and _due(row, now) for row in rows),
                any(row.status == 0 and _due(row, now) for row in rows),
                any(row.status == 1 for row in rows),
                session.database.checkpoint is not None and session.database.checkpoint.paused,
            )

    def failed_aggregates(self, session: Session) -> list[Aggregate]:
        with session.statement():
            now = session.database.now
            return self._aggregates(row for row in self._by_id(session) if _later(row, now))

    def blocked_aggregates(self, session: Session) -> list[Aggregate]:
        with session.statement():
            return self._aggregates(row for row in self._by_id(session) if _stuck(row))

    def open_before(
        self, session: Session, below: int, only: Collection[Aggregate], *, pending: bool = True
    ) -> list[tuple[Aggregate, RowName]]:
        if not only:
            return []
        with session.statement():
            return [
                (self._aggregate(row), (row.id, row.event_id))
                for row in self._by_id(session)
                if row.id < below
                and not row.settled
                and self._aggregate(row) in only
                and (pending or not _pending(row))
            ]

    def stuck(self, session: Session, only: Collection[Aggregate]) -> dict[Aggregate, int]:
        if not only:
            return {}
        with session.statement():
            stuck = (self._aggregate(row) for row in self._by_id(session) if _stuck(row))
            return dict(Counter(aggregate for aggregate in stuck if aggregate in only))

    def sending(self, session: Session, above: int, limit: int) -> list[tuple[Aggregate, RowName, object]]:
        with session.statement():
            rows = [row for row in self._by_id(session) if row.status == 1 and row.id > above]
            return [(self._aggregate(row), (row.id, row.event_id), row.updated_at) for row in rows[:limit]]

    def highest_id(self, session: Session) -> int:
        with session.statement():
            return max(session.view(), default=0)

    def pending_page(self, session: Session, above: int, top: int, limit: int) -> list[RowName]:
        with session.statement():
            rows = [row for row in self._by_id(session) if _pending(row) and above < row.id <= top]
            return [(row.id, row.event_id) for row in rows[:limit]]

    def pending_rows(self, session: Session, ids: Sequence[int]) -> list[Candidate]:
        with session.statement():
            view = session.view()
            pending = [id for id in ids if id in view and _pending(view[id])]
            rows = self._read(session, pending, "FOR UPDATE SKIP LOCKED")
            return [Candidate(self.event(row, whole=False), len(PAYLOAD)) for row in rows]

    def wait_for_commits(self, session: Session) -> None:
        with session.statement():
            unseen = [row.id for rows in session.database.unseen.values() for row in rows]
            self._read(session, [*session.view(), *unseen], "LOCK IN SHARE MODE")

    def waiting(self, session: Session) -> tuple[int, int]:
        with session.statement():
            rows = self._by_id(session)
            return sum(r.status == 0 and r.next_retry_at is not None for r in rows), sum(r.dead for r in rows)

    def _by_id(self, session: Session) -> list[Row]:
        return sorted(session.view().values(), key=lambda row: row.id)

    def _aggregates(self, rows: Iterable[Row]) -> list[Aggregate]:
        return sorted({self._aggregate(row) for row in rows})

    # -- status changes --------------------------------------------------------------------------------------

    def mark_sent(self, session: Session, rows: Sequence[RowName]) -> int:
        return self._change(session, rows, _out, lambda row: replace(row, status=2, next_retry_at=None))

    def delete_sent(self, session: Session, rows: Sequence[RowName]) -> int:
        matched = self.mark_sent(session, rows)
        session.deletes.update(id for id, _ in rows if id in session.writes)
        return matched

    def mark_sending(self, session: Session, rows: Sequence[RowName]) -> int:
        return self._change(session, rows, _pending, lambda row: replace(row, status=1))

    def mark_failed(self, session: Session, rows: Sequence[RowName], seconds: int, error: str) -> int:
        due = session.database.now + seconds
        return self._change(
            session,
            rows,
            _out,
            lambda row: replace(row, status=3, retry_count=row.retry_count + 1, next_retry_at=due),
        )

    def mark_dead(self, session: Session, rows: Sequence[RowName], error: str) -> int:
        return self._change(
            session,
            rows,
            _out,
            lambda row: replace(row, status=3, retry_count=row.max_retries, next_retry_at=None),
        )

    def park(self, session: Session, rows: Sequence[RowName]) -> int:
        now = session.database.now
        return self._change(session, rows, _pending, lambda row: replace(row, next_retry_at=now))

    def put_back(self, session: Session, rows: Sequence[RowName]) -> int:
        now = session.database.now
        return self._change(session, rows, _sending, lambda row: replace(row, status=3, next_retry_at=now))

    def claim_due(self, session: Session, rows: Sequence[RowName]) -> int:
        return self._change(
            session,
            rows,
            lambda row: row.status in (0, 3) and row.next_retry_at is not None,
            lambda row: replace(row, status=1, next_retry_at=None),
        )

    def release_abandoned(self, session: Session, rows: Sequence[RowName], seconds: float) -> int:
        now = session.database.now
        return self._change(
            session,
            rows,
            lambda row: row.status == 1 and row.updated_at <= now - int(seconds),
            lambda row: replace(row, status=3, next_retry_at=now),
        )

    def release_sending(self, session: Session) -> int:
        with session.statement():
            ids = [row.id for row in self._by_id(session) if row.status == 1]
            rows = self._read(session, ids, "FOR UPDATE SKIP LOCKED")
        return self.put_back(session, [(row.id, row.event_id) for row in rows])

    def _change(
        self, session: Session, rows: Sequence[RowName], where: Callable[[Row], bool], change: Callable[[Row], Row]
    ) -> int:
        """Matched rows. updated_at moves where anything else does."""
        if not rows:
            return 0
        with session.statement():
            matched = [
                row
                for row in self._read(session, [id for id, _ in rows], "FOR UPDATE")
                if (row.id, row.event_id) in set(rows) and where(row)
            ]
            for row in matched:
                after = change(row)
                if after != row:
                    session.writes[row.id] = replace(after, updated_at=session.database.now)
            session.database.on_count(rows, [(row.id, row.event_id) for row in matched])
            return len(matched)


class MemoryCopies:
    """Stands for EventCopies."""

    def __init__(self, table: MemoryTable) -> None:
        self._table = table

    def statuses(self, session: Session, event_ids: Sequence[str]) -> dict[str, RowStatus]:
        if not event_ids:
            return {}
        with session.statement():
            return {
                row.event_id: RowStatus(row.event_id, row.status, row.next_retry_at is not None)
                for row in session.view().values()
                if row.event_id in event_ids
            }

    def insert(self, session: Session, copies: Sequence[Copy]) -> None:
        now = session.database.now
        with session.statement():
            session.lock([copy.event.id for copy in copies])
            for copy in copies:
                event = copy.event
                if event.id not in session.view():
                    due = None if copy.retry_in is None else now + copy.retry_in
                    session.writes[event.id] = Row(
                        event.id, event.event_id, event.aggregate_id, 3, copy.retry_count, event.max_retries, due, now
                    )


def _pending(row: Row) -> bool:
    return row.status == 0 and row.next_retry_at is None


def _sending(row: Row) -> bool:
    return row.status == 1


def _out(row: Row) -> bool:
    return row.status in (0, 1)


def _stuck(row: Row) -> bool:
    return row.status == 1 or (row.status in (0, 3) and row.next_retry_at is not None)


def _later(row: Row, now: int) -> bool:
    return row.status in (0, 3) and row.next_retry_at is not None and row.next_retry_at > now


def _whole_schedule(row: Row, waits: Sequence[float]) -> int:
    """Seconds from its first attempt to its last retry."""
    return sum(round(waits[min(retry, len(waits) - 1)]) for retry in range(row.max_retries))


def _due(row: Row, now: int) -> bool:
    return row.status in (0, 3) and row.next_retry_at is not None and row.next_retry_at <= now
