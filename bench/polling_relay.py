"""The relay that everybody writes first, to compare with: SELECT … FOR UPDATE SKIP LOCKED, produce, flush, UPDATE.

It is made to be fast, not for what can go wrong: no retries, no dead letters, no order across a failure.
"""

from __future__ import annotations

import signal
import time
from typing import Any

import pymysql
from confluent_kafka import Producer

from bench.place import DEADLOCK, Place, say_ready

BATCH = 500
SELECT = (
    "SELECT id, event_id, aggregate_id, event_type, payload FROM outbox_event"
    f" WHERE status = 0 ORDER BY id LIMIT {BATCH} FOR UPDATE SKIP LOCKED"
)


class PollingRelay:
    """interval: seconds to pause when nothing was found."""

    def __init__(self, place: Place, interval: float) -> None:
        self._topic = place.topic
        self._interval = interval
        self._session = place.servers.connect(place.database)
        self._session.autocommit(False)
        self._producer = Producer(
            {"bootstrap.servers": place.servers.kafka.bootstrap, "enable.idempotence": True, "acks": "all"}
        )
        self._producer.list_topics(self._topic, timeout=10)
        self._refused: list[str] = []
        self._stopping = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, number: int, frame: object) -> None:
        self._stopping = True

    def run(self) -> None:
        say_ready()
        while not self._stopping:
            try:
                idle = not self._relay_batch()
            except pymysql.OperationalError as error:
                if error.args[0] != DEADLOCK:
                    raise
                continue  # all of the batch is sent again
            if idle:
                time.sleep(self._interval)

    def _relay_batch(self) -> bool:
        with self._session.cursor() as cursor:
            cursor.execute(SELECT)
            rows = cursor.fetchall()
            if rows:
                for _, event_id, aggregate_id, event_type, payload in rows:
                    self._producer.produce(
                        self._topic,
                        payload,
                        aggregate_id,
                        headers=[("event_id", event_id), ("event_type", event_type)],
                        on_delivery=self._delivered,
                    )
                self._producer.flush()
                if self._refused:
                    raise RuntimeError(f"not delivered: {self._refused[0]}")
                marks = ", ".join(["%s"] * len(rows))
                cursor.execute(f"UPDATE outbox_event SET status = 2 WHERE id IN ({marks})", [row[0] for row in rows])
            self._session.commit()
        return bool(rows)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._refused.append(str(error))


if __name__ == "__main__":
    given = Place.given()
    PollingRelay(given, given.arguments["interval"]).run()
