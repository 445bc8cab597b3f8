"""GTIDs on the wire: sets in COM_BINLOG_DUMP_GTID and PREVIOUS_GTIDS, and the GTID events (33, 34, tagged 42).

Sources: Gtid_set::encode of the MySQL server, and mysql::serialization for the tagged event.
"""

from __future__ import annotations

import functools
import struct
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from cdc_outbox.binlog.events import GTID, GTID_TAGGED
from cdc_outbox.gtid import GtidRange, GtidSet

_UINT64 = struct.Struct("<Q")
_INTERVAL = struct.Struct("<QQ")
_TAGGED_FORMAT = 1
_GTID_BODY = struct.Struct("<16sQ17xQ").unpack_from
_OLD_GTID_BODY = struct.Struct("<16sQ").unpack_from
_SIZE_WITH_TIMESTAMP = 69
_SEVEN_BYTES = (1 << 56) - 1
_ORIGINAL_FOLLOWS = 1 << 55


CommitStamp = tuple[str | None, int, int]
"""(source, number, time) of a GTID event.

source is `uuid` or `uuid:tag`, None for an anonymous transaction; time in µs since the epoch of the original commit, 0
where the server does not say.
"""


def encode_gtid_set(gtids: GtidSet) -> bytes:
    """The set as COM_BINLOG_DUMP_GTID takes it; interval ends are exclusive there.

    The form with tags is used only where there is one: servers before 8.3 do not know it.
    """
    intervals: dict[str, list[tuple[int, int]]] = {}
    for source, first, last in gtids:
        intervals.setdefault(source, []).append((first, last + 1))
    entries = sorted(
        (uuid.UUID(source[:36]).bytes, source[37:].encode("ascii"), spans) for source, spans in intervals.items()
    )
    tagged = any(tag for _, tag, _ in entries)
    head = len(entries) << 8 | _TAGGED_FORMAT << 56 | _TAGGED_FORMAT if tagged else len(entries)
    out = bytearray(_UINT64.pack(head))
    for sid, tag, spans in entries:
        out += sid
        if tagged:
            out.append(len(tag) << 1)  # a one-byte varint: tags have at most 32 characters
            out += tag
        out += _UINT64.pack(len(spans))
        for span in spans:
            out += _INTERVAL.pack(*span)
    return bytes(out)


def decode_gtid_set(body: bytes) -> GtidSet:
    """The set in a PREVIOUS_GTIDS event (after its header, without checksum). Raises ValueError."""
    try:
        (head,) = _UINT64.unpack_from(body)
        tagged = head >> 56 == _TAGGED_FORMAT
        count = head >> 8 & 0xFFFFFFFFFFFF if tagged else head
        result, at = GtidSet(), _UINT64.size
        for _ in range(count):
            source, at = _source(body[at : at + 16]), at + 16
            if tagged:
                size, at = _varint(body, at)
                if size:
                    source = f"{source}:{body[at : at + size].decode('ascii')}"
                at += size
            (spans,) = _UINT64.unpack_from(body, at)
            at += _UINT64.size
            for _ in range(spans):
                first, end = _INTERVAL.unpack_from(body, at)
                result.add(GtidRange(source, first, end - 1))
                at += _INTERVAL.size
    except (struct.error, IndexError, ValueError) as error:
        raise ValueError(f"a GTID set cannot be read: {error}") from error
    return result


def decode_gtid_event(event: bytes) -> CommitStamp:
    """A GTID (33), ANONYMOUS_GTID (34) or GTID_TAGGED (42) event, header included. Raises ValueError.

    Body of the first two: flags 1, uuid 16, number 8, type 1, last committed 8, sequence number 8, and since 8.0.1
    the immediate commit timestamp in µs 7 and, where it differs (a replica's), the original one 7.
    """
    if event[4] == GTID_TAGGED:
        return _decode_tagged(event)
    if len(event) < _SIZE_WITH_TIMESTAMP:
        sid, number = _OLD_GTID_BODY(event, 20)
        micros = 0
    else:
        sid, number, micros = _GTID_BODY(event, 20)
    if micros & _ORIGINAL_FOLLOWS:
        micros = int.from_bytes(event[68:75], "little")
    return _source(sid) if event[4] == GTID else None, number, micros & _SEVEN_BYTES


class MariadbGtid(NamedTuple):
    """How a transaction of MariaDB begins. Its GTID itself is not used.

    alone  one statement follows, and nothing ends it; else an XID, a COMMIT, or XA's prepare does
    xid    of the XA transaction that begins, as it stands in XA COMMIT: `X'6f6e65',X'',1`
    """

    alone: bool
    xid: bytes | None


_MARIADB_ALONE, _MARIADB_GROUP_COMMIT, _MARIADB_PREPARED = 1, 2, 64
_XID_SIZES = struct.Struct("<iBB")


def decode_mariadb_gtid(event: bytes) -> MariadbGtid:
    """A MariaDB GTID event (162). Raises ValueError.

    Body: number 8, domain 4, flags 1, with flag 2 a commit id 8, with flag 64 an XA id: format 4, two lengths, bytes.
    """
    try:
        flags, at = event[31], 32
        if flags & _MARIADB_GROUP_COMMIT:
            at += 8
        xid = None
        if flags & _MARIADB_PREPARED:
            form, first, second = _XID_SIZES.unpack_from(event, at)
            at += _XID_SIZES.size
            parts = event[at : at + first], event[at + first : at + first + second]
            xid = f"X'{parts[0].hex()}',X'{parts[1].hex()}',{form}".encode()
    except (IndexError, struct.error) as error:
        raise ValueError("it is cut short") from error
    return MariadbGtid(bool(flags & _MARIADB_ALONE), xid)


@functools.lru_cache(maxsize=1024)
def _source(sid: bytes) -> str:
    if len(sid) != 16:
        raise ValueError("a server UUID is cut short")
    return str(uuid.UUID(bytes=sid))


def _decode_tagged(event: bytes) -> CommitStamp:
    """Body: format version, size of the message (these words included), last field that must be known, then fields
    as (number, value), see `_TAGGED_FIELDS`; further ones are not needed."""
    try:
        start = 19
        _, at = _varint(event, start)
        size, at = _varint(event, at)
        _, at = _varint(event, at)
        end = start + size
        values: dict[int, Any] = {}
        while at < end:
            field, at = _varint(event, at)
            read = _TAGGED_FIELDS.get(field)
            if read is None:
                break
            values[field], at = read(event, at)
        source, number, tag = _source(values[1]), values[2], values[3]
    except (IndexError, KeyError, ValueError) as error:
        raise ValueError(f"a tagged GTID event cannot be read: {error}") from error
    return f"{source}:{tag}" if tag else source, number, values.get(7) or values.get(6, 0)


def _sixteen_bytes(b: bytes, at: int) -> tuple[bytes, int]:
    octets = bytearray()
    for _ in range(16):
        octet, at = _varint(b, at)
        octets.append(octet)
    return bytes(octets), at


def _text(b: bytes, at: int) -> tuple[str, int]:
    size, at = _varint(b, at)
    return b[at : at + size].decode("ascii"), at + size


def _varint(b: bytes, at: int) -> tuple[int, int]:
    """Value and end. The low set bits of the first byte count the bytes that follow; the value stands above."""
    first = b[at]
    size = 1
    while size < 9 and first & (1 << (size - 1)):
        size += 1
    if at + size > len(b):
        raise IndexError("a number is cut short")
    if size == 9:
        return int.from_bytes(b[at + 1 : at + 9], "little"), at + 9
    return int.from_bytes(b[at : at + size], "little") >> size, at + size


def _signed(b: bytes, at: int) -> tuple[int, int]:
    """Zigzag: the lowest bit is the sign."""
    value, at = _varint(b, at)
    return (value >> 1) ^ -(value & 1), at


_TAGGED_FIELDS: dict[int, Callable[[bytes, int], tuple[Any, int]]] = {
    0: _varint,  # flags
    1: _sixteen_bytes,  # uuid, each byte a varint
    2: _signed,  # number
    3: _text,  # tag
    4: _signed,  # last committed
    5: _signed,  # sequence number
    6: _varint,  # immediate commit timestamp, µs
    7: _varint,  # original commit timestamp, where it differs
}
