"""The relay that people write on mysql-replication and kafka-python, to compare with: read rows, send, flush, UPDATE.

It is made to be read, not for what can go wrong: no retries, no dead letters, one relay at a time, and a position that
is stored after the rows. It reads the binlog again every 50 ms when it has come to its end, as the library has no
timeout of its own that would let the last, small batch go.
"""

from __future__ import annotations

import json
import secrets
import signal
import time
from pathlib import Path
from typing import Any

from kafka import KafkaProducer
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent

from bench.place import Place, say_ready

BATCH = 500
INTERVAL = 0.05


class HandwrittenRelay:
    """position: the file that its binlog position is kept in; where there is none, it begins at the log's end."""

    def __init__(self, place: Place, position: Path) -> None:
        self._topic = place.topic
        self._session = place.servers.connect(place.database)
        self._producer = KafkaProducer(bootstrap_servers=place.servers.kafka.bootstrap, acks="all", linger_ms=5)
        self._position = position
        if not position.exists():
            with self._session.cursor() as cursor:
                cursor.execute("SHOW BINARY LOG STATUS")
                position.write_text(json.dumps((cursor.fetchone() or ())[:2]))
        file, offset = json.loads(position.read_text())
        mysql = place.servers.mysql
        self._stream = BinLogStreamReader(
            {"host": mysql.host, "port": mysql.port, "user": mysql.user, "passwd": mysql.password},
            server_id=2_000_200_000 + secrets.randbelow(100_000),
            only_events=[WriteRowsEvent],
            only_schemas=[place.database],
            only_tables=["outbox_event"],
            resume_stream=True,
            log_file=file,
            log_pos=offset,
        )
        self._sent: dict[int, Any] = {}
        self._stopping = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, number: int, frame: object) -> None:
        self._stopping = True

    def run(self) -> None:
        say_ready()
        while not self._stopping:
            self._read_to_the_end()
            self._settle()
            time.sleep(INTERVAL)
        self._stream.close()

    def _read_to_the_end(self) -> None:
        for event in self._stream:
            for row in event.rows:
                self._send(row["values"])
            if len(self._sent) >= BATCH:
                self._settle()
            if self._stopping:
                break

    def _send(self, row: dict[str, Any]) -> None:
        answer = self._producer.send(
            self._topic,
            key=row["aggregate_id"].encode(),
            value=json.dumps(_text(row["payload"]), ensure_ascii=False).encode(),
            headers=[("event_id", row["event_id"].encode()), ("event_type", row["event_type"].encode())],
        )
        self._sent[row["id"]] = answer

    def _settle(self) -> None:
        if not self._sent:
            return
        self._producer.flush()
        for answer in self._sent.values():
            answer.get()  # raises what Kafka has refused
        marks = ", ".join(["%s"] * len(self._sent))
        with self._session.cursor() as cursor:
            cursor.execute(f"UPDATE outbox_event SET status = 2 WHERE id IN ({marks})", list(self._sent))
        self._position.write_text(json.dumps([self._stream.log_file, self._stream.log_pos]))
        self._sent.clear()


def _text(value: Any) -> Any:
    """The library's JSON has bytes where there were strings."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {_text(key): _text(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_text(one) for one in value]
    return value


if __name__ == "__main__":
    given = Place.given()
    HandwrittenRelay(given, Path(given.arguments["position"])).run()
