"""What the socket brought, cut into events. accelerator.c does so in C, and gives whole transactions as one."""

from __future__ import annotations

from struct import Struct

HEADER_SIZE = 4
"""Length 3, sequence number 1."""
LARGEST_PACKET = 0xFFFFFF
_uint32 = Struct("<I").unpack_from


def packet_size(data: bytes, at: int = 0) -> int:
    """Bytes of the packet whose header stands at `at`, without that header."""
    return int(_uint32(data, at)[0]) & LARGEST_PACKET


Whole = tuple[bytes, int, int, bool, tuple[bytes, ...]]
"""Whole transactions, GTID … XID, with their checksums right: one that changes tables that are kept, or several that
do not, with numbers that follow each other.

GTID event of the first; number of the last; low 32 bits of the position after that; whether tables that are not kept
are changed; TABLE_MAP, WRITE_ROWS, UPDATE_ROWS and DELETE_ROWS events of those that are, in order.
"""

Piece = bytes | Whole
"""An event, or whole transactions."""


def cut(data: bytes, largest: int, kept: tuple[bytes, ...] | None = None) -> tuple[list[Piece], int]:
    """The events that `data` begins with, each a packet of its own behind a byte 0, and where the last one ends.

    It stops before a packet that is not whole, is larger than `largest` bytes or is no event. kept: names of tables; in
    the place of the events of a usual transaction that is all there the compiled one then gives what `Whole` has.
    """
    events: list[Piece] = []
    at, end = 0, len(data)
    while end - at > HEADER_SIZE:
        size = _uint32(data, at)[0] & LARGEST_PACKET
        body = at + HEADER_SIZE
        stop = body + size
        if not 0 < size <= largest or stop > end or data[body]:
            break
        events.append(data[body + 1 : stop])
        at = stop
    return events, at
