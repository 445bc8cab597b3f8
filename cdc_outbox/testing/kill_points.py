"""Named points at which a test lets the relay die: `CDC_OUTBOX_KILL_POINT=outcomes-committed:3` is kill -9 at the third
pass. Without the variable `kill_point` is a function that does nothing, chosen once, at import."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable

VARIABLE = "CDC_OUTBOX_KILL_POINT"

POINTS = (
    "lock-taken",  # the leader lock is held, nothing else has happened
    "epoch-raised",  # nobody else can write any more
    "recovered",  # rows at 1 are due again, position and blocked aggregates are read; nothing runs
    "swept-everything",  # the bootstrap is over, no position is written
    "read",  # the reader has events, the relay thread has not
    "admitted",  # in the ledger, nothing decided
    "claim-not-committed",  # claim: row, inside the transaction
    "claimed",  # claim: row, committed, not sent
    "sent",  # with the Kafka client, the ledger does not know
    "delivered",  # Kafka has acknowledged, the relay thread does not know
    "acknowledged",  # the ledger owes the row its status
    "refused",  # a record that can never be sent; its retry is owed
    "letter-sent",  # its dead letter is with the Kafka client
    "position-not-committed",  # the settler's transaction has the position, not the statuses
    "outcomes-not-committed",  # it has both
    "outcomes-committed",  # the ledger does not know
    "due-not-committed",  # the poller has claimed due rows
    "due-claimed",  # committed, not queued
    "missed-not-committed",  # the poller has claimed or parked rows that the tail never saw
    "missed-claimed",  # committed, not queued
    "queued-taken",  # the relay thread has taken the poller's rows, nothing decided
    "freed",  # an aggregate was found free, the relay thread does not know
    "confirmed",  # the leader lock was confirmed
)
"""Every point, in the order of an event's way."""


def _nothing(name: str) -> None:
    """Not armed."""


def _armed(wanted: str) -> Callable[[str], None]:
    """Die at the point `name`, or `name:n` at its nth pass."""
    name, _, times = wanted.partition(":")
    if name not in POINTS or not (times or "1").isdigit():
        raise ValueError(f"{VARIABLE} is {wanted!r}; it must be one of {', '.join(POINTS)}, with :n for the nth pass")
    passes, last = itertools.count(1), int(times or 1)

    def kill_point(passed: str) -> None:
        if passed == name and next(passes) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    return kill_point


kill_point: Callable[[str], None] = _armed(os.environ[VARIABLE]) if VARIABLE in os.environ else _nothing
