"""What the socket brought, cut into events. accelerator.c does so in C, and passes over what is of other tables."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

HEADER_SIZE = 4
"""Length 3, sequence number 1."""
LARGEST_PACKET = 0xFFFFFF
_uint32 = Struct("<I").unpack_from


def packet_size(data: bytes, at: int = 0) -> int:
    """Bytes of the packet whose header stands at `at`, without that header."""
    return int(_uint32(data, at)[0]) & LARGEST_PACKET


class Passed(NamedTuple):
    """Transactions of other tables, GTID … XID, each whole and its checksums right, their numbers without a gap.

    gtid: GTID event of the first; last: number of the last; end: low 32 bits of the position after that.
    """

    gtid: bytes
    last: int
    end: int


Piece = bytes | tuple[bytes, int, int]
"""An event, or what Passed has."""


def cut(data: bytes, largest: int, kept: tuple[bytes, ...] | None = None) -> tuple[list[Piece], int]:
    """The events that `data` begins with, each a packet of its own behind a byte 0, and where the last one ends.

    It stops before a packet that is not whole, is larger than `largest` bytes or is no event. kept: names of tables; in
    the place of the events of whole transactions that touch none of these the compiled one gives what `Passed` has.
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
