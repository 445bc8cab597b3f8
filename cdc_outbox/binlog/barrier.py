"""Which statements in the binlog change one of our tables as a whole, so that what came before is settled first."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cdc_outbox.model import TableName

_TEXT_LENGTH = 200
_BLANK = rb"(?:\s|/\*!\d*|/\*(?!!).*?\*/|--[^\n]*\n|#[^\n]*\n)*"
_VERB = re.compile(_BLANK + rb"(TRUNCATE|DROP|RENAME|ALTER)\b", re.IGNORECASE | re.DOTALL)
_DROP_DATABASE = re.compile(_BLANK + rb"DROP\s+(?:DATABASE|SCHEMA)\b", re.IGNORECASE | re.DOTALL)


class Barriers:
    """Finds TRUNCATE, DROP, RENAME and ALTER of our tables, and DROP DATABASE of theirs.

    It looks for the names anywhere in such a statement. One barrier too many costs a pause of milliseconds.
    """

    def __init__(self, tables: Iterable[TableName]) -> None:
        self._names = [(table.database, _word(table.database), _word(table.name)) for table in tables]

    def find(self, database: str, statement: bytes) -> str | None:
        """The statement, shortened, when it is a barrier. database: the session's default one."""
        if not _VERB.match(statement):
            return None
        whole = _DROP_DATABASE.match(statement) is not None
        for ours, names_database, names_table in self._names:
            here = names_database.search(statement) is not None
            if (whole and here) or (names_table.search(statement) and (here or database == ours)):
                return " ".join(statement.decode("utf-8", "replace").split())[:_TEXT_LENGTH]
        return None


def _word(name: str) -> re.Pattern[bytes]:
    return re.compile(rb"(?<![\w$])" + re.escape(name.encode()) + rb"(?![\w$])", re.IGNORECASE)
