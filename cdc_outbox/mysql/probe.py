"""Asks a server about itself and its tables; that a statement is refused is an answer, no exception."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pymysql.cursors import DictCursor
from pymysql.err import MySQLError

from cdc_outbox.model import TableName
from cdc_outbox.mysql.session import connect, error_code
from cdc_outbox.mysql.table_checks import Column, Index, Layout

if TYPE_CHECKING:
    from cdc_outbox.config import MySQLSettings

ANSWER_TIMEOUT = 4.0
"""Seconds that one statement may take: a server that accepts and never answers must not hold the report."""

_SYNTAX_ERROR = 1064
CLIENT_ERRORS = range(2000, 3000)
"""Numbers that the client library gives: no answer came from the server."""

Row = dict[str, Any]


class Probe:
    """One plain connection. Every statement has ANSWER_TIMEOUT, then pymysql's error is raised."""

    def __init__(self, settings: MySQLSettings) -> None:
        self._connection = connect(settings, read_timeout=ANSWER_TIMEOUT)
        self.greeting_id = int(self._connection.thread_id())  # type: ignore[no-untyped-call]
        self.greeting_version = str(self._connection.get_server_info())  # type: ignore[no-untyped-call]

    def rows(self, sql: str, args: Sequence[str] = ()) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, args or None)
            return list(cursor.fetchall())

    def answer(self, *spellings: str, args: Sequence[str] = ()) -> tuple[int, list[Row]]:
        """(0, rows) of the first spelling that the server's grammar has, or (its error number, []).

        Column names are in lower case. Raises pymysql's error when no answer came.
        """
        code = 0
        for sql in spellings:
            try:
                with self._connection.cursor(DictCursor) as cursor:
                    cursor.execute(sql, args or None)
                    return 0, [{name.lower(): value for name, value in row.items()} for row in cursor.fetchall()]
            except MySQLError as error:
                code = error_code(error)
                if not code or code in CLIENT_ERRORS:
                    raise
            if code != _SYNTAX_ERROR:
                break
        return code, []

    def close(self) -> None:
        self._connection.close()

    def layout(self, table: TableName) -> Layout:
        """The table as information_schema has it; also where the server spells its name another way."""
        wanted = "SELECT table_schema, table_name, table_type, engine FROM information_schema.tables"
        found = self.rows(f"{wanted} WHERE table_schema = %s AND table_name = %s", table) or self.rows(
            f"{wanted} WHERE LOWER(table_schema) = LOWER(%s) AND LOWER(table_name) = LOWER(%s)", table
        )
        database, name, kind, engine = found[0]
        columns = self.rows(
            "SELECT column_name, data_type, column_type, is_nullable, column_default, extra,"
            " character_maximum_length FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
            (database, name),
        )
        return Layout(
            TableName(database, name),
            engine or "",
            kind == "BASE TABLE",
            tuple(
                Column(column, data_type.lower(), full, nullable == "YES", default, extra or "", length)
                for column, data_type, full, nullable, default, extra, length in columns
            ),
            self._indexes(database, name),
        )

    def _indexes(self, *table: str) -> tuple[Index, ...]:
        rows = self.rows(
            "SELECT index_name, non_unique, column_name, is_visible FROM information_schema.statistics"
            " WHERE table_schema = %s AND table_name = %s ORDER BY index_name, seq_in_index",
            table,
        )
        found: dict[str, Index] = {}
        for name, non_unique, column, visible in rows:
            before = found[name].columns if name in found else ()
            found[name] = Index(name, not non_unique, (*before, column), visible == "YES")
        return tuple(found.values())
