"""A database with an outbox and a table of the application's own, and connections to it by any driver."""

from __future__ import annotations

import importlib.util
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pymysql
import pytest

from cdc_outbox.app.outbox_payload import MARIADB_DEPTH, MAX_DEPTH
from cdc_outbox.model import TableName
from cdc_outbox.mysql import schema
from cdc_outbox.testing.services.endpoint import MySQLEndpoint

needs_mysqlclient = pytest.mark.skipif(
    importlib.util.find_spec("MySQLdb") is None,
    reason="mysqlclient is built against a C library that a fresh machine has not; `pip install mysqlclient` runs this",
)

DRIVERS = [
    "pymysql",
    pytest.param("mysqlclient", marks=needs_mysqlclient),
    "mysql-connector",
]


class OutboxDatabase:
    """Tables `outbox_event`, with a column trace_id more, and `orders` with ids 1 to 4. Ends what it has opened."""

    def __init__(self, server: MySQLEndpoint, name: str) -> None:
        self.server = server
        self.name = name
        self._opened = ExitStack()
        self._own = self.connect("pymysql", autocommit=True)
        self.execute(schema.ddl("outbox_event", TableName(name, "outbox_event")))
        self.execute("ALTER TABLE outbox_event ADD COLUMN trace_id VARCHAR(32) NULL")
        self.mariadb = "MariaDB" in self.execute("SELECT VERSION()")[0][0]
        self.depth = MARIADB_DEPTH if self.mariadb else MAX_DEPTH
        self.execute("CREATE TABLE orders (id INT PRIMARY KEY, state INT NOT NULL DEFAULT 0)")
        self.execute("INSERT INTO orders (id) VALUES (1), (2), (3), (4)")

    def connect(self, driver: str, *, autocommit: bool) -> Any:
        options: dict[str, Any] = {
            "host": self.server.host,
            "port": self.server.port,
            "user": self.server.user,
            "password": self.server.password,
            "database": self.name,
        }
        if driver == "pymysql":
            connection: Any = pymysql.connect(**options, autocommit=autocommit)
        elif driver == "mysqlclient":
            import MySQLdb  # noqa: PLC0415  (may not be installed)

            connection = MySQLdb.connect(**options, autocommit=autocommit)
        else:
            import mysql.connector  # noqa: PLC0415  (slow)

            connection = mysql.connector.connect(**options, autocommit=autocommit)
        self._opened.callback(_close, connection)
        return connection

    def url(self, dialect: str) -> str:
        """For SQLAlchemy's create_engine."""
        at = self.server
        return f"mysql+{dialect}://{at.user}:{at.password}@{at.host}:{at.port}/{self.name}"

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """In a session of its own, which sees only what was committed."""
        with self._own.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def clear(self) -> None:
        """As it was made, but for the sequence of ids; ends what tests have opened."""
        self._opened.close()
        self._own = self.connect("pymysql", autocommit=True)
        self.execute("DELETE FROM outbox_event")
        self.execute("UPDATE orders SET state = 0")

    def event_ids(self) -> list[str]:
        """What is committed, in the order of ids."""
        return [event_id for (event_id,) in self.execute("SELECT event_id FROM outbox_event ORDER BY id")]

    def row(self, event_id: str) -> dict[str, Any]:
        with self._own.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(
                "SELECT *, CAST(payload AS CHAR) AS text, TIMESTAMPDIFF(SECOND, NOW(), next_retry_at) AS wait"
                " FROM outbox_event WHERE event_id = %s",
                (event_id,),
            )
            row: dict[str, Any] = cursor.fetchone()
            return row

    def close(self) -> None:
        self._opened.close()


def _close(connection: Any) -> None:
    with suppress(Exception):  # closed already: an error of the driver's own
        connection.close()


@contextmanager
def outbox_database(server: MySQLEndpoint) -> Iterator[OutboxDatabase]:
    """One for a whole module: making tables is slow. Clear it between tests."""
    name = f"t_{uuid.uuid4().hex[:12]}"
    options = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    with pymysql.connect(**options, autocommit=True) as admin, admin.cursor() as cursor:  # type: ignore[call-overload]
        cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        try:
            made = OutboxDatabase(server, name)
            try:
                yield made
            finally:
                made.close()
        finally:
            cursor.execute(f"DROP DATABASE `{name}`")
