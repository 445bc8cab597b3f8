"""Sent rows out of the outbox: to an archive table or away, in small transactions that can be interrupted anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pymysql.err import MySQLError

from cdc_outbox.errors import Refused
from cdc_outbox.model import TableName
from cdc_outbox.mysql.archive_table import SentRows
from cdc_outbox.mysql.session import error_code, is_retriable
from cdc_outbox.ops.command_session import command_session

if TYPE_CHECKING:
    from cdc_outbox.config import Settings

PATIENCE = 600.0
"""Seconds that one statement may take: many unsent rows may lie between two pages of sent ones."""

BARREN = 10
"""Pages in a row without an old row after which there are taken to be no more: ids follow creation, nearly."""

RESTS = 4
"""Times as long as a batch took is rested behind it: writers have the server to themselves for four fifths."""

MOST_REST = 1.0
"""Seconds between two batches, however long one took."""

_TRIES = 5

_DENIED = {1044, 1142}
_DUPLICATE = 1062


@dataclass(frozen=True)
class Progress:
    """How far one table is. share: 0.0 to 1.0 of its ids; moved: rows so far; left: old ones that were locked."""

    share: float
    moved: int
    left: int


OnProgress = Callable[[Progress], None]


def archive_name(table: TableName, into: str | None) -> TableName:
    """Where the rows of a table go: `into` (name or database.name), else its own name with `_archive` behind it."""
    if into is None:
        return TableName(table.database, f"{table.name}_archive")
    database, _, name = into.rpartition(".")
    return TableName(database or table.database, name)


def archive(
    settings: Settings,
    table: TableName,
    into: TableName | None,
    *,
    older_than: float,
    batch: int,
    pause: float | None,
    rate: float | None = None,
    dry_run: bool,
    on_progress: OnProgress,
) -> Progress:
    """Move (into None: delete) what is sent and was created more than `older_than` seconds ago; gives the end.

    In id order, `batch` rows in a transaction, `pause` seconds between two; None: as long as `rest` says, or no longer
    than `rate` asks for. rate: rows a second at most. Interrupted anywhere it has moved whole batches, and the next run
    goes on. Raises Refused and Hold.
    """
    if into is not None and into in settings.table_names:
        raise Refused(f"{into} is one of outbox.tables: it cannot be its own archive", hint="give --into another table")
    moved = left = 0
    if rate is not None:
        batch = min(batch, max(1, int(rate)))  # else a second has a whole batch, and many have none
    # The server ends a session that is silent for longer.
    with command_session(settings, patience=max(PATIENCE, 2 * (pause or 0.0))) as session:
        rows = SentRows(session, table, None if dry_run else into, older_than)
        ends = rows.ends()
        if ends is None:
            return Progress(1.0, 0, 0)
        first, guess, top = ends
        above, barren = first - 1, 0
        while barren < BARREN or above < guess:
            begun = time.monotonic()
            page = rows.page(above, top, batch)
            if page.last is None:
                break
            above = page.last
            barren = 0 if page.old else barren + 1
            count = len(page.old) if dry_run or not page.old else _move(settings, rows, page.old)
            moved, left = moved + count, left + len(page.old) - count
            on_progress(Progress(min(1.0, (above - first + 1) / (guess - first + 1)), moved, left))
            if page.old and not dry_run:
                took = time.monotonic() - begun
                owed = 0.0 if rate is None else count / rate - took
                chosen = pause if pause is not None else rest(took) if rate is None else 0.0
                time.sleep(max(0.0, chosen, owed))
    return Progress(1.0, moved, left)


def rest(took: float) -> float:
    """Seconds to wait behind a batch that took so many.

    A writer loses about half its speed beside an archive that never rests: to processors, to purge, and to the disk,
    where commits wait behind that of a batch. A busy server makes batches longer, and the rests with them.
    """
    return min(RESTS * took, MOST_REST)


def _move(settings: Settings, rows: SentRows, ids: list[int]) -> int:
    """One batch; gives how many went.

    A deadlock is tried again; nothing is in the way for long, locked rows being left out.
    """
    for attempt in range(_TRIES):
        try:
            return rows.move(ids)
        except MySQLError as error:
            if is_retriable(error) and attempt < _TRIES - 1:
                continue
            if error_code(error) in _DENIED:
                raise Refused(
                    f"{settings.mysql.user!r} may not do this: {error.args[-1]}; what was moved before stays moved",
                    hint=_grants(rows) + "\nor run this command with another account (CDC_OUTBOX_MYSQL__USER, …)",
                ) from error
            if error_code(error) == _DUPLICATE:
                raise Refused(
                    f"{rows.into} has an event already that {rows.table} has, as after a restore: {error.args[-1]}",
                    hint="compare the two rows and delete one of them, then go on",
                ) from error
            raise
    raise AssertionError("unreachable")


def _grants(rows: SentRows) -> str:
    delete = f"GRANT DELETE ON {rows.table.quoted} TO …;"
    return delete if rows.into is None else f"{delete}\nGRANT INSERT ON {rows.into.quoted} TO …;"
