"""A consuming service for tests: a database with the consumer's tables and one that shows each effect of a handler."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pymysql

from cdc_outbox import IdempotentConsumer
from cdc_outbox.model import TableName
from cdc_outbox.mysql import schema
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from tests.harness.process import environment

GROUP = "inventory"


@dataclass(frozen=True)
class Shop:
    """`effect` has a row for each time that a handler did something, and no key that would hide a second one."""

    host: str
    port: int
    user: str
    password: str
    database: str

    def make_tables(self) -> None:
        for table in (schema.PROCESSED, schema.OFFSETS):
            self.execute(schema.ddl(table, TableName(self.database, table)))
        self.execute("CREATE TABLE effect (event_id VARCHAR(64) NOT NULL, note VARCHAR(64) NULL) ENGINE=InnoDB")

    def clear(self) -> None:
        for table in (schema.PROCESSED, schema.OFFSETS, "effect"):
            self.execute(f"DELETE FROM {table}")

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        chosen: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "database": self.database,
            "connect_timeout": 5,
            **options,
        }
        return pymysql.connect(**chosen)

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self.connect(autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def consumer(self, **options: Any) -> IdempotentConsumer:
        return IdempotentConsumer(options.pop("group", GROUP), options.pop("connect", self.connect), **options)

    # -- what handlers do ---------------------------------------------------------------------------------------------

    def write(self, connection: Any, event_id: str, note: str | None = None) -> None:
        """An effect in the handler's transaction."""
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO effect VALUES (%s, %s)", (event_id, note))

    def act(self, event_id: str, note: str | None = None) -> None:
        """An effect outside the consumer's transaction, as that of a mail or a payment."""
        self.execute("INSERT INTO effect VALUES (%s, %s)", event_id, note)

    # -- what became of it --------------------------------------------------------------------------------------------

    def effects(self) -> Counter[str]:
        return Counter(event_id for (event_id,) in self.execute("SELECT event_id FROM effect"))

    def row(self, event_id: str, group: str = GROUP) -> tuple[int, int] | None:
        """(state, attempts) of the event's record."""
        found = self.execute(
            "SELECT state, attempts FROM processed_event WHERE consumer_group = %s AND event_id = %s", group, event_id
        )
        return (int(found[0][0]), int(found[0][1])) if found else None

    def offset(self, topic: str, partition: int, group: str = GROUP) -> int | None:
        found = self.execute(
            "SELECT next_offset FROM consumer_offset WHERE consumer_group = %s AND topic = %s AND partition_id = %s",
            group,
            topic,
            partition,
        )
        return int(found[0][0]) if found else None


def make_shop(server: MySQLEndpoint) -> Shop:
    """A shop in a new database of its own."""
    shop = Shop(server.host, server.port, server.user, server.password, f"t_{uuid.uuid4().hex[:12]}")
    with shop.connect(database=None) as admin, admin.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{shop.database}`")
    shop.make_tables()
    return shop


@contextlib.contextmanager
def shop_on(server: MySQLEndpoint) -> Iterator[Shop]:
    """`make_shop`, and its database dropped at the end."""
    shop = make_shop(server)
    yield shop
    shop.execute(f"DROP DATABASE `{shop.database}`")


class ConsumerProcess:
    """A consumer in a process of its own, which says on each line how far it is and can be stopped there for good."""

    def __init__(self, shop: Shop, **job: Any) -> None:
        words = json.dumps({"shop": vars(shop), **job})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.harness.consumer_process", words],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment(),
        )
        self.lines: list[str] = []

    def wait_for(self, line: str) -> None:
        """Until it has said this line. The process ends by itself, and so does this, when something is wrong."""
        assert self._process.stdout is not None
        while line not in self.lines:
            said = self._process.stdout.readline()
            assert said, f"the consumer ended with {self._process.wait(20)} and never said {line!r}: {self.lines}"
            self.lines.append(said.rstrip("\n"))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(20)
        if self._process.stdout is not None:
            self._process.stdout.close()


def in_threads(jobs: Sequence[Callable[[], Any]], timeout: float = 60) -> list[Any]:
    """Run them all at once; gives their values, raises the first error."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result(timeout) for future in [pool.submit(job) for job in jobs]]
