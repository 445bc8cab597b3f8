"""A service that commits events at a fixed rate, whatever the answers take, and notes when each COMMIT returned."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bench.place import DEADLOCK, Place
from bench.service import Connection, Service

THREADS = 8


class Writer(Service):
    """rate: events a second.

    commits: (event number, CLOCK_MONOTONIC in ns). INSERTs that failed with 1213 were tried again.
    """

    def __init__(self, place: Place, events: int, rate: float) -> None:
        super().__init__(place, THREADS, (DEADLOCK,))
        self.commits: list[tuple[int, int]] = []
        self._rate = rate
        self._events = events

    def insert(self, first: int, connection: Connection) -> None:
        commits: list[tuple[int, int]] = []
        for number in range(first, self._events, THREADS):
            statement = connection.statement(number)
            time.sleep(max(0.0, self.begun + number / self._rate - time.monotonic()))
            connection.commit(statement)
            commits.append((number, time.monotonic_ns()))
        self.commits += commits


if __name__ == "__main__":
    sys.setswitchinterval(0.001)  # a thread whose COMMIT has returned should note it at once
    given = Place.given()
    writer = Writer(given, given.arguments["events"], given.arguments["rate"])
    writer.run()
    Path(given.arguments["notes"]).write_text(json.dumps([writer.failed[DEADLOCK], writer.commits]))
