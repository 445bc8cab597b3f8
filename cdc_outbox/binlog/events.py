"""Binlog events as bytes: their numbers, the common header, checksums, and the small ones that carry no rows.

An event is its 19-byte header (timestamp 4, type 1, server id 4, size 4, end position 4, flags 2), its body,
and, where checksums are on, 4 bytes of CRC32. Source: binlog_event.h and control_events.h of the MySQL server.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from pymysqlreplication.constants import BINLOG

HEADER_SIZE = 19
CHECKSUM_SIZE = 4

QUERY = BINLOG.QUERY_EVENT
STOP = BINLOG.STOP_EVENT
ROTATE = BINLOG.ROTATE_EVENT
FORMAT_DESCRIPTION = BINLOG.FORMAT_DESCRIPTION_EVENT
XID = BINLOG.XID_EVENT
TABLE_MAP = BINLOG.TABLE_MAP_EVENT
WRITE_ROWS_V1 = BINLOG.WRITE_ROWS_EVENT_V1
UPDATE_ROWS_V1 = BINLOG.UPDATE_ROWS_EVENT_V1
DELETE_ROWS_V1 = BINLOG.DELETE_ROWS_EVENT_V1
INCIDENT = BINLOG.INCIDENT_EVENT
HEARTBEAT = BINLOG.HEARTBEAT_LOG_EVENT
WRITE_ROWS = BINLOG.WRITE_ROWS_EVENT_V2
UPDATE_ROWS = BINLOG.UPDATE_ROWS_EVENT_V2
DELETE_ROWS = BINLOG.DELETE_ROWS_EVENT_V2
GTID = BINLOG.GTID_LOG_EVENT
ANONYMOUS_GTID = BINLOG.ANONYMOUS_GTID_LOG_EVENT
PREVIOUS_GTIDS = BINLOG.PREVIOUS_GTIDS_LOG_EVENT
XA_PREPARE = BINLOG.XA_PREPARE_EVENT
PARTIAL_UPDATE_ROWS = BINLOG.PARTIAL_UPDATE_ROWS_EVENT

MARIADB_GTID = BINLOG.MARIADB_GTID_EVENT
TRANSACTION_PAYLOAD = 40  # the rest is newer than the library's table
HEARTBEAT_V2 = 41
GTID_TAGGED = 42

HEARTBEATS = frozenset({HEARTBEAT, HEARTBEAT_V2})
ROW_CHANGES = frozenset({UPDATE_ROWS, DELETE_ROWS, UPDATE_ROWS_V1, DELETE_ROWS_V1, PARTIAL_UPDATE_ROWS})
ROWS = frozenset({WRITE_ROWS, *ROW_CHANGES})

STATEMENT_PARTS = frozenset(
    {
        BINLOG.INTVAR_EVENT,
        BINLOG.RAND_EVENT,
        BINLOG.USER_VAR_EVENT,
        BINLOG.APPEND_BLOCK_EVENT,
        BINLOG.DELETE_FILE_EVENT,
        BINLOG.BEGIN_LOAD_QUERY_EVENT,
        BINLOG.EXECUTE_LOAD_QUERY_EVENT,
    }
)
"""What statements are written with in a STATEMENT session: no rows in it."""

WITHOUT_ROWS = frozenset(
    {
        BINLOG.IGNORABLE_LOG_EVENT,
        BINLOG.ROWS_QUERY_LOG_EVENT,
        BINLOG.MARIADB_ANNOTATE_ROWS_EVENT,
        36,  # TRANSACTION_CONTEXT of group replication
        37,  # VIEW_CHANGE of group replication
    }
)
MARIADB_PLACES = frozenset(
    {
        BINLOG.MARIADB_BINLOG_CHECKPOINT_EVENT,
        BINLOG.MARIADB_GTID_GTID_LIST_EVENT,
        BINLOG.MARIADB_START_ENCRYPTION_EVENT,
    }
)
"""Between transactions; they say nothing but where we are."""

MARIADB_COMPRESSED = frozenset(range(165, 172))
"""Statements and rows written with log_bin_compress."""

IGNORABLE = 0x0080
"""Header flag: whoever does not know the type may skip the event."""

ARTIFICIAL = 0x0020
"""Header flag: made by the dump thread, not read from a file."""

INTACT = crc32(bytes(4))
"""crc32() of any event with its checksum right, the checksum included: the event need not be cut in two."""

ROWS_V1_HEAD = 27
"""Bytes of an event with rows of version 1 before its rows; version 2 has extra data there, which count themselves."""

NO_EXTRA_DATA = b"\x02\x00"

_HEADER = Struct("<IBIIIH")
_uint16: Callable[[bytes, int], tuple[int]] = Struct("<H").unpack_from
_uint32: Callable[[bytes, int], tuple[int]] = Struct("<I").unpack_from


class Header(NamedTuple):
    """The common header. timestamp: seconds; end: low 32 bits of the position after it, 0 for artificial ones."""

    timestamp: int
    type: int
    server_id: int
    size: int
    end: int
    flags: int


def header(event: bytes) -> Header:
    return Header._make(_HEADER.unpack_from(event))


def end_position(event: bytes) -> int:
    """The low 32 bits of the position after it, 0 for one that stands in no file."""
    return _uint32(event, 13)[0]


def checksum_size(format_description: bytes) -> int:
    """4 when the events that follow carry a CRC32, else 0; said in the byte before the event's own checksum."""
    return CHECKSUM_SIZE if format_description[-5] == 1 else 0


def rotate_target(event: bytes, end: int) -> tuple[str, int]:
    """File and offset that a ROTATE event names; `end` is where its body ends."""
    return event[27:end].decode(), int.from_bytes(event[19:27], "little")


def heartbeat_position(event: bytes, end: int) -> tuple[str, int]:
    """File and offset up to which the server has sent everything.

    Version 2 has fields (type, length, value) for them, version 1 only 32 bits of the offset.
    """
    if event[4] == HEARTBEAT:
        return event[HEADER_SIZE:end].decode(), int.from_bytes(event[13:17], "little")
    file, offset, at = "", 0, HEADER_SIZE
    while at < end and event[at]:  # field 0 ends them
        field = event[at]
        size, at = length_encoded(event, at + 1)
        value = event[at : at + size]
        at += size
        if field == 1:
            file = value.decode()
        elif field == 2:
            offset, _ = length_encoded(value, 0)
    return file, offset


def query_statement(event: bytes, end: int) -> bytes:
    """The text of a QUERY event.

    Post-header: thread 4, seconds 4, length of the database 1, error 2, length of the session variables 2.
    """
    return event[33 + event[27] + _uint16(event, 30)[0] : end]


def query_database(event: bytes) -> str:
    start = 32 + _uint16(event, 30)[0]
    return event[start : start + event[27]].decode("utf-8", "replace")


def is_one_phase(xa_prepare: bytes) -> bool:
    """True for XA COMMIT … ONE PHASE: a commit, not a prepare."""
    return xa_prepare[HEADER_SIZE] == 1


def length_encoded(b: bytes, at: int) -> tuple[int, int]:
    """A length-encoded integer of the client/server protocol: value and end."""
    first = b[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}.get(first)
    if size is None or at + 1 + size > len(b):
        raise ValueError("a length cannot be read")
    return int.from_bytes(b[at + 1 : at + 1 + size], "little"), at + 1 + size
