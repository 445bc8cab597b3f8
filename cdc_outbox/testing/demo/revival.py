"""A broker of ours that somebody killed, brought back after a while: an outage to look at, with an end."""

from __future__ import annotations

import contextlib
import threading
import time

from cdc_outbox.testing.services.endpoint import KafkaEndpoint
from cdc_outbox.testing.services.server import Server
from cdc_outbox.testing.services.words import Unavailable

AFTER = 10.0
"""Seconds that the outage lasts."""


class Revival:
    def __init__(self, server: Server[KafkaEndpoint]) -> None:
        self._server = server
        self._died_at: float | None = None
        self._starting: threading.Thread | None = None

    def step(self) -> str | None:
        """Look, and act when it is time; what is to be said about the broker, None when it is well."""
        if self._starting is not None and self._starting.is_alive():
            return "the broker was killed and is starting again"
        if self._server.alive:
            self._died_at = None
            return None
        now = time.monotonic()
        self._died_at = self._died_at or now
        left = self._died_at + AFTER - now
        if left > 0:
            return f"the broker was killed; it comes back in {left:.0f} s"
        self._starting = threading.Thread(target=self._start, name="demo-revival", daemon=True)
        self._starting.start()
        return "the broker was killed and is starting again"

    def _start(self) -> None:
        with contextlib.suppress(Unavailable, RuntimeError):  # tried again at the next step; or we are ending
            self._server.start()
