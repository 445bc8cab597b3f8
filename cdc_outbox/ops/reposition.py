"""A relay's checkpoint, looked at and moved by a person; never while a relay leads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cdc_outbox.errors import BinlogLost, Refused
from cdc_outbox.gtid import GtidSet
from cdc_outbox.model import Position
from cdc_outbox.mysql import checkpoint
from cdc_outbox.mysql.leadership import lock_name, lock_owner
from cdc_outbox.mysql.queries import query
from cdc_outbox.mysql.source import binlog_session, first_position
from cdc_outbox.ops.command_session import command_session

if TYPE_CHECKING:
    from cdc_outbox.config import Settings
    from cdc_outbox.mysql.session import Session

_GTID_SET = re.compile(r"[0-9A-Fa-f]{8}-?[0-9A-Fa-f]{4}-?[0-9A-Fa-f]{4}-?[0-9A-Fa-f]{4}-?[0-9A-Fa-f]{12}\s*:")
_FILE_POSITION = re.compile(r"([^\s:/\\]*\.\d+):(\d{1,20})")
_A_SET = "a GTID set, 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5 for example"
FIRST_EVENT = 4
"""Offset of the first event of every binlog file, behind its magic number."""


@dataclass(frozen=True)
class Shown:
    """What `checkpoint show` tells. row: None before the first start; leader: MySQL connection id or None."""

    row: checkpoint.Checkpoint | None
    position: Position | None
    leader: int | None


def parse_position(text: str) -> Position:
    """Read `FILE:POS` or a GTID set. Raises Refused saying what is wrong with it."""
    if _GTID_SET.match(text.strip()):
        try:
            return Position(gtid_set=GtidSet.parse(text))
        except ValueError as error:
            raise Refused(f"{text!r} is not a GTID set: {error}") from None
    found = _FILE_POSITION.fullmatch(text.strip())
    if found is None:
        raise Refused(
            f"{text!r} is no position",
            hint=f"give FILE:POS, binlog.000042:1337 for example, or {_A_SET}",
        )
    if int(found[2]) < FIRST_EVENT:
        raise Refused(f"{text!r} is no position: the first event of a binlog file is at {FIRST_EVENT}")
    return Position(found[1], int(found[2]))


def show(settings: Settings) -> Shown:
    with command_session(settings) as session:
        row = checkpoint.read_checkpoint(session, settings.name)
        return Shown(row, checkpoint.stored_position(settings, row), lock_owner(session, settings))


def refuse_while_led(settings: Settings) -> None:
    """Raises Refused while a relay leads; to be asked before a person is."""
    with command_session(settings) as session:
        _refuse_if(lock_owner(session, settings), settings)


def move(settings: Settings, position: Position) -> None:
    """Write the position. Raises Refused while a relay leads, and where reading cannot begin there."""
    with command_session(settings) as session:
        _lock(session, settings)
        _check(session, settings, position)
        checkpoint.set_position(session, settings, position)


def reset(settings: Settings, to: Literal["now", "earliest"]) -> Position:
    """Write the server's present end, or the first place it can still be read from, and give it."""
    with command_session(settings) as session:
        _lock(session, settings)
        earliest = first_position(settings, session) if to == "earliest" else None
        return checkpoint.reset(session, settings, to, earliest)


def _lock(session: Session, settings: Settings) -> None:
    """Take the leader lock until the session closes: no relay can begin to lead in between."""
    row = session.row(query("lock_try"), (lock_name(settings.mysql.database, settings.name), 0))
    if row is None or row[0] != 1:
        _refuse_if(lock_owner(session, settings) or 0, settings)


def _refuse_if(owner: int | None, settings: Settings) -> None:
    if owner is not None:
        raise Refused(
            f"relay {settings.name!r} is running: MySQL connection {owner} has its lock; nothing was changed",
            hint="stop every copy of the relay first, standbys too",
        )


def _check(session: Session, settings: Settings, position: Position) -> None:
    if position.gtid_set is None and settings.binlog.source is not None:
        raise Refused("binlog.source is read by GTID only; nothing was changed", hint=f"give {_A_SET}")
    if position.gtid_set is not None and not checkpoint.uses_gtids(session):
        raise Refused("this server has gtid_mode other than ON; nothing was changed", hint="give FILE:POS")
    try:
        with binlog_session(settings, session) as server:
            checkpoint.check_reachable(session, position, server)
    except BinlogLost as lost:
        raise Refused(
            f"the server cannot be read from {position}: {lost.message}; nothing was changed",
            hint="SHOW BINARY LOGS lists what there is; `checkpoint reset --to earliest` takes the first",
        ) from lost
