"""Whole transactions that the compiled twin gives as one: the same comes out as of every event fed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc_outbox.binlog import events as ev
from cdc_outbox.binlog import packets
from cdc_outbox.binlog.accelerator import decoder
from cdc_outbox.binlog.packets import Piece
from cdc_outbox.binlog.transactions import Assembler
from cdc_outbox.errors import CdcOutboxError, Hold
from tests.unit.binlog import stub_server
from tests.unit.binlog.wire import ANOTHER, CHECKPOINT, ELSEWHERE, OTHER, OUTBOX, SECOND, Dump

pytestmark = pytest.mark.usefixtures("each_decoder")

LARGEST = 1 << 16


def assembler() -> Assembler:
    return Assembler([OUTBOX, SECOND], "binlog.000001", 1000, chunk_events=3)


def _other(dump: Dump) -> None:
    dump.transaction("x1", "x2", table=OTHER)


def _other_tables(dump: Dump) -> None:
    dump.begin()
    for table, kind in ((OTHER, ev.UPDATE_ROWS), (ANOTHER, ev.DELETE_ROWS)):
        dump.table_map(table)
        dump.event(29, b"\x06SELECT")
        dump.rows("x1", table=table, kind=kind)
    dump.commit()


def _both(dump: Dump) -> None:
    dump.begin()
    dump.insert("x1", table=OTHER)
    dump.insert("e1")
    dump.commit()


def _saved(dump: Dump) -> None:
    dump.begin()
    dump.insert("x1", table=OTHER)
    dump.query("SAVEPOINT `a`")
    dump.commit()


def _committed_by_statement(dump: Dump) -> None:
    dump.begin()
    dump.insert("x1", table=OTHER)
    dump.query("COMMIT")


def _empty(dump: Dump) -> None:
    dump.begin()
    dump.commit()


def _gap(dump: Dump) -> None:
    dump.number += 3
    _other(dump)


def _packed(dump: Dump) -> None:
    dump.gtid()
    with dump.compressed():
        dump.query("BEGIN")
        dump.insert("x1", table=OTHER)
        dump.commit()


def _changed(dump: Dump) -> None:
    dump.begin()
    dump.insert("e1")
    dump.rows("e1", kind=ev.UPDATE_ROWS)
    dump.insert("x1", table=OTHER)
    dump.insert("e2", table=SECOND)
    dump.insert("e3")
    dump.commit()


def _many_tables(dump: Dump) -> None:
    """More changes, in a row, than the compiled one takes together."""
    dump.begin()
    for n in range(40):
        dump.insert(f"e{n}")
    dump.commit()


def _without_end(dump: Dump) -> None:
    dump.begin()
    dump.insert("x1", table=OTHER)


def _without_table(dump: Dump) -> None:
    dump.begin()
    dump.rows("x1", table=OTHER)
    dump.commit()


def _without_its_table(dump: Dump) -> None:
    dump.begin()
    dump.table_map(OTHER)
    dump.rows("e1")
    dump.commit()


ACTIONS: list[Callable[[Dump], None]] = [
    _other,
    _other_tables,
    _both,
    _changed,
    _many_tables,
    _saved,
    _committed_by_statement,
    _empty,
    _gap,
    _packed,
    lambda dump: dump.transaction("e1", "e2"),
    lambda dump: dump.transaction(*(f"e{n}" for n in range(7)), table=SECOND),
    lambda dump: dump.transaction("x1", table=ELSEWHERE),
    lambda dump: dump.transaction("x1", table=CHECKPOINT),
    lambda dump: dump.statement("DROP TABLE shop.orders"),
    lambda dump: dump.statement("TRUNCATE TABLE outbox_event"),
    lambda dump: dump.heartbeat(dump.offset),
    lambda dump: dump.rotate("binlog.000002"),
    lambda dump: dump.rotate("binlog.000003", died=True),
    lambda dump: dump.rotate("binlog.000004", checksums=False),
]
WRONG: list[Callable[[Dump], None]] = [_without_end, _without_table, _without_its_table]
actions = st.lists(st.sampled_from([_other, *ACTIONS]), max_size=12)


def outcome(data: bytes, size: int, cut: Callable[[bytes], tuple[list[Piece], int]]) -> list[object]:
    """What each read of `size` bytes gave, an error last."""
    given: list[object] = []
    follower, rest = assembler(), b""
    try:
        for at in range(0, len(data), size):
            rest += data[at : at + size]
            pieces, end = cut(rest)
            rest = rest[end:]
            given.append([astuple(one) for some in follower.feed(pieces) for one in some])
    except CdcOutboxError as error:
        given.append((type(error), str(error)))
    return [*given, follower.file, follower.offset]


def passing(data: bytes) -> tuple[list[Piece], int]:
    return decoder().cut(data, LARGEST, tuple(name.encode() for name in assembler().kept))


def whole(data: bytes) -> tuple[list[Piece], int]:
    return packets.cut(data, LARGEST)


def written(dump: Dump) -> bytes:
    return stub_server.packets(*(b"\0" + event for event in dump.take()))


@given(actions, st.lists(st.sampled_from(WRONG), max_size=1), actions, st.integers(50, 5000), st.booleans())
@example([_other, _other, _gap, _both, _other], [], [], 5000, True)
@example(ACTIONS, [], ACTIONS, 1 << 20, True)
@example([_other], WRONG[:1], [_both], 5000, True)
@example([_other], WRONG[1:2], [_both], 5000, True)
@example([_other], WRONG[2:], [_both], 5000, True)
def test_the_same_comes_out(
    before: list[Callable[[Dump], None]],
    wrong: list[Callable[[Dump], None]],
    after: list[Callable[[Dump], None]],
    size: int,
    checksums: bool,
) -> None:
    dump = Dump(offset=1000, checksums=checksums).begins()
    for act in (*before, *wrong, *after):
        act(dump)
    data = written(dump)
    assert outcome(data, size, passing) == outcome(data, size, whole)


@given(st.integers(min_value=0), st.integers(0, 7))
def test_a_damaged_bit_is_told_in_the_same_way(place: int, bit: int) -> None:
    dump = Dump(offset=1000).begins()
    begun = len(stub_server.packets(*(b"\0" + event for event in dump._events)))
    for act in (_other, _both, _other, _changed):
        act(dump)
    data = bytearray(written(dump))
    data[begun + place % (len(data) - begun)] ^= 1 << bit
    assert outcome(bytes(data), len(data), passing) == outcome(bytes(data), len(data), whole)


def test_what_follows_each_other_in_other_tables_comes_in_one_piece() -> None:
    dump = Dump(offset=1000)
    for act in (_other, _other_tables, _other):
        act(dump)
    data = written(dump)
    every, _ = whole(data)
    assert passing(data)[0] == ([(every[0], 3, dump.offset, True, ())] if decoder().kind == "compiled" else every)


def test_a_transaction_comes_with_what_changes_our_tables() -> None:
    dump = Dump(offset=1000)
    _changed(dump)
    data = written(dump)
    every, _ = whole(data)
    assert isinstance(every[0], bytes)
    changes = (*every[2:5], *every[7:11])
    assert passing(data)[0] == ([(every[0], 1, dump.offset, True, changes)] if decoder().kind == "compiled" else every)


@pytest.mark.parametrize("number", [1, 7])
def test_what_was_half_read_comes_again_or_not(number: int) -> None:
    follower, dump = assembler(), Dump(offset=1000).begins()
    dump.begin()
    dump.insert(*(f"e{n}" for n in range(5)))
    assert [one.end for some in follower.feed(dump.take()) for one in some] == [None]
    follower.restart()
    dump = Dump(offset=1000).begins()
    dump.gtid(number)
    dump.query("BEGIN")
    dump.insert("x1", table=OTHER)
    dump.commit()
    dump.transaction("e9")
    again = follower.feed(passing(written(dump))[0])
    if number == 1:
        assert [len(one.events) for some in again for one in some] == [0, 1]
    else:
        with pytest.raises(Hold, match="did not come again"):
            list(again)


def test_names_are_given_as_a_tuple() -> None:
    if decoder().kind == "compiled":
        with pytest.raises(TypeError, match="kept"):
            decoder().cut(b"", LARGEST, [b"outbox_event"])  # type: ignore[arg-type]
