"""One binlog dump: the settings it needs, its command, and its bytes cut into events. Knows nothing of their meaning.

The connection comes open and authenticated (PyMySQL); from the dump command on its socket is read here.
"""

from __future__ import annotations

import contextlib
import socket
import uuid
from collections.abc import Collection
from struct import Struct
from typing import Any

import pymysql

from cdc_outbox.binlog.accelerator import decoder
from cdc_outbox.binlog.gtid_wire import encode_gtid_set
from cdc_outbox.binlog.packets import HEADER_SIZE, LARGEST_PACKET, Piece, packet_size
from cdc_outbox.model import Position

_COM_BINLOG_DUMP = 0x12
_COM_BINLOG_DUMP_GTID = 0x1E
_THROUGH_GTID = 4
FIRST_OFFSET = 4
"""A binlog file begins with four magic bytes."""

_DUMP = Struct("<BIHI")
_DUMP_GTID = Struct("<BHIIQI")
_ERROR = b"\xff"
_READ_SIZE = 1 << 16

_MARIADB_WITH_GTIDS = 4
"""MariaDB: send events as they are, GTID events included, and not as older replicas want them."""

_REPLICA_NAMESPACE = uuid.UUID("6f1c0f3e-9c7e-4f0a-8a51-0d9b5a1c2b7d")


class DumpFailed(Exception):
    """The server ended the dump with an error packet. code: MySQL's error number."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text


class BinlogStream:
    """Reads one dump. Used by one thread, except for `interrupt`."""

    def __init__(
        self,
        connection: pymysql.Connection[Any],
        *,
        server_id: int,
        heartbeat: float,
        kept: Collection[str] | None = None,
    ) -> None:
        """heartbeat in seconds: the server sends one where it has nothing else to say. Raises pymysql's errors.

        kept: names of tables; of a transaction `read` may give as one what changes these, as packets.Whole has it.

        The replica's UUID is derived from server_id: the server then ends an earlier dump of the same one, and tells
        two relays with one server_id from a lost connection.
        """
        self._connection = connection
        self._server_id = server_id
        self._cut = decoder().cut
        self._kept = None if kept is None else tuple(name.encode() for name in kept)
        self._buffer = b""
        self._failure: Exception | None = None
        self._socket: socket.socket = connection._sock  # type: ignore[attr-defined]
        replica = uuid.uuid5(_REPLICA_NAMESPACE, str(server_id))
        period = int(heartbeat * 1e9)
        with connection.cursor() as cursor:
            # Both spellings: servers before 8.0.26 know the second one only.
            cursor.execute(
                "SET @source_binlog_checksum = 'CRC32', @master_binlog_checksum = 'CRC32', "
                "@source_heartbeat_period = %s, @master_heartbeat_period = %s, "
                "@replica_uuid = %s, @slave_uuid = %s, @mariadb_slave_capability = %s",
                (period, period, str(replica), str(replica), _MARIADB_WITH_GTIDS),
            )
        self._socket.settimeout(3 * heartbeat)

    def start(self, position: Position) -> None:
        """Ask for everything after `position`: by GTID set where it has one, else by file and offset."""
        if position.gtid_set is None:
            command = _DUMP.pack(_COM_BINLOG_DUMP, position.offset, 0, self._server_id)
            command += position.file.encode()
        else:
            gtids = encode_gtid_set(position.gtid_set)
            command = _DUMP_GTID.pack(
                _COM_BINLOG_DUMP_GTID, _THROUGH_GTID, self._server_id, 0, FIRST_OFFSET, len(gtids)
            )
            command += gtids
        self._send(command)

    def _send(self, command: bytes) -> None:
        sequence = 0
        while True:
            piece, command = command[:LARGEST_PACKET], command[LARGEST_PACKET:]
            self._socket.sendall(len(piece).to_bytes(3, "little") + bytes([sequence]) + piece)
            sequence += 1
            if len(piece) < LARGEST_PACKET:
                return

    def read(self) -> list[Piece]:
        """The events and whole transactions that one read from the socket completed, maybe none.

        Raises DumpFailed, EOFError when the server closed the connection, OSError (TimeoutError: the server is
        silent though it owes heartbeats).
        """
        if self._failure is not None:
            raise self._failure
        received = self._socket.recv(_READ_SIZE)
        if not received:
            raise EOFError("the server closed the connection")
        data = self._buffer + received
        events, at = self._cut(data, _READ_SIZE, self._kept)
        self._buffer = data[at:]
        if len(self._buffer) > HEADER_SIZE:  # what follows is not whole, too large for one read, or no event
            size = packet_size(self._buffer)
            if size > _READ_SIZE:
                self._take(self._large_packet(), events)
            elif HEADER_SIZE + size <= len(self._buffer):
                self._take(self._buffer[HEADER_SIZE : HEADER_SIZE + size], events)
        return events

    def _take(self, packet: bytes | bytearray, events: list[Piece]) -> None:
        """First byte 0: an event. Else the dump has ended, which is told after the events before it were given."""
        if packet[:1] == b"\0":
            events.append(bytes(memoryview(packet)[1:]))
            return
        self._failure = _failure(bytes(packet))
        if not events:
            raise self._failure

    def _large_packet(self) -> bytearray:
        """A packet that no single read holds; one of 16 MiB goes on in the next. It is copied as little as may be."""
        packet = bytearray()
        while True:
            header = bytearray()
            self._exactly(HEADER_SIZE, header)
            size = int.from_bytes(header[:3], "little")
            self._exactly(size, packet)
            if size < LARGEST_PACKET:
                return packet

    def _exactly(self, size: int, to: bytearray) -> None:
        """Append `size` bytes."""
        there = self._buffer[:size]
        self._buffer = self._buffer[size:]
        at = len(to) + len(there)
        to += there
        to.extend(bytes(size - len(there)))
        with memoryview(to) as view:
            while at < len(view):
                received = self._socket.recv_into(view[at:])
                if not received:
                    raise EOFError("the server closed the connection")
                at += received

    def interrupt(self) -> None:
        """Wake the reading thread, from any thread; the dump ends by it."""
        with contextlib.suppress(OSError):
            # The plain socket's method: SSLSocket's own takes the TLS state away under the reading thread.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close without a goodbye: the server would not read it while it sends."""
        with contextlib.suppress(OSError):
            self._socket.close()
        self._connection._force_close()  # type: ignore[attr-defined]


def _failure(packet: bytes) -> Exception:
    if packet[:1] == _ERROR:
        code = int.from_bytes(packet[1:3], "little")
        return DumpFailed(code, packet[3:].removeprefix(b"#")[5:].decode("utf-8", "replace"))
    return EOFError("the server ended the dump")
