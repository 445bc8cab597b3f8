"""A service that commits events at a fixed rate, whatever the answers take, and notes when each COMMIT returned."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pymysql

from bench.backlog import INSERT, values
from bench.place import DEADLOCK, Place, say_ready

THREADS = 8


class Writer:
    """rate: events a second.

    commits: (event number, CLOCK_MONOTONIC in ns). deadlocks: INSERTs that failed with 1213 and were tried again.
    """

    def __init__(self, place: Place, events: int, rate: float) -> None:
        self.commits: list[tuple[int, int]] = []
        self.deadlocks = 0
        self._failures: list[BaseException] = []
        self._rate = rate
        self._events = events
        self._place = place
        self._all_connected = threading.Barrier(THREADS, action=self._begin_now)
        self._begin = 0.0

    def _begin_now(self) -> None:
        self._begin = time.monotonic()

    def run(self) -> None:
        """Raises what a thread has met."""
        say_ready()
        threads = [threading.Thread(target=self._write, args=(first,), daemon=True) for first in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _write(self, first: int) -> None:
        commits: list[tuple[int, int]] = []
        try:
            with self._place.servers.connect(self._place.database) as session, session.cursor() as cursor:
                self._all_connected.wait()
                for number in range(first, self._events, THREADS):
                    statement = INSERT + values(number, session.escape)
                    time.sleep(max(0.0, self._begin + number / self._rate - time.monotonic()))
                    while not self._committed(cursor, statement):
                        pass
                    commits.append((number, time.monotonic_ns()))
        except BaseException as error:
            self._failures.append(error)
            self._all_connected.abort()
        self.commits += commits

    def _committed(self, cursor: Any, statement: str) -> bool:
        try:
            cursor.execute(statement)
        except pymysql.OperationalError as error:
            if error.args[0] != DEADLOCK:
                raise
            self.deadlocks += 1
            return False
        return True


if __name__ == "__main__":
    sys.setswitchinterval(0.001)  # a thread whose COMMIT has returned should note it at once
    given = Place.given()
    writer = Writer(given, given.arguments["events"], given.arguments["rate"])
    writer.run()
    Path(given.arguments["notes"]).write_text(json.dumps([writer.deadlocks, writer.commits]))
