"""Events → Transactions: the grammar of a dump, joined stretches, parts of large transactions, what is refused."""

from __future__ import annotations

import pytest

from cdc_outbox.binlog import events as ev
from cdc_outbox.binlog.gtid_wire import encode_gtid_set
from cdc_outbox.binlog.transactions import Assembler
from cdc_outbox.errors import BinlogUnreadable, Hold
from cdc_outbox.gtid import GtidRange, GtidSet
from cdc_outbox.model import Transaction
from tests.unit.binlog.wire import CHECKPOINT, OTHER, OUTBOX, SECOND, SECONDS, SERVER, Dump, feed


def ids(transactions: list[Transaction]) -> list[list[str]]:
    return [[event.event_id for event in t.events] for t in transactions]


def incomplete(transactions: list[Transaction]) -> list[str]:
    return [event.event_id for t in transactions for event in t.events if event.incomplete]


def test_a_transaction(dump: Dump, assembler: Assembler) -> None:
    dump.transaction("e1", "e2")
    (transaction,) = feed(assembler, dump.take())
    assert ids([transaction]) == [["e1", "e2"]]
    assert transaction.end == ("binlog.000001", dump.offset) == (assembler.file, assembler.offset)
    assert transaction.gtids == [GtidRange(str(SERVER), 1, 1)]
    assert (transaction.traffic, transaction.rotated, transaction.barrier) == (0, False, None)
    event = transaction.events[0]
    assert (event.table, event.id, event.payload, event.committed_at) == (OUTBOX, 1, b"1", SECONDS * 1000 + 1)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_events_may_come_in_any_pieces(dump: Dump, assembler: Assembler, size: int) -> None:
    for i in range(6):
        dump.transaction(f"e{i}")
    events = dump.take()
    seen = [t for at in range(0, len(events), size) for t in feed(assembler, events[at : at + size])]
    assert [name for t in ids(seen) for name in t] == [f"e{i}" for i in range(6)]


def test_no_half_transaction_shows(dump: Dump, assembler: Assembler) -> None:
    dump.begin()
    dump.insert("e1")
    assert feed(assembler, dump.take()) == []
    assert (assembler.file, assembler.offset) == ("binlog.000001", 1000)


def test_stretches_without_events_are_joined(dump: Dump, assembler: Assembler) -> None:
    dump.transaction("x1", table=OTHER)
    dump.transaction("x2", table=OTHER)
    dump.transaction("e1")
    dump.transaction("x3", table=OTHER)
    dump.gtid(9)
    dump.query("BEGIN")
    dump.query("COMMIT")
    first, events, last = feed(assembler, dump.take())
    assert first.gtids == [GtidRange(str(SERVER), 1, 2)] and not first.events
    assert ids([events]) == [["e1"]]
    assert last.gtids == [GtidRange(str(SERVER), 4, 4), GtidRange(str(SERVER), 9, 9)]
    assert last.end == ("binlog.000001", dump.offset)


def test_traffic_is_what_others_write(dump: Dump, assembler: Assembler) -> None:
    dump.begin()
    dump.table_map(OUTBOX)
    dump.rows("e1", kind=ev.UPDATE_ROWS)
    dump.rows("e1", kind=ev.DELETE_ROWS)
    dump.table_map(CHECKPOINT)
    dump.rows("c1", table=CHECKPOINT, kind=ev.UPDATE_ROWS)
    dump.commit()
    assert [t.traffic for t in feed(assembler, dump.take())] == [0]
    before = dump.offset
    dump.transaction("x1", table=OTHER)
    assert [t.traffic for t in feed(assembler, dump.take())] == [dump.offset - before]
    before = dump.offset
    dump.statement("CREATE TABLE a (b INT)")
    assert [t.traffic for t in feed(assembler, dump.take())] == [dump.offset - before]
    dump.begin()
    dump.query("INSERT INTO orders VALUES (1)")
    dump.commit()
    assert feed(assembler, dump.take())[0].traffic > 0


def test_a_barrier_stands_alone(dump: Dump, assembler: Assembler) -> None:
    dump.transaction("x1", table=OTHER)
    dump.statement("TRUNCATE outbox_event")
    dump.transaction("x2", table=OTHER)
    assert [t.barrier for t in feed(assembler, dump.take())] == [None, "TRUNCATE outbox_event", None]


@pytest.mark.parametrize("kind", [ev.UPDATE_ROWS, ev.DELETE_ROWS, ev.PARTIAL_UPDATE_ROWS])
def test_a_change_makes_inserts_before_it_incomplete(dump: Dump, assembler: Assembler, kind: int) -> None:
    dump.begin()
    dump.insert("e1")
    dump.insert("s1", table=SECOND)
    dump.rows("e1", kind=kind)
    dump.insert("e2")
    dump.commit()
    seen = feed(assembler, dump.take())
    assert ids(seen) == [["e1", "s1", "e2"]]
    assert incomplete(seen) == ["e1"]


def test_savepoints_and_rollbacks_that_are_logged(dump: Dump, assembler: Assembler) -> None:
    dump.begin()
    dump.insert("e1")
    dump.query("SAVEPOINT `s`")
    dump.insert("e2")
    dump.query("ROLLBACK TO `s`")
    dump.insert("e3")
    dump.query("COMMIT")
    dump.begin()
    dump.insert("e4")
    dump.query("ROLLBACK")
    seen = feed(assembler, dump.take())
    assert ids(seen) == [["e1", "e2", "e3"], []]
    assert incomplete(seen) == ["e1", "e2"]
    assert assembler.offset == dump.offset


# -- large transactions ------------------------------------------------------------------------------------------


def large(dump: Dump, rows: int = 450) -> list[str]:
    dump.begin()
    names = [f"e{i}" for i in range(rows)]
    for at in range(0, rows, 30):
        dump.insert(*names[at : at + 30])
    dump.commit()
    return names


def test_parts_of_a_large_transaction(dump: Dump, assembler: Assembler) -> None:
    names = large(dump)
    seen = feed(assembler, dump.take())
    assert [len(t.events) for t in seen] == [120, 120, 120, 90]
    assert [name for t in ids(seen) for name in t] == names
    assert [t.end is None for t in seen] == [True, True, True, False]
    assert incomplete(seen) == names[:360]
    assert [t.gtids for t in seen[:3]] == [[], [], []]


def test_large_rows_make_parts_too(dump: Dump) -> None:
    assembler = Assembler([OUTBOX], "binlog.000001", 1000, chunk_bytes=5000)
    dump.begin()
    dump.table_map()
    for i in range(5):
        dump.rows(f"e{i}", payload="x" * 2000)
    dump.commit()
    assert ids(feed(assembler, dump.take())) == [["e0", "e1", "e2"], ["e3", "e4"]]


@pytest.mark.parametrize("cuts", [[1], [10], [15], [32], [15, 20], [32, 12, 30], [31, 31]])
def test_a_lost_connection_in_a_large_transaction(dump: Dump, assembler: Assembler, cuts: list[int]) -> None:
    """After each cut the dump begins anew, before the transaction. Nothing is given twice."""
    dump.transaction("first1")
    seen = feed(assembler, dump.take())
    again = Dump(offset=dump.offset)
    again.number = dump.number
    names = large(again)
    again.transaction("last1")
    body = again.take()
    start = Dump(offset=dump.offset).begins().take()
    for cut in cuts:
        seen += feed(assembler, [*start, *body[:cut]])
        assembler.restart()
    seen += feed(assembler, [*start, *body])
    assert [name for t in ids(seen) for name in t] == ["first1", *names, "last1"]
    assert seen[-1].end == (again.file, again.offset)


def test_another_transaction_in_its_place_is_a_hold(dump: Dump, assembler: Assembler) -> None:
    large(dump)
    feed(assembler, dump.take()[:20])
    assembler.restart()
    other = Dump(offset=1000).begins()
    other.number = 5
    other.transaction("e1")
    with pytest.raises(Hold, match="did not come again"):
        feed(assembler, other.take())


def test_a_server_that_died_in_a_large_transaction(dump: Dump, assembler: Assembler) -> None:
    """What has no end was not committed; its parts can only be looked up in vain."""
    large(dump)
    seen = feed(assembler, dump.take()[:20])
    assert incomplete(seen) == [event.event_id for t in seen for event in t.events] != []
    dump.rotate("binlog.000002", died=True)
    dump.number = 0
    dump.transaction("e1")
    seen = feed(assembler, dump.take())
    assert ids(seen)[-1] == ["e1"] and not incomplete(seen)


def test_a_transaction_beyond_4_gib(dump: Dump, assembler: Assembler) -> None:
    """Its events give 32 bits of where they are."""
    dump.begin()
    dump.table_map(OTHER)
    for _ in range(5):
        dump.offset += 1 << 30
        dump.rows("x1", table=OTHER)
    dump.commit()
    (transaction,) = feed(assembler, dump.take())
    assert transaction.end == ("binlog.000001", dump.offset) and dump.offset > 5 << 30
    assert transaction.traffic > 5 << 30
    dump.heartbeat(dump.offset)
    assert feed(assembler, dump.take()) == []
    dump.rotate("binlog.000002")
    dump.transaction("e1")
    assert feed(assembler, dump.take())[-1].end == ("binlog.000002", dump.offset)


# -- between transactions ------------------------------------------------------------------------------------------


def test_a_new_file_is_told_once(dump: Dump, assembler: Assembler) -> None:
    dump.transaction("e1")
    dump.rotate("binlog.000002")
    dump.transaction("e2")
    seen = feed(assembler, dump.take())
    assert [t.rotated for t in seen] == [False, True, False]
    assert seen[2].end == ("binlog.000002", dump.offset)


def test_a_dump_may_begin_in_another_file(dump: Dump, assembler: Assembler) -> None:
    """By GTID set the server chooses where."""
    elsewhere = Dump("binlog.000007", 500).begins()
    elsewhere.transaction("e1")
    (transaction,) = feed(assembler, elsewhere.take())
    assert transaction.end == ("binlog.000007", elsewhere.offset) and not transaction.rotated


def test_listed_gtids_are_passed_on(dump: Dump, assembler: Assembler) -> None:
    listed = GtidSet.parse(f"{SERVER}:1-7,{SERVER}:orders:3")
    dump.rotate("binlog.000002")
    dump.event(ev.PREVIOUS_GTIDS, encode_gtid_set(listed))
    (transaction,) = feed(assembler, dump.take())
    assert GtidSet(transaction.gtids) == listed
    assert transaction.end == ("binlog.000002", dump.offset) and transaction.rotated


def test_heartbeats_move_the_position_between_transactions_only(dump: Dump, assembler: Assembler) -> None:
    dump.heartbeat(1000)
    assert feed(assembler, dump.take()) == []
    dump.heartbeat(5000)
    (moved,) = feed(assembler, dump.take())
    assert moved.end == ("binlog.000001", 5000) and not moved.traffic and not moved.gtids
    dump.offset = 5000
    dump.begin()
    dump.insert("e1")
    dump.heartbeat(9000)
    assert feed(assembler, dump.take()) == []
    dump.commit()
    assert feed(assembler, dump.take())[0].end == ("binlog.000001", dump.offset)


def test_events_that_carry_no_rows_are_skipped(dump: Dump, assembler: Assembler) -> None:
    dump.gtid()
    dump.query("BEGIN")
    dump.event(29, b"INSERT ...")  # ROWS_QUERY
    dump.event(99, b"?", flags=ev.IGNORABLE)
    dump.insert("e1")
    dump.commit()
    assert ids(feed(assembler, dump.take())) == [["e1"]]


def test_without_checksums() -> None:
    dump = Dump(offset=1000).begins()
    assembler = Assembler([OUTBOX], "binlog.000001", 1000)
    dump.transaction("e1")
    dump.rotate("binlog.000002", checksums=False)
    dump.transaction("e2")
    seen = feed(assembler, dump.take())
    assert [name for t in ids(seen) for name in t] == ["e1", "e2"]
    # A dump that begins in such a file: what the server made up at its beginning has a checksum, the rest has none.
    assembler.restart()
    again = Dump("binlog.000002", dump.offset)
    again.event(ev.ROTATE, again.offset.to_bytes(8, "little") + again.file.encode(), artificial=True)
    again.checksums = False
    again._description(artificial=True)
    again.transaction("e3")
    assert ids(feed(assembler, again.take())) == [["e3"]]


# -- what is refused -------------------------------------------------------------------------------------------------


def test_a_damaged_event(dump: Dump, assembler: Assembler) -> None:
    before = dump.offset
    dump.transaction("e1")
    events = dump.take()
    events[4] = events[4][:60] + bytes([events[4][60] ^ 1]) + events[4][61:]
    with pytest.raises(BinlogUnreadable, match="checksum") as caught:
        feed(assembler, events)
    at = before + sum(len(event) for event in events[2:4])
    assert f"binlog.000001:{at}" in caught.value.message and f"{SERVER}:1" in caught.value.message


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("event", [b"", bytes(4), bytes(18)])
def test_an_event_without_a_whole_header(event: bytes, checksums: bool) -> None:
    dump = Dump(offset=1000, checksums=checksums).begins()
    assembler = Assembler([OUTBOX], "binlog.000001", 1000)
    with pytest.raises(BinlogUnreadable, match="damaged"):
        feed(assembler, [*dump.take(), event])


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (ev.INCIDENT, "events are missing"),
        (ev.TRANSACTION_PAYLOAD, "a compressed transaction cannot be read"),
        (166, "log_bin_compress"),
        (99, "type 99"),
    ],
)
def test_events_that_stop_the_reader(dump: Dump, assembler: Assembler, kind: int, said: str) -> None:
    dump.gtid()
    dump.event(kind, b"whatever it says")
    with pytest.raises(BinlogUnreadable, match=said) as caught:
        feed(assembler, dump.take())
    assert "binlog.000001" in caught.value.message and f"{SERVER}:1" in caught.value.message
    assert caught.value.hint and "checkpoint set" in caught.value.hint
    assert f"binlog.000001:{dump.offset}" in caught.value.hint


@pytest.mark.parametrize("first", ["table map", "rows", "end"])
def test_a_position_inside_a_transaction(dump: Dump, assembler: Assembler, first: str) -> None:
    start = dump.take()
    dump.transaction("e1")
    _gtid, _begin, *rest = dump.take()
    left_out = ["table map", "rows", "end"].index(first)
    with pytest.raises(BinlogUnreadable, match="inside a transaction"):
        feed(assembler, [*start, *rest[left_out:]])


def test_a_transaction_inside_a_transaction(dump: Dump, assembler: Assembler) -> None:
    dump.begin()
    dump.gtid()
    with pytest.raises(BinlogUnreadable, match="inside another one"):
        feed(assembler, dump.take())


def test_rows_that_are_not_what_the_table_map_says(dump: Dump, assembler: Assembler) -> None:
    dump.begin()
    dump.table_map()
    dump.event(ev.WRITE_ROWS, (100).to_bytes(6, "little") + b"\0\0\x02\0\x0a\xff\x03" + b"\0\x02" + b"\xff" * 20)
    with pytest.raises(BinlogUnreadable, match=r"rows of shop\.outbox_event cannot be decoded"):
        feed(assembler, dump.take())


def test_a_corrupt_document(dump: Dump, assembler: Assembler) -> None:
    dump.begin()
    dump.table_map()
    dump.rows("e1", payload={"a": "text"})
    events = dump.take()
    broken = events[-1].replace(b"\x0c\x0c\x00", b"\x0c\xff\x7f")[:-4]
    assert broken != events[-1][:-4]
    dump.offset -= len(events[-1])
    dump.event(ev.WRITE_ROWS, broken[19:])
    with pytest.raises(BinlogUnreadable, match="JSON"):
        feed(assembler, [*events[:-1], *dump.take()])
