"""A service that inserts events over several connections at once, each event in a transaction of its own."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Any

import pymysql

from bench.backlog import INSERT, values
from bench.place import Place, say_ready


class Connection:
    """What one thread of a service inserts with; it counts in `failed` what MySQL gave to an INSERT."""

    def __init__(self, session: pymysql.Connection[Any], cursor: Any, failed: dict[int, int]) -> None:
        self._session = session
        self._cursor = cursor
        self._failed = failed

    def statement(self, number: int) -> str:
        """The INSERT of the event with this number."""
        return INSERT + values(number, self._session.escape)

    def commit(self, statement: str) -> None:
        """Execute it, again and again while MySQL gives it an error that is counted. Raises pymysql.MySQLError."""
        while not self._committed(statement):
            pass

    def _committed(self, statement: str) -> bool:
        try:
            self._cursor.execute(statement)
        except pymysql.OperationalError as error:
            if error.args[0] not in self._failed:
                raise
            self._failed[error.args[0]] += 1
            return False
        return True


class Service(ABC):
    """failed: error -> how often MySQL gave it to an INSERT, which was tried again."""

    def __init__(self, place: Place, connections: int, tried_again: Collection[int]) -> None:
        self.failed = dict.fromkeys(tried_again, 0)
        self._place = place
        self._connections = connections
        self._failures: list[BaseException] = []
        self._all_connected = threading.Barrier(connections, action=self._begin)
        self.begun = 0.0
        """When all were connected, by the monotonic clock."""

    def _begin(self) -> None:
        self.begun = time.monotonic()

    @abstractmethod
    def insert(self, first: int, connection: Connection) -> None:
        """What the thread of the connection numbered `first`, from 0, does."""

    def run(self) -> None:
        """Raises what a thread has met."""
        say_ready()
        threads = [threading.Thread(target=self._insert, args=(one,), daemon=True) for one in range(self._connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _insert(self, first: int) -> None:
        try:
            with self._place.servers.connect(self._place.database) as session, session.cursor() as cursor:
                self._all_connected.wait()
                self.insert(first, Connection(session, cursor, self.failed))
        except BaseException as error:
            self._failures.append(error)
            self._all_connected.abort()
