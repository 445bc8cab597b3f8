"""Renewals: while a handler runs, across failures, never after it."""

from __future__ import annotations

import logging
import threading

from cdc_outbox.app.consumer_lease import LeaseKeeper
from cdc_outbox.app.processed_events import Claim

CLAIM = Claim("e1", 1, "2026-01-31 12:00:00.000")


def test_a_lease_is_renewed_again_and_again_and_not_after_the_end() -> None:
    twice, asked = threading.Event(), []

    def renew(claim: Claim) -> bool:
        asked.append(claim)
        if len(asked) == 2:
            twice.set()
        return True

    keeper = LeaseKeeper(renew, lease=0.03)
    with keeper.keeping(CLAIM):
        assert twice.wait(20)
    keeper.close()
    renewed = len(asked)
    with keeper.keeping(Claim("e2", 1)):
        """Ends before its first renewal is due; another thread was started for it."""
    keeper.close()
    assert set(asked[:renewed]) == {CLAIM}


def test_a_renewal_that_fails_is_tried_again_and_a_lost_lease_is_not() -> None:
    over, asked = threading.Event(), []

    def renew(claim: Claim) -> bool:
        asked.append(claim)
        if len(asked) == 1:
            raise ConnectionError("away")
        over.set()
        return False

    keeper = LeaseKeeper(renew, lease=0.03)
    with keeper.keeping(CLAIM):
        assert over.wait(20)
        keeper.close()
    assert len(asked) == 2


def test_a_lost_lease_is_told() -> None:
    told = threading.Event()

    class Hears(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno == logging.ERROR and "e1" in record.getMessage():
                told.set()

    logger = logging.getLogger("cdc_outbox.app.consumer_lease")
    hears = Hears()
    logger.addHandler(hears)
    keeper = LeaseKeeper(lambda _: False, lease=0.03)
    try:
        with keeper.keeping(CLAIM):
            assert told.wait(20)
    finally:
        keeper.close()
        logger.removeHandler(hears)
