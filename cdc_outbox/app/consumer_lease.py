"""Keeps the leases of running handlers alive, on one thread for each consumer. It never takes a lease."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

from cdc_outbox.app.processed_events import Claim

logger = logging.getLogger(__name__)

RENEWALS_PER_LEASE = 3
"""A lease survives a renewal that failed, and the one after it."""


class LeaseKeeper:
    """renew: renews one claim, False when it is another's by now. lease: seconds. Times are this process's own:
    they only say when to ask; when a lease ends is for the database to say."""

    def __init__(self, renew: Callable[[Claim], bool], lease: float) -> None:
        self._renew = renew
        self._every = lease / RENEWALS_PER_LEASE
        self._due: dict[Claim, float] = {}
        self._lock = threading.Lock()
        self._running: tuple[threading.Thread, threading.Event] | None = None

    @contextlib.contextmanager
    def keeping(self, claim: Claim) -> Iterator[None]:
        """Renew the claim's lease until the block ends."""
        with self._lock:
            self._due[claim] = time.monotonic() + self._every
            if self._running is None:
                over = threading.Event()
                thread = threading.Thread(target=self._run, args=(over,), name="cdc-outbox-leases", daemon=True)
                self._running = thread, over
                thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._due.pop(claim, None)

    def close(self) -> None:
        """End the thread; a later `keeping` starts another."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            thread, over = running
            over.set()
            thread.join()

    def _run(self, over: threading.Event) -> None:
        # A look every half interval instead of a wake-up for each event: most handlers end long before it.
        while not over.wait(self._every / 2):
            now = time.monotonic()
            with self._lock:
                due = [claim for claim, at in self._due.items() if at <= now]
            for claim in due:
                self._renew_one(claim)

    def _renew_one(self, claim: Claim) -> None:
        try:
            ours = self._renew(claim)
        except Exception as error:
            logger.warning("the lease of event %s could not be renewed (%s); trying again", claim.event_id, error)
            return
        with self._lock:
            if claim not in self._due:
                return
            if ours:
                self._due[claim] = time.monotonic() + self._every
                return
            del self._due[claim]
        logger.error(
            "the lease of event %s ended while its handler runs, and another consumer has the event now: its effect"
            " may happen twice",
            claim.event_id,
        )
