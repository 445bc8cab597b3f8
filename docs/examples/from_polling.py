"""From a polling worker to the relay without a stop: worker alone, both, relay alone; nothing lost, nothing doubled."""

from __future__ import annotations

import argparse
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pymysql
from confluent_kafka import Producer

from cdc_outbox.testing.demo.board import Board
from cdc_outbox.testing.demo.consumer import TopicReader
from cdc_outbox.testing.demo.orders import ORDERS_TABLE
from cdc_outbox.testing.demo.shop import Shop
from cdc_outbox.testing.demo.stage import Stage, perform, say, stage
from cdc_outbox.testing.services.endpoint import wait_until

T = TypeVar("T")


class PollingWorker:
    """The worker that everybody writes first, made fit to share its table: it claims by committing status 1.

    A worker that keeps its transaction open while it publishes, or publishes rows that it has not claimed, must be
    changed to this before the relay comes beside it.
    """

    LOOK = (
        "SELECT id, event_id, aggregate_id, event_type, payload FROM outbox_event"
        " WHERE status = 0 AND next_retry_at IS NULL ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED"
    )
    SET = "UPDATE outbox_event SET status = %s WHERE id IN %s AND status = %s"

    def __init__(self, session: pymysql.Connection[Any], bootstrap: str, topic: str, *, interval: float = 0.05) -> None:
        session.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")  # else its locks keep writers waiting
        self._session = session
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        self._topic = topic
        self._interval = interval
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="polling-worker")
        self.published = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Let it finish its batch: a worker that is killed leaves rows at 1, which the relay sends again."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        with self._session:
            while not self._over.is_set():
                if not self._publish_batch():
                    self._over.wait(self._interval)

    def _publish_batch(self) -> int:
        rows = self._in_transaction(self._claim)
        for _, event_id, aggregate_id, event_type, payload in rows:
            headers = [("event_id", event_id), ("event_type", event_type)]
            self._producer.produce(self._topic, payload, aggregate_id, headers=headers)
        self._producer.flush()
        self._in_transaction(lambda cursor: self._set(cursor, rows, 1, 2))
        self.published += len(rows)
        return len(rows)

    def _claim(self, cursor: Any) -> tuple[Any, ...]:
        cursor.execute(self.LOOK)
        rows: tuple[Any, ...] = cursor.fetchall()
        self._set(cursor, rows, 0, 1)
        return rows

    def _set(self, cursor: Any, rows: tuple[Any, ...], before: int, after: int) -> None:
        if rows:
            cursor.execute(self.SET, (after, [row[0] for row in rows], before))

    def _in_transaction(self, work: Callable[[Any], T]) -> T:
        while True:
            try:
                with self._session.cursor() as cursor:
                    done = work(cursor)
                self._session.commit()
                return done
            except pymysql.err.OperationalError as error:
                self._session.rollback()
                if error.args[0] not in (1205, 1213):  # lock wait, deadlock
                    raise


# -- the migration ----------------------------------------------------------------------------------------------------


def main() -> int:
    options = _options()
    with stage(options.name, keep=options.keep) as made:
        made.execute(ORDERS_TABLE)
        board = Board()
        reader = TopicReader(made.bootstrap, made.topic, board.see)
        shop = Shop(made.pair.mysql.endpoint, made.database, 50, board.add)
        worker = PollingWorker(made.connect(), made.bootstrap, made.topic)
        reader.start()
        worker.start()
        shop.start()
        try:
            return _migrate(made, board, shop, worker, options.seconds)
        finally:
            shop.stop()
            worker.stop()
            reader.stop()


def _migrate(made: Stage, board: Board, shop: Shop, worker: PollingWorker, seconds: float) -> int:
    def phase(title: str) -> None:
        say(title)
        time.sleep(seconds)
        say(f"   so far {board.totals().in_kafka} events have come, {worker.published} of them by the worker")

    phase("1. The worker alone")
    made.configure(outbox={"claim": "row"})
    made.start_relay()
    phase("2. The relay beside it, with outbox.claim: row")
    worker.stop()
    phase("3. The worker is stopped, the relay goes on alone")
    made.relay.stop()
    made.configure()
    made.start_relay()
    phase("4. The relay without outbox.claim: row, which is for shared tables")
    shop.stop()
    wait_until(lambda: not board.totals().missing and not _unsent(made), seconds=60)
    totals, unsent = board.totals(), _unsent(made)
    say(f"{totals.written} events: {totals.missing} lost, {totals.duplicates} doubled, {unsent} rows not at status 2")
    return 1 if totals.missing or totals.duplicates or unsent else 0


def _unsent(made: Stage) -> int:
    return int(made.execute("SELECT COUNT(*) FROM outbox_event WHERE status <> 2")[0][0])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/example from_polling", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, metavar="N", help="of each phase (default: 5)")
    parser.add_argument("--name", default=f"polling_{secrets.token_hex(4)}", help="of the database that is made")
    parser.add_argument("--keep", action="store_true", help="leave database and topic on services that are yours")
    return parser.parse_args()


if __name__ == "__main__":
    perform(main)
