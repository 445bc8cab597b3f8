"""One outbox table in SQL: its rows read as events, its status changes. Owns no connection and no decision."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from zlib import crc32

from cdc_outbox.model import Aggregate, Event, TableName
from cdc_outbox.mysql.queries import query
from cdc_outbox.mysql.session import Session

MAX_IDS = 5000
"""Ids a statement may name; beyond, the optimizer gives up its ranges and scans."""

_SHORTEST_SPAN = 3

_T = TypeVar("_T")

Lock = Literal["", "LOCK IN SHARE MODE", "FOR UPDATE", "FOR UPDATE SKIP LOCKED"]

Row = tuple[int, str]
"""(id, event_id): what names a row."""

_PAYLOAD = "COALESCE(CAST(payload AS CHAR CHARACTER SET utf8mb4), CAST(payload AS BINARY))"
"""As text; bytes that are no text come as they are."""
_COLUMNS = (
    "id",
    "event_id",
    "aggregate_type",
    "aggregate_id",
    "event_type",
    _PAYLOAD,
    "status",
    "retry_count",
    "max_retries",
    "next_retry_at IS NOT NULL",
    "CAST(UNIX_TIMESTAMP(created_at) * 1000 AS SIGNED)",
)
_SIZE_ONLY = tuple("OCTET_LENGTH(payload)" if column == _PAYLOAD else column for column in _COLUMNS)

AGGREGATE = (
    "CAST(CONCAT(CONVERT(aggregate_type USING utf8mb4), CHAR(0 USING utf8mb4),"
    " CONVERT(aggregate_id USING utf8mb4)) AS BINARY)"
)
"""An aggregate as utf-8 bytes: a collation would take `A1` and `a1` for the same."""


@dataclass(frozen=True)
class Candidate:
    """A row that the poller may take: without its payload, with the bytes that it has."""

    event: Event
    payload_size: int


@dataclass(frozen=True)
class RowStatus:
    """What a row says now."""

    event_id: str
    status: int
    parked: bool


class OutboxTable:
    """Statements on one table. Every method that changes rows must run inside a fenced transaction.

    extra_columns: further columns to read into Event.columns. has_last_error: the optional column exists.
    """

    def __init__(self, name: TableName, *, extra_columns: Sequence[str] = (), has_last_error: bool = False) -> None:
        self.name = name
        self.extra_columns = tuple(extra_columns)
        self.has_last_error = has_last_error

    def _query(self, statement: str, **parts: object) -> str:
        return query(statement, table=self.name.quoted, **parts)

    # -- reading ----------------------------------------------------------------------------------------------

    def statuses(self, session: Session, ids: Sequence[int], lock: Lock = "") -> dict[int, RowStatus]:
        """What the rows say; rows that are gone, or not visible yet, are missing. A lock waits for the latter."""
        found: dict[int, RowStatus] = {}
        for part in _slices(ids):
            sql = self._query("statuses", ids=numbers(part), lock=lock)
            found.update({id: RowStatus(e, status, bool(parked)) for id, e, status, parked in session.query(sql)})
        return found

    def all_pending(self, session: Session, rows: Sequence[Row], lock: Lock = "") -> bool:
        """True when every one of these rows is there, pending and not parked. A lock waits for what is not visible."""
        for part in _slices(rows):
            found = session.row(self._query("pending_count", spans=spans(sorted(id for id, _ in part)), lock=lock))
            if found is None or tuple(map(int, found)) != (len(part), checksum(part)):
                return False
        return True

    def fetch(self, session: Session, ids: Sequence[int], lock: Lock = "") -> dict[int, Event]:
        """The rows as events, payload as text."""
        found: dict[int, Event] = {}
        for part in _slices(ids):
            columns = self._columns(_COLUMNS)
            for row in session.query(self._query("fetch", columns=columns, ids=numbers(part), lock=lock)):
                event = self._event(row)
                found[event.id] = event
        return found

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
        """Failed and parked rows whose time has come, with id > above, by id, locked; not of these aggregates.

        ordered: none behind a row of its aggregate whose time has not come. held: of these aggregate types only what
        has waited for as long as all its retries would have taken, or was given up by a person. waits: seconds before
        retry 1, 2 …
        """
        clause = f"AND {AGGREGATE} NOT IN ({_aggregates(session, without)})" if without else ""
        if held:
            types = ",".join(f"x'{one.encode().hex()}'" for one in held)
            clause += (
                f" AND (CAST(CONVERT(aggregate_type USING utf8mb4) AS BINARY) NOT IN ({types})"
                f" OR next_retry_at <= NOW() - INTERVAL ({_whole_schedule(waits)}) SECOND OR retry_count > max_retries)"
            )
        sql = self._query(
            "due",
            columns=self._columns(_SIZE_ONLY),
            aggregate=AGGREGATE,
            first="AND (first_id IS NULL OR id < first_id)" if ordered else "",
            without=clause,
            above=int(above),
            limit=int(limit),
        )
        return [candidate for candidate in self._candidates(session, sql) if candidate.event.parked]

    def last_errors(self, session: Session, ids: Collection[int]) -> dict[int, str]:
        """What last_error of these rows says; empty where the column does not exist."""
        if not ids or not self.has_last_error:
            return {}
        return {id: text or "" for id, text in session.query(self._query("last_errors", ids=numbers(ids)))}

    def due_or_stuck(self, session: Session, relay: str) -> tuple[bool, bool, bool, bool]:
        """(a retry is due, something parked is due, something is at 1, the relay is paused): the idle question."""
        row = session.row(self._query("poll"), (relay,))
        assert row is not None
        return bool(row[0]), bool(row[1]), bool(row[2]), bool(row[3])

    def failed_aggregates(self, session: Session) -> list[Aggregate]:
        """Aggregates with a row whose time has not come."""
        return self._aggregates(session, self._query("failed_aggregates", aggregate=AGGREGATE))

    def blocked_aggregates(self, session: Session) -> list[Aggregate]:
        """Aggregates with a row failed, parked or at 1."""
        return self._aggregates(session, self._query("blocked_aggregates", aggregate=AGGREGATE))

    def _aggregates(self, session: Session, sql: str) -> list[Aggregate]:
        return [self._aggregate(one) for (one,) in session.query(sql)]

    def _aggregate(self, as_bytes: bytes) -> Aggregate:
        kind, _, id = as_bytes.decode().partition("\0")
        return (self.name, kind, id)

    def open_before(
        self, session: Session, below: int, only: Collection[Aggregate], *, pending: bool = True
    ) -> list[tuple[Aggregate, Row]]:
        """Rows of these aggregates below an id that are neither sent nor dead. pending: those that are, too."""
        if not only:
            return []
        sql = self._query(
            "open_before",
            below=int(below),
            only=self._only(session, only),
            pending="" if pending else "AND FALSE",
        )
        return [((self.name, t, i), (id, event_id)) for id, event_id, t, i in session.query(sql)]

    def stuck(self, session: Session, only: Collection[Aggregate]) -> dict[Aggregate, int]:
        """How many rows each of these aggregates still has failed, parked or at 1; none: missing."""
        if not only:
            return {}
        # Beyond some thousand names, one look at all that is stuck costs less than naming them in every look.
        clause = self._only(session, only) if len(only) <= MAX_IDS else ""
        sql = self._query("stuck_rows", aggregate=AGGREGATE, only=clause)
        return {self._aggregate(one): int(count) for one, count in session.query(sql)}

    def sending(self, session: Session, above: int, limit: int) -> list[tuple[Aggregate, Row, object]]:
        """Rows at 1 with their updated_at, by id."""
        sql = self._query("sending_rows", above=int(above), limit=int(limit))
        return [((self.name, t, i), (id, event_id), updated) for id, event_id, t, i, updated in session.query(sql)]

    def highest_id(self, session: Session) -> int:
        row = session.row(self._query("highest_id"))
        assert row is not None
        return int(row[0])

    def pending_page(self, session: Session, above: int, top: int, limit: int) -> list[Row]:
        """Pending rows (not parked) with above < id ≤ top, by id."""
        sql = self._query("pending_page", above=int(above), top=int(top), limit=int(limit))
        return [(id, event_id) for id, event_id in session.query(sql)]

    def pending_rows(self, session: Session, ids: Sequence[int]) -> list[Candidate]:
        """Those of the ids that are still pending, by id, locked."""
        found: list[Candidate] = []
        for part in _slices(ids):
            sql = self._query("pending_rows", columns=self._columns(_SIZE_ONLY), ids=numbers(part))
            found += self._candidates(session, sql)
        return found

    def _candidates(self, session: Session, sql: str) -> list[Candidate]:
        rows = session.query(sql)
        at = _COLUMNS.index(_PAYLOAD)
        return [Candidate(self._event((*row[:at], None, *row[at + 1 :])), int(row[at] or 0)) for row in rows]

    def wait_for_commits(self, session: Session) -> None:
        """Return once the newest rows that the binlog may show already are committed."""
        session.query(self._query("newest_rows"))

    def waiting(self, session: Session) -> tuple[int, int]:
        """(parked rows, dead rows), by index."""
        row = session.row(self._query("waiting"))
        assert row is not None
        return int(row[0]), int(row[1])

    # -- status changes, each giving the number of rows that were as expected ---------------------------------

    def mark_sent(self, session: Session, rows: Sequence[Row]) -> int:
        return self._change(session, "mark_sent", rows)

    def delete_sent(self, session: Session, rows: Sequence[Row]) -> int:
        """The copies that `rows: transient` keeps of failed events, once they are sent."""
        return self._change(session, "delete_sent", rows)

    def mark_sending(self, session: Session, rows: Sequence[Row]) -> int:
        return self._change(session, "mark_sending", rows)

    def mark_failed(self, session: Session, rows: Sequence[Row], seconds: int, error: str) -> int:
        return self._change(session, "mark_failed", rows, seconds=int(seconds), last_error=self._error(session, error))

    def mark_dead(self, session: Session, rows: Sequence[Row], error: str) -> int:
        return self._change(session, "mark_dead", rows, last_error=self._error(session, error))

    def park(self, session: Session, rows: Sequence[Row]) -> int:
        return self._change(session, "park", rows)

    def put_back(self, session: Session, rows: Sequence[Any]) -> int:
        return self._change(session, "put_back", rows)

    def claim_due(self, session: Session, rows: Sequence[Row]) -> int:
        return self._change(session, "claim_due", rows)

    def release_abandoned(self, session: Session, rows: Sequence[Row], seconds: float) -> int:
        return self._change(session, "release_abandoned", rows, seconds=int(seconds))

    def release_sending(self, session: Session) -> int:
        """At take-over: rows at 1 become due retries, retry_count unchanged; those locked by others stay and block."""
        return self.put_back(session, session.query(self._query("sending_unlocked")))

    def _change(self, session: Session, statement: str, rows: Sequence[Row], **parts: object) -> int:
        matched = 0
        for part in _slices(rows):
            matched += session.execute(self._query(statement, rows=pairs(session, part), **parts))
        return matched

    def _error(self, session: Session, error: str) -> str:
        return f", last_error = {session.literal(error[:512])}" if self.has_last_error else ""

    def insert(self, session: Session, event: Event) -> None:
        """Put a new pending event in."""
        session.execute(
            self._query("emit"),
            (
                event.event_id,
                event.aggregate_type,
                event.aggregate_id,
                event.event_type,
                (event.payload or b"null").decode(),
            ),
        )

    def delete_inserted(self, session: Session, event_id: str) -> None:
        """In the transaction that inserted it, as applications do with `rows: transient`."""
        session.execute(self._query("delete_inserted"), (event_id,))

    # -- SQL text ---------------------------------------------------------------------------------------------

    def _columns(self, columns: Sequence[str]) -> str:
        extra = [f"CAST(`{column.replace('`', '``')}` AS CHAR)" for column in self.extra_columns]
        return ", ".join([*columns, *extra])

    def _event(self, row: tuple[Any, ...]) -> Event:
        (
            id,
            event_id,
            kind,
            aggregate_id,
            event_type,
            payload,
            status,
            retries,
            most,
            parked,
            created,
            *extra,
        ) = row
        return Event(
            table=self.name,
            id=id,
            event_id=event_id,
            aggregate_type=kind,
            aggregate_id=aggregate_id,
            event_type=event_type,
            payload=payload.encode() if isinstance(payload, str) else payload,
            status=status,
            retry_count=retries,
            max_retries=most,
            parked=bool(parked),
            created_at=created,
            columns=dict(zip(self.extra_columns, extra, strict=True)) if extra else None,
        )

    def _only(self, session: Session, aggregates: Iterable[Aggregate]) -> str:
        return f"AND {AGGREGATE} IN ({_aggregates(session, aggregates)})"


def _whole_schedule(waits: Sequence[float]) -> str:
    """Seconds from a row's first attempt to its last retry."""
    cases = " ".join(f"WHEN {count} THEN {round(sum(waits[:count]))}" for count in range(len(waits) + 1))
    beyond = f"{round(sum(waits))} + (max_retries - {len(waits)}) * {round(waits[-1])}"
    return f"CASE max_retries {cases} ELSE {beyond} END"


def _aggregates(session: Session, aggregates: Iterable[Aggregate]) -> str:
    return ",".join(f"x'{(kind + chr(0) + id).encode().hex()}'" for _, kind, id in aggregates)


def numbers(ids: Iterable[int]) -> str:
    """Ids as they stand in an IN list."""
    return ",".join(str(int(id)) for id in ids)


def spans(ids: Sequence[int]) -> str:
    """A condition on `id` that names these ids, given in ascending order, and no other row.

    Ids that follow each other without a gap are one range, read in one go instead of one by one. The last of them
    stands by itself: at a range's end the server looks at the next row, too, and somebody else may have locked that.
    """
    found: list[str] = []
    single: list[int] = []
    first = 0
    for place, id in enumerate(ids, start=1):
        if place < len(ids) and ids[place] == id + 1:
            continue
        if place - first > _SHORTEST_SPAN:
            found.append(f"id BETWEEN {int(ids[first])} AND {int(id) - 1}")
            single.append(id)
        else:
            single += ids[first:place]
        first = place
    return " OR ".join([*found, f"id IN ({numbers(single)})"])


def checksum(rows: Iterable[Row]) -> int:
    """What pending_count gives for these rows."""
    return sum(crc32(f"{id} {event_id}".encode()) for id, event_id in rows)


def pairs(session: Session, rows: Iterable[Row]) -> str:
    """Rows as they stand in an IN list of (id, event_id)."""
    return ",".join(f"({int(id)},{session.literal(event_id)})" for id, event_id in rows)


def _slices(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), MAX_IDS):
        yield items[start : start + MAX_IDS]


def column_names(session: Session, table: TableName) -> list[str]:
    """The table's columns in order, from information_schema; none: no such table, or no right to see it."""
    return [name for (name,) in session.query(query("column_names"), tuple(table))]
