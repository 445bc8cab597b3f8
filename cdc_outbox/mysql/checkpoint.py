"""The checkpoint row: the fence that every status write checks first, the position that reading resumes from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pymysql.err import MySQLError

from cdc_outbox.errors import BinlogLost, Fenced, Refused
from cdc_outbox.gtid import GtidSet
from cdc_outbox.model import Position
from cdc_outbox.mysql.position_file import position_file
from cdc_outbox.mysql.queries import query
from cdc_outbox.mysql.session import Session, error_code

if TYPE_CHECKING:
    from cdc_outbox.config import Settings


RESET = "reset"
"""State of a checkpoint that was reset: what is pending is swept before reading begins at its position."""

_SYNTAX = 1064


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint row as it stands. position: None where none was written yet."""

    epoch: int
    owner: str
    server_uuid: str
    position: Position | None
    state: str | None
    last_error: str | None
    paused: bool
    schema_version: int
    updated_at: datetime


@dataclass(frozen=True)
class Fence:
    """One incarnation's right to write. Both checks belong first in a SQL transaction that changes a status."""

    name: str
    epoch: int
    owner: str

    def check(self, session: Session) -> None:
        """Lock the checkpoint row as ours; raises Fenced when another relay has raised the epoch."""
        if not session.query(query("fence"), (self.name, self.epoch, self.owner)):
            raise self._fenced()

    def advance(self, session: Session, position: Position) -> None:
        """`check`, and write the resumable position."""
        written = (
            position.file,
            position.offset,
            None if position.gtid_set is None else str(position.gtid_set),
        )
        if not session.execute(query("fence_and_position"), (*written, self.name, self.epoch, self.owner)):
            raise self._fenced()

    def report(self, session: Session, state: str, last_error: str | None) -> None:
        """Leave a word for `status`; no transaction of ours depends on it."""
        error = last_error[:512] if last_error else None
        session.execute(query("checkpoint_state"), (state, error, self.name, self.epoch, self.owner))

    def _fenced(self) -> Fenced:
        return Fenced(f"another relay has taken over {self.name!r}: epoch {self.epoch} is no longer the current one")


def read_checkpoint(session: Session, name: str) -> Checkpoint | None:
    row = session.row(query("checkpoint_read"), (name,))
    if row is None:
        return None
    epoch, owner, uuid, file, offset, gtids, state, last_error, paused, version, updated = row
    position = None
    if gtids is not None or file:
        try:
            position = Position(file or "", offset or 0, None if gtids is None else GtidSet.parse(gtids))
        except ValueError as error:
            raise Refused(
                f"cdc_outbox_checkpoint.gtid_set of relay {name!r} is no GTID set: {error}",
                hint=f"UPDATE cdc_outbox_checkpoint SET gtid_set = NULL, binlog_file = NULL WHERE name = '{name}'; "
                "the next start sweeps everything pending",
                reason="mysql_refused",
            ) from None
    return Checkpoint(epoch, owner, uuid, position, state, last_error, bool(paused), version, updated)


def stored_position(settings: Settings, row: Checkpoint | None) -> Position | None:
    """Where reading goes on: as its file says, else as the row does. Raises Refused for a file that holds none."""
    file = position_file(settings)
    in_file = None if file is None or row is None else file.read(row.server_uuid)
    return in_file or (None if row is None else row.position)


def refuse_without_checkpoint(settings: Settings) -> None:
    """`rows: transient`: raises Refused where no position is kept; nothing finds the events before the first one."""
    session = Session(settings.mysql, lifetime=settings.leadership_timeout)
    try:
        if stored_position(settings, read_checkpoint(session, settings.name)) is None:
            raise Refused(
                f"relay {settings.name!r} has no checkpoint, and outbox.rows is transient: it cannot know what was"
                f" committed before; reading would begin at binlog.start, which is {settings.binlog.start}",
                hint="`cdc-outbox start --yes` begins there; if there was a checkpoint, `cdc-outbox checkpoint set`"
                " puts it back",
            )
    finally:
        session.close()


def raise_epoch(session: Session, name: str, owner: str) -> Fence:
    """Begin a new incarnation, on the session that holds the lock; voids a file position of another server."""
    session.execute(query("checkpoint_create"), (name,))
    session.execute(query("epoch_raise"), (owner, name))
    after = read_checkpoint(session, name)
    if after is None or after.owner != owner:
        raise Fenced(f"the checkpoint row {name!r} was changed while the epoch was raised")
    return Fence(name, after.epoch, owner)


def report_before_leading(session: Session, name: str, state: str, last_error: str) -> None:
    """Leave a word for `status` while the lock is held and no epoch was raised yet."""
    session.execute(query("state_of_the_lock_holder"), (state, last_error[:512], name))


def set_paused(session: Session, name: str, paused: bool) -> None:
    """Have the relay publish nothing, or publish again. Kept until it is said otherwise, whoever leads."""
    session.execute(query("pause"), (name, int(paused)))


def is_paused(session: Session, name: str) -> bool:
    row = session.row(query("is_paused"), (name,))
    return row is not None and bool(row[0])


def set_position(session: Session, settings: Settings, position: Position, *, state: str = "stopped") -> None:
    """Put the position where a person wants it. Fences off whoever led. Raises Refused where its file cannot be had."""
    file = position_file(settings)
    if file is not None:
        file.check_folder()
    gtids = None if position.gtid_set is None else str(position.gtid_set)
    written = (position.file or None, position.offset or None, gtids)
    session.execute(query("position_set"), (settings.name, *written, state))
    if file is not None:
        file.write(position, server_uuid(session))


def reset(session: Session, settings: Settings, to: str, earliest: Position | None = None) -> Position:
    """As if for the first time: the next start sweeps everything pending, then reads from the server's present end
    (`now`) or from the first binlog it still has (`earliest`); the latter may be given, as a replica has it."""
    position = committed_position(session) if to == "now" else earliest or earliest_position(session)
    set_position(session, settings, position, state=RESET)
    return position


# -- the server's own positions ---------------------------------------------------------------------------------


def server_uuid(session: Session) -> str:
    return str(session.query("SELECT @@server_uuid")[0][0])


def uses_gtids(session: Session) -> bool:
    """gtid_mode=ON: positions are GTID sets. In every other mode they are file and offset."""
    rows = session.query("SHOW GLOBAL VARIABLES LIKE 'gtid_mode'")
    return bool(rows) and rows[0][1] == "ON"


def server_position(session: Session, *, gtids: bool | None = None) -> Position:
    """Where the server's binlog ends now. Every row that a SELECT has shown before lies before it.

    gtids: as a GTID set or by file and offset, None: as gtid_mode has it; positions of two kinds cannot be compared.
    In GTID mode @@gtid_owned is read first: a row may be visible just before gtid_executed holds its transaction.
    """
    if uses_gtids(session) if gtids is None else gtids:
        row = session.row("SELECT @@global.gtid_owned, @@global.gtid_executed")
        assert row is not None
        owned = GtidSet.parse(re.sub(r"#\d+", "", ",".join(row[0].split(":#"))) if row[0] else "")
        return Position(gtid_set=owned.union(GtidSet.parse(row[1])))
    return _file_position(session)


def committed_position(session: Session) -> Position:
    """Where a first start may begin: GTID mode: gtid_executed, which lags and never leads; else the binlog's end."""
    if uses_gtids(session):
        row = session.row("SELECT @@global.gtid_executed")
        assert row is not None
        return Position(gtid_set=GtidSet.parse(row[0]))
    return _file_position(session)


def _file_position(session: Session) -> Position:
    for statement in ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"):
        try:
            rows = session.query(statement)
        except MySQLError as error:
            if error_code(error) == _SYNTAX:  # the other spelling, before or after 8.2
                continue
            raise
        if rows:
            return Position(rows[0][0], int(rows[0][1]))
    raise Refused("the MySQL server writes no binary log", hint="set log_bin in my.cnf and restart MySQL")


def purged_gtids(session: Session) -> GtidSet:
    """Transactions that no reader gets from this server any more."""
    row = session.row("SHOW GLOBAL VARIABLES LIKE 'gtid_purged'")
    return GtidSet.parse(row[1] if row is not None else "")


def earliest_position(session: Session) -> Position:
    """The first place from which the server can still be read."""
    if uses_gtids(session):
        row = session.row("SELECT @@global.gtid_purged")
        assert row is not None
        return Position(gtid_set=GtidSet.parse(row[0]))
    files = session.query("SHOW BINARY LOGS")
    if not files:
        raise Refused("the MySQL server writes no binary log", hint="set log_bin in my.cnf and restart MySQL")
    return Position(files[0][0], 4)


def retention_left(session: Session, lag: float) -> int | None:
    """Seconds until the server may purge what is `lag` seconds old; None where it purges nothing by age."""
    rows = dict(session.query("SHOW GLOBAL VARIABLES LIKE 'binlog_expire_logs_seconds'"))
    seconds = int(rows.get("binlog_expire_logs_seconds", 0))
    return max(0, int(seconds - lag)) if seconds else None


def check_reachable(session: Session, position: Position, server: Session | None = None) -> None:
    """Raise BinlogLost unless this server can be read on from `position`; with `server`, a replica of it.

    A file position without offset is one that `raise_epoch` found to be another server's: it stays so until a new
    position is written.
    """
    if position.gtid_set is not None:
        check_executed(session, position.gtid_set)
        if not purged_gtids(server or session).issubset(position.gtid_set):
            raise BinlogLost("the binlog after the checkpoint was purged (gtid_purged is not part of its GTID set)")
        return
    if not position.offset:
        raise BinlogLost(f"the checkpoint in {position.file} was written for another server")
    sizes = {row[0]: int(row[1]) for row in session.query("SHOW BINARY LOGS")}
    if position.file not in sizes:
        raise BinlogLost(f"binlog file {position.file} of the checkpoint is no longer on the server")
    if position.offset > sizes[position.file]:
        raise BinlogLost(f"the checkpoint {position} lies past the end of its binlog file")


def check_executed(session: Session, gtids: GtidSet) -> None:
    """Raise BinlogLost unless this server has all of these transactions, at least in its binlog."""
    if not uses_gtids(session):
        raise BinlogLost("the checkpoint is a GTID set and gtid_mode is no longer ON")
    there = server_position(session, gtids=True).gtid_set
    if there is None or not gtids.issubset(there):
        raise BinlogLost("the checkpoint's GTID set holds transactions that this server never executed")
