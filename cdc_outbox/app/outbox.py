"""The producer: Outbox writes events into the outbox table, inside the caller's transaction. It never commits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar, overload
from uuid import UUID

from cdc_outbox.app.ids import uuid7
from cdc_outbox.app.outbox_columns import DELAYED, identifier, marks, names, plain_text, quoted, seconds
from cdc_outbox.app.outbox_connection import (
    error_number,
    is_async,
    require_still_open,
    require_transaction,
    target,
)
from cdc_outbox.app.outbox_payload import json_text, refuse_depth_of_mariadb
from cdc_outbox.errors import EventRefused

MAX_LENGTHS = {"event_id": 64, "aggregate_type": 64, "aggregate_id": 64, "event_type": 128}
"""Characters that the columns of schema/outbox_event.sql hold."""
MAX_PAYLOAD_BYTES = 900_000
"""What fits, with key and headers, into a record of 1 MiB: the default of the relay and of Kafka."""

_CORE = ("event_id", "aggregate_type", "aggregate_id", "event_type", "payload")
_OWN = frozenset({*_CORE, "id", "status", "retry_count", "max_retries", "next_retry_at", "created_at", "updated_at"})
_MAX_RETRIES = "max_retries"
_CONSTRAINT_FAILED = 4025
"""MariaDB's ER_CONSTRAINT_FAILED; MySQL has another number, and no such constraint."""

_T = TypeVar("_T")


@dataclass(slots=True, kw_only=True)
class NewEvent:
    """One event to be written; the arguments of `Outbox.add` mean the same.

    aggregate_id   what the event belongs to and is ordered by; an int or UUID becomes its text
    payload        dict, list, dataclass, pydantic model, or JSON text
    headers        header -> value, for headers that the Outbox has columns for; None leaves one out
    columns        column -> value, for further columns that the Outbox was told of
    event_id       the idempotency key; None: made by the Outbox
    max_retries    of the relay for this event; None: the table's default, 3
    delay          seconds, or a timedelta, by which the event is published later, by the database's clock
    occurred_at    when it became true, with a time zone; `business_key` needs it, nothing else reads it
    """

    aggregate_type: str
    aggregate_id: str | int | UUID
    event_type: str
    payload: Any
    headers: Mapping[str, object] | None = None
    columns: Mapping[str, object] | None = None
    event_id: str | None = None
    max_retries: int | None = None
    delay: float | timedelta | None = None
    occurred_at: datetime | None = None


class AsyncDatabase(Protocol):
    """SQLAlchemy's AsyncSession or AsyncConnection."""

    @property
    def run_sync(self) -> Callable[..., Awaitable[Any]]: ...


class Outbox:
    """Writes events into one outbox table.

    table: `name` or `database.name`. headers: header -> column, as `outbox.columns.headers` of the relay. columns:
    further columns that `add` may fill. event_ids: makes an event's id; `Uuid7Ids()`, `SnowflakeIds(…)`,
    `business_key` or a function of yours. max_lengths: column -> characters, where a table's columns are longer.
    One Outbox may be used by any number of threads and tasks.
    """

    def __init__(
        self,
        table: str = "outbox_event",
        *,
        headers: Mapping[str, str] | None = None,
        columns: Iterable[str] = (),
        event_ids: Callable[[NewEvent], str] = uuid7,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        max_lengths: Mapping[str, int] | None = None,
    ) -> None:
        self._headers = dict(headers or {})
        self._columns = frozenset(columns)
        for column in (*self._headers.values(), *self._columns):
            if column in _OWN:
                raise ValueError(f"{column} is the outbox's own column; headers and columns are for further ones")
        self._lengths = {**MAX_LENGTHS, **(max_lengths or {})}
        if unknown := self._lengths.keys() - MAX_LENGTHS.keys():
            raise ValueError(f"max_lengths: {sorted(unknown)} is none of {', '.join(MAX_LENGTHS)}")
        self._event_ids = event_ids
        self._max_payload_bytes = max_payload_bytes
        self._into = f"INSERT INTO {'.'.join(quoted(part) for part in table.split('.', 1))} "
        self._statements: dict[tuple[str, ...], str] = {}

    @overload
    def add(
        self,
        connection: AsyncDatabase,
        *,
        aggregate_type: str,
        aggregate_id: str | int | UUID,
        event_type: str,
        payload: Any,
        headers: Mapping[str, object] | None = None,
        columns: Mapping[str, object] | None = None,
        event_id: str | None = None,
        max_retries: int | None = None,
        delay: float | timedelta | None = None,
        occurred_at: datetime | None = None,
    ) -> Awaitable[str]: ...

    @overload
    def add(
        self,
        connection: Any,
        *,
        aggregate_type: str,
        aggregate_id: str | int | UUID,
        event_type: str,
        payload: Any,
        headers: Mapping[str, object] | None = None,
        columns: Mapping[str, object] | None = None,
        event_id: str | None = None,
        max_retries: int | None = None,
        delay: float | timedelta | None = None,
        occurred_at: datetime | None = None,
    ) -> str: ...

    def add(
        self,
        connection: Any,
        *,
        aggregate_type: str,
        aggregate_id: str | int | UUID,
        event_type: str,
        payload: Any,
        headers: Mapping[str, object] | None = None,
        columns: Mapping[str, object] | None = None,
        event_id: str | None = None,
        max_retries: int | None = None,
        delay: float | timedelta | None = None,
        occurred_at: datetime | None = None,
    ) -> str | Awaitable[str]:
        """Write one event and return its event_id; with an AsyncSession or AsyncConnection, await the result.

        connection: what the caller's transaction is open on: a DB-API connection (PyMySQL, mysqlclient,
        mysql-connector-python), a Session or Connection of SQLAlchemy, a connection of Django. The arguments are those
        of NewEvent. The row becomes visible, and is published, when the caller commits.

        Raises, and has written nothing: EventRefused for an event that does not fit; NotInTransaction; TypeError
        for something that is no connection; NoWorkerId from Snowflake ids. Else the driver's own errors, an
        IntegrityError (1062) for an event_id that is there already among them.
        """
        row = self._row(
            NewEvent(
                aggregate_type=aggregate_type,
                aggregate_id=aggregate_id,
                event_type=event_type,
                payload=payload,
                headers=headers,
                columns=columns,
                event_id=event_id,
                max_retries=max_retries,
                delay=delay,
                occurred_at=occurred_at,
            )
        )
        given = str(row["event_id"])
        return self._write(connection, [row], [given], given)

    @overload
    def add_many(self, connection: AsyncDatabase, events: Iterable[NewEvent]) -> Awaitable[list[str]]: ...

    @overload
    def add_many(self, connection: Any, events: Iterable[NewEvent]) -> list[str]: ...

    def add_many(self, connection: Any, events: Iterable[NewEvent]) -> list[str] | Awaitable[list[str]]:
        """Write events by one INSERT, in their order, and return their event_ids; otherwise as `add`.

        All or none are written. Together they must fit into the server's max_allowed_packet, 64 MiB by default.
        """
        rows = [self._row(event) for event in events]
        ids = [str(row["event_id"]) for row in rows]
        return self._write(connection, rows, ids, ids)

    # -- writing ----------------------------------------------------------------------------------------------

    def _write(
        self, connection: Any, rows: Sequence[Mapping[str, object]], ids: Sequence[str], result: _T
    ) -> _T | Awaitable[_T]:
        if is_async(connection):
            return self._write_async(connection, rows, ids, result)
        self._insert(connection, rows, ids)
        return result

    async def _write_async(
        self, connection: AsyncDatabase, rows: Sequence[Mapping[str, object]], ids: Sequence[str], result: _T
    ) -> _T:
        await connection.run_sync(self._insert, rows, ids)
        return result

    def _insert(self, connection: Any, rows: Sequence[Mapping[str, object]], ids: Sequence[str]) -> None:
        place = target(connection)
        require_transaction(place)
        if not rows:
            return
        if len(rows) == 1:
            (row,) = rows
            statement, values = self._statement(tuple(row)), tuple(row.values())
        else:
            columns = tuple(dict.fromkeys(column for row in rows for column in row))
            lines = ", ".join(marks(columns, row) for row in rows)
            values = tuple(row[column] for row in rows for column in columns if column in row)
            statement = f"{self._into}{names(columns)} VALUES {lines}"
        try:
            place.execute(statement, values)
        except Exception as error:  # each driver has classes of its own
            if error_number(error) == _CONSTRAINT_FAILED:
                refuse_depth_of_mariadb(str(row["payload"]) for row in rows)
            raise
        require_still_open(place, ids)

    def _statement(self, columns: tuple[str, ...]) -> str:
        found = self._statements.get(columns)
        if found is None:
            found = f"{self._into}{names(columns)} VALUES {marks(columns, columns)}"
            self._statements[columns] = found
        return found

    # -- an event as a row ------------------------------------------------------------------------------------

    def _row(self, event: NewEvent) -> dict[str, object]:
        """Column -> value, the core columns first. Raises EventRefused."""
        row: dict[str, object] = {
            "event_id": event.event_id if event.event_id is not None else self._event_ids(event),
            "aggregate_type": event.aggregate_type,
            "aggregate_id": event.aggregate_id,
            "event_type": event.event_type,
        }
        for column, value in row.items():
            row[column] = identifier(column, value, self._lengths[column])
        row["payload"] = json_text(event.payload, self._max_payload_bytes)
        if event.headers:
            self._map_headers(event.headers, row)
        if event.columns:
            self._map_columns(event.columns, row)
        if event.max_retries is not None:
            if event.max_retries < 0:
                raise EventRefused(
                    f"max_retries is {event.max_retries}; 0 means that the first attempt is the only one"
                )
            row[_MAX_RETRIES] = event.max_retries
        if event.delay is not None:
            row[DELAYED] = seconds(event.delay)
        return row

    def _map_headers(self, headers: Mapping[str, object], row: dict[str, object]) -> None:
        for header, value in headers.items():
            column = self._headers.get(header)
            if column is None:
                mapped = f"It has: {', '.join(sorted(self._headers))}" if self._headers else "It has none"
                raise EventRefused(
                    f"this Outbox has no column for header {header!r}",
                    hint=f"{mapped}. Outbox(headers={{{header!r}: 'column'}}) and outbox.columns.headers of the relay"
                    " add one",
                )
            text = plain_text(value)
            if text is None and value is not None:
                raise EventRefused(f"header {header!r} must be a str, an int or a UUID, not {type(value).__qualname__}")
            row[column] = text

    def _map_columns(self, columns: Mapping[str, object], row: dict[str, object]) -> None:
        for column, value in columns.items():
            if column not in self._columns:
                raise EventRefused(
                    f"this Outbox was not told of a column {column!r}",
                    hint=f"Outbox(columns=[{column!r}]) tells it that the table has one",
                )
            row[column] = value
