"""The MySQL and the Kafka that are measured with, as scripts/bench has found or started them."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pymysql
from pymysql.constants import CLIENT

from bench.failure import BenchFailed
from bench.processes import command_line, cpu_seconds, listener, open_files, thread_cpu_seconds, threads_cpu_seconds
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint
from cdc_outbox.testing.services.providers import KAFKA_VARIABLE, MYSQL_VARIABLE

_LOCAL = ("127.0.0.1", "localhost", "::1")
_DURABLE = ("sync_binlog", "innodb_flush_log_at_trx_commit")
_POOL = "innodb_buffer_pool_size"
_RELAXED = (0, 2)

_LEFT_TO_DO = (
    "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'"
    " UNION ALL SELECT variable_value FROM performance_schema.global_status"
    " WHERE variable_name = 'Innodb_buffer_pool_pages_dirty'"
)
"""Transactions whose deleted rows are still there, and pages that the disk does not have yet."""

_AT_REST, _REST_DEADLINE = 50, 15.0


@dataclass(frozen=True)
class Servers:
    mysql: MySQLEndpoint
    kafka: KafkaEndpoint

    @classmethod
    def from_environment(cls) -> Servers:
        """Raises BenchFailed when they are not named there."""
        missing = [name for name in (MYSQL_VARIABLE, KAFKA_VARIABLE) if not os.environ.get(name)]
        if missing:
            raise BenchFailed(f"{' and '.join(missing)} must say where the servers are; scripts/bench sees to it.")
        try:
            return cls(MySQLEndpoint.parse(os.environ[MYSQL_VARIABLE]), KafkaEndpoint(os.environ[KAFKA_VARIABLE]))
        except ValueError as error:
            raise BenchFailed(f"{MYSQL_VARIABLE} or {KAFKA_VARIABLE} cannot be understood: {error}") from None

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        """A session with autocommit, which may send several statements at once. Raises pymysql.MySQLError."""
        return pymysql.connect(
            host=self.mysql.host,
            port=self.mysql.port,
            user=self.mysql.user,
            password=self.mysql.password,
            database=database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=10,
            client_flag=CLIENT.MULTI_STATEMENTS,
        )

    def mysqld_cpu(self) -> float | None:
        """CPU seconds that mysqld has used so far; None when its process cannot be seen from here."""
        return None if self._mysqld is None else cpu_seconds(self._mysqld)

    def purge_cpu(self) -> float:
        """Of these, what InnoDB's purge threads have used; 0.0 when the process cannot be seen."""
        return 0.0 if self._mysqld is None else threads_cpu_seconds(self._mysqld, "ib_srv_purge")

    def session_cpu(self, session: int) -> float:
        """CPU seconds that the thread of a session has used so far; 0.0 when the process cannot be seen."""
        if self._mysqld is None:
            return 0.0
        if session not in self._threads:
            with self.connect() as connection, connection.cursor() as cursor:
                asked = "SELECT thread_os_id FROM performance_schema.threads WHERE processlist_id = %s"
                cursor.execute(asked, (session,))
                self._threads[session] = int((cursor.fetchone() or (0,))[0])
        return thread_cpu_seconds(self._mysqld, self._threads[session])

    @cached_property
    def _threads(self) -> dict[int, int]:
        """Session -> thread of the operating system."""
        return {}

    @cached_property
    def _mysqld(self) -> int | None:
        pid = listener(self.mysql.port) if self.mysql.host in _LOCAL else None
        return pid if pid is not None and "mysqld" in command_line(pid) else None

    @contextlib.contextmanager
    def filled_quickly(self) -> Iterator[None]:
        """Inside the block commits do not wait for the disk; at its end what they wrote is there, and they do again."""
        with self.connect() as session, session.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(f'@@global.{name}' for name in _DURABLE)}")
            before = cursor.fetchone()
            assert before is not None
            try:
                _set(cursor, _RELAXED)
                yield
            finally:
                _set(cursor, before)
            # Else the first commit that is measured would pay for all of these.
            cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("FLUSH ENGINE LOGS")

    @contextlib.contextmanager
    def pool_of(self, size: int) -> Iterator[None]:
        """InnoDB's buffer pool has so many bytes inside the block, afterwards what it had."""
        with self.connect() as session, session.cursor() as cursor:
            cursor.execute(f"SELECT @@global.{_POOL}")
            before = cursor.fetchone()
            assert before is not None
            cursor.execute(f"SET GLOBAL {_POOL} = %s", (size,))
            try:
                yield
            finally:
                cursor.execute(f"SET GLOBAL {_POOL} = %s", before)

    def come_to_rest(self) -> None:
        """Return once InnoDB has taken out what was deleted and written what was changed, or after a while.

        Else what is measured next shares the disk and the cores with what is left to do of what was measured before.
        """
        deadline = time.monotonic() + _REST_DEADLINE
        with self.connect() as session, session.cursor() as cursor:
            while time.monotonic() < deadline:
                cursor.execute(_LEFT_TO_DO)
                if all(int(left) <= _AT_REST for (left,) in cursor.fetchall()):
                    return
                time.sleep(0.1)

    def binlog_size(self) -> int:
        """Bytes of all binlog files."""
        with self.connect() as session, session.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            return sum(int(row[1]) for row in cursor.fetchall())

    def row_lock_waits(self) -> int:
        """How often a statement had to wait for a row lock so far, on the whole server."""
        with self.connect() as session, session.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'")
            return int((cursor.fetchone() or (0, 0))[1])

    def mysql_facts(self) -> list[tuple[str, str]]:
        """Version and the settings that decide what a commit costs, as they are while it is measured."""
        names = ("version", "gtid_mode", "binlog_row_image", *_DURABLE, _POOL)
        with self.connect() as session, session.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(f'@@global.{name}' for name in names)}")
            values = cursor.fetchone()
        assert values is not None
        settings = ", ".join(f"{name}={value}" for name, value in zip(names[1:], values[1:], strict=True))
        return [("MySQL", f"{values[0]}, {settings}")]

    def kafka_version(self) -> str:
        """No broker tells its version; the names of its jars do, where its process can be seen from here."""
        host, _, port = self.kafka.bootstrap.split(",")[0].strip().rpartition(":")
        pid = listener(int(port)) if host.strip("[]") in _LOCAL else None
        return version_of_jars(open_files(pid)) if pid is not None else "unknown"


def version_of_jars(names: list[str]) -> str:
    found = (re.search(r"/kafka-clients-(\d[^/]*)\.jar$", name) for name in names)
    return next((match[1] for match in found if match), "unknown")


def _set(cursor: Any, values: tuple[int, ...]) -> None:
    for name, value in zip(_DURABLE, values, strict=True):
        cursor.execute(f"SET GLOBAL {name} = %s", (value,))
