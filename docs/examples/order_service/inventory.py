"""The inventory: takes each order from stock, once, however often its event comes. A process of its own."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from confluent_kafka import Consumer
from sqlalchemy import Connection, create_engine, text

from cdc_outbox import IdempotentConsumer, Received

CRASH = Path(os.environ["CRASH_FILE"])
"""The failure button: while this file is there, the next event ends the process."""


def reserve(connection: Connection, record: Received) -> None:
    """Runs in the transaction in which the event was recorded a moment ago. It must not commit."""
    if CRASH.exists():
        CRASH.unlink()
        os.kill(os.getpid(), signal.SIGKILL)  # the event is recorded, its effect is not there
    order = json.loads(record.value or b"")
    connection.execute(text("UPDATE stock SET free = free - :count WHERE sku = :sku"), order)
    connection.execute(text("INSERT INTO reservation (order_id, sku, count) VALUES (:order, :sku, :count)"), order)


def main() -> None:
    inventory = IdempotentConsumer("inventory", create_engine(os.environ["DATABASE_URL"]), keep_progress=True)
    client = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA"],
            "group.id": os.environ["TOPIC"] + ".inventory",
            "group.instance.id": "inventory-1",  # one that crashed gets its partitions back at once
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
        }
    )
    signal.signal(signal.SIGTERM, lambda *_: inventory.request_stop())
    inventory.run(client, [os.environ["TOPIC"]], reserve)
    client.close()


if __name__ == "__main__":
    main()
