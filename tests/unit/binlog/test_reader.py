"""The reader without a server: what errors mean, how it reconnects, how it stops."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest

from cdc_outbox.binlog import reader as module
from cdc_outbox.binlog.reader import BinlogReader
from cdc_outbox.errors import BinlogLost, BinlogUnreadable, CdcOutboxError, Hold, Refused, Stopped
from cdc_outbox.gtid import GtidSet
from cdc_outbox.model import Position, Transaction
from tests.unit.binlog.stub_server import UUID, StubConnection, error_packet, packets
from tests.unit.binlog.wire import OUTBOX, Dump

DEADLINE = 10.0


class Server:
    """Each connection is answered with the next of `answers` once its dump command has come; then it is cut."""

    def __init__(self, *answers: bytes, uuid: str = UUID) -> None:
        self._answers = list(answers)
        self._uuid = uuid
        self.connections: list[StubConnection] = []
        self.commands: list[bytes] = []
        self._threads: list[threading.Thread] = []

    def connect(self) -> pymysql.Connection[Any]:
        connection = StubConnection(self._uuid)
        self.connections.append(connection)
        if not self._answers:
            connection.far.close()
            connection.close()
            raise pymysql.err.OperationalError(2003, "Can't connect")
        answer = self._answers.pop(0)

        def serve() -> None:
            with contextlib.suppress(OSError):  # the reader may have gone
                self.commands.append(connection.far.recv(10_000))
                connection.far.sendall(answer)
            connection.far.close()

        self._threads.append(threading.Thread(target=serve))
        self._threads[-1].start()
        return connection  # type: ignore[return-value]

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        for thread in self._threads:
            thread.join(DEADLINE)


@pytest.fixture
def serving() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def make(*answers: bytes, **options: str) -> Server:
        servers.append(Server(*answers, **options))
        return servers[-1]

    yield make
    for server in servers:
        server.close()


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_WAIT", 0.001)
    monkeypatch.setattr(module, "_LONGEST_WAIT", 0.01)
    monkeypatch.setattr(module, "_GIVE_UP_AFTER", 0.1)


def reader_of(server: Server, taken: list[Transaction], start: Position | None = None, **options: Any) -> BinlogReader:
    return BinlogReader(
        server.connect,
        [OUTBOX],
        start or Position("binlog.000001", 1000),
        taken.extend,
        server_id=42,
        server_uuid=UUID,
        **options,
    )


def sent(dump: Dump) -> bytes:
    return packets(*[b"\0" + event for event in dump.take()])


def test_it_goes_on_after_the_last_whole_transaction(
    serving: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    dump = Dump(offset=1000).begins()
    dump.transaction("e1")
    reached = dump.offset
    dump.begin()
    dump.insert("e2")
    first = sent(dump)
    again = Dump(offset=reached).begins()
    again.number = 1
    again.transaction("e2")
    server = serving(first, sent(again))
    taken: list[Transaction] = []
    reader = reader_of(server, taken)
    with pytest.raises(Hold, match="Can't connect") as caught:
        reader.run()
    assert caught.value.reason == "mysql"
    assert [event.event_id for t in taken for event in t.events] == ["e1", "e2"]
    assert server.commands[1] == packets(
        b"\x12" + reached.to_bytes(4, "little") + b"\0\0" + (42).to_bytes(4, "little") + b"binlog.000001"
    )
    assert reader.position == Position("binlog.000001", again.offset)
    assert [getattr(record, "event", "") for record in caplog.records] == [
        "binlog_connection_lost",
        "binlog_connection_recovered",
        "binlog_connection_lost",
    ]
    assert all(connection.closed for connection in server.connections[:2])


def test_the_gtid_set_grows_with_what_was_read(serving: Callable[..., Server]) -> None:
    dump = Dump(offset=1000).begins()
    dump.number = 7
    dump.transaction("e1")
    start = Position(gtid_set=GtidSet.parse(f"{UUID}:1-7"))
    taken: list[Transaction] = []
    reader = reader_of(serving(sent(dump)), taken, start)
    with pytest.raises(Hold):
        reader.run()
    assert str(reader.position) == f"{UUID}:1-8"
    assert str(start) == f"{UUID}:1-7", "the caller's own set stays as it was"


@pytest.mark.parametrize(
    ("code", "text", "meaning", "said"),
    [
        (1236, "Cannot replicate because the source purged required binary logs. Replicate the", BinlogLost, "purged"),
        (1236, "Could not find first log file name in binary log index file", BinlogLost, "no longer on the server"),
        (1236, "Replica has more GTIDs than the source has, using the source's SERVER_UUID.", BinlogLost, "more GTIDs"),
        (1236, "Client requested source to start replication from position > file size", BinlogLost, "file size"),
        (1236, "A replica with the same server_uuid/server_id as this replica has connected", Refused, "server_id 42"),
        (1236, "Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file", BinlogLost, "no longer ON"),
        (1236, "Client requested master to start replication from impossible position", BinlogLost, "impossible"),
        (4052, "A slave with the same server_uuid/server_id is already connected", Refused, "server_id 42"),
        (1236, "bogus data in log event; the first event 'binlog.000001' at 1000", BinlogUnreadable, "bogus data"),
        (1227, "Access denied; you need the REPLICATION SLAVE privilege", Refused, "REPLICATION SLAVE"),
    ],
)
def test_what_the_servers_errors_mean(
    serving: Callable[..., Server], code: int, text: str, meaning: type[CdcOutboxError], said: str
) -> None:
    with pytest.raises(meaning, match=said) as caught:
        reader_of(serving(error_packet(code, text)), []).run()
    assert str(code) in caught.value.message


@pytest.mark.parametrize("code", [1053, 1317, 3169])
def test_a_dump_that_was_shut_down_is_tried_again(serving: Callable[..., Server], code: int) -> None:
    server = serving(error_packet(code, "shutdown in progress"))
    with pytest.raises(Hold):
        reader_of(server, []).run()
    assert len(server.connections) > 1


def test_what_came_before_an_error_counts(serving: Callable[..., Server]) -> None:
    dump = Dump(offset=1000).begins()
    dump.transaction("e1")
    taken: list[Transaction] = []
    with pytest.raises(BinlogUnreadable):
        reader_of(serving(sent(dump) + error_packet(1236, "I/O error reading log event")), taken).run()
    assert [event.event_id for t in taken for event in t.events] == ["e1"]


def test_another_server(serving: Callable[..., Server]) -> None:
    server = serving(b"", uuid="bbbbbbbb-0000-0000-0000-000000000002")
    with pytest.raises(Hold, match="another server"):
        reader_of(server, []).run()
    assert server.connections[0].closed and not any(server.commands)


def test_an_offset_that_no_dump_command_can_name(serving: Callable[..., Server]) -> None:
    server = serving(b"")
    with pytest.raises(BinlogUnreadable, match="4 GiB") as caught:
        reader_of(server, [], Position("binlog.000001", 1 << 32)).run()
    assert caught.value.hint and "next file" in caught.value.hint
    assert server.connections[0].closed


def test_looking_up_names_may_fail(serving: Callable[..., Server]) -> None:
    dump = Dump(offset=1000).begins()
    dump.begin()
    dump.table_map(names=False)
    dump.rows("e1")

    def describe(_: object) -> list[str]:
        raise pymysql.err.OperationalError(2013, "Lost connection")

    with pytest.raises(Hold, match="cannot be looked up"):
        reader_of(serving(sent(dump)), [], describe=describe).run()


def test_a_stopped_sink_ends_it_quietly(serving: Callable[..., Server]) -> None:
    dump = Dump(offset=1000).begins()
    dump.transaction("e1")
    server = serving(sent(dump))

    def sink(_: list[Transaction]) -> None:
        raise Stopped

    reader = reader_of(server, [])
    reader._sink = sink
    reader.run()
    assert server.connections[0].closed


def test_an_error_of_the_sink_is_passed_on(serving: Callable[..., Server]) -> None:
    dump = Dump(offset=1000).begins()
    dump.transaction("e1")

    def sink(_: list[Transaction]) -> None:
        raise OSError("no connection's trouble")

    reader = reader_of(serving(sent(dump)), [])
    reader._sink = sink
    with pytest.raises(OSError, match="no connection's trouble"):
        reader.run()


@pytest.mark.parametrize("when", ["before", "reading", "reconnecting"])
def test_stopping(serving: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    monkeypatch.setattr(module, "_FIRST_WAIT", 60.0)
    connected = threading.Event()
    server = serving(*([b""] if when == "reconnecting" else []))
    if when == "reading":
        silent = StubConnection()
        monkeypatch.setattr(server, "connect", lambda: silent)
    reader = reader_of(server, [], on_connect=connected.set)
    if when == "before":
        reader.request_stop()
    thread = threading.Thread(target=reader.run)
    thread.start()
    if when != "before":
        assert connected.wait(DEADLINE)
    reader.request_stop()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    if when == "reading":
        silent.far.close()


# -- a replica in the primary's place ---------------------------------------------------------------------------------


def test_a_replica_may_be_any_server(serving: Callable[..., Server]) -> None:
    dump = Dump(offset=1000).begins()
    dump.transaction("e1")
    server = serving(sent(dump), uuid="bbbbbbbb-0000-0000-0000-000000000002")
    taken: list[Transaction] = []
    reader = reader_of(server, taken, Position(gtid_set=GtidSet()), admit=lambda connection, position: None)

    dumped: list[str] = []

    def stop(transactions: list[Transaction]) -> None:
        taken.extend(transactions)
        dumped.append(reader.dumped)
        raise Stopped

    reader._sink = stop
    reader.run()
    assert [event.event_id for t in taken for event in t.events] == ["e1"]
    assert reader.trouble is None
    assert (dumped, reader.dumped) == (["bbbbbbbb-0000-0000-0000-000000000002"], "")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (1236, "Replica has more GTIDs than the source has, using the source's SERVER_UUID."),
        (1236, "Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file"),
        (1236, "Binary log is not open"),
        (1227, "Access denied; you need the REPLICATION SLAVE privilege"),
    ],
)
def test_a_replica_that_cannot_be_read_now_is_asked_again(serving: Callable[..., Server], code: int, text: str) -> None:
    """Whether it is behind or the binlog lost is not the server's to say; one that was put in its place may be mended,
    or replaced."""
    asked: list[str] = []

    def admit(_: object, position: Position) -> None:
        asked.append(str(position))
        if len(asked) > 1:
            raise BinlogLost("neither server has it")

    with pytest.raises(BinlogLost, match="neither"):
        reader_of(serving(error_packet(code, text), b""), [], Position(gtid_set=GtidSet()), admit=admit).run()
    assert len(asked) == 2


def test_a_replica_is_waited_for_without_end_and_the_trouble_is_told(serving: Callable[..., Server]) -> None:
    def admit(_: object, position: Position) -> None:
        raise Hold("it is behind", reason="source")

    answers = [b""] * 1000
    server = serving(*answers)
    reader = reader_of(server, [], Position(gtid_set=GtidSet()), admit=admit)
    thread = threading.Thread(target=reader.run)
    thread.start()
    for _ in range(1000):
        if reader.trouble is not None:
            break
        thread.join(DEADLINE / 1000)
    assert reader.trouble == "it is behind"
    assert not any(server.commands), "nothing was asked for"
    reader.request_stop()
    thread.join(DEADLINE)
    assert not thread.is_alive()
