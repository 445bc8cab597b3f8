"""A database, topics of its own and a configuration: everything one test needs around its relays."""

from __future__ import annotations

import itertools
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pymysql
import yaml

from tests.harness.process import RelayProcess, run_command

T = TypeVar("T")

DEADLINE = float(os.environ.get("TEST_DEADLINE", "120"))
"""Seconds until a condition that should have come is called missing. Never a measure of speed."""


def wait_until(condition: Callable[[], T], what: str, timeout: float = DEADLINE) -> T:
    """Ask until the answer is true, and give it."""
    deadline = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what}")
        time.sleep(0.02)


@dataclass
class World:
    """One test's surroundings. prefix: what its topics begin with; events of aggregate type `order` go to `topic`."""

    host: str
    port: int
    user: str
    password: str
    database: str
    bootstrap: str
    prefix: str
    folder: Path

    def __post_init__(self) -> None:
        self.name = f"t-{uuid.uuid4().hex[:8]}"
        self.always: dict[str, dict[str, object]] = {}
        """Sections that every configuration has, unless it says otherwise."""
        self._relays: list[RelayProcess] = []
        self._numbers = itertools.count(1)
        self._connection: pymysql.Connection[Any] | None = None

    # -- names ------------------------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        return f"{self.prefix}order"

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.prefix}dead-letter"

    # -- MySQL ------------------------------------------------------------------------------------------------

    def connect(self, **options: Any) -> pymysql.Connection[Any]:
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            database=self.database,
            charset="utf8mb4",
            **{"autocommit": True, **options},
        )

    @contextmanager
    def sql(self) -> Iterator[Any]:
        """A cursor of the test's own session; used by the test's thread only."""
        self._connection = self._connection or self.connect()
        with self._connection.cursor() as cursor:
            yield cursor

    def close_session(self) -> None:
        """End the test's own session; the next statement opens another."""
        if self._connection is not None:
            with suppress(pymysql.MySQLError):
                self._connection.close()
            self._connection = None

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self.sql() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def insert(
        self,
        aggregate: str = "a1",
        *,
        event_type: str = "OrderPlaced",
        kind: str = "order",
        payload: str = "{}",
        table: str = "outbox_event",
        **columns: object,
    ) -> str:
        """Commit one event; gives its event_id."""
        event_id = columns.pop("event_id", None) or f"{aggregate}-{next(self._numbers)}-{uuid.uuid4().hex[:6]}"
        row = {
            "event_id": event_id,
            "aggregate_type": kind,
            "aggregate_id": aggregate,
            "event_type": event_type,
            "payload": payload,
            **columns,
        }
        names = ", ".join(row)
        marks = ", ".join(["%s"] * len(row))
        with self.sql() as cursor:
            cursor.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))
        return str(event_id)

    def statuses(self, table: str = "outbox_event") -> dict[str, int]:
        return dict(self.execute(f"SELECT event_id, status FROM {table}"))

    def row(self, event_id: str, table: str = "outbox_event") -> dict[str, Any]:
        with self.sql() as cursor:
            cursor.execute(f"SELECT * FROM {table} WHERE event_id = %s", (event_id,))
            row = cursor.fetchone()
            assert row is not None, f"no row {event_id}"
            return dict(zip([column[0] for column in cursor.description], row, strict=True))

    def wait_sent(self, *event_ids: str, timeout: float = DEADLINE) -> None:
        def left() -> list[str]:
            statuses = self.statuses()
            return [one for one in event_ids if statuses.get(one) != 2]

        wait_until(lambda: not left(), f"{len(event_ids)} events at status 2", timeout)

    def wait_settled(self, table: str = "outbox_event", timeout: float = DEADLINE) -> None:
        """Every row is sent or dead."""
        wait_until(
            lambda: (
                self.execute(
                    f"SELECT COUNT(*) FROM {table} WHERE NOT (status = 2 OR (status = 3 AND next_retry_at IS NULL))"
                )[0][0]
                == 0
            ),
            f"every row of {table} sent or dead",
            timeout,
        )

    # -- relays -----------------------------------------------------------------------------------------------

    def config(self, **sections: Any) -> Path:
        """Write a configuration; sections are merged over one that suits tests (short waits)."""
        settings: dict[str, Any] = {
            "name": self.name,
            "mysql": {
                "host": self.host,
                "port": self.port,
                "user": self.user,
                "password": self.password,
                "database": self.database,
            },
            "kafka": {
                "bootstrap_servers": self.bootstrap,
                "topic": self.prefix + "{aggregate_type}",
                "dead_letter_topic": self.dead_letter_topic,
            },
            "retry": {"waits": ["1s"], "poll_interval": "200ms", "jitter": 0},
            "leadership_timeout": "4s",
            "http": {"listen": "127.0.0.1:0"},
            "log": {"format": "json"},
        }
        for section, values in [*self.always.items(), *sections.items()]:
            if isinstance(values, dict):
                settings[section] = {**(settings.get(section) or {}), **values}
            else:
                settings[section] = values
        path = self.folder / f"{uuid.uuid4().hex[:8]}.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path

    def init(self, config: Path | None = None) -> None:
        done = run_command(config or self.config(), "init")
        assert done.returncode == 0, done.stderr

    def start(
        self,
        config: Path | None = None,
        *,
        wait_for: str | None = "leader",
        program: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        **sections: Any,
    ) -> RelayProcess:
        """Start a relay as a user would, or by a program of the test's.

        wait_for: the log event to wait for. environ: more of its environment.
        """
        relay = RelayProcess(config or self.config(**sections), program, **(environ or {}))
        self._relays.append(relay)
        if wait_for is not None:
            relay.wait_for(wait_for)
        return relay

    def stop(self) -> None:
        """SIGTERM to every relay that runs, and wait until they have drained."""
        for relay in self._relays:
            if relay.running:
                assert relay.stop() == 0

    def close(self) -> None:
        """End every relay; what they logged is shown beside a failed test."""
        self.close_session()
        for number, relay in enumerate(self._relays, start=1):
            relay.kill()
            print(f"-- log of relay {number}\n{relay.log}")
