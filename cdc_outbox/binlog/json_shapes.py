"""Writers for binary JSON containers of one shape (same keys, same value types), generated when a shape recurs.

For {"id": <int16>, "name": <string>} and the like the source is

    def write(b, s, at, end, levels):
        v0, v1, = entries(b, at + 12)
        v1 += at + 1; n = b[v1 - 1]
        e1 = v1 + n
        if n > 127: v1, e1 = long_string(b, v1, at + 24)
        if v1 <= at + 24 or end < e1: raise MalformedJson('a value lies outside of its container')
        return '{"id": ' f'{v0}' ', "name": ' f'{quote(s[v1:e1])}' '}'

b and s are the same bytes, as bytes and as latin-1 text; the container reaches from `at` to `end`, and there may be as
many levels of containers in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from json.encoder import encode_basestring as quote
from struct import Struct

LITERAL = 4
INT16, UINT16, INT32, UINT32, INT64, UINT64, DOUBLE, STRING = 5, 6, 7, 8, 9, 10, 11, 12
SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY = 0, 1, 2, 3

Writer = Callable[[bytes, str, int, int, int], str]

_SEEN_BEFORE_GENERATED = 16
_SHAPES_KEPT = 2048
_LONGEST_SHAPE = 4096
"""Bytes; all shapes together must not take much memory."""


_INLINED = {LITERAL: "xBx", INT16: "xh", UINT16: "xH"}
_OFFSET = "xH"
_NUMBERS = {INT32: ("int32", 4), UINT32: ("uint32", 4), INT64: ("int64", 8), UINT64: ("uint64", 8)}
_key_entry = Struct("<HH").unpack_from


class Shapes:
    """Generated writers by shape. names: what their source may call, see `_reading`."""

    def __init__(self, names: Mapping[str, object]) -> None:
        self._names = names
        self._writers: dict[bytes, Writer] = {}
        self._seen: dict[bytes, int] = {}
        self.writer_of = self._writers.get

    def note(self, shape: bytes, kinds: bytes, key_entries: bytes = b"", keys: bytes = b"") -> None:
        """A container of this shape, which has no writer yet, was met and was well-formed."""
        if len(shape) > _LONGEST_SHAPE:
            return
        seen = self._seen.get(shape, 0)
        if seen < _SEEN_BEFORE_GENERATED:
            if len(self._seen) >= _SHAPES_KEPT:
                self._seen.clear()  # keys that differ from value to value
            self._seen[shape] = seen + 1
            return
        if len(self._writers) >= _SHAPES_KEPT:
            self._writers.clear()
        self._writers[shape] = _generate(kinds, key_entries, keys, self._names)


def _generate(kinds: bytes, key_entries: bytes, keys: bytes, names: Mapping[str, object]) -> Writer:
    is_object = bool(key_entries)
    count = len(kinds)
    entries_at = 4 + len(key_entries)
    keys_at = entries_at + 3 * count
    lines = [f"{''.join(f'v{i}, ' for i in range(count))}= entries(b, at + {entries_at})"]
    misplaced: list[str] = []
    floor = f"at + {keys_at + len(keys)}"
    pieces: list[str] = []
    for i, kind in enumerate(kinds):
        name = ""
        if is_object:
            offset, size = _key_entry(key_entries, 4 * i)
            name = quote(keys[offset - keys_at : offset - keys_at + size].decode("latin-1")) + ": "
        before = (", " if i else "{" if is_object else "[") + name
        if kind == LITERAL:
            expression = f"literals[v{i}]"
        elif kind in _INLINED:
            expression = f"v{i}"
        else:
            statements, expression = _reading(kind, i, floor)
            lines += statements
            # A string's v is behind its length.
            misplaced.append(f"v{i} <= {floor}" if kind == STRING else f"v{i} < {floor}")
            floor = f"e{i}"
        pieces.append(f"{before!r} f'{{{expression}}}'")
    misplaced.append(f"end < {floor}")
    lines.append(f"if {' or '.join(misplaced)}: raise MalformedJson('a value lies outside of its container')")
    lines.append(f"return {' '.join(pieces)} '{'}' if is_object else ']'}'")
    source = "def write(b, s, at, end, levels):\n" + "".join(f"    {line}\n" for line in lines)
    scope: dict[str, object] = dict(names)
    scope["entries"] = Struct("<" + "".join(_INLINED.get(kind, _OFFSET) for kind in kinds)).unpack_from
    exec(source, scope)
    return scope["write"]  # type: ignore[return-value]


def _reading(kind: int, i: int, floor: str) -> tuple[list[str], str]:
    """Statements that turn v{i}, an offset, into where value i begins and set its end e{i}; its text."""
    v, e = f"v{i}", f"e{i}"
    if kind == STRING:
        short = [f"{v} += at + 1; n = b[{v} - 1]", f"{e} = {v} + n"]
        return [*short, f"if n > 127: {v}, {e} = long_string(b, {v}, {floor})"], f"quote(s[{v}:{e}])"
    if kind in {SMALL_OBJECT, SMALL_ARRAY}:
        write = "write_object" if kind == SMALL_OBJECT else "write_array"
        return [f"{v} += at", f"{e} = {v} + uint16(b, {v} + 2)[0]"], f"{write}(b, s, {v}, {e}, levels)"
    if kind == DOUBLE:
        text = [f"t{i} = repr(double(b, {v})[0])", f"if len(t{i}) > 17 or 'e' in t{i}: t{i} = double_text(t{i})"]
        return [f"{v} += at", f"{e} = {v} + 8", *text], f"t{i}"
    if kind in _NUMBERS:
        unpack, size = _NUMBERS[kind]
        return [f"{v} += at", f"{e} = {v} + {size}"], f"{unpack}(b, {v})[0]"
    # Rare in a small container. To read it is to find its end.
    return [f"{v} += at", f"t{i}, {e} = later_value(b, s, {kind}, {v}, {floor}, end, levels)"], f"t{i}"
