"""The dump command and the cutting of its bytes into events, over a pair of sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import cast

import pytest

from cdc_outbox.binlog.gtid_wire import encode_gtid_set
from cdc_outbox.binlog.packets import Piece
from cdc_outbox.binlog.stream import BinlogStream, DumpFailed
from cdc_outbox.gtid import GtidSet
from cdc_outbox.model import Position
from tests.unit.binlog.stub_server import LARGEST, StubConnection, packets


@pytest.fixture
def connection() -> Iterator[StubConnection]:
    opened = StubConnection()
    yield opened
    opened.far.close()
    opened._sock.close()


@pytest.fixture
def stream(connection: StubConnection) -> Iterator[BinlogStream]:
    opened = BinlogStream(connection, server_id=42, heartbeat=5.0)  # type: ignore[arg-type]
    yield opened
    opened.close()


def send(connection: StubConnection, content: bytes, size: int = 1 << 16) -> threading.Thread:
    """From a thread, in pieces of `size`; then the connection is closed."""

    def run() -> None:
        for at in range(0, len(content), size):
            connection.far.sendall(content[at : at + size])
        connection.far.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def whole_events(pieces: list[Piece]) -> list[bytes]:
    assert all(isinstance(piece, bytes) for piece in pieces)
    return cast("list[bytes]", pieces)


def read_all(stream: BinlogStream) -> list[bytes]:
    events: list[bytes] = []
    with pytest.raises(EOFError):
        while True:
            events += whole_events(stream.read())
    return events


@pytest.mark.parametrize("size", [1, 3, 1000, 1 << 16])
def test_events_come_whole_however_they_are_sent(connection: StubConnection, stream: BinlogStream, size: int) -> None:
    bodies = [b"", b"a", b"b" * 250, b"c" * 65_535, b"d" * 65_536, b"e" * 65_530, b"f"]
    content = packets(*[b"\0" + body for body in bodies])
    thread = send(connection, content, size if size > 3 else max(size, 50))
    assert read_all(stream) == bodies
    thread.join()


@pytest.mark.parametrize("size", [LARGEST - 2, LARGEST - 1, LARGEST, 2 * LARGEST - 1, 2 * LARGEST + 7])
def test_events_of_16_mib_and_more(connection: StubConnection, stream: BinlogStream, size: int) -> None:
    bodies = [b"before", bytes(size), b"after"]
    thread = send(connection, packets(*[b"\0" + body for body in bodies]), 1 << 20)
    events = read_all(stream)
    thread.join()
    assert [len(event) for event in events] == [6, size, 5]
    assert events == bodies


def test_an_error_is_told_after_the_events_before_it(connection: StubConnection, stream: BinlogStream) -> None:
    error = b"\xff" + (1236).to_bytes(2, "little") + b"#HY000" + "it is gone…".encode()
    connection.far.sendall(packets(b"\0one", b"\0two", error))
    assert stream.read() == [b"one", b"two"]
    with pytest.raises(DumpFailed) as caught:
        stream.read()
    assert (caught.value.code, caught.value.text) == (1236, "it is gone…")


def test_an_error_alone(connection: StubConnection, stream: BinlogStream) -> None:
    connection.far.sendall(packets(b"\xff" + (1227).to_bytes(2, "little") + b"#42000Access denied"))
    with pytest.raises(DumpFailed, match="Access denied"):
        stream.read()


def test_the_end_of_a_dump(connection: StubConnection, stream: BinlogStream) -> None:
    connection.far.sendall(packets(b"\xfe\0\0\x02\0"))
    with pytest.raises(EOFError, match="ended the dump"):
        stream.read()


def test_a_connection_cut_inside_of_an_event(connection: StubConnection, stream: BinlogStream) -> None:
    thread = send(connection, packets(b"\0" + bytes(100_000))[:50_000])
    assert read_all(stream) == []
    thread.join()


def test_silence(connection: StubConnection) -> None:
    quiet = BinlogStream(connection, server_id=42, heartbeat=0.01)  # type: ignore[arg-type]
    with pytest.raises(TimeoutError):
        quiet.read()


def test_interrupting_wakes_the_reader(connection: StubConnection, stream: BinlogStream) -> None:
    caught: list[BaseException] = []

    def run() -> None:
        try:
            stream.read()
        except (EOFError, OSError) as error:
            caught.append(error)

    reading = threading.Thread(target=run)
    reading.start()
    stream.interrupt()
    reading.join(10)
    assert not reading.is_alive() and caught


def test_what_the_session_is_set_to(connection: StubConnection, stream: BinlogStream) -> None:
    (statement,) = connection.statements
    assert "@source_binlog_checksum = 'CRC32'" in statement and "@master_binlog_checksum = 'CRC32'" in statement
    assert "@source_heartbeat_period = 5000000000" in statement
    twin = StubConnection()
    BinlogStream(twin, server_id=42, heartbeat=5.0).close()  # type: ignore[arg-type]
    assert twin.statements == [statement], "the same server_id is the same replica to the server"
    twin.far.close()


def test_the_command_by_file(connection: StubConnection, stream: BinlogStream) -> None:
    stream.start(Position("binlog.000012", 4711))
    sent = connection.far.recv(1000)
    assert sent == packets(
        b"\x12" + (4711).to_bytes(4, "little") + b"\0\0" + (42).to_bytes(4, "little") + b"binlog.000012"
    )


def test_the_command_by_gtid_set(connection: StubConnection, stream: BinlogStream) -> None:
    gtids = GtidSet.parse("aaaaaaaa-0000-0000-0000-000000000001:1-5:orders:7")
    stream.start(Position("ignored", 99, gtids))
    encoded = encode_gtid_set(gtids)
    head = b"\x1e\x04\0" + (42).to_bytes(4, "little") + bytes(4) + (4).to_bytes(8, "little")
    assert connection.far.recv(1000) == packets(head + len(encoded).to_bytes(4, "little") + encoded)


def test_a_gtid_set_of_more_than_16_mib(connection: StubConnection, stream: BinlogStream) -> None:
    command = bytes(LARGEST + 10)
    received = bytearray()

    def run() -> None:
        while len(received) < len(command) + 8:
            received.extend(connection.far.recv(1 << 20))

    reading = threading.Thread(target=run)
    reading.start()
    stream._send(command)
    reading.join(10)
    assert bytes(received) == packets(command)


def test_closing(connection: StubConnection, stream: BinlogStream) -> None:
    stream.close()
    assert connection.closed and connection._sock.fileno() == -1
    stream.interrupt()
    stream.close()
