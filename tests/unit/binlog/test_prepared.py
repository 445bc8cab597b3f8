"""XA transactions: what is prepared waits in memory for its COMMIT, within a limit, and holds nothing else up."""

from __future__ import annotations

import struct

import pytest

from cdc_outbox.binlog import events as ev
from cdc_outbox.binlog.transactions import Assembler
from cdc_outbox.gtid import GtidRange
from cdc_outbox.model import Transaction
from tests.unit.binlog.wire import OTHER, OUTBOX, SECONDS, SERVER, Dump, feed


@pytest.fixture
def assembler() -> Assembler:
    return Assembler([OUTBOX], "binlog.000001", 1000, chunk_events=100, prepared_bytes=10_000)


def ids(transactions: list[Transaction]) -> list[list[str]]:
    return [[event.event_id for event in t.events] for t in transactions]


def xid(name: str) -> str:
    return f"X'{name.encode().hex()}',X'',1"


def prepare(dump: Dump, name: str, *event_ids: str, one_phase: bool = False, payload: object = 1) -> None:
    dump.gtid()
    dump.query(f"XA START {xid(name)}")
    dump.table_map()
    for event_id in event_ids:
        dump.rows(event_id, payload=payload)
    dump.query(f"XA END {xid(name)}")
    dump.event(ev.XA_PREPARE, bytes([one_phase]) + struct.pack("<iii", 1, len(name), 0) + name.encode())


def test_prepared_rows_are_given_at_the_commit(dump: Dump, assembler: Assembler) -> None:
    prepare(dump, "x", "e1", "e2")
    prepared_at = dump.offset
    (transaction,) = feed(assembler, dump.take())
    assert not transaction.events and transaction.gtids == [GtidRange(str(SERVER), 1, 1)]
    assert transaction.end == ("binlog.000001", prepared_at)
    dump.transaction("e3")
    dump.statement(f"XA COMMIT {xid('x')}")
    other, commit = feed(assembler, dump.take())
    assert ids([other, commit]) == [["e3"], ["e1", "e2"]]
    assert commit.gtids == [GtidRange(str(SERVER), 3, 3)] and commit.end == ("binlog.000001", dump.offset)
    assert {event.committed_at for event in commit.events} == {SECONDS * 1000 + 3}
    assert not any(event.incomplete for event in commit.events)


def test_a_rollback_gives_nothing(dump: Dump, assembler: Assembler) -> None:
    prepare(dump, "x", "e1")
    dump.statement(f"XA ROLLBACK {xid('x')}")
    dump.statement(f"XA COMMIT {xid('x')}")
    assert ids(feed(assembler, dump.take())) == [[]]


def test_one_phase_is_a_commit(dump: Dump, assembler: Assembler) -> None:
    prepare(dump, "x", "e1", one_phase=True)
    assert ids(feed(assembler, dump.take())) == [["e1"]]


def test_several_at_once_end_in_any_order(dump: Dump, assembler: Assembler) -> None:
    for name in "abc":
        prepare(dump, name, f"e-{name}1")
    dump.statement(f"XA COMMIT {xid('c')}")
    dump.statement(f"XA ROLLBACK {xid('a')}")
    dump.statement(f"XA COMMIT {xid('b')}")
    assert ids(feed(assembler, dump.take())) == [[], ["e-c1"], [], ["e-b1"]]


def test_a_change_of_its_own_row_is_remembered(dump: Dump, assembler: Assembler) -> None:
    dump.gtid()
    dump.query(f"XA START {xid('x')}")
    dump.insert("e1")
    dump.rows("e1", kind=ev.UPDATE_ROWS)
    dump.query(f"XA END {xid('x')}")
    dump.event(ev.XA_PREPARE, bytes(13))
    dump.statement(f"XA COMMIT {xid('x')}")
    (event,) = feed(assembler, dump.take())[-1].events
    assert event.incomplete


@pytest.mark.parametrize("one_phase", [False, True])
def test_many_rows_come_in_parts_as_elsewhere(dump: Dump, one_phase: bool) -> None:
    assembler = Assembler([OUTBOX], "binlog.000001", 1000, chunk_events=100)
    names = [f"e{i}" for i in range(250)]
    prepare(dump, "x", *names, one_phase=one_phase)
    if not one_phase:
        assert ids(feed(assembler, dump.take())) == [[]]
        dump.statement(f"XA COMMIT {xid('x')}")
    seen = feed(assembler, dump.take())
    assert [len(t.events) for t in seen] == [100, 100, 50]
    assert [name for t in ids(seen) for name in t] == names
    assert [t.end is None for t in seen] == [True, True, False]
    assert not any(event.incomplete for t in seen for event in t.events)


@pytest.mark.parametrize("one_phase", [False, True])
@pytest.mark.parametrize(("rows", "payload", "chunk_bytes"), [(160, 1, 1 << 20), (5, "x" * 5000, 10_000)])
def test_what_is_too_large_is_left_to_the_sweep_as_a_whole(
    dump: Dump, one_phase: bool, rows: int, payload: object, chunk_bytes: int
) -> None:
    """Not a part of it, its end for one: those rows would come before their predecessors."""
    assembler = Assembler(
        [OUTBOX], "binlog.000001", 1000, chunk_events=30, chunk_bytes=chunk_bytes, prepared_bytes=12_000
    )
    prepare(dump, "x", *[f"e{i}" for i in range(rows)], one_phase=one_phase, payload=payload)
    dump.transaction("last1")
    dump.statement(f"XA COMMIT {xid('x')}")
    assert ids(feed(assembler, dump.take())) == [[], ["last1"], []]


def test_the_oldest_make_room(dump: Dump, assembler: Assembler) -> None:
    for name in "abcd":
        prepare(dump, name, f"e-{name}1", payload="x" * 3000)
    for name in "abcd":
        dump.statement(f"XA COMMIT {xid(name)}")
    assert [name for t in ids(feed(assembler, dump.take())) for name in t] == ["e-b1", "e-c1", "e-d1"]


def test_a_lost_connection_and_a_restarted_server_forget_nothing(dump: Dump, assembler: Assembler) -> None:
    prepare(dump, "x", "e1")
    feed(assembler, dump.take())
    assembler.restart()
    again = Dump(offset=dump.offset).begins()
    again.number = dump.number
    again.transaction("x1", table=OTHER)
    again.rotate("binlog.000002", died=True)
    again.statement(f"XA COMMIT {xid('x')}")
    assert ids(feed(assembler, again.take()))[-1] == ["e1"]


def test_a_xid_may_be_used_again(dump: Dump, assembler: Assembler) -> None:
    for event_id in ("e1", "e2"):
        prepare(dump, "x", event_id)
        dump.statement(f"XA COMMIT {xid('x')}")
    assert [name for t in ids(feed(assembler, dump.take())) for name in t] == ["e1", "e2"]
