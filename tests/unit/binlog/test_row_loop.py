"""Rows of any columns, read by the loop that Python makes and by the steps of the compiled decoder: they agree."""

from __future__ import annotations

from functools import partial
from struct import error as StructError
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysqlreplication.constants import FIELD_TYPE

from cdc_outbox.binlog.accelerator import Decoder
from cdc_outbox.binlog.row_image import fixed_size, length_size
from cdc_outbox.binlog.row_loop import row_loop
from cdc_outbox.binlog.table_map import INTEGERS, Column
from cdc_outbox.model import Event
from tests.harness.accelerator import PURE_PARTS, row_loop_of_both
from tests.unit.binlog.binary_json import encoded
from tests.unit.binlog.wire import OUTBOX

NAMES = ["event_id", "aggregate_type", "aggregate_id", "event_type", "payload", "status", "retry_count", "max_retries"]
SEVERAL = [*NAMES, "next_retry_at", "note", "tenant"]


@pytest.fixture(scope="module")
def parts(compiled: ModuleType) -> Decoder:
    return Decoder("compiled", compiled.json_text, compiled.cut, compiled.rows)


texts = st.sampled_from([b"", b"order", "größe €😀".encode(), b"\xff\xfe", b"a\0"])
Type = tuple[int, int, bool, str | None]

INTEGER: list[Type] = [(kind, 0, unsigned, None) for kind in INTEGERS for unsigned in (False, True)]
STRING: list[Type] = [
    *((FIELD_TYPE.VARCHAR, most, False, "utf8mb4") for most in (255, 1000)),
    *((FIELD_TYPE.BLOB, size, False, "utf8mb4") for size in (1, 2, 3, 4)),
]
JSON: list[Type] = [(FIELD_TYPE.JSON, 4, False, None)]
ANY: list[Type] = [
    *INTEGER,
    *STRING,
    *JSON,
    (FIELD_TYPE.VARCHAR, 255, False, "latin1"),
    (FIELD_TYPE.STRING, 8, False, "binary"),
    (FIELD_TYPE.DATETIME2, 3, False, None),
    (FIELD_TYPE.NEWDECIMAL, 10 | 2 << 8, False, None),
]
USUAL = {**dict.fromkeys(NAMES[:4], STRING), "payload": JSON + STRING, **dict.fromkeys(NAMES[5:], INTEGER)}


@st.composite
def columns(draw: st.DrawFn) -> list[Column]:
    """Mostly of types that the compiled decoder has steps for, in any order."""
    made = [Column("id", *draw(st.sampled_from(INTEGER)))]
    odd = draw(st.sampled_from([None, None, None, *NAMES]))
    for name in draw(st.permutations(SEVERAL)):
        made.append(Column(name, *draw(st.sampled_from(ANY if name == odd else USUAL.get(name, ANY)))))
    return made


@st.composite
def value_of(draw: st.DrawFn, column: Column) -> bytes:
    if size := fixed_size(column):
        return draw(st.one_of(st.binary(min_size=size, max_size=size), st.just(b"\xff" * size)))
    content = encoded(draw(st.sampled_from([1, "a", {"a": [1.5, None]}]))) if column.type == FIELD_TYPE.JSON else b""
    content = content or draw(texts)
    return len(content).to_bytes(length_size(column), "little") + content


def bits(flags: list[bool]) -> bytes:
    return sum(flag << i for i, flag in enumerate(flags)).to_bytes((len(flags) + 7) // 8, "little")


def usual() -> list[Column]:
    texts = [Column(name, FIELD_TYPE.VARCHAR, 1000, False, "utf8mb4") for name in NAMES[:4]]
    numbers = [Column(name, FIELD_TYPE.LONG, 0, False, None) for name in NAMES[5:]]
    identity = Column("id", FIELD_TYPE.LONGLONG, 0, True, None)
    return [identity, *texts, Column("payload", FIELD_TYPE.JSON, 4, False, None), *numbers]


@given(st.data())
def test_both_agree(parts: Decoder, data: st.DataObject) -> None:
    made = data.draw(columns())
    present = [True, *(data.draw(st.integers(0, 9)) > 0 for _ in made[1:])]
    there = [column for column, is_there in zip(made, present, strict=True) if is_there]
    nulls = [False, *(data.draw(st.integers(0, 5)) == 0 for _ in there[1:])]
    rows = bytearray()
    for _ in range(data.draw(st.integers(1, 3))):
        rows += bits(nulls)
        for column, is_null in zip(there, nulls, strict=True):
            rows += b"" if is_null else data.draw(value_of(column))
    if data.draw(st.booleans()):
        rows += bits([not nulls[0], *nulls[1:]]) + b"\1\2\3"  # a row with other null bits: there they stop
    for at, byte in data.draw(st.lists(st.tuples(st.integers(0, len(rows) - 1), st.integers(0, 255)), max_size=2)):
        rows[at] = byte
    end = len(rows) - data.draw(st.sampled_from([0, 0, 0, 1, 5])) % len(rows)
    extra = data.draw(st.sampled_from([(), (), ("tenant",)]))
    read = row_loop_of_both(OUTBOX, made, bits(present), bits(nulls), extra=extra, parts=parts)
    events: list[Event] = []
    try:
        read(bytes(rows), 0, end, 5, events.append)
    except (ValueError, IndexError, StructError):
        return


@pytest.mark.parametrize(
    "row",
    [
        b"\0",  # null bits
        bytes(2) + bytes(7),  # id
        bytes(2) + bytes(8) + b"\2",  # length of event_id
        bytes(2) + bytes(8) + b"\2\0x",  # event_id
        bytes(2) + bytes(8) + b"\xff\xff",
        bytes(2) + bytes(8) + bytes(4 * 2) + b"\xff\xff\xff\xff",  # payload
    ],
)
def test_a_row_that_reaches_out_of_its_event(parts: Decoder, row: bytes) -> None:
    """The bytes behind are there, but they are the checksum's, or nothing of ours."""
    for each in (PURE_PARTS, parts):
        read = row_loop(OUTBOX, usual(), b"\xff\xff", b"\0\0", extra=(), parts=each)
        with pytest.raises((ValueError, StructError)):
            read(row + bytes(100), 0, len(row), 5, lambda event: pytest.fail(f"{event}"))


def test_the_usual_table_is_read_by_steps(parts: Decoder) -> None:
    """Or all of this would compare Python with itself."""
    read = row_loop(OUTBOX, usual(), b"\xff\xff", b"\0\0", extra=(), parts=parts)
    assert isinstance(read, partial) and read.func is parts.rows
