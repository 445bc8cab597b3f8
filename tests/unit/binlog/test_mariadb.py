"""MariaDB's events: GTIDs that begin transactions, rows of version 1, places, what is refused."""

from __future__ import annotations

import struct

import pytest

from cdc_outbox.binlog import events as ev
from cdc_outbox.binlog.gtid_wire import MariadbGtid, decode_mariadb_gtid
from cdc_outbox.binlog.transactions import Assembler
from cdc_outbox.errors import BinlogUnreadable
from tests.unit.binlog.wire import OTHER, OUTBOX, SECONDS, Dump, feed

ALONE, GROUP, PREPARED, COMPLETED = 1, 2, 64, 128


class MariadbDump(Dump):
    """A dump of MariaDB: a GTID event in place of BEGIN, rows of version 1."""

    def mariadb_gtid(self, flags: int = 0, xid: tuple[bytes, bytes, int] | None = None) -> bytes:
        self.number += 1
        body = struct.pack("<QIB", self.number, 0, flags)
        if flags & GROUP:
            body += bytes(8)
        if xid is not None:
            body += struct.pack("<iBB", xid[2], len(xid[0]), len(xid[1])) + xid[0] + xid[1]
        return self.event(ev.MARIADB_GTID, body.ljust(19, b"\0"))

    def begin(self) -> None:
        self.mariadb_gtid()

    def statement(self, statement: str, database: str = "shop") -> None:
        self.mariadb_gtid(ALONE)
        self.query(statement, database)

    def event(self, kind: int, body: bytes = b"", *, flags: int = 0, artificial: bool = False) -> bytes:
        if kind in (ev.WRITE_ROWS, ev.UPDATE_ROWS):
            kind, body = kind - 7, body[:8] + body[10:]
        return super().event(kind, body, flags=flags, artificial=artificial)


@pytest.fixture
def dump() -> MariadbDump:
    made = MariadbDump(offset=1000)
    made.begins()
    return made


@pytest.fixture
def assembler() -> Assembler:
    return Assembler([OUTBOX], "binlog.000001", 1000)


def test_transactions(dump: MariadbDump, assembler: Assembler) -> None:
    dump.transaction("e1", "e2")
    end = dump.offset
    dump.mariadb_gtid(GROUP | 4)
    dump.event(160, b"insert into ...")
    dump.insert("x1", table=OTHER)
    dump.insert("e3")
    dump.rows("e3", kind=ev.UPDATE_ROWS)
    dump.commit()
    dump.statement("ALTER TABLE outbox_event ADD a INT")
    first, second, third = feed(assembler, dump.take())
    assert [event.event_id for event in first.events] == ["e1", "e2"] and first.end == ("binlog.000001", end)
    assert first.events[0].committed_at == SECONDS * 1000 and first.events[0].payload == b"1"
    assert not first.gtids
    assert [(event.event_id, event.incomplete) for event in second.events] == [("e3", True)]
    assert third.barrier and third.end == ("binlog.000001", dump.offset)


def test_xa(dump: MariadbDump, assembler: Assembler) -> None:
    for end in ("COMMIT", "ROLLBACK"):
        dump.mariadb_gtid(PREPARED, (b"a'", b"b", 7))
        dump.insert("e1")
        dump.query("XA END X'6127',X'62',7")
        dump.event(ev.XA_PREPARE, bytes(13))
        dump.mariadb_gtid(COMPLETED | ALONE, (b"a'", b"b", 7))
        dump.query(f"XA {end} X'6127',X'62',7")
    assert [[event.event_id for event in t.events] for t in feed(assembler, dump.take())] == [[], ["e1"], []]


def test_places_between_transactions(dump: MariadbDump, assembler: Assembler) -> None:
    for kind in (161, 163, 164):
        dump.event(kind, bytes(20))
    (moved,) = feed(assembler, dump.take())
    assert moved.end == ("binlog.000001", dump.offset) and not moved.traffic


def test_what_a_gtid_event_says() -> None:
    dump = MariadbDump()
    assert decode_mariadb_gtid(dump.mariadb_gtid(ALONE)) == MariadbGtid(True, None)
    assert decode_mariadb_gtid(dump.mariadb_gtid(PREPARED | GROUP, (b"x", b"", 1))) == MariadbGtid(
        False, b"X'78',X'',1"
    )


def test_a_gtid_event_cut_short(dump: MariadbDump, assembler: Assembler) -> None:
    dump.event(ev.MARIADB_GTID, bytes(5))
    with pytest.raises(BinlogUnreadable, match="GTID event of MariaDB"):
        feed(assembler, dump.take())


def test_a_position_inside_a_transaction(dump: MariadbDump, assembler: Assembler) -> None:
    start = dump.take()
    dump.transaction("e1")
    with pytest.raises(BinlogUnreadable, match="inside a transaction"):
        list(assembler.feed([*start, *dump.take()[1:]]))
