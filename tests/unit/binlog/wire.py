"""Binlog events made by hand: a dump of a small server that tests have in their hands."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from zlib import crc32

import zstandard

from cdc_outbox.binlog import events as ev
from cdc_outbox.binlog.packets import Piece
from cdc_outbox.binlog.transactions import Assembler
from cdc_outbox.model import TableName, Transaction
from tests.unit.binlog.binary_json import encoded

SERVER = uuid.UUID("aaaaaaaa-0000-0000-0000-000000000001")
OUTBOX = TableName("shop", "outbox_event")
SECOND = TableName("shop", "second")
OTHER = TableName("shop", "orders")
CHECKPOINT = TableName("shop", "cdc_outbox_checkpoint")
ANOTHER = TableName("shop", "items")
ELSEWHERE = TableName("other", "outbox_event")
TABLES = [OUTBOX, SECOND, OTHER, CHECKPOINT, ANOTHER, ELSEWHERE]
SECONDS = 1_800_000_000


class Dump:
    """Writes events one after the other and knows where it is; `take` gives those written since the last time."""

    def __init__(self, file: str = "binlog.000001", offset: int = 4, *, checksums: bool = True) -> None:
        self.file = file
        self.offset = offset
        self.checksums = checksums
        self.number = 0
        self._events: list[bytes] = []
        self._inside = False

    def take(self) -> list[bytes]:
        events, self._events = self._events, []
        return events

    def event(self, kind: int, body: bytes = b"", *, flags: int = 0, artificial: bool = False) -> bytes:
        if self._inside:
            event = struct.pack("<IBIIIH", SECONDS, kind, 1, 19 + len(body), 0, flags) + body
            self._events.append(event)
            return event
        size = 19 + len(body) + (4 if self.checksums else 0)
        if not artificial:
            self.offset += size
        end = 0 if artificial else self.offset & 0xFFFFFFFF
        event = struct.pack("<IBIIIH", SECONDS, kind, 1, size, end, flags | (ev.ARTIFICIAL if artificial else 0)) + body
        if self.checksums:
            event += crc32(event).to_bytes(4, "little")
        self._events.append(event)
        return event

    # -- files -------------------------------------------------------------------------------------------------

    def begins(self) -> Dump:
        """What a server sends first, for a dump in the middle of a file."""
        self.event(ev.ROTATE, self.offset.to_bytes(8, "little") + self.file.encode(), artificial=True)
        self._description(artificial=True)
        return self

    def _description(self, *, artificial: bool = False) -> None:
        body = b"\x04\0" + b"9.7.4".ljust(50, b"\0") + bytes(4) + b"\x13" + bytes(42) + bytes([self.checksums])
        if not self.checksums:
            body += bytes(4)  # its own checksum stands there all the same
        self.event(ev.FORMAT_DESCRIPTION, body, artificial=artificial)

    def rotate(self, file: str, *, died: bool = False, checksums: bool = True) -> None:
        """The file ends, with a ROTATE unless the server died, and the next one begins."""
        body = (4).to_bytes(8, "little") + file.encode()
        if not died:
            self.event(ev.ROTATE, body)
        self.file, self.offset = file, 4
        self.event(ev.ROTATE, body, artificial=True)
        self.checksums = checksums
        self._description()

    def heartbeat(self, offset: int) -> None:
        event = self.event(ev.HEARTBEAT, self.file.encode(), artificial=True)
        event = event[:13] + (offset & 0xFFFFFFFF).to_bytes(4, "little") + b"\0\0" + event[19:]
        if self.checksums:
            event = event[:-4] + crc32(event[:-4]).to_bytes(4, "little")
        self._events[-1] = event

    # -- transactions ------------------------------------------------------------------------------------------

    def gtid(self, number: int | None = None) -> None:
        self.number = number or self.number + 1
        body = b"\0" + SERVER.bytes + self.number.to_bytes(8, "little") + b"\x02" + bytes(16)
        body += (SECONDS * 1_000_000 + self.number * 1000).to_bytes(7, "little") + b"\xfc\0\0" + bytes(4)
        self.event(ev.GTID, body)

    def query(self, statement: str, database: str = "shop") -> None:
        body = struct.pack("<IIBHH", 1, 0, len(database), 0, 3) + b"\0\0\0" + database.encode() + b"\0"
        self.event(ev.QUERY, body + statement.encode())

    def begin(self) -> None:
        self.gtid()
        self.query("BEGIN")

    def commit(self) -> None:
        self.event(ev.XID, bytes(8))

    @contextmanager
    def compressed(self, **fields: int) -> Iterator[None]:
        """One payload of the events written in the block. fields: what it says wrongly of itself."""
        outside, self._events, self._inside = self._events, [], True
        yield
        inside, self._events, self._inside = b"".join(self._events), outside, False
        self.payload(zstandard.ZstdCompressor().compress(inside), **{"size": len(inside), **fields})

    def payload(self, frames: bytes, *, size: int, algorithm: int = 0, compressed_size: int | None = None) -> None:
        body = b""
        for field, value in (2, algorithm), (3, size), (1, len(frames) if compressed_size is None else compressed_size):
            packed = b"\xfe" + value.to_bytes(8, "little")
            body += bytes([field, len(packed)]) + packed
        self.event(ev.TRANSACTION_PAYLOAD, body + b"\0" + frames)

    def statement(self, statement: str, database: str = "shop") -> None:
        self.gtid()
        self.query(statement, database)

    def table_map(self, table: TableName = OUTBOX, *, names: bool = True) -> None:
        """id BIGINT, event_id, aggregate_type, aggregate_id, event_type VARCHAR, payload JSON, status TINYINT,
        retry_count, max_retries INT, next_retry_at DATETIME. names: binlog_row_metadata is FULL."""
        columns = (
            "id event_id aggregate_type aggregate_id event_type payload status retry_count max_retries next_retry_at"
        )
        types = bytes([8, 15, 15, 15, 15, 245, 1, 3, 3, 18])
        metadata = b"\0\x01" * 4 + b"\x04" + b"\0"
        body = self._table_id(table) + b"\x01\0"
        for name in table:
            body += bytes([len(name)]) + name.encode() + b"\0"
        body += bytes([len(types)]) + types + bytes([len(metadata)]) + metadata + b"\0\x02"
        column_names = b"".join(bytes([len(name)]) + name.encode() for name in columns.split())
        for field, value in ((1, b"\0"), (2, b"\xfc\xff\0"), (4, column_names)):
            if field != 4 or names:
                body += bytes([field, len(value)]) + value
        self.event(ev.TABLE_MAP, body)

    def rows(self, *event_ids: str, table: TableName = OUTBOX, kind: int = ev.WRITE_ROWS, payload: object = 1) -> None:
        """One row each, its id the number in its event_id."""
        body = self._table_id(table) + b"\0\0\x02\0\x0a\xff\x03"
        for event_id in event_ids:
            number = int("".join(c for c in event_id if c.isdigit()) or 0)
            body += b"\0\x02" + number.to_bytes(8, "little")
            for text in (event_id, "order", "o1", "Created"):
                body += len(text).to_bytes(2, "little") + text.encode()
            document = encoded(payload)
            body += len(document).to_bytes(4, "little") + document + struct.pack("<bii", 0, 0, 3)
        self.event(kind, body)

    def insert(self, *event_ids: str, table: TableName = OUTBOX) -> None:
        self.table_map(table)
        self.rows(*event_ids, table=table)

    def transaction(self, *event_ids: str, table: TableName = OUTBOX) -> None:
        self.begin()
        self.insert(*event_ids, table=table)
        self.commit()

    @staticmethod
    def _table_id(table: TableName) -> bytes:
        return (100 + TABLES.index(table)).to_bytes(6, "little")


def feed(assembler: Assembler, events: Iterable[Piece]) -> list[Transaction]:
    return [transaction for given in assembler.feed(events) for transaction in given]
