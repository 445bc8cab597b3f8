"""Connections that are cut, die silently or lead elsewhere: nothing is lost or comes twice, and stopping is quick."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from typing import Any

import pymysql
import pytest

from cdc_outbox.binlog import reader as reader_module
from cdc_outbox.errors import Hold, Refused, Stopped
from cdc_outbox.model import Position, Transaction
from cdc_outbox.testing.services.endpoint import MySQLEndpoint, wait_until
from cdc_outbox.testing.services.server import Server
from tests.integration.binlog_tail import Database, Tail


class Connections:
    """Opens the reader's connections, and knows them."""

    def __init__(self, database: Database, **options: Any) -> None:
        self._database = database
        self._options = options
        self.ids: list[int] = []

    def __call__(self) -> pymysql.Connection[Any]:
        connection = self._database.connect(**self._options)
        self.ids.append(connection.thread_id())  # type: ignore[no-untyped-call]
        return connection

    def kill(self) -> None:
        """Cut the last one, on the server's side."""
        self._database.execute(f"KILL {self.ids[-1]}")


Start = Callable[[Database], Position]
BY_FILE_AND_BY_GTID = pytest.mark.parametrize(
    "start_of", [Database.position, Database.gtid_position], ids=["file", "gtid"]
)


@BY_FILE_AND_BY_GTID
def test_a_killed_dump_goes_on_where_it_was(
    outbox: Database, start_of: Start, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "cdc_outbox.binlog.reader")
    connections = Connections(outbox)
    expected = []
    with Tail(outbox, start_of(outbox), connect=connections) as tail:
        for cut in range(4):
            for i in range(20):
                outbox.insert(f"{cut}-{i}")
                expected.append(f"{cut}-{i}")
            tail.wait_for_events(20 * cut + 10)
            connections.kill()
        outbox.insert("last")
        tail.wait(lambda: "last" in tail.event_ids)
    assert tail.event_ids == [*expected, "last"]
    assert tail.connects == 5
    told = [getattr(record, "event", None) for record in caplog.records]
    assert told == ["binlog_connection_lost", "binlog_connection_recovered"] * 4


@BY_FILE_AND_BY_GTID
def test_a_transaction_cut_in_the_middle_is_not_given_twice(outbox: Database, start_of: Start) -> None:
    """Parts of it were handed over; after the reconnect it comes again from its beginning."""
    connections = Connections(outbox)
    rows = [f"e{i}" for i in range(3000)]
    start = start_of(outbox)
    outbox.insert(*rows, payload='"' + "x" * 10_000 + '"')  # far more than the sockets hold
    outbox.insert("last")
    cut: list[int] = []

    with Tail(outbox, start, connect=connections, chunk_events=130) as tail:
        taken = tail.reader._sink

        def cut_twice(transactions: list[Transaction]) -> None:
            taken(transactions)
            if tail.connects == 1 + len(cut) < 3 and len(tail.events) > 300 * tail.connects:
                cut.append(len(tail.events))
                connections.kill()

        tail.reader._sink = cut_twice
        tail.wait(lambda: "last" in tail.event_ids)
    assert len(cut) == 2 and tail.connects == 3
    assert tail.event_ids == [*rows, "last"]
    assert [t.end is None for t in tail.transactions if t.events].count(False) == 2


def test_a_slow_sink_holds_the_reader_back(outbox: Database) -> None:
    start = outbox.position()
    with Tail(outbox, start, heartbeat=0.3) as tail:
        tail.wait(lambda: tail.connects > 0)
        tail.gate.clear()
        for i in range(30):
            outbox.insert(f"e{i}", payload='"' + "x" * 100_000 + '"')
        time.sleep(1.5)  # longer than the reader may be without a heartbeat
        assert not tail.events
        tail.gate.set()
        tail.wait_for_events(30)
    assert tail.event_ids == [f"e{i}" for i in range(30)]
    assert tail.connects == 1


def test_a_silent_server_is_noticed_and_comes_back(
    make_mysql: Callable[..., Server[MySQLEndpoint]], caplog: pytest.LogCaptureFixture
) -> None:
    """A firewall that drops packets, a frozen host: no error ever comes, only silence."""
    server = make_mysql()
    outbox = Database(server.endpoint, "shop")
    outbox.insert("a")
    with Tail(outbox, outbox.position(), heartbeat=0.3) as tail:
        outbox.insert("b")
        tail.wait_for_events(1)
        server.pause()
        try:
            lost = wait_until(lambda: "binlog_connection_lost" in _events(caplog), seconds=10)
        finally:
            server.resume()
        assert lost
        outbox.insert("c")
        tail.wait_for_events(2)
        assert tail.event_ids == ["b", "c"]
    outbox.close()


def _events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [getattr(record, "event", "") for record in caplog.records]


def test_a_server_that_stays_away_is_a_hold(outbox: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader_module, "_GIVE_UP_AFTER", 0.5)
    connections = Connections(outbox)
    away = False

    def connect() -> pymysql.Connection[Any]:
        if away:
            raise pymysql.err.OperationalError(2003, "Can't connect to MySQL server on 'db.example'")
        return connections()

    with Tail(outbox, outbox.position(), connect=connect) as tail:
        tail.wait(lambda: tail.connects > 0)
        away = True
        connections.kill()
        error = tail.wait_for_error()
    assert isinstance(error, Hold) and error.reason == "mysql" and "Can't connect" in error.message


def test_another_server_in_its_place_is_a_hold(outbox: Database) -> None:
    with Tail(outbox, outbox.position(), server_uuid="11111111-2222-3333-4444-555555555555") as tail:
        error = tail.wait_for_error()
    assert isinstance(error, Hold) and "another server" in error.message
    assert tail.connects == 0


def test_the_same_server_id_twice_is_refused(outbox: Database) -> None:
    start = outbox.position()
    with Tail(outbox, start, server_id=779_999) as first:
        first.wait(lambda: first.connects > 0)
        outbox.insert("a")
        first.wait_for_events(1)
        with Tail(outbox, start, server_id=779_999) as second:
            error = first.wait_for_error()
            second.wait_for_events(1)
            outbox.insert("b")
            second.wait_for_events(2)
    assert isinstance(error, Refused)
    assert "779999" in error.message and error.hint and "mysql.server_id" in error.hint


def test_a_missing_grant_is_refused(outbox: Database) -> None:
    user = f"reader_{outbox.name[2:10]}"
    outbox.execute(f"CREATE USER {user} IDENTIFIED BY 'secret-word'")
    try:

        def connect() -> pymysql.Connection[Any]:
            return outbox.connect(user=user, password="secret-word")

        with Tail(outbox, outbox.position(), connect=connect) as tail:
            error = tail.wait_for_error()
    finally:
        outbox.execute(f"DROP USER {user}")
    assert isinstance(error, Refused)
    assert error.hint and "GRANT REPLICATION SLAVE" in error.hint
    assert "secret-word" not in f"{error} {error.hint}"


def test_stopping_wakes_a_reader_that_waits_for_the_server(outbox: Database) -> None:
    with Tail(outbox, outbox.position(), heartbeat=60.0) as tail:
        tail.wait(lambda: tail.connects > 0)
        outbox.insert("a")
        tail.wait_for_events(1)
        begun = time.monotonic()
        tail.stop()
    assert time.monotonic() - begun < 5, "it should not wait for a heartbeat"
    assert tail.error is None


def test_stopping_wakes_a_reader_that_waits_to_reconnect(outbox: Database) -> None:
    def connect() -> pymysql.Connection[Any]:
        raise pymysql.err.OperationalError(2003, "away")

    with Tail(outbox, outbox.position(), connect=connect) as tail:
        tail.stop()
    assert tail.error is None


def test_a_sink_that_was_stopped_ends_the_reader(outbox: Database) -> None:
    start = outbox.position()
    outbox.insert("a")

    def stopped(transactions: list[Transaction]) -> None:
        raise Stopped

    tail = Tail(outbox, start)
    tail.reader._sink = stopped
    tail.reader.run()


def test_a_stop_before_the_start(outbox: Database) -> None:
    tail = Tail(outbox, outbox.position())
    tail.reader.request_stop()
    tail.reader.run()
    assert tail.connects == 0


def test_over_tls(outbox: Database) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connections = Connections(outbox, ssl=context)
    start = outbox.position()
    outbox.insert(*[f"e{i}" for i in range(50)], payload='"' + "x" * 10_000 + '"')
    outbox.insert("large", payload='"' + "y" * (17 << 20) + '"')
    with Tail(outbox, start, connect=connections, heartbeat=60.0) as tail:
        tail.wait_for_events(51)
        connections.kill()
        outbox.insert("last")
        tail.wait_for_events(52)
        tail.stop()
    assert tail.event_ids == [*[f"e{i}" for i in range(50)], "large", "last"]
