"""The order service at work: so many orders a second, on a thread of its own, across outages of MySQL."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pymysql

from cdc_outbox.testing.demo.orders import OrderService, Written
from cdc_outbox.testing.services.endpoint import MySQLEndpoint


def connect(server: MySQLEndpoint, database: str | None, *, autocommit: bool) -> pymysql.Connection[Any]:
    return pymysql.connect(
        host=server.host,
        port=server.port,
        user=server.user,
        password=server.password,
        database=database,
        charset="utf8mb4",
        autocommit=autocommit,
        connect_timeout=5,
        read_timeout=10,
    )


class Shop:
    """written: called with each event whose transaction was committed. rate: events a second."""

    def __init__(self, server: MySQLEndpoint, database: str, rate: float, written: Callable[[Written], None]) -> None:
        self._server = server
        self._database = database
        self._pause = 1 / rate
        self._written = written
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-shop")
        self.trouble: str | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                with connect(self._server, self._database, autocommit=False) as connection:
                    self._work(OrderService(connection))
            except (pymysql.err.OperationalError, pymysql.err.InterfaceError):
                self.trouble = "the order service cannot reach MySQL and tries again"
                self._over.wait(1)

    def _work(self, service: OrderService) -> None:
        while not self._over.wait(self._pause):
            self._written(service.work())
            self.trouble = None
