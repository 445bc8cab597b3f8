"""A service that inserts events as fast as its connections can, each in a transaction of its own."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bench.place import DEADLOCK, Place
from bench.service import Connection, Service

LOCK_WAIT_TIMEOUT = 1205
_NUMBERS = 1_000_000
"""Events that one thread has numbers for."""


class Inserter(Service):
    """took: seconds of each INSERT, the failed ones before it included."""

    def __init__(self, place: Place, threads: int, seconds: float) -> None:
        super().__init__(place, threads, (DEADLOCK, LOCK_WAIT_TIMEOUT))
        self.took: list[float] = []
        self._seconds = seconds

    def insert(self, first: int, connection: Connection) -> None:
        took: list[float] = []
        number = first * _NUMBERS
        end = time.monotonic() + self._seconds
        while time.monotonic() < end:
            statement = connection.statement(number)
            number += 1
            begin = time.monotonic()
            connection.commit(statement)
            took.append(time.monotonic() - begin)
        self.took += took


if __name__ == "__main__":
    sys.setswitchinterval(0.001)  # a thread whose COMMIT has returned should go on at once
    given = Place.given()
    inserter = Inserter(given, given.arguments["threads"], given.arguments["seconds"])
    inserter.run()
    failed = [inserter.failed[DEADLOCK], inserter.failed[LOCK_WAIT_TIMEOUT]]
    Path(given.arguments["notes"]).write_text(json.dumps([inserter.took, failed]))
