"""The replica that the binlog is read from (`binlog.source`), and what it and the primary together say of a position.

Positions are GTID sets here. What the server has is asked of the primary; the replica only delivers it, when it does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pymysql.err import MySQLError

from cdc_outbox.errors import BinlogLost, Hold
from cdc_outbox.gtid import GtidSet
from cdc_outbox.mysql.checkpoint import earliest_position, server_position, uses_gtids
from cdc_outbox.mysql.session import Session, connect, mysql_trouble

if TYPE_CHECKING:
    import pymysql

    from cdc_outbox.config import Settings
    from cdc_outbox.model import Position

SOURCE = "source"
"""Reason of the hold while the replica is away, behind, or no replica of the primary."""

_OF_SOURCE = "binlog.source "
_BY_GTID_ONLY = "its gtid_mode is {}, and it can be read by GTID only"

PATIENCE = 4.0
"""Seconds that either server may take for an answer. Whoever stops the reader does not wait for much longer."""

WHAT_IT_HAS = "SELECT @@global.gtid_mode, @@server_uuid, @@global.gtid_executed, @@global.gtid_purged"


@dataclass(frozen=True)
class History:
    """What the replica has. uuid: its own, which GTIDs begin with that it gave itself while it was the primary."""

    uuid: str
    executed: GtidSet
    purged: GtidSet

    def check(self, position: GtidSet, primary: GtidSet) -> None:
        """Raise unless its binlog can be read on from `position`.

        primary: what the primary had, asked after the replica was. Hold: it is no faithful replica, or is behind.
        BinlogLost: what follows the position is never going to come from it.
        """
        strange = self.executed.difference(primary)
        if strange:
            raise Hold(
                f"it has transactions that the primary has not, {strange}: it is no replica of it, was written to by"
                " itself, or the primary lost them. Put a replica in its place; or, where they may be ignored, commit"
                " each on the primary as an empty one (SET gtid_next = '…'; BEGIN; COMMIT)",
                reason=SOURCE,
            )
        if not self.purged.issubset(position):
            raise BinlogLost("binlog.source has purged the binlog after the checkpoint (gtid_purged is not part of it)")
        # The one thing that a server refuses to be asked: what it must have given itself, and does not have.
        given_here = GtidSet(one for one in position if one.source.partition(":")[0] == self.uuid.lower())
        if not given_here.issubset(primary):
            raise BinlogLost("the checkpoint's GTID set holds transactions that neither server has")
        if not given_here.issubset(self.executed):
            missing = given_here.difference(self.executed)
            raise Hold(f"it is behind: it has not got {missing} yet, which was read before", reason=SOURCE)


def check_history(connection: pymysql.Connection[Any], settings: Settings, position: Position) -> None:
    """`History.check` for a connection to the replica that a dump is about to begin on. Raises pymysql's errors too."""
    with connection.cursor() as cursor:
        cursor.execute(WHAT_IT_HAS)
        mode, uuid, executed, purged = cursor.fetchone()
    if mode != "ON" or position.gtid_set is None:
        raise Hold(_BY_GTID_ONLY.format(mode), reason=SOURCE)
    primary = Session(settings.mysql, lifetime=PATIENCE, bare=True)
    try:
        has = server_position(primary, gtids=True).gtid_set
    finally:
        primary.close()
    assert has is not None
    History(uuid, GtidSet.parse(executed), GtidSet.parse(purged)).check(position.gtid_set, has)


def connect_to_read(settings: Settings) -> pymysql.Connection[Any]:
    """A connection for a dump of the server whose binlog is read."""
    return connect(settings.binlog_server, read_timeout=PATIENCE)


@contextlib.contextmanager
def binlog_session(settings: Settings, session: Session) -> Iterator[Session]:
    """A session on the server whose binlog is read: the one given, unless that is another server.

    Raises Hold when that one is away: before the server ends the session given, which is silent meanwhile.
    """
    if settings.binlog.source is None:
        yield session
        return
    patience = min(PATIENCE, settings.leadership_timeout / 4)
    try:
        other = Session(settings.binlog_server, lifetime=patience, bare=True)
        try:
            yield other
        finally:
            other.close()
    except (MySQLError, OSError) as error:
        raise Hold(of_source(settings, mysql_trouble(error, settings.binlog_server).message), reason=SOURCE) from error


def first_position(settings: Settings, session: Session) -> Position:
    """The first place from which the binlog that is read can still be had. Raises Hold where a replica has none."""
    with binlog_session(settings, session) as server:
        if settings.binlog.source is not None and not uses_gtids(server):
            # Its file and offset, taken for a position, would be the primary's.
            raise Hold(of_source(settings, _BY_GTID_ONLY.format("not ON")), reason=SOURCE)
        return earliest_position(server)


def of_source(settings: Settings, text: str) -> str:
    """Say which server it is about."""
    server = settings.binlog_server
    return f"{_OF_SOURCE}{server.host}:{server.port}: {text}"


def is_of_source(text: str | None) -> bool:
    """Whether `of_source` said it: the checkpoint row has no other word for what a hold waits for."""
    return text is not None and text.startswith(_OF_SOURCE)
