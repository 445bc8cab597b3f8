"""One attempt at one event: take, call the handler, finish or give back. Both modes, with retries of transactions."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from cdc_outbox.app.consumer_calls import Call
from cdc_outbox.app.consumer_connections import MISSING, Connections, Work, error_code, is_again, is_away
from cdc_outbox.app.consumer_lease import LeaseKeeper
from cdc_outbox.app.consumer_retry import AttemptsUsedUp, Failure, Outcome, RetryPolicy
from cdc_outbox.app.processed_events import Claim, Done, Held, ProcessedEvents
from cdc_outbox.errors import CdcOutboxError, Refused

logger = logging.getLogger(__name__)

T = TypeVar("T")
Offset = tuple[str, int, int]
"""Topic, partition, and the offset of the next event."""

DEADLOCK_TRIES = 10
"""Transactions that MySQL rolled back (1213) or that waited too long for a lock (1205) are tried so often."""
LOCK_WAIT_TIMEOUT = 1205


class TransactionEnded(CdcOutboxError):
    """The handler ended the transaction it was given, or went on after MySQL had rolled it back (a deadlock).

    It must not commit, roll back or run DDL, and must let errors 1205 and 1213 through.
    """


@dataclass(frozen=True)
class Attempt:
    """How it went. wait: seconds until it is worth coming again, where it must; error: why it failed."""

    outcome: Outcome
    value: Any = None
    error: Exception | None = None
    attempts: int = 0
    wait: float = 0.0


@dataclass(frozen=True)
class _Job:
    """What one attempt is about."""

    event_id: str
    handler: Callable[..., Any]
    args: tuple[Any, ...]
    call: Call
    offset: Offset | None


class AttemptRunner:
    """lease: seconds in `record_first` mode, None in `transactional` mode."""

    def __init__(
        self,
        events: ProcessedEvents,
        connections: Connections,
        policy: RetryPolicy,
        dead_letter: Callable[[Failure], Any] | None,
        *,
        lease: float | None,
        renew: bool,
    ) -> None:
        self._events = events
        self._connections = connections
        self._policy = policy
        self._dead_letter = dead_letter
        self._lease = lease
        self._keeper = LeaseKeeper(self._renew, lease) if lease is not None and renew else None

    def run(
        self, event_id: str, handler: Callable[..., Any], args: tuple[Any, ...], call: Call, offset: Offset | None
    ) -> Attempt:
        """Raises Refused where the table is missing, the driver's error when MySQL is away."""
        job = _Job(event_id, handler, args, call, offset)
        if self._lease is None:
            return self.steady(lambda work: self._transactional(work, job))
        return self._record_first(job, self._lease)

    def close(self) -> None:
        if self._keeper is not None:
            self._keeper.close()

    def steady(self, step: Callable[[Work], T]) -> T:
        """Run the step on a connection, again after a deadlock, and once again on a fresh connection.

        A connection from a pool may have died unnoticed; a step that meets a second dead one has met an outage.
        """
        deadlocks, fresh = 0, False
        while True:
            try:
                with self._connections.use() as work:
                    return step(work)
            except Exception as error:
                if is_again(error) and deadlocks < DEADLOCK_TRIES:
                    deadlocks += 1
                elif is_away(error) and not fresh:
                    fresh = True
                    self._connections.forget()
                elif error_code(error) in MISSING:
                    raise Refused(
                        f"the consumer's tables are not as they must be: {error}",
                        hint="cdc-outbox init --consumer creates them; with --print it shows the SQL and the grants",
                    ) from error
                else:
                    raise
            time.sleep(random.uniform(0.001, 0.02) * deadlocks)  # apart from those it collided with

    # -- transactional ------------------------------------------------------------------------------------------------

    def _transactional(self, work: Work, job: _Job) -> Attempt:
        try:
            taken = self._events.take(work, job.event_id, None)
        except Exception as error:
            if error_code(error) == LOCK_WAIT_TIMEOUT:
                return Attempt(Outcome.BUSY)  # another transaction is at it
            raise
        if isinstance(taken, Done):
            self._duplicate(work, job)
            return Attempt(Outcome.DUPLICATE)
        if isinstance(taken, Held):
            return Attempt(Outcome.BUSY, wait=taken.left)
        if self._policy.used_up(taken.attempts):
            return self._bury_in(work, job, taken, AttemptsUsedUp())
        try:
            value = job.call(job.handler, (work.given, *job.args))
            self._commit(work, job, taken)
        except Exception as error:
            if is_again(error) or is_away(error):
                raise
            work.rollback()
            return self._failed_in(work, job, taken, error)
        return Attempt(Outcome.DONE, value, attempts=taken.attempts)

    def _commit(self, work: Work, job: _Job, claim: Claim) -> None:
        """The record, the offset and everything written since it was taken."""
        if not self._events.finish_open(work, claim):
            raise TransactionEnded
        if job.offset is not None:
            self._events.store_offset(work, *job.offset)
        work.commit()

    def _duplicate(self, work: Work, job: _Job) -> None:
        if job.offset is not None:
            work.begin()
            self._events.store_offset(work, *job.offset)
            work.commit()

    def _failed_in(self, work: Work, job: _Job, claim: Claim, error: Exception) -> Attempt:
        attempts = claim.attempts if self._policy.counts else 0
        wait = self._policy.after(Failure(job.event_id, error, attempts, job.args))
        if wait is None:
            # What the handler wrote is rolled back, and the claim with it: the dead letter takes the event anew.
            taken = self._events.take(work, job.event_id, None)
            if isinstance(taken, Claim):
                return self._bury_in(work, job, taken, error)
            return Attempt(Outcome.BUSY, wait=taken.left) if isinstance(taken, Held) else Attempt(Outcome.DUPLICATE)
        if self._policy.counts:
            self._events.count(work, job.event_id, claim.attempts, wait)
        return Attempt(Outcome.FAILED, error=error, attempts=attempts, wait=wait)

    def _bury_in(self, work: Work, job: _Job, claim: Claim, error: Exception) -> Attempt:
        try:
            self._call_dead_letter(job, Failure(job.event_id, error, claim.attempts, job.args, work.given))
            self._commit(work, job, claim)
        except Exception as trouble:
            if is_again(trouble) or is_away(trouble):
                raise
            work.rollback()
            wait = self._policy.wait(claim.attempts)
            self._events.count(work, job.event_id, claim.attempts, wait)
            return Attempt(Outcome.FAILED, error=trouble, attempts=claim.attempts, wait=wait)
        return Attempt(Outcome.DEAD, error=error, attempts=claim.attempts)

    # -- record_first -------------------------------------------------------------------------------------------------

    def _record_first(self, job: _Job, lease: float) -> Attempt:
        taken = self.steady(lambda work: self._take_lease(work, job.event_id, lease))
        if isinstance(taken, Done):
            return Attempt(Outcome.DUPLICATE)
        if isinstance(taken, Held):
            return Attempt(Outcome.BUSY, wait=taken.left)
        if self._policy.used_up(taken.attempts):
            return self._bury(job, taken, AttemptsUsedUp(), lease)
        try:
            with self._keeping(taken):
                value = job.call(job.handler, job.args)
        except Exception as error:
            return self._failed(job, taken, error, lease)
        except BaseException:
            with contextlib.suppress(Exception):  # the lease ends by itself
                self._give_back(taken, 0.0)
            raise
        return self._finished(taken, Attempt(Outcome.DONE, value, attempts=taken.attempts), lease)

    def _take_lease(self, work: Work, event_id: str, lease: float) -> Claim | Held | Done:
        taken = self._events.take(work, event_id, lease)
        if isinstance(taken, Claim):
            work.commit()
        return taken

    def _finished(self, claim: Claim, attempt: Attempt, lease: float) -> Attempt:
        """Record that the effect has happened: an outage is waited out here, for as long as a lease.

        Given up sooner, the effect would happen once more.
        """
        deadline = time.monotonic() + lease
        while True:
            try:
                ours = self.steady(lambda work: self._events.finish(work, claim))
            except Exception as error:
                if not (is_away(error) or is_again(error)) or time.monotonic() > deadline:
                    raise
                time.sleep(min(0.2, lease / 10))
            else:
                return attempt if ours else Attempt(Outcome.LOST, attempts=claim.attempts)

    def _failed(self, job: _Job, claim: Claim, error: Exception, lease: float) -> Attempt:
        attempts = claim.attempts if self._policy.counts else 0
        wait = self._policy.after(Failure(job.event_id, error, attempts, job.args))
        if wait is None:
            return self._bury(job, claim, error, lease)
        if not self._give_back(claim, wait):
            return Attempt(Outcome.LOST, error=error, attempts=attempts)
        return Attempt(Outcome.FAILED, error=error, attempts=attempts, wait=wait)

    def _bury(self, job: _Job, claim: Claim, error: Exception, lease: float) -> Attempt:
        try:
            with self._keeping(claim):
                self._call_dead_letter(job, Failure(job.event_id, error, claim.attempts, job.args))
        except Exception as trouble:
            wait = self._policy.wait(claim.attempts)
            if not self._give_back(claim, wait):
                return Attempt(Outcome.LOST, error=trouble, attempts=claim.attempts)
            return Attempt(Outcome.FAILED, error=trouble, attempts=claim.attempts, wait=wait)
        return self._finished(claim, Attempt(Outcome.DEAD, error=error, attempts=claim.attempts), lease)

    def _give_back(self, claim: Claim, wait: float) -> bool:
        """The row is kept where attempts are counted, and deleted where nobody does."""
        if self._policy.counts:
            return self.steady(lambda work: self._events.free(work, claim, wait))
        return self.steady(lambda work: self._events.delete(work, claim))

    def _keeping(self, claim: Claim) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._keeper is None else self._keeper.keeping(claim)

    def _renew(self, claim: Claim) -> bool:
        lease = self._lease
        assert lease is not None
        return self.steady(lambda work: self._events.renew(work, claim, lease))

    def _call_dead_letter(self, job: _Job, failure: Failure) -> None:
        assert self._dead_letter is not None, "checked by IdempotentConsumer"
        job.call(self._dead_letter, (failure,))
        logger.warning(
            "event %s was given up after %d attempts and handed to the dead-letter hook: %s",
            failure.event_id,
            failure.attempts,
            type(failure.error).__name__,
        )
