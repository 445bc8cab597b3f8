"""The application of a soak: commits for as long as it runs, whatever becomes of its connections."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pymysql

if TYPE_CHECKING:
    from tests.harness.world import World

AGGREGATES = 40
REFUSED = 0.002
"""Share of events that are too large."""


class Load:
    """commits: event ids of each aggregate in commit order. A commit without an answer is looked up afterwards."""

    def __init__(self, world: World, *, rate: float, seed: int, max_bytes: int) -> None:
        """rate: transactions a second. max_bytes: what the relay takes for too large."""
        self._world = world
        self._pause = 1 / rate
        self._chance = random.Random(seed)
        self._too_large = "x" * max_bytes
        self._stop = threading.Event()
        self._numbers: dict[str, int] = defaultdict(int)
        self._connection: pymysql.Connection[Any] | None = None
        self.commits: dict[str, list[str]] = defaultdict(list)
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._write, daemon=True)

    def start(self) -> Load:
        self._thread.start()
        return self

    def stop(self) -> dict[str, list[str]]:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "the writer hangs"
        if self.failure is not None:
            raise self.failure
        return dict(self.commits)

    @property
    def count(self) -> int:
        return sum(len(events) for events in self.commits.values())

    def _write(self) -> None:
        try:
            while not self._stop.is_set():
                self._commit()
                self._stop.wait(self._pause)
        except BaseException as error:
            self.failure = error
        finally:
            self._close()

    def _commit(self) -> None:
        aggregates = [f"agg-{self._chance.randrange(AGGREGATES)}" for _ in range(self._chance.choice((1, 1, 2, 5)))]
        rows = []
        for aggregate in aggregates:
            self._numbers[aggregate] += 1
            number = self._numbers[aggregate]
            pad = self._too_large if self._chance.random() < REFUSED else "x" * self._chance.randrange(300)
            rows.append((f"{aggregate}-{number:07d}", aggregate, json.dumps({"number": number, "pad": pad})))
        while not self._committed(rows):
            time.sleep(0.2)
            if self._there(rows):
                break
        for event_id, aggregate, _ in rows:
            self.commits[aggregate].append(event_id)

    def _committed(self, rows: list[tuple[str, str, str]]) -> bool:
        try:
            connection = self._connected()
            with connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO outbox_event"
                    " (event_id, aggregate_type, aggregate_id, event_type, payload, max_retries)"
                    " VALUES (%s, 'order', %s, 'OrderPlaced', %s, 2)",
                    rows,
                )
            connection.commit()
            return True
        except pymysql.err.IntegrityError:
            raise
        except (pymysql.MySQLError, OSError):
            self._close()
            return False

    def _there(self, rows: list[tuple[str, str, str]]) -> bool:
        """Whether a transaction that failed was committed all the same; asked until the server answers."""
        while True:
            try:
                with self._connected().cursor() as cursor:
                    cursor.execute("SELECT 1 FROM outbox_event WHERE event_id = %s FOR UPDATE", (rows[0][0],))
                    found = cursor.fetchone() is not None
                self._connected().rollback()
                return found
            except (pymysql.MySQLError, OSError):
                self._close()
                time.sleep(0.2)

    def _connected(self) -> pymysql.Connection[Any]:
        if self._connection is None:
            self._connection = self._world.connect(autocommit=False, connect_timeout=5, read_timeout=30)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            try:
                connection.close()
            except (pymysql.MySQLError, OSError):
                return
