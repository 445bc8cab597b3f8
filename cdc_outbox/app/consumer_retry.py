"""What follows a failed attempt: another one after a wait, or the dead letter. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cdc_outbox.errors import CdcOutboxError


class Outcome(StrEnum):
    """What became of one delivery of an event; `acknowledged` says whether its offset may be committed."""

    DONE = "done"
    """The handler ran and its event is recorded as done."""
    DUPLICATE = "duplicate"
    """It was done before; the handler did not run."""
    DEAD = "dead"
    """Given up: the dead-letter hook has it, and it is recorded as done."""
    BUSY = "busy"
    """Another consumer has it, or its retry is not due yet."""
    FAILED = "failed"
    """The handler failed; it must come again."""
    LOST = "lost"
    """The handler ran longer than its lease, and another consumer has taken the event meanwhile."""

    @property
    def acknowledged(self) -> bool:
        return self in {Outcome.DONE, Outcome.DUPLICATE, Outcome.DEAD}


class AttemptsUsedUp(CdcOutboxError):
    """Earlier attempts were ended by a crash, or its dead letter could not be delivered."""


@dataclass(frozen=True)
class Failure:
    """What the hooks are told.

    attempts     attempts so far, this one and those that a crash ended included; 0 where nobody counts
    args         what the handler got besides a connection; from `run` the record
    connection   the dead-letter hook in `transactional` mode: what it writes here is committed with the record
    """

    event_id: str
    error: BaseException
    attempts: int
    args: tuple[Any, ...] = ()
    connection: Any = None


RetryHook = Callable[[Failure], "float | None"]
"""Seconds to wait before the next attempt, None to give the event up."""


@dataclass(frozen=True)
class RetryPolicy:
    """max_attempts: the first counts; None: for ever. waits: seconds before the 2nd, 3rd …, the last repeats."""

    max_attempts: int | None = None
    waits: Sequence[float] = (1.0, 10.0, 60.0)
    hook: RetryHook | None = None

    @property
    def counts(self) -> bool:
        """Whether a failed event keeps its row, and with it the number of its attempts."""
        return self.max_attempts is not None or self.hook is not None

    def used_up(self, attempts: int) -> bool:
        """Whether attempt number `attempts` may no longer run the handler."""
        return self.max_attempts is not None and attempts > self.max_attempts

    def wait(self, attempts: int) -> float:
        """Seconds to wait after attempt number `attempts` failed."""
        return self.waits[min(max(attempts, 1), len(self.waits)) - 1]

    def after(self, failure: Failure) -> float | None:
        """Seconds until the next attempt; None: the event is given up."""
        if self.max_attempts is not None and failure.attempts >= self.max_attempts:
            return None
        return self.hook(failure) if self.hook is not None else self.wait(failure.attempts)
