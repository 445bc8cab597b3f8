"""MySQL's binary JSON → the bytes of `CAST(value AS CHAR)` (utf8mb4).

Layout: json_binary.h of the MySQL server. A container is count, size, then (objects) key entries, then value
entries, then keys, then values; offsets count from the container's start. Keys and values lie in the order of their
entries, also after partial updates, so that a floor which only rises keeps every read inside the value, and the work
linear.

Bytes are taken as latin-1 characters on the way: escaping touches ASCII alone, so utf-8 passes through unchanged and
nothing is decoded and encoded again for each string.

Containers recur in the same shapes, for which json_shapes generates writers.

accelerator.c is the same in C: what is changed here is changed there.
"""

# ruff: noqa: PLR0917  (called for each value: keywords would cost)

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from json.encoder import encode_basestring as quote
from struct import Struct
from struct import error as StructError

from pymysqlreplication.constants import FIELD_TYPE

from cdc_outbox.binlog.json_shapes import (
    DOUBLE,
    INT16,
    INT32,
    INT64,
    LARGE_ARRAY,
    LARGE_OBJECT,
    LITERAL,
    SMALL_ARRAY,
    SMALL_OBJECT,
    STRING,
    UINT16,
    UINT32,
    UINT64,
    Shapes,
)
from cdc_outbox.binlog.packed import decimal_text, packed_datetime_text, packed_time_text

OPAQUE = 15
DEEPEST = 100
"""Levels of containers that the server can store, and print."""

_SHORTEST_THAT_DIFFERS = len("1234567890123456.0")
_LITERALS = ("null", "true", "false")
_int16 = Struct("<h").unpack_from
_uint16 = Struct("<H").unpack_from
_int32 = Struct("<i").unpack_from
_uint32 = Struct("<I").unpack_from
_int64 = Struct("<q").unpack_from
_uint64 = Struct("<Q").unpack_from
_double = Struct("<d").unpack_from
_key_entry = Struct("<HH").unpack_from


class MalformedJson(ValueError):
    """The bytes are not one whole JSON value."""


def json_text(value: bytes) -> bytes:
    """What MySQL prints for a JSON column's value as it stands in a row image (after its length).

    Raises MalformedJson when the bytes are not a whole JSON value.
    """
    if not value:
        return b"null"  # the server reads an empty column (INSERT IGNORE makes them) as the null literal
    try:
        text, _ = _value(value, value.decode("latin-1"), value[0], 1, len(value), DEEPEST)
    except (IndexError, StructError, ValueError) as error:
        raise MalformedJson(f"binary JSON cannot be read: {error}") from error
    return text.encode("latin-1")


def _value(b: bytes, s: str, kind: int, at: int, limit: int, levels: int) -> tuple[str, int]:
    """Text and end of the value that begins at `at` and may reach up to `limit`, with at most `levels` of containers.

    b and s are the same bytes.
    """
    if kind == STRING:
        start, end = _length(b, at)
        text = quote(s[start:end])
    elif kind in _SCALARS:
        unpack, size, printed = _SCALARS[kind]
        end = at + size
        text = printed(unpack(b, at)[0])
    elif kind == LITERAL:
        end = at + 1
        text = _LITERALS[b[at]]
    elif kind <= LARGE_ARRAY:
        end = at + (_uint32(b, at + 4) if kind & 1 else _uint16(b, at + 2))[0]
        if end > limit:
            raise MalformedJson("a container reaches out of its parent")
        if kind == SMALL_OBJECT:
            text = _object(b, s, at, end, levels)
        elif kind == SMALL_ARRAY:
            text = _array(b, s, at, end, levels)
        else:
            text = _container(b, s, kind, at, end, levels)
    elif kind == OPAQUE:
        start, end = _length(b, at + 1)
        text = _opaque(b[at], b[start:end])
    else:
        raise MalformedJson(f"there is no JSON type {kind}")
    if end > limit:
        raise MalformedJson("a value reaches out of its container")
    return text, end


def _length(b: bytes, at: int) -> tuple[int, int]:
    """Start and end of what follows a variable-length length (7 bits a byte, low first, at most 5 bytes)."""
    size = shift = 0
    while True:
        byte = b[at]
        at += 1
        size |= (byte & 127) << shift
        if byte < 128:
            return at, at + size
        shift += 7
        if shift > 28:
            raise MalformedJson("a length is longer than 5 bytes")


def double_text(shortest: str) -> str:
    """A double as my_gcvt() prints it, with `.0` where it would look like an integer; `shortest` is its repr().

    Both print the shortest digits that read back the same. They differ in when to use an exponent: MySQL does for
    |x| < 1e-15, and from 1e15 on unless digits remain behind the point.
    """
    if "e" not in shortest and len(shortest) < _SHORTEST_THAT_DIFFERS:
        return shortest
    sign = "-" if shortest[0] == "-" else ""
    mantissa, _, exponent = shortest.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(digits) - len(fraction) + int(exponent or 0)
    digits = digits.rstrip("0")
    if point < -14 or (point > 15 and len(digits) <= point):
        return f"{sign}{digits[0]}{'.' if len(digits) > 1 else ''}{digits[1:]}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"


_SCALARS: dict[int, tuple[Callable[[bytes, int], tuple[float, ...]], int, Callable[[float], str]]] = {
    INT16: (_int16, 2, str),
    UINT16: (_uint16, 2, str),
    INT32: (_int32, 4, str),
    UINT32: (_uint32, 4, str),
    INT64: (_int64, 8, str),
    UINT64: (_uint64, 8, str),
    DOUBLE: (_double, 8, lambda number: double_text(repr(number))),
}


def opaque_text(field_type: int, content: bytes) -> bytes:
    """`_opaque` for accelerator.c. Raises MalformedJson."""
    try:
        return _opaque(field_type, content).encode("ascii")
    except (IndexError, StructError, ValueError) as error:
        raise MalformedJson(f"binary JSON cannot be read: {error}") from error


def _opaque(field_type: int, content: bytes) -> str:
    """A value that came from an SQL type without a JSON counterpart."""
    if field_type == FIELD_TYPE.NEWDECIMAL:
        precision, scale = content[0], content[1]
        return decimal_text(content[2:], precision, scale)
    if field_type == FIELD_TYPE.DATE:
        return f'"{packed_datetime_text(_int64(content, 0)[0])[:10]}"'
    if field_type in {FIELD_TYPE.DATETIME, FIELD_TYPE.TIMESTAMP}:
        return f'"{packed_datetime_text(_int64(content, 0)[0])}"'
    if field_type == FIELD_TYPE.TIME:
        return f'"{packed_time_text(_int64(content, 0)[0])}"'
    return quote(f"base64:type{field_type}:{_base64(content)}")


def _base64(content: bytes) -> str:
    """The server breaks its base64 lines after 76 characters."""
    text = b64encode(content).decode("ascii")
    return "\n".join(text[i : i + 76] for i in range(0, len(text), 76))


class _Layout:
    """The widths of one container format: small ones count in 16 bits, large ones in 32."""

    def __init__(self, width: int, inlined: set[int]) -> None:
        letter = "H" if width == 2 else "I"
        self.head = 2 * width
        self.number = Struct(f"<{letter}").unpack_from
        self.key = Struct(f"<{letter}H")
        self.value = Struct(f"<B{letter}")
        self.inlined = inlined


_SMALL = _Layout(2, {LITERAL, INT16, UINT16})
_LARGE = _Layout(4, {LITERAL, INT16, UINT16, INT32, UINT32})


_JOINED = 1000
"""Elements whose texts are joined before there are more: a number's text takes 60 bytes alone, 6 in a joined one."""


def _container(b: bytes, s: str, kind: int, at: int, end: int, levels: int) -> str:
    """Any object or array; end is its own, checked by the caller."""
    if not levels:
        raise MalformedJson("it is nested too deep")
    layout = _LARGE if kind & 1 else _SMALL
    is_object = kind <= LARGE_OBJECT
    (count,) = layout.number(b, at)
    keys = at + layout.head
    values = keys + (count * layout.key.size if is_object else 0)
    after = values + count * layout.value.size
    if after > end:
        raise MalformedJson("a container is smaller than its own entries")
    floor = after
    names: Iterator[str] = repeat("")
    if is_object and count:
        offset, size = layout.key.unpack_from(b, values - layout.key.size)
        floor = at + offset + size  # values lie behind the last key
        names = _names(s, layout.key.iter_unpack(b[keys:values]), at, after, end)
    done: list[str] = []
    texts: list[str] = []
    inlined = layout.inlined
    place = values + 1
    for name, (value_kind, offset) in zip(names, layout.value.iter_unpack(b[values:after]), strict=False):
        if value_kind in inlined:
            text, _ = _value(b, s, value_kind, place, end, levels - 1)
        else:
            start = at + offset
            if start < floor:
                raise MalformedJson("a value overlaps its neighbour")
            text, floor = _value(b, s, value_kind, start, end, levels - 1)
        texts.append(name + text)
        if len(texts) == _JOINED:
            done.append(", ".join(texts))
            texts.clear()
        place += layout.value.size
    if texts:
        done.append(", ".join(texts))
    return f"{{{', '.join(done)}}}" if is_object else f"[{', '.join(done)}]"


def _names(s: str, entries: Iterable[tuple[int, int]], at: int, floor: int, end: int) -> Iterator[str]:
    """`"key": ` for each key entry of the object that reaches from `at` to `end`; no key lies before `floor`."""
    for offset, size in entries:
        start = at + offset
        if start < floor or start + size > end:
            raise MalformedJson("a key lies outside of its object")
        floor = start + size
        yield quote(s[start:floor]) + ": "


_LARGEST_SHAPE = 64
"""Containers with more elements are seldom of a fixed shape."""


def _object(b: bytes, s: str, at: int, end: int, levels: int) -> str:
    """A small object, by the writer of its shape where there is one."""
    if not levels:
        raise MalformedJson("it is nested too deep")
    count = b[at] | b[at + 1] << 8
    values = at + 4 + 4 * count
    after = values + 3 * count
    if not 0 < count <= _LARGEST_SHAPE or after > end:
        return _container(b, s, SMALL_OBJECT, at, end, levels)
    offset, size = _key_entry(b, values - 4)
    shape = b[at + 4 : values] + b[values:after:3] + b[after : at + offset + size]
    writer = _objects.writer_of(shape)
    if writer is not None:
        return writer(b, s, at, end, levels - 1)
    text = _container(b, s, SMALL_OBJECT, at, end, levels)
    _objects.note(shape, b[values:after:3], b[at + 4 : values], b[after : at + offset + size])
    return text


def _array(b: bytes, s: str, at: int, end: int, levels: int) -> str:
    """A small array, likewise; its shape is its value types."""
    if not levels:
        raise MalformedJson("it is nested too deep")
    count = b[at] | b[at + 1] << 8
    after = at + 4 + 3 * count
    if not 0 < count <= _LARGEST_SHAPE or after > end:
        return _container(b, s, SMALL_ARRAY, at, end, levels)
    kinds = b[at + 4 : after : 3]
    writer = _arrays.writer_of(kinds)
    if writer is not None:
        return writer(b, s, at, end, levels - 1)
    text = _container(b, s, SMALL_ARRAY, at, end, levels)
    _arrays.note(kinds, kinds)
    return text


def _long_string(b: bytes, at: int, floor: int) -> tuple[int, int]:
    """Start and end of a string whose length, which begins before `at`, has more bytes than one."""
    if at <= floor:
        raise MalformedJson("a value overlaps its neighbour")
    return _length(b, at - 1)


def _later_value(b: bytes, s: str, kind: int, at: int, floor: int, limit: int, levels: int) -> tuple[str, int]:
    """`_value`, looking first: where values overlap the work would double with each level."""
    if at < floor:
        raise MalformedJson("a value overlaps its neighbour")
    return _value(b, s, kind, at, limit, levels)


_NAMES = {
    "MalformedJson": MalformedJson,
    "double": _double,
    "double_text": double_text,
    "int32": _int32,
    "int64": _int64,
    "later_value": _later_value,
    "literals": _LITERALS,
    "long_string": _long_string,
    "quote": quote,
    "uint16": _uint16,
    "uint32": _uint32,
    "uint64": _uint64,
    "write_array": _array,
    "write_object": _object,
}
_objects = Shapes(_NAMES)
_arrays = Shapes(_NAMES)
