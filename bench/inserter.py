"""A service that inserts events as fast as its connections can, each in a transaction of its own."""

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

LOCK_WAIT_TIMEOUT = 1205
_NUMBERS = 1_000_000
"""Events that one thread has numbers for."""


class Inserter:
    """took: seconds of each INSERT, the failed ones before it included; failed: error -> how often it was met."""

    def __init__(self, place: Place, threads: int, seconds: float) -> None:
        self.took: list[float] = []
        self.failed = {DEADLOCK: 0, LOCK_WAIT_TIMEOUT: 0}
        self._place = place
        self._threads = threads
        self._seconds = seconds
        self._failures: list[BaseException] = []
        self._all_connected = threading.Barrier(threads)

    def run(self) -> None:
        """Raises what a thread has met."""
        say_ready()
        threads = [threading.Thread(target=self._insert, args=(one,), daemon=True) for one in range(self._threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _insert(self, thread: int) -> None:
        took: list[float] = []
        number = thread * _NUMBERS
        try:
            with self._place.servers.connect(self._place.database) as session, session.cursor() as cursor:
                self._all_connected.wait()
                end = time.monotonic() + self._seconds
                while time.monotonic() < end:
                    statement = INSERT + values(number, session.escape)
                    number += 1
                    begin = time.monotonic()
                    while not self._committed(cursor, statement):
                        pass
                    took.append(time.monotonic() - begin)
        except BaseException as error:
            self._failures.append(error)
            self._all_connected.abort()
        self.took += took

    def _committed(self, cursor: Any, statement: str) -> bool:
        try:
            cursor.execute(statement)
        except pymysql.OperationalError as error:
            if error.args[0] not in self.failed:
                raise
            self.failed[error.args[0]] += 1
            return False
        return True


if __name__ == "__main__":
    sys.setswitchinterval(0.001)  # a thread whose COMMIT has returned should go on at once
    given = Place.given()
    inserter = Inserter(given, given.arguments["threads"], given.arguments["seconds"])
    inserter.run()
    failed = [inserter.failed[DEADLOCK], inserter.failed[LOCK_WAIT_TIMEOUT]]
    Path(given.arguments["notes"]).write_text(json.dumps([inserter.took, failed]))
