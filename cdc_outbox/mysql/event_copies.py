"""`rows: transient`: events that failed, written into the table again, in SQL. Owns no connection and no decision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cdc_outbox.model import Event
from cdc_outbox.mysql.outbox_table import OutboxTable, RowStatus
from cdc_outbox.mysql.queries import query
from cdc_outbox.mysql.session import Session

MAX_ROWS = 500
MAX_BYTES = 4 << 20
"""Of one INSERT; a single larger row goes alone."""


@dataclass(frozen=True)
class Copy:
    """A row to be at status 3. retry_in: seconds until it is due, None: dead. error: for last_error."""

    event: Event
    retry_count: int
    retry_in: int | None
    error: str = ""


class EventCopies:
    """Statements on the copies in one table; those that change rows run inside a fenced transaction."""

    def __init__(self, table: OutboxTable) -> None:
        self._table = table

    def statuses(self, session: Session, event_ids: Sequence[str]) -> dict[str, RowStatus]:
        """What the rows of these events say, whatever their id; none: missing."""
        found: dict[str, RowStatus] = {}
        for start in range(0, len(event_ids), MAX_ROWS):
            part = ",".join(session.literal(one) for one in event_ids[start : start + MAX_ROWS])
            rows = session.query(query("copy_statuses", table=self._table.name.quoted, event_ids=part))
            found.update({event_id: RowStatus(event_id, status, bool(parked)) for event_id, status, parked in rows})
        return found

    def insert(self, session: Session, copies: Sequence[Copy]) -> None:
        """Write them, under their old ids; where the event is there already it stays as it is.

        An id that another event has by now is left to it: the copy gets a new one.
        """
        for part in _parts(copies):
            self._insert(session, part)
        there = self.statuses(session, [copy.event.event_id for copy in copies])
        for copy in copies:
            if copy.event.event_id not in there:
                self._insert(session, [copy], new_id=True)

    def _insert(self, session: Session, copies: Sequence[Copy], *, new_id: bool = False) -> None:
        table = self._table
        names = ["id", *_COLUMNS, *table.extra_columns, *(["last_error"] if table.has_last_error else [])]
        rows: list[str] = []
        values: list[object] = []
        for copy in copies:
            event = copy.event
            row: list[object] = [
                None if new_id else event.id,
                event.event_id,
                event.aggregate_type,
                event.aggregate_id,
                event.event_type,
                _text(event.payload),
                3,
                copy.retry_count,
                event.max_retries,
            ]
            further = [(event.columns or {}).get(column) for column in table.extra_columns]
            if table.has_last_error:
                further.append(copy.error[:512] or None)
            due = "NULL" if copy.retry_in is None else f"NOW() + INTERVAL {int(copy.retry_in)} SECOND"
            created = "NOW()" if event.committed_at is None else f"FROM_UNIXTIME({event.committed_at} / 1000)"
            rows.append(f"({', '.join(['%s'] * len(row) + [due, created] + ['%s'] * len(further))})")
            values += [*row, *further]
        columns = ", ".join(f"`{name.replace('`', '``')}`" for name in names)
        session.execute(query("copy_in", table=table.name.quoted, columns=columns, values=", ".join(rows)), values)


_COLUMNS = (
    "event_id",
    "aggregate_type",
    "aggregate_id",
    "event_type",
    "payload",
    "status",
    "retry_count",
    "max_retries",
    "next_retry_at",
    "created_at",
)


def _text(payload: bytes | None) -> str | bytes | None:
    """As text, which a JSON column asks for; bytes that are none as they are."""
    if payload is None:
        return None
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return payload


def _parts(copies: Sequence[Copy]) -> Iterator[Sequence[Copy]]:
    part: list[Copy] = []
    size = 0
    for copy in copies:
        if part and (len(part) == MAX_ROWS or size + copy.event.size > MAX_BYTES):
            yield part
            part, size = [], 0
        part.append(copy)
        size += copy.event.size
    if part:
        yield part
