"""Compressed transactions: read as if their events stood there, in bounded memory; refused when damaged."""

from __future__ import annotations

import os
import tracemalloc

import pytest
import zstandard

from cdc_outbox.binlog import events as ev
from cdc_outbox.binlog.transactions import Assembler
from cdc_outbox.errors import BinlogUnreadable
from cdc_outbox.gtid import GtidRange
from tests.unit.binlog.wire import OTHER, OUTBOX, SECOND, SECONDS, SERVER, Dump, feed


def compressed(dump: Dump, *event_ids: str, **fields: int) -> None:
    dump.gtid()
    with dump.compressed(**fields):
        dump.query("BEGIN")
        dump.insert(*event_ids)
        dump.commit()


@pytest.mark.parametrize("checksums", [True, False])
def test_a_compressed_transaction(checksums: bool) -> None:
    dump, assembler = Dump(offset=1000).begins(), Assembler([OUTBOX], "binlog.000001", 1000)
    dump.rotate("binlog.000002", checksums=checksums)
    compressed(dump, "e1", "e2")
    end = dump.offset
    dump.transaction("e3")
    _, first, second = feed(assembler, dump.take())
    assert [event.event_id for event in first.events] == ["e1", "e2"]
    assert first.end == ("binlog.000002", end) and first.gtids == [GtidRange(str(SERVER), 1, 1)]
    assert first.events[0].payload == b"1" and first.events[0].committed_at == SECONDS * 1000 + 1
    assert [event.event_id for event in second.events] == ["e3"] and second.end == ("binlog.000002", dump.offset)


def test_what_is_inside_means_what_it_means_outside(dump: Dump, assembler: Assembler) -> None:
    dump.gtid()
    with dump.compressed():
        dump.query("BEGIN")
        dump.event(29, b"INSERT ...")  # ROWS_QUERY
        dump.insert("e1")
        dump.insert("s1", table=SECOND)
        dump.rows("e1", kind=ev.UPDATE_ROWS)
        dump.query("SAVEPOINT `s`")
        dump.insert("x1", table=OTHER)
        dump.insert("e2")
        dump.commit()
    before = 1000
    (transaction,) = feed(assembler, dump.take())
    assert [(event.event_id, event.incomplete) for event in transaction.events] == [
        ("e1", True),
        ("s1", False),
        ("e2", False),
    ]
    assert transaction.traffic == dump.offset - before


def test_large_events_and_small_ones_among_them(dump: Dump, assembler: Assembler) -> None:
    """Some reach over the pieces that are inflated at a time, ours and others'."""
    dump.gtid()
    texts = [os.urandom(size // 2).hex() for size in (10, 700_000, 262_144, 300, 1_000_000, 20)]
    with dump.compressed():
        dump.query("BEGIN")
        dump.table_map(OUTBOX)
        dump.table_map(OTHER)
        for i, text in enumerate(texts):
            dump.rows(f"x{i}", table=OTHER, payload=text)
            dump.rows(f"e{i}", payload=text)
            for _ in range(50):
                dump.rows(f"x{i}", table=OTHER, payload="x" * 10_000)
        dump.commit()
    (transaction,) = feed(assembler, dump.take())
    assert [event.payload for event in transaction.events] == [f'"{text}"'.encode() for text in texts]


def test_its_end_counts_beyond_4_gib(dump: Dump, assembler: Assembler) -> None:
    for i in range(6):
        dump.offset += 1 << 30
        compressed(dump, f"e{i}")
    assert feed(assembler, dump.take())[-1].end == ("binlog.000001", dump.offset) and dump.offset > 6 << 30


def test_parts_of_a_large_one_are_given_while_it_is_read(dump: Dump, assembler: Assembler) -> None:
    names = [f"e{i}" for i in range(450)]
    dump.transaction("first1")
    dump.gtid()
    with dump.compressed():
        dump.query("BEGIN")
        for at in range(0, 450, 30):
            dump.insert(*names[at : at + 30])
        dump.commit()
    dump.transaction("last1")
    given = list(assembler.feed(dump.take()))
    assert [[len(t.events) for t in transactions] for transactions in given] == [[1, 120], [120], [120], [90, 1]]
    seen = [t for transactions in given for t in transactions]
    assert [event.event_id for t in seen for event in t.events] == ["first1", *names, "last1"]
    assert [t.end is None for t in seen] == [False, True, True, True, False, False]


def test_memory_does_not_grow_with_what_is_in_it(dump: Dump, assembler: Assembler) -> None:
    """64 MiB of another table and of ours in 60 kB."""
    dump.gtid()
    with dump.compressed():
        dump.query("BEGIN")
        dump.table_map(OUTBOX)
        dump.table_map(OTHER)
        for _ in range(400):
            dump.rows("x1", table=OTHER, payload="x" * 80_000)
            dump.rows("e1", payload="x" * 80_000)
        dump.commit()
    events = dump.take()
    assembler = Assembler([OUTBOX], "binlog.000001", 1000, chunk_bytes=1 << 20)
    tracemalloc.start()
    try:
        count = sum(len(t.events) for given in assembler.feed(events) for t in given)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 400
    assert peak < 8 << 20


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"algorithm": 7}, "algorithm 7"),
        ({"size": 100}, "not as long as its fields say"),
        ({"size": 1 << 40}, "not as long as its fields say"),
        ({"compressed_size": 30}, "not as long as its fields say"),
    ],
)
def test_fields_that_are_not_true(dump: Dump, assembler: Assembler, fields: dict[str, int], said: str) -> None:
    compressed(dump, "e1", **fields)
    with pytest.raises(BinlogUnreadable, match=said) as caught:
        feed(assembler, dump.take())
    assert caught.value.hint and f"binlog.000001:{dump.offset}" in caught.value.hint


EVENTS = b"".join(
    len(body + bytes(19)).to_bytes(4, "little").join([bytes(4) + bytes([kind]) + bytes(4), bytes(6)]) + body
    for kind, body in ((ev.QUERY, bytes(13) + b"\0BEGIN"), (ev.XID, bytes(8)))
)


@pytest.mark.parametrize(
    ("frames", "size", "said"),
    [
        (b"no zstd at all", 100, "cannot be inflated"),
        (zstandard.compress(EVENTS)[:-3], len(EVENTS), "not as long|cannot be inflated"),
        (zstandard.compress(EVENTS) + b"more", len(EVENTS), "cannot be inflated"),
        (zstandard.compress(EVENTS + b"rest"), len(EVENTS) + 4, "cut short"),
        (zstandard.compress(bytes(40)), 40, "claims to have 0 bytes"),
        (zstandard.compress(bytes(9) + b"\xff" * 31), 40, "claims to have 4294967295 bytes"),
        (zstandard.compress(EVENTS[:4] + bytes([ev.GTID]) + EVENTS[5:]), len(EVENTS), "type 33"),
        (zstandard.compress(EVENTS[:4] + b"\x28" + EVENTS[5:]), len(EVENTS), "type 40"),
        (b"", 0, "inside another one"),
    ],
)
def test_damaged_contents(dump: Dump, assembler: Assembler, frames: bytes, size: int, said: str) -> None:
    dump.gtid()
    dump.payload(frames, size=size)
    dump.transaction("e1")
    with pytest.raises(BinlogUnreadable, match=said):
        feed(assembler, dump.take())


def test_frames_may_be_several(dump: Dump, assembler: Assembler) -> None:
    dump.gtid()
    dump.payload(zstandard.compress(EVENTS[:30]) + zstandard.compress(EVENTS[30:]), size=len(EVENTS))
    (transaction,) = feed(assembler, dump.take())
    assert transaction.end == ("binlog.000001", dump.offset)
