"""Writers: threads that commit events as an application would, and note the commit order of each aggregate."""

from __future__ import annotations

import json
import random
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants.ER import LOCK_DEADLOCK

if TYPE_CHECKING:
    from tests.harness.world import World


class Writer:
    """Commits events to a number of aggregates, each owned by one thread, until stopped or `limit` is reached.

    commits: event ids of each aggregate in commit order; only what was committed for sure.
    """

    def __init__(
        self,
        world: World,
        *,
        threads: int = 2,
        aggregates: int = 20,
        limit: int | None = None,
        rate: float | None = None,
        seed: int = 1,
        table: str = "outbox_event",
        first_number: int = 1,
        transient: bool = False,
        deadlocks: bool = False,
    ) -> None:
        """rate: transactions a second of each thread, None: as fast as it goes. first_number: of each aggregate; a
        second writer goes on above the first one's. transient: each row is deleted in the transaction that
        inserted it. deadlocks: a transaction that MySQL chose as the victim of one is written again, as an
        application does; where only the relay could cause it, it is a failure."""
        self._world = world
        self._table = table
        self._limit = limit
        self._pause = 1 / rate if rate else 0.0
        self._first_number = first_number
        self._transient = transient
        self._deadlocks = deadlocks
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._count = 0
        self.failures: list[BaseException] = []
        self.commits: dict[str, list[str]] = defaultdict(list)
        shares = [[f"agg-{n}" for n in range(aggregates) if n % threads == t] for t in range(threads)]
        self._threads = [
            threading.Thread(target=self._write, args=(share, random.Random(seed + t)), daemon=True)
            for t, share in enumerate(shares)
        ]

    def start(self) -> Writer:
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> dict[str, list[str]]:
        """End the threads; gives the commits."""
        self._stop.set()
        return self.join()

    def join(self, timeout: float = 120) -> dict[str, list[str]]:
        for thread in self._threads:
            thread.join(timeout)
            assert not thread.is_alive(), "a writer hangs"
        if self.failures:
            raise self.failures[0]
        return dict(self.commits)

    @property
    def committed(self) -> set[str]:
        """The event ids so far; another transaction may have been committed that is not noted yet."""
        with self._lock:
            return {event_id for events in self.commits.values() for event_id in events}

    @property
    def count(self) -> int:
        """Events committed so far; what ended a writer is raised here too, where a test waits for more."""
        if self.failures:
            raise self.failures[0]
        return self._count

    def _write(self, aggregates: list[str], random: random.Random) -> None:
        connection = self._world.connect(autocommit=False)
        try:
            numbers: dict[str, int] = defaultdict(lambda: self._first_number - 1)
            while not self._stop.is_set():
                transaction: list[tuple[str, int]] = []
                for _ in range(random.choice((1, 1, 1, 3))):
                    aggregate = random.choice(aggregates)
                    numbers[aggregate] += 1
                    transaction.append((aggregate, numbers[aggregate]))
                written = self._commit(connection, transaction)
                with self._lock:
                    for aggregate, event_id in written:
                        self.commits[aggregate].append(event_id)
                    self._count += len(written)
                    if self._limit is not None and self._count >= self._limit:
                        self._stop.set()
                if self._pause:
                    self._stop.wait(self._pause)
        except BaseException as error:
            self.failures.append(error)
        finally:
            connection.close()

    def _commit(self, connection: Any, transaction: list[tuple[str, int]]) -> list[tuple[str, str]]:
        """Write one transaction of (aggregate, number); gives (aggregate, event id) of each."""
        while True:
            try:
                with connection.cursor() as cursor:
                    written = [
                        (aggregate, self._insert(cursor, aggregate, number)) for aggregate, number in transaction
                    ]
                connection.commit()
            except pymysql.err.OperationalError as error:
                if not self._deadlocks or error.args[0] != LOCK_DEADLOCK:
                    raise
                connection.rollback()
            else:
                return written

    def _insert(self, cursor: Any, aggregate: str, number: int) -> str:
        event_id = f"{aggregate}-{number:06d}"
        cursor.execute(
            f"INSERT INTO {self._table} (event_id, aggregate_type, aggregate_id, event_type, payload)"
            " VALUES (%s, 'order', %s, 'OrderPlaced', %s)",
            (event_id, aggregate, json.dumps({"number": number, "pad": "x" * 100})),
        )
        if self._transient:
            # Found by another key, the gap beside the row is locked too: two writers would be a deadlock.
            cursor.execute(f"DELETE FROM {self._table} WHERE id = LAST_INSERT_ID()")
        return event_id
