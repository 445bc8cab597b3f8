"""Damaged rows with checksums off: an error of ours or a reading, the same by both decoders; no hang, little memory."""

from __future__ import annotations

import json
import random
import signal
import struct
import sys
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import FrameType, ModuleType
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_outbox.binlog import events as ev
from cdc_outbox.binlog.accelerator import MODULE, PURE, decoder
from cdc_outbox.binlog.json_text import MalformedJson, json_text
from cdc_outbox.binlog.transactions import Assembler
from cdc_outbox.errors import BinlogUnreadable
from cdc_outbox.model import Event
from tests.golden.replay import FOLDER, TABLE, extra_columns, recorded
from tests.unit.binlog.binary_json import encoded
from tests.unit.binlog.wire import OUTBOX, Dump

HANGS_AFTER = 10.0
"""Seconds; what is read here takes some milliseconds."""


@contextmanager
def no_hang() -> Iterator[None]:
    def hangs(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"still reading after {HANGS_AFTER:g} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, HANGS_AFTER)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- damage -----------------------------------------------------------------------------------------------------------


@st.composite
def damaged(draw: st.DrawFn, content: bytes, first: int = 0) -> bytes:
    """content with some bytes behind `first` changed, taken out or put in."""
    b = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(first, len(b) - 1))
        telling = st.sampled_from([0, 1, 2, 3, 4, 5, 12, 15, 127, 128, 250, 251, 252, 254, 255])
        b[at : at + draw(st.sampled_from([0, 1, 1, 1, 1, 1, 3]))] = draw(
            telling.map(lambda byte: bytes([byte])) | st.binary(max_size=4)
        )
        if len(b) <= first + 1:
            break
    return bytes(b)


def without_checksums(events: Sequence[bytes]) -> list[bytes]:
    """A dump as a server with binlog_checksum=NONE sends it."""
    stripped: list[bytes] = []
    described = False
    for event in events:
        if event[4] == ev.FORMAT_DESCRIPTION:
            stripped.append(event[:-5] + b"\0" + event[-4:])
            described = True
        else:
            stripped.append(event[:-4] if described else event)
    return stripped


def streams() -> Iterator[tuple[list[bytes], list[str]]]:
    for path in sorted(FOLDER.glob("*.sql")):
        yield without_checksums(recorded(path.stem)), extra_columns(path.read_text(encoding="utf-8"))


STREAMS = list(streams())
ROWS = {ev.TABLE_MAP, ev.WRITE_ROWS}
HEADER_AND_TABLE_ID = 25


@st.composite
def damaged_streams(draw: st.DrawFn) -> tuple[list[bytes], list[str]]:
    events, extra = draw(st.sampled_from(STREAMS))
    number = draw(st.sampled_from([i for i, event in enumerate(events) if event[4] in ROWS]))
    damage = draw(damaged(events[number], HEADER_AND_TABLE_ID))
    return [*events[:number], damage, *events[number + 1 :]], extra


# -- reading ----------------------------------------------------------------------------------------------------------


@contextmanager
def decoder_is(module: ModuleType | None) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(PURE, "0" if module else "1")
        if module:
            patch.setitem(sys.modules, MODULE, module)
        yield


def read(events: Sequence[bytes], extra: Sequence[str] = (), table: Any = TABLE) -> tuple[list[Event], bool]:
    """The events, and whether the stream could be read to its end."""
    assembler = Assembler([table], "binlog.000001", 4, extra_columns=extra)
    found: list[Event] = []
    try:
        for event in events:
            for given in assembler.feed([event]):
                found += [one for transaction in given for one in transaction.events]
    except BinlogUnreadable:
        return found, False
    return found, True


def read_json(reader: Any, value: bytes) -> bytes | None:
    try:
        text: bytes = reader(value)
    except MalformedJson:
        return None
    return text


@given(damaged_streams())
@settings(max_examples=150)
def test_damaged_rows(compiled: ModuleType, stream: tuple[list[bytes], list[str]]) -> None:
    results = []
    for module in (None, compiled):
        with decoder_is(module), no_hang():
            events, whole = read(*stream)
            results.append(([asdict(event) for event in events], whole))
    assert results[0] == results[1]


DOCUMENTS = [
    encoded(value)
    for value in (
        {"id": 1, "name": "Zoë", "total": 99.5, "lines": [{"sku": "a", "n": 70_000}, {"sku": "b", "n": 2}], "y": []},
        ["text" * 50, -(2**40), [[[]]], 1.5, True, {"a": 2**63, "b": None}],
        {"big": "x" * 66_000, "n": [1, 2, 3], "o": {"p": {"q": -70_000}}},
    )
] + [
    b"\x00\x01\x00\x1c\x00\x0b\x00\x01\x00\x0f\x0c\x00a\xf6\x0d\x06\x02" + bytes.fromhex("81000000000000000000003200"),
    b"\x0f\x0c\x08" + bytes(8),
]


@given(st.sampled_from(DOCUMENTS).flatmap(damaged))
@settings(max_examples=300)
def test_damaged_json(compiled: ModuleType, value: bytes) -> None:
    with no_hang():
        assert read_json(compiled.json_text, value) == read_json(json_text, value)


# -- what does not fit is noticed -------------------------------------------------------------------------------------


def one_row(payload: object = "text") -> tuple[list[bytes], int]:
    """A transaction with one row, and the number of its event."""
    dump = Dump(offset=4, checksums=False).begins()
    dump.begin()
    dump.table_map()
    dump.rows("a1", payload=payload)
    dump.commit()
    events = dump.take()
    events[0] += crc32(events[0]).to_bytes(4, "little")  # the artificial ROTATE has one all the same
    return events, next(i for i, event in enumerate(events) if event[4] == ev.WRITE_ROWS)


@pytest.mark.usefixtures("each_decoder")
def test_every_wrong_length_of_a_row_is_noticed() -> None:
    events, number = one_row()
    assert read(events, table=OUTBOX)[1]
    row = events[number]
    columns = row.index(b"\x0a\xff\x03")
    lengths = [columns]  # how many columns there are
    at = columns + 3 + 2 + 8
    for size in (2, 2, 2, 2, 4):
        lengths += range(at, at + size)
        at += size + int.from_bytes(row[at : at + size], "little")
    assert at + 9 == len(row)
    for place in lengths:
        for byte in {*range(20), *range(20, 256, 9), row[place] - 1, row[place] + 1} - {row[place], -1}:
            damage = row[:place] + bytes([byte]) + row[place + 1 :]
            assert not read([*events[:number], damage, *events[number + 1 :]], table=OUTBOX)[1], (place, byte)


@pytest.mark.usefixtures("each_decoder")
@pytest.mark.parametrize("image", [b"\0\0", b"\xfe\x03", b"\x02\0"])
def test_a_row_without_its_id_is_refused(image: bytes) -> None:
    """Nothing else names it; and rows of no bytes would never end."""
    events, number = one_row()
    events[number] = events[number].replace(b"\x0a\xff\x03", b"\x0a" + image)
    with no_hang():
        assert read(events, table=OUTBOX) == ([], False)


@pytest.mark.usefixtures("each_decoder")
@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_table_map_cut_short_is_refused(cut: int) -> None:
    events, number = one_row()
    events[number - 1] = events[number - 1][:-cut]
    assert read(events, table=OUTBOX) == ([], False)


def offsets_and_sizes(value: bytes) -> Iterator[tuple[int, str]]:
    """Where the number of elements, the size, the key and value offsets of a small object stand."""
    (count,) = struct.unpack_from("<H", value, 1)
    yield 1, "count"
    yield 3, "size"
    for i in range(count):
        yield 5 + 4 * i, f"offset of key {i}"
        yield 7 + 4 * i, f"length of key {i}"
        if value[5 + 4 * count + 3 * i] not in (4, 5, 6):
            yield 6 + 4 * count + 3 * i, f"offset of value {i}"


@pytest.mark.usefixtures("each_decoder")
@pytest.mark.parametrize("warm", [False, True])
def test_every_wrong_number_in_an_object_is_noticed(warm: bool) -> None:
    """Each value ends where the next one begins, so that there is no other number that fits, but for a later end."""
    read_one = decoder().json_text
    value = encoded({"a": "zzzz", "bb": 70_000, "ccc": [300, "zzzz"], "dddd": 1.5, "eeeee": {"f": "zz"}, "g" * 9: 7})
    for _ in range(20 if warm else 0):
        read_one(value)
    for place, name in offsets_and_sizes(value):
        (right,) = struct.unpack_from("<H", value, place)
        for wrong in {*range(0, 200, 3), *range(max(0, right - 9), right + 9), 0x100 + right, 0x8000, 0xFFFF} - {right}:
            damage = bytearray(value)
            struct.pack_into("<H", damage, place, wrong)
            if (name == "count" and wrong == 0) or (name.startswith("length of key") and wrong < right):
                continue  # that leaves a gap, as partial updates do
            assert read_json(read_one, bytes(damage)) is None, (name, wrong)


# -- memory and time --------------------------------------------------------------------------------------------------

LARGE = [
    {"orders": [{"id": i, "name": f"Zoë {i}", "total": i / 7, "tags": ["a", "b"]} for i in range(1000)]},
    {f"{i}": i for i in range(8000)},
    [i % 200 for i in range(20_000)],
    [None] * 25_000,
    {"text": "long " * 20_000},
    [[i] for i in range(6000)],
    [{"a": {"b": {}}}] * 4000,
]


@pytest.mark.usefixtures("each_decoder")
@pytest.mark.parametrize("value", LARGE, ids=range(len(LARGE)))
def test_memory_for_damaged_rows(value: object) -> None:
    """At most ten times the event, also where the damage is noticed late."""
    events, number = one_row(value)
    row = events[number]
    rng = random.Random(json.dumps(value))
    for damages in (0, 1, 3):
        damage = bytearray(row)
        for _ in range(damages):
            damage[rng.randrange(len(row) // 2, len(row))] = rng.randrange(256)
        stream = [*events[:number], bytes(damage), *events[number + 1 :]]
        tracemalloc.start()
        try:
            with no_hang():
                read(stream, table=OUTBOX)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 10 * len(row), peak / len(row)


def test_nothing_is_left_behind(compiled: ModuleType) -> None:
    """The compiled decoder frees what it took, also when it fails in the middle."""
    large = encoded({"x" * 3000: 1, "y" * 4000: DOCUMENTS[0].decode("latin-1"), "z": [1.5, None]})
    values = [*DOCUMENTS, large, large[:-1], large[:-20], *(one[:-1] for one in DOCUMENTS)]

    def read_all(times: int) -> int:
        for _ in range(times):
            for value in values:
                read_json(compiled.json_text, value)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = read_all(20)
        assert read_all(400) - before < 10_000
    finally:
        tracemalloc.stop()
