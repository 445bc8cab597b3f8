"""Binary JSON as MySQL's serializer writes it, for tests without a server."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

SMALL_OBJECT, LARGE_OBJECT, SMALL_ARRAY, LARGE_ARRAY = 0, 1, 2, 3


def encoded(value: object) -> bytes:
    """The type byte and the value, as in a row image."""
    kind, content = _value(value)
    return bytes([kind]) + content


def _value(value: object) -> tuple[int, bytes]:
    if value is None or isinstance(value, bool):
        return 4, bytes([{None: 0, True: 1, False: 2}[value]])
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        content = value.encode()
        return 12, variable_length(len(content)) + content
    if isinstance(value, Mapping):
        pairs = sorted(((key.encode(), member) for key, member in value.items()), key=lambda p: (len(p[0]), p[0]))
        return _container([key for key, _ in pairs], [member for _, member in pairs])
    assert isinstance(value, Sequence)
    return _container(None, value)


def _integer(value: int) -> tuple[int, bytes]:
    for kind, letter in ((5, "h"), (6, "H"), (7, "i"), (8, "I"), (9, "q"), (10, "Q")):
        try:
            return kind, struct.pack(f"<{letter}", value)
        except struct.error:
            continue
    raise ValueError(value)


def variable_length(size: int) -> bytes:
    out = bytearray()
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)
    return bytes(out)


def _container(keys: Sequence[bytes] | None, members: Sequence[object]) -> tuple[int, bytes]:
    for large in (False, True):
        content = _sized(keys, members, large)
        if content is not None:
            return (LARGE_OBJECT if large else SMALL_OBJECT) + (2 if keys is None else 0), content
    raise AssertionError("unreachable")


def _sized(keys: Sequence[bytes] | None, members: Sequence[object], large: bool) -> bytes | None:
    """None when it does not fit the small format."""
    width, letter = (4, "I") if large else (2, "H")
    at = 2 * width + (width + 2) * len(keys or ()) + (1 + width) * len(members)
    key_entries, value_entries, tail = bytearray(), bytearray(), bytearray()
    try:
        for key in keys or ():
            key_entries += struct.pack(f"<{letter}H", at + len(tail), len(key))
            tail += key
        for member in members:
            kind, content = _value(member)
            if kind in {4, 5, 6} or (large and kind in {7, 8}):
                value_entries += bytes([kind]) + content.ljust(width, b"\xff" if content[-1:] >= b"\x80" else b"\0")
            else:
                value_entries += struct.pack(f"<B{letter}", kind, at + len(tail))
                tail += content
        head = struct.pack(f"<{letter}{letter}", len(members), at + len(tail))
    except struct.error:
        return None
    return bytes(head + key_entries + value_entries + tail)
