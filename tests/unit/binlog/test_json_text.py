"""Binary JSON → text without a server: all kinds of values, all paths, and bytes that are no JSON."""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_outbox.binlog.accelerator import decoder
from cdc_outbox.binlog.json_text import MalformedJson, double_text
from tests.unit.binlog.binary_json import encoded, variable_length

pytestmark = pytest.mark.usefixtures("each_decoder")

SIGHTS = 20
"""More than it takes until a writer is generated for a shape."""


def json_text(binary: bytes) -> bytes:
    return decoder().json_text(binary)


def mysql_text(value: Any) -> str:
    """What the server prints: keys by length, then bytes; ", " and ": "."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
        return "{" + ", ".join(f"{mysql_text(key)}: {mysql_text(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(mysql_text(member) for member in value) + "]"
    if isinstance(value, float):
        return double_text(repr(value))
    return json.dumps(value, ensure_ascii=False)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=70) | st.dictionaries(st.text(max_size=40), inner, max_size=70),
    max_leaves=60,
)


@given(DOCUMENTS)
@settings(max_examples=80)
def test_documents(value: Any) -> None:
    binary = encoded(value)
    expected = mysql_text(value).encode()
    # The first sights are read generally, later ones by generated writers.
    assert {json_text(binary) for _ in range(SIGHTS)} == {expected}


@given(st.lists(st.fixed_dictionaries({"a": SCALARS, "b": SCALARS, "c": st.lists(SCALARS, max_size=2)}), min_size=20))
@settings(max_examples=20)
def test_one_shape_with_changing_types(values: list[Any]) -> None:
    for value in values:
        assert json_text(encoded(value)) == mysql_text(value).encode()


@pytest.mark.parametrize(
    ("number", "text"),
    [
        # Printed by MySQL 9.7.4.
        ("1e-7", "0.0000001"),
        ("1e-15", "0.000000000000001"),
        ("1.5e-15", "0.0000000000000015"),
        ("1e-16", "1e-16"),
        ("9.99e-16", "9.99e-16"),
        ("1e14", "100000000000000.0"),
        ("999999999999999.0", "999999999999999.0"),
        ("1e15", "1e15"),
        ("123456789012345.6", "123456789012345.6"),
        ("1234567890123456.7", "1234567890123456.8"),
        ("1234567890123456", "1.234567890123456e15"),
        ("12345678901234567", "1.2345678901234568e16"),
        ("1e20", "1e20"),
        ("-9223372036854775809", "-9.223372036854776e18"),
        ("1.7976931348623157e308", "1.7976931348623157e308"),
        ("5e-324", "5e-324"),
        ("0", "0.0"),
        ("-0.0", "-0.0"),
        ("10", "10.0"),
        ("-2.5", "-2.5"),
        ("0.1", "0.1"),
    ],
)
def test_doubles(number: str, text: str) -> None:
    assert json_text(b"\x0b" + struct.pack("<d", float(number))).decode() == text


@given(st.lists(st.tuples(st.integers(-(10**16), 10**16), st.integers(0, 7)), min_size=50))
@settings(max_examples=40)
def test_amounts(numbers: list[tuple[int, int]]) -> None:
    """Few decimals, of any size: the compiled decoder prints many of them without looking for the shortest digits."""
    values = [number / 10**decimals for number, decimals in numbers]
    values += [value * (1 + 2**-52) for value in values]
    assert json_text(encoded(values)) == mysql_text(values).encode()


def test_an_empty_value_is_the_null_literal() -> None:
    assert json_text(b"") == b"null"


def test_large_containers() -> None:
    value = {"big": "x" * 70_000, "i": -70_000, "u": 3_000_000_000, "in": {"a": [1, {"b": None}]}, "f": 1.5}
    assert json_text(encoded(value)) == mysql_text(value).encode()
    many = {f"key {i}": i for i in range(20_000)}
    assert json_text(encoded(many)) == mysql_text(many).encode()


def test_more_shapes_than_are_kept() -> None:
    for i in range(2100):
        value = {f"id {i}": 1}
        assert json_text(encoded(value)) == mysql_text(value).encode()


@pytest.mark.parametrize(
    ("kind", "content", "text"),
    [
        (246, bytes([3, 2]) + b"\x81\x32", "1.50"),
        (246, bytes([3, 2]) + b"\x7e\xcd", "-1.50"),
        (10, struct.pack("<q", (((2026 * 13 + 11) << 5 | 30) << 17) << 24), '"2026-11-30"'),
        (
            12,
            struct.pack("<q", (((2026 * 13 + 11) << 5 | 30) << 17 | 12 << 12 | 34 << 6 | 56) << 24 | 789_000),
            '"2026-11-30 12:34:56.789000"',
        ),
        (11, struct.pack("<q", -((101 << 12 | 2 << 6 | 3) << 24 | 500_000)), '"-101:02:03.500000"'),
        (252, b"abc", '"base64:type252:YWJj"'),
        (15, bytes(60), '"base64:type15:' + "A" * 76 + '\\n" "'.replace('" "', "AAAA") + '"'),
    ],
)
def test_values_of_sql_types(kind: int, content: bytes, text: str) -> None:
    binary = bytes([15, kind]) + variable_length(len(content)) + content
    assert json_text(binary).decode() == text


SAMPLES = [
    {"id": 1, "name": "Zoë", "total": 99.5, "lines": [{"sku": "a", "n": 70_000}, {"sku": "b", "n": 2}], "x": {"y": []}},
    ["text" * 50, -(2**40), [[[]]], 1.5, True],
    {f"k{i}": "v" * i for i in range(100)},
    {"big": "x" * 66_000, "n": [1, 2, 3]},
    "just a string",
    2**63,
]


@pytest.mark.parametrize("value", SAMPLES, ids=range(len(SAMPLES)))
@pytest.mark.parametrize("warm", [False, True])
def test_a_value_cut_short_is_malformed(value: object, warm: bool) -> None:
    binary = encoded(value)
    for _ in range(SIGHTS if warm else 0):
        json_text(binary)
    step = max(1, len(binary) // 500)
    for size in range(1, len(binary), step):
        with pytest.raises(MalformedJson):
            json_text(binary[:size])


@given(st.sampled_from(SAMPLES), st.data())
@settings(max_examples=200)
def test_damaged_bytes_never_hang_or_raise_anything_else(value: object, data: st.DataObject) -> None:
    binary = bytearray(encoded(value))
    for _ in range(data.draw(st.integers(1, 4))):
        binary[data.draw(st.integers(0, len(binary) - 1))] = data.draw(st.integers(0, 255))
    try:
        text = json_text(bytes(binary))
    except MalformedJson:
        return
    # A change inside of a string or number may go unnoticed; reading stays inside of the value.
    assert len(text) < 8 * len(binary) + 1000


def test_an_offset_that_points_back_is_malformed() -> None:
    """An array whose only element is itself."""
    with pytest.raises(MalformedJson):
        json_text(bytes([2]) + struct.pack("<HHBH", 1, 7, 2, 0))


def test_elements_that_share_their_bytes_are_malformed() -> None:
    """Each level would double the text: 2 to the power of 60 of the innermost."""
    content = struct.pack("<HH", 0, 4)
    for _ in range(60):
        content = struct.pack("<HHBHBH", 2, 10 + len(content), 2, 10, 2, 10) + content
    with pytest.raises(MalformedJson):
        json_text(b"\x02" + content)


@pytest.mark.parametrize("innermost", [[], [1], {}, {"a": 1}, [1.5, "x" * 200, {"b": []}]])
def test_the_server_stores_a_hundred_levels_and_so_many_are_read(innermost: object) -> None:
    below = 2 if isinstance(innermost, list) and len(innermost) == 3 else 0
    value: Any = innermost
    for _ in range(100 - 1 - below):
        value = [value]
    for _ in range(SIGHTS):
        assert json_text(encoded(value)) == mysql_text(value).encode()
        with pytest.raises(MalformedJson):
            json_text(encoded([value]))


def test_nesting_without_end_is_malformed() -> None:
    content = b""
    for _ in range(5000):
        content = struct.pack("<HHBH", 1, 7 + len(content), 2, 7) + content
    with pytest.raises(MalformedJson):
        json_text(b"\x02" + content)


@pytest.mark.parametrize("size", [1, 200])
@pytest.mark.parametrize("warm", [False, True])
def test_a_string_must_not_begin_in_what_is_before_it(size: int, warm: bool) -> None:
    """By one byte: that a string begins with its length must not hide it."""
    binary = bytearray(encoded([2.5, "x" * size]))
    (offset,) = struct.unpack_from("<H", binary, 1 + 4 + 3 + 1)
    for _ in range(SIGHTS if warm else 0):
        json_text(bytes(binary))
    struct.pack_into("<H", binary, 1 + 4 + 3 + 1, offset - 1)
    with pytest.raises(MalformedJson):
        json_text(bytes(binary))


@pytest.mark.parametrize("binary", [b"\x0d", b"\x0e\0\0", b"\x04\x03", b"\xff", b"\x0c\xff\xff\xff\xff\xff\xff\x01"])
def test_what_no_type_is(binary: bytes) -> None:
    with pytest.raises(MalformedJson):
        json_text(binary)


# -- time -------------------------------------------------------------------------------------------------------------

SIZES = (6250, 50_000)
MANY: dict[str, Callable[[int], Any]] = {
    "keys": lambda size: {f"key {i}": i for i in range(size)},
    "elements": lambda size: [i * 1000 for i in range(size)],
    "objects": lambda size: [{"a": [i], "b": f"text {i}"} for i in range(size // 4)],
    "texts": lambda size: ["x\n" * 9] * size,
}


@cache
def many(name: str, size: int) -> bytes:
    return encoded(MANY[name](size))


@pytest.mark.parametrize("name", MANY)
def test_the_work_grows_with_the_size(name: str) -> None:
    """In pure Python it is counted in calls, which other load on the machine does not change."""
    counts = []
    for size in SIZES:
        value = many(name, size)
        calls = 0

        def count(frame: object, event: str, arg: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        json_text(value)  # the shapes are known from now on
        sys.setprofile(count)
        try:
            json_text(value)
        finally:
            sys.setprofile(None)
        counts.append(calls)
    if decoder().kind == "compiled":
        assert counts[0] == counts[1]  # it is all in one call; its time is the next test's
    else:
        assert counts[1] / counts[0] == pytest.approx(SIZES[1] / SIZES[0], rel=0.1)


@pytest.mark.parametrize("name", MANY)
def test_the_time_grows_with_the_size(name: str) -> None:
    """The best of some runs: eight times the size takes about eight times the CPU, not 64 times."""
    best = []
    for size in SIZES:
        value = many(name, size)
        times = []
        for _ in range(5 if decoder().kind == "compiled" else 2):
            begun = time.thread_time_ns()
            json_text(value)
            times.append(time.thread_time_ns() - begun)
        best.append(min(times))
    assert best[1] / best[0] < 4 * SIZES[1] / SIZES[0]
