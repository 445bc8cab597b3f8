"""A small order service, as an application would write it: the change and its event in one transaction."""

from __future__ import annotations

import json
import random
import time
import uuid
from typing import Any, NamedTuple

import pymysql

ORDERS_TABLE = """
CREATE TABLE orders (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  number VARCHAR(32) NOT NULL UNIQUE,
  customer VARCHAR(64) NOT NULL,
  cents BIGINT NOT NULL,
  state VARCHAR(16) NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4
"""
_CUSTOMERS = ("Ada", "Grace", "王小云", "Linus", "José")
_NEXT = {"placed": "paid", "paid": "shipped"}


class Written(NamedTuple):
    """An event whose transaction was committed. at: seconds since the epoch, taken just before the COMMIT."""

    event_id: str
    order: str
    event_type: str
    at: float


class OrderService:
    """Places orders and moves them on. connection: autocommit off; its errors are pymysql's, the caller's to meet."""

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self._connection = connection
        self._open: dict[str, str] = {}  # order number -> state, of the orders that go on

    def work(self) -> Written:
        """What a minute in a shop brings: a new order, or an older one is paid or shipped."""
        if self._open and random.random() < 0.6:
            return self.move_on(random.choice(list(self._open)))
        return self.place(random.choice(_CUSTOMERS), random.randrange(500, 50_000))

    def place(self, customer: str, cents: int) -> Written:
        number = f"A-{uuid.uuid4().hex[:6]}"
        with self._connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO orders (number, customer, cents, state) VALUES (%s, %s, %s, 'placed')",
                (number, customer, cents),
            )
        written = self._commit_with(number, "OrderPlaced", {"customer": customer, "cents": cents})
        self._open[number] = "placed"
        return written

    def move_on(self, number: str) -> Written:
        state = _NEXT[self._open[number]]
        with self._connection.cursor() as cursor:
            cursor.execute("UPDATE orders SET state = %s WHERE number = %s", (state, number))
        written = self._commit_with(number, f"Order{state.capitalize()}", {"state": state})
        if state in _NEXT:
            self._open[number] = state
        else:
            del self._open[number]
        return written

    def _commit_with(self, number: str, event_type: str, payload: dict[str, object]) -> Written:
        """The outbox pattern: the event is a row beside the change, committed with it or not at all."""
        event_id = str(uuid.uuid4())
        with self._connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
                " VALUES (%s, 'order', %s, %s, %s)",
                (event_id, number, event_type, json.dumps({"order": number, **payload}, ensure_ascii=False)),
            )
        before = time.time()
        self._connection.commit()
        return Written(event_id, number, event_type, before)
