"""Moving sent rows out of an outbox table in SQL: which may go, and one transaction that takes a few of them.

Never touches a row that is not sent: the condition is asked again under the row's own lock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cdc_outbox.errors import Refused
from cdc_outbox.model import TableName
from cdc_outbox.mysql import schema
from cdc_outbox.mysql.outbox_table import spans
from cdc_outbox.mysql.queries import query
from cdc_outbox.mysql.session import Session

_SIZED = re.compile(r"(varchar|varbinary|datetime|timestamp)(?:\((\d+)\))?")


@dataclass(frozen=True)
class Page:
    """Sent rows in id order. old: ids of those before the cutoff; last: the last id looked at, None: no more."""

    old: list[int]
    last: int | None


class SentRows:
    """The sent rows of one outbox table that were created before a moment. into: None deletes them."""

    def __init__(self, session: Session, table: TableName, into: TableName | None, older_than: float) -> None:
        """older_than in seconds, by the database's clock. Raises Refused where the archive cannot hold the rows."""
        self.table = table
        self.into = into
        self._session = session
        self._columns = ", ".join(f"`{name}`" for name in _copied(session, table, into)) if into else ""
        # What does not fit must be an error, whatever the server's sql_mode is.
        session.execute("SET SESSION sql_mode = CONCAT_WS(',', @@sql_mode, 'STRICT_ALL_TABLES')")
        row = session.row(query("archive_cutoff"), (float(older_than),))
        assert row is not None
        self.cutoff = str(row[0])

    def _query(self, statement: str, **parts: object) -> str:
        return query(statement, table=self.table.quoted, **parts)

    def ends(self) -> tuple[int, int, int] | None:
        """(lowest id, about the highest id of a row created before the cutoff, highest id); None: no rows.

        The middle one takes ids for being in the order of creation: it is good for a guess and no more.
        """
        row = self._session.row(self._query("archive_ends"))
        if row is None or row[0] is None:
            return None
        first, low, top = int(row[0]), int(row[0]), int(row[1])
        high = top
        while low < high:
            middle = (low + high + 1) // 2
            if self._old_at(middle):
                low = middle
            else:
                high = middle - 1
        return first, low, top

    def _old_at(self, id: int) -> bool:
        row = self._session.row(self._query("archive_age"), (self.cutoff, id))
        return row is not None and bool(row[0])

    def page(self, above: int, top: int, limit: int) -> Page:
        """The next sent rows with above < id ≤ top."""
        rows = self._session.query(self._query("archive_page", limit=int(limit)), (self.cutoff, above, top))
        return Page([id for id, old in rows if old], rows[-1][0] if rows else None)

    def move(self, ids: Sequence[int]) -> int:
        """Move these rows, or delete them, in one transaction, and give how many; the ids in ascending order.

        Left where they are: rows that are locked, not sent any more, or another event's by now and too young.
        """
        with self._session.transaction():
            free, rows = ids, spans(ids)
            counted = self._session.row(self._query("archive_lock", rows=rows), (self.cutoff,))
            if counted is None or counted[0] != len(ids):
                locked = self._session.query(self._query("archive_locked", rows=rows), (self.cutoff,))
                free = [id for (id,) in locked]
            if free:
                self._take(spans(free), len(free))
        return len(free)

    def _take(self, rows: str, count: int) -> None:
        if self.into is not None:
            sql = self._query("archive_copy", into=self.into.quoted, columns=self._columns, rows=rows)
            self._expect(self._session.execute(sql), count)
        self._expect(self._session.execute(self._query("archive_delete", rows=rows)), count)

    @staticmethod
    def _expect(count: int, expected: int) -> None:
        if count != expected:
            raise AssertionError(f"{count} of {expected} locked rows were moved; the transaction is rolled back")


def _copied(session: Session, table: TableName, into: TableName) -> list[str]:
    """The columns to copy. Raises Refused where a value would be lost."""
    ours = {name: kind for name, kind, _ in session.query(query("archive_columns"), tuple(table))}
    theirs = {name: (kind, generated) for name, kind, generated in session.query(query("archive_columns"), tuple(into))}
    if not ours:
        raise Refused(
            f"there is no table {table}, or this account may not see it",
            hint=f"cdc-outbox init creates it; {schema.table_grant('SELECT', table, '…')}; shows it",
        )
    if not theirs:
        raise Refused(
            f"there is no table {into} to archive to, or this account may not see it; nothing was moved",
            hint=f"where it is there: {schema.table_grant('INSERT', into, '…')};\n"
            f"else create it (and --into names another, --delete needs none):\n{schema.ddl('archive', into, 'en')};",
        )
    changes = [
        f"ADD COLUMN {schema.identifier(name)} {kind} NULL" for name, kind in ours.items() if name not in theirs
    ] + [
        f"MODIFY COLUMN {schema.identifier(name)} {kind}"
        for name, kind in ours.items()
        if name in theirs and not holds(theirs[name][0], kind)
    ]
    if changes:
        raise Refused(
            f"{into} cannot hold all that {table} has; nothing was moved",
            hint=f"ALTER TABLE {into.quoted} " + ", ".join(changes) + ";",
        )
    return [name for name in ours if not theirs[name][1]]


def holds(wide: str, narrow: str) -> bool:
    """Whether a column of type `wide` holds every value of one of type `narrow`, as information_schema writes types."""
    if wide == narrow:
        return True
    one, other = _SIZED.fullmatch(wide), _SIZED.fullmatch(narrow)
    return one is not None and other is not None and one[1] == other[1] and int(one[2] or 0) >= int(other[2] or 0)
