"""What the socket brought, cut into events. accelerator.c is the same in C: what is changed here is changed there."""

from __future__ import annotations

from struct import Struct

HEADER_SIZE = 4
"""Length 3, sequence number 1."""
LARGEST_PACKET = 0xFFFFFF
_uint32 = Struct("<I").unpack_from


def packet_size(data: bytes, at: int = 0) -> int:
    """Bytes of the packet whose header stands at `at`, without that header."""
    return int(_uint32(data, at)[0]) & LARGEST_PACKET


def cut(data: bytes, largest: int) -> tuple[list[bytes], int]:
    """The events that `data` begins with, each a packet of its own behind a byte 0, and where the last one ends.

    It stops before a packet that is not whole, is larger than `largest` bytes or is no event.
    """
    events: list[bytes] = []
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
