"""Outbox rows as a person asks for them: by name, by state and filter; and the changes a person may make to them.

Every statement walks idx_status_next_retry or names rows by the primary or the unique key, and changes at most BATCH
rows in a transaction. Nothing here is fenced: P4's conditions alone protect the rows from a relay that runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cdc_outbox.model import State, TableName
from cdc_outbox.mysql.outbox_table import AGGREGATE, Row, column_names, numbers, pairs
from cdc_outbox.mysql.queries import query
from cdc_outbox.mysql.session import Session

BATCH = 1000
"""Rows changed by one transaction."""

LOOKED_AT = 100_000
"""Rows of a state that a filter without an index looks at, unless everything is asked for."""

Change = Literal["retry_by_hand", "skip_by_hand", "purge_dead"]


CONDITION = {
    State.pending: "status = 0 AND next_retry_at IS NULL",
    State.parked: "status = 0 AND next_retry_at IS NOT NULL",
    State.sending: "status = 1",
    State.sent: "status = 2",
    State.failed: "status = 3 AND next_retry_at IS NOT NULL",
    State.dead: "status = 3 AND next_retry_at IS NULL",
}
"""Each is one range of idx_status_next_retry."""

_ORDER = {
    State.sent: "next_retry_at DESC, id DESC",
    State.dead: "id DESC",
    State.pending: "id",
    State.parked: "next_retry_at, id",
    State.sending: "next_retry_at, id",
    State.failed: "next_retry_at, id",
}
"""As the index has them: what is over newest first, what is to come in the order it is due."""

RETRYABLE = (State.failed, State.dead)
SKIPPABLE = (State.failed, State.parked)
PURGEABLE = (State.dead,)


@dataclass(frozen=True)
class EventRow:
    """A row without its payload. age and due_in: seconds by the database's clock, due_in None without next_retry_at."""

    table: TableName
    id: int
    event_id: str
    aggregate_type: str
    aggregate_id: str
    event_type: str
    status: int
    retry_count: int
    max_retries: int
    next_retry_at: datetime | None
    created_at: datetime
    updated_at: datetime
    age: int
    due_in: int | None
    last_error: str | None

    @property
    def state(self) -> State:
        waiting = self.next_retry_at is not None
        if self.status == 0:
            return State.parked if waiting else State.pending
        if self.status == 3:
            return State.failed if waiting else State.dead
        return State.sending if self.status == 1 else State.sent

    @property
    def key(self) -> Row:
        return (self.id, self.event_id)


@dataclass(frozen=True)
class Filter:
    """Which rows. aggregate: TYPE or TYPE/ID, compared as bytes; older_than in seconds; error: part of last_error."""

    aggregate: str | None = None
    event_type: str | None = None
    older_than: float | None = None
    error: str | None = None

    def sql(self, session: Session) -> str:
        """AND …; empty where everything is wanted."""
        parts: list[str] = []
        if self.aggregate is not None:
            wanted = _binary(self.aggregate)
            whole = "CONCAT(CONVERT(aggregate_type USING utf8mb4), '/', CONVERT(aggregate_id USING utf8mb4))"
            parts.append(
                f"(CAST(CONVERT(aggregate_type USING utf8mb4) AS BINARY) = {wanted}"
                f" OR CAST({whole} AS BINARY) = {wanted})"
            )
        if self.event_type is not None:
            parts.append(f"CAST(CONVERT(event_type USING utf8mb4) AS BINARY) = {_binary(self.event_type)}")
        if self.older_than is not None:
            parts.append(f"created_at < NOW() - INTERVAL {int(self.older_than)} SECOND")
        if self.error is not None:
            parts.append(f"INSTR(last_error, {session.literal(self.error)}) > 0")
        return "".join(f" AND {part}" for part in parts)


class EventRows:
    """One outbox table, for people."""

    def __init__(self, session: Session, name: TableName) -> None:
        self.name = name
        self._session = session
        self.has_last_error = "last_error" in column_names(session, name)
        self._columns = ", ".join(
            [
                "id, event_id, aggregate_type, aggregate_id, event_type, status, retry_count, max_retries",
                "next_retry_at, created_at, updated_at, TIMESTAMPDIFF(SECOND, created_at, NOW())",
                "TIMESTAMPDIFF(SECOND, NOW(), next_retry_at)",
                "last_error" if self.has_last_error else "NULL",
            ]
        )

    def _query(self, statement: str, **parts: object) -> str:
        return query(statement, table=self.name.quoted, **parts)

    def find(self, state: State, chosen: Filter, limit: int, *, everything: bool) -> list[EventRow]:
        """The first `limit` rows of a state; with a filter, among the first LOOKED_AT unless everything is wanted."""
        filters = chosen.sql(self._session)
        parts = {"columns": self._columns, "state": CONDITION[state], "filters": filters, "order": _ORDER[state]}
        if filters and not everything:
            sql = self._query("events_among_first", **parts, scan=LOOKED_AT, limit=int(limit))
        else:
            sql = self._query("events_in_state", **parts, limit=f"LIMIT {int(limit)}")
        return self._rows(sql)

    def name_all(self, state: State, chosen: Filter) -> list[Row]:
        """What names every row of a state that the filter takes: there may be millions."""
        filters = chosen.sql(self._session)
        parts = {"columns": "id, event_id", "state": CONDITION[state], "filters": filters, "order": _ORDER[state]}
        sql = self._query("events_in_state", **parts, limit="")
        return [(int(id), str(event_id)) for id, event_id in self._session.query(sql)]

    def more_than_looked_at(self, state: State) -> bool:
        return count(self._session, self.name, state, LOOKED_AT + 1) > LOOKED_AT

    def by_id(self, ids: Collection[int]) -> list[EventRow]:
        return self._rows(self._query("events_by_id", columns=self._columns, ids=numbers(ids))) if ids else []

    def by_event_id(self, event_ids: Collection[str]) -> list[EventRow]:
        if not event_ids:
            return []
        names = ",".join(self._session.literal(one) for one in event_ids)
        return self._rows(self._query("events_by_event_id", columns=self._columns, event_ids=names))

    def _rows(self, sql: str) -> list[EventRow]:
        return [EventRow(self.name, *row) for row in self._session.query(sql)]

    def change(self, change: Change, states: Sequence[State], rows: Sequence[Row], error: str | None) -> set[Row]:
        """Change those of at most BATCH rows that are in one of the states and not locked; gives them.

        One transaction. error: what last_error is to say where the table has it, None leaves it as it is.
        """
        said = error if self.has_last_error else None
        parts = {} if change == "purge_dead" else {"last_error": _set_error(self._session, said)}
        state = "(" + " OR ".join(f"({CONDITION[one]})" for one in states) + ")"
        with self._session.transaction():
            named = pairs(self._session, rows)
            free = [
                (int(id), str(event_id))
                for id, event_id in self._session.query(self._query("free_in_state", rows=named, state=state))
            ]
            if free:
                named = pairs(self._session, free)
                changed = self._session.execute(self._query(change, rows=named, **parts))
                if changed != len(free):
                    raise AssertionError("locked rows changed under us")
        return set(free)


def count(session: Session, table: TableName, state: State, most: int | None) -> int:
    """Rows in a state, by the index alone; counting stops at `most`."""
    limit = "" if most is None else f"LIMIT {int(most)}"
    row = session.row(query("count_in_state", table=table.quoted, state=CONDITION[state], limit=limit))
    assert row is not None
    return int(row[0])


def blocked_aggregates(session: Session, table: TableName, most: int) -> int:
    """Aggregates with a row failed, parked or at 1, among the first `most` rows of each of these states."""
    row = session.row(query("blocked_count", table=table.quoted, aggregate=AGGREGATE, limit=int(most)))
    assert row is not None
    return int(row[0])


def oldest_unsettled(session: Session, table: TableName) -> int | None:
    """Age in seconds, by the database's clock, of the first row that is pending or at 1."""
    row = session.row(query("oldest_unsettled", table=table.quoted))
    return None if row is None or row[0] is None else max(0, int(row[0]))


def batches(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH]


def _set_error(session: Session, error: str | None) -> str:
    return "" if error is None else f", last_error = {session.literal(error[:512])}"


def _binary(text: str) -> str:
    return f"x'{text.encode().hex()}'"
