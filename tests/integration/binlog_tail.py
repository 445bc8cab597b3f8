"""A binlog reader in a thread, with what it brought: how integration tests look at the binlog."""

from __future__ import annotations

import threading
import tracemalloc
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import pymysql

from cdc_outbox.binlog.reader import BinlogReader
from cdc_outbox.gtid import GtidSet
from cdc_outbox.model import Event, Position, TableName, Transaction
from cdc_outbox.mysql.flavour import FlavouredConnection, is_mariadb
from cdc_outbox.testing.services.endpoint import MySQLEndpoint

DEADLINE = 30.0

_SERVER_IDS = iter(range(770_001, 780_000))

TABLE = """
CREATE TABLE {name} (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  event_id VARCHAR(64) NOT NULL,
  aggregate_type VARCHAR(64) NOT NULL,
  aggregate_id VARCHAR(64) NOT NULL,
  event_type VARCHAR(128) NOT NULL,
  payload JSON NOT NULL,
  status TINYINT NOT NULL DEFAULT 0,
  retry_count INT NOT NULL DEFAULT 0,
  max_retries INT NOT NULL DEFAULT 3,
  next_retry_at DATETIME DEFAULT NULL,
  created_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP,
  updated_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  UNIQUE KEY uk_event_id (event_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4
"""


class Database:
    """A database with an outbox table, and the SQL that tests write into it."""

    def __init__(self, server: MySQLEndpoint, name: str) -> None:
        self.server = server
        self.name = name
        self.outbox = TableName(name, "outbox_event")
        self.connection = self.connect()
        self.execute(f"CREATE DATABASE IF NOT EXISTS `{name}`")
        self.connection.select_db(name)
        self.execute(TABLE.format(name="outbox_event"))

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        settings: dict[str, Any] = {
            "host": self.server.host,
            "port": self.server.port,
            "user": self.server.user,
            "password": self.server.password,
            "charset": "utf8mb4",
            "autocommit": True,
            "connect_timeout": 2,
        }
        return FlavouredConnection(**{**settings, **options})

    def execute(self, statement: str, args: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement, args or None)
            return list(cursor.fetchall())

    def insert(self, *event_ids: str, payload: str = "{}", table: str = "outbox_event") -> None:
        """One row each, in one statement."""
        values = ", ".join(["(%s, 'order', 'o1', 'Created', %s)"] * len(event_ids))
        args = [one for event_id in event_ids for one in (event_id, payload)]
        self.execute(
            f"INSERT INTO {table} (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES {values}",
            args,
        )

    def one(self, statement: str) -> Any:
        return self.execute(statement)[0][0]

    @property
    def has_gtids(self) -> bool:
        """MySQL's."""
        return not is_mariadb(self.one("SELECT VERSION()"))

    def position(self) -> Position:
        """Where the server is, by file and offset."""
        try:
            file, offset, *_ = self.execute("SHOW BINARY LOG STATUS")[0]
        except pymysql.err.ProgrammingError:  # MySQL before 8.2
            file, offset, *_ = self.execute("SHOW MASTER STATUS")[0]
        return Position(file, offset)

    def gtid_position(self) -> Position:
        return Position(gtid_set=GtidSet.parse(self.one("SELECT @@gtid_executed")))

    def close(self) -> None:
        self.connection.close()


@contextmanager
def database_on(server: MySQLEndpoint) -> Iterator[Database]:
    """A database of its own on any server, dropped at the end."""
    opened = Database(server, f"t_{uuid.uuid4().hex[:12]}")
    yield opened
    opened.execute(f"DROP DATABASE `{opened.name}`")
    opened.close()


class Tail:
    """Reads from `start` in a thread, and keeps all it gets. Stops at the end of its `with` block.

    options are BinlogReader's; take: is given what comes before it is kept; gate: what the sink waits for before it
    takes anything.
    """

    def __init__(self, database: Database, start: Position, **options: Any) -> None:
        self.transactions: list[Transaction] = []
        self.error: BaseException | None = None
        self.connects = 0
        self.gate = threading.Event()
        self.gate.set()
        self._arrived = threading.Condition()
        settings: dict[str, Any] = {
            "server_id": next(_SERVER_IDS),
            "server_uuid": database.one("SELECT @@server_uuid"),
            "on_connect": self._connected,
            **options,
        }
        connect = settings.pop("connect", database.connect)
        tables = settings.pop("tables", [database.outbox])
        self._take_first = settings.pop("take", None)
        self.reader = BinlogReader(connect, tables, start, self._take, **settings)
        self._thread = threading.Thread(target=self._run, name="tail")

    def _connected(self) -> None:
        with self._arrived:
            self.connects += 1
            self._arrived.notify_all()

    def _take(self, transactions: list[Transaction]) -> None:
        assert self.gate.wait(DEADLINE)
        if self._take_first is not None:
            self._take_first(transactions)
        with self._arrived:
            self.transactions += transactions
            self._arrived.notify_all()

    def _run(self) -> None:
        try:
            self.reader.run()
        except BaseException as error:
            self.error = error
        with self._arrived:
            self._arrived.notify_all()

    @property
    def events(self) -> list[Event]:
        return [event for transaction in list(self.transactions) for event in transaction.events]

    @property
    def event_ids(self) -> list[str]:
        return [event.event_id for event in self.events]

    def wait(self, condition: Callable[[], bool], what: str = "what the test waits for") -> None:
        with self._arrived:
            arrived = self._arrived.wait_for(lambda: condition() or self.error is not None, DEADLINE)
        if self.error is not None:
            raise AssertionError(f"the reader stopped: {self.error!r}") from self.error
        assert arrived, f"{what} did not come; got {self.transactions}"

    def wait_for_events(self, number: int) -> list[Event]:
        self.wait(lambda: len(self.events) >= number, f"{number} events")
        return self.events

    def wait_for_position(self, position: Position) -> None:
        self.wait(lambda: self.reader.position.reached(position), f"position {position}")

    def wait_for_error(self) -> BaseException:
        self._thread.join(DEADLINE)
        assert self.error is not None, "the reader should have stopped with an error"
        return self.error

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Returns when the reader's thread has ended."""
        self.gate.set()
        self.reader.request_stop()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()

    def __enter__(self) -> Tail:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def peak_memory(database: Database, start: Position, see: Callable[[Event], None], **options: Any) -> int:
    """The most bytes of Python's objects while all from `start` on is read. see: gets each event; none is kept."""

    def take(transactions: list[Transaction]) -> None:
        for transaction in transactions:
            for event in transaction.events:
                see(event)
            transaction.events.clear()

    tracemalloc.start()
    try:
        with Tail(database, start, take=take, **options) as tail:
            tail.wait_for_position(database.position())
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@contextmanager
def setting(database: Database, name: str, value: str) -> Iterator[None]:
    """A global variable of a server that only this test uses, put back afterwards.

    Put back over a connection of its own: a test that has broken the database's must not spoil the tests after it.
    """
    before = database.one(f"SELECT @@GLOBAL.{name}")
    database.execute(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        with database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SET GLOBAL {name} = %s", (before,))
