"""The page with its failure buttons, and what it shows: the state of orders, events and stock. No part of a service."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse
from sqlalchemy import Connection, Engine, text

from cdc_outbox.testing.demo.supervised import Supervised

PAGE = Path(__file__).with_name("page.html")
TABLES = (
    "CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, sku VARCHAR(32) NOT NULL, count INT NOT NULL)",
    "CREATE TABLE stock (sku VARCHAR(32) PRIMARY KEY, free INT NOT NULL)",
    # No unique key on order_id, on purpose: a doubled effect would be seen.
    "CREATE TABLE reservation (id INT AUTO_INCREMENT PRIMARY KEY, order_id INT NOT NULL, sku VARCHAR(32), count INT)",
    "INSERT INTO stock VALUES ('book', 1000)",
)
AMISS = """
    SELECT COUNT(CASE WHEN done = 0 THEN 1 END), COUNT(CASE WHEN done > 1 THEN 1 END)
    FROM (SELECT orders.id, COUNT(reservation.id) AS done FROM orders
          LEFT JOIN reservation ON reservation.order_id = orders.id GROUP BY orders.id) AS each_order
"""
# The state in which a failed event waits for its retry. The relay sends it again, as it would after a crash between
# the broker's acknowledgement and the row's update.
REDELIVER = "UPDATE outbox_event SET status = 3, next_retry_at = NOW() WHERE status = 2 ORDER BY id DESC LIMIT 1"


def add_buttons(
    app: FastAPI, engine: Engine, *, relay: Supervised, inventory: Supervised, crash: Path, bootstrap: str, topic: str
) -> None:
    kafka = Consumer({"bootstrap.servers": bootstrap, "group.id": "page", "log_level": 0})

    def records() -> int:
        partitions = kafka.list_topics(topic, timeout=10).topics[topic].partitions
        return sum(kafka.get_watermark_offsets(TopicPartition(topic, one), timeout=10)[1] for one in partitions)

    @app.get("/")
    def page() -> FileResponse:
        return FileResponse(PAGE)

    @app.get("/state")
    def state() -> dict[str, Any]:
        with engine.begin() as connection:  # one snapshot of all tables
            return {
                **_tables(connection),
                "records": records(),
                "relay": {"pid": relay.pid, "starts": relay.starts},
                "inventory": {"pid": inventory.pid, "starts": inventory.starts},
            }

    @app.post("/failures/kill-relay")
    def kill_relay() -> None:
        relay.kill()

    @app.post("/failures/crash-consumer")
    def crash_consumer() -> None:
        """With the next event: place an order."""
        crash.touch()

    @app.post("/failures/redeliver")
    def redeliver() -> None:
        with engine.begin() as connection:
            if connection.execute(text(REDELIVER)).rowcount == 0:
                raise HTTPException(409, "no event has been sent yet: place an order first")


def _tables(connection: Connection) -> dict[str, Any]:
    def number(query: str) -> int:
        return int(connection.execute(text(query)).scalar() or 0)

    unserved, doubled = connection.execute(text(AMISS)).one()
    rows = connection.execute(
        text("SELECT id, aggregate_id, event_type, status, retry_count FROM outbox_event ORDER BY id DESC LIMIT 12")
    )
    return {
        "orders": number("SELECT COUNT(*) FROM orders"),
        "ordered": number("SELECT SUM(count) FROM orders"),
        "events": number("SELECT COUNT(*) FROM outbox_event"),
        "unsent": number("SELECT COUNT(*) FROM outbox_event WHERE status <> 2"),
        "read": number("SELECT SUM(next_offset) FROM consumer_offset"),
        "processed": number("SELECT COUNT(*) FROM processed_event WHERE state = 1"),
        "free": number("SELECT free FROM stock"),
        "unserved": int(unserved),
        "doubled": int(doubled),
        "rows": [dict(row) for row in rows.mappings()],
    }
