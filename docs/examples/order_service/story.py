"""Presses every button once and looks at what comes of it: what --check does."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from cdc_outbox.testing.demo.stage import say
from cdc_outbox.testing.services.endpoint import wait_until

PATIENCE = 60.0
STOCK = 1000


class Wrong(Exception):
    """The end is not what it must be; the message says where."""


class Story:
    """step: called while waiting; it keeps relay and inventory running."""

    def __init__(self, url: str, step: Callable[[], None]) -> None:
        self._url = url
        self._step = step

    def play(self) -> None:
        """Raises Wrong."""
        self.place()
        self.wait("an order is served", self._at_rest)
        say("An order that rolls back: no order, no event")
        if self.post("/orders?decline=true", count=1) != 402 or self.state()["events"] != 1:
            raise Wrong(f"a declined order left something behind: {self.state()}")
        say("kill -9 the relay, and orders meanwhile")
        self.post("/failures/kill-relay")
        for _ in range(3):
            self.place()
        self.wait("the relay is back and all is served", lambda now: now["relay"]["starts"] == 2 and self._at_rest(now))
        say("The inventory crashes between record and effect")
        self.post("/failures/crash-consumer")
        self.place()
        self.wait(
            "the inventory is back and all is served",
            lambda now: now["inventory"]["starts"] == 2 and self._at_rest(now),
        )
        say("An event comes again")
        records = self.state()["records"]
        self.post("/failures/redeliver")
        end = self.wait("it has come", lambda now: now["records"] > records and self._at_rest(now))
        if (end["orders"], end["processed"], end["free"]) != (5, 5, STOCK - 10):
            raise Wrong(f"5 orders of 2 books each, but: {end}")
        say(f"{end['orders']} orders, {end['records']} records in Kafka, {end['processed']} processed, none doubled.")

    def place(self) -> None:
        if self.post("/orders", count=2) != 201:
            raise Wrong("an order was refused")

    def post(self, path: str, **body: object) -> int:
        """The HTTP status."""
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), method="POST")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(self._url + "/state", timeout=20) as answer:
            found: dict[str, Any] = json.load(answer)
        if found["doubled"]:
            raise Wrong(f"orders were served twice: {found}")
        return found

    def wait(self, what: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        def come() -> bool:
            self._step()
            return condition(self.state())

        if not wait_until(come, seconds=PATIENCE, pause=0.2):
            raise Wrong(f"not within {PATIENCE:.0f} s: {what}. Now: {self.state()}")
        return self.state()

    @staticmethod
    def _at_rest(now: dict[str, Any]) -> bool:
        """Every event is sent, and every record was read by the inventory."""
        return not now["unsent"] and not now["unserved"] and now["read"] == now["records"] >= now["events"]
