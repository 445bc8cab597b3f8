"""The consumer's statements: processed_event (who may process an event, what became of it) and consumer_offset.

One row for each consumer group and event. All times are UTC by the database's clock, whatever the session's zone.

    row                          means                                    who moves it, and where
    none                         not seen, or failed and not counted      the next taker: INSERT, attempts 1
    0, lease_until ahead         being processed, or waits for a retry    its owner: done → 1 · failed → free or none
                                                                          nobody else before the lease has ended
    0, lease_until past or NULL  free: its owner failed or crashed        the next taker: UPDATE, attempts + 1
    1                            done                                     nobody; purged when old

In `transactional` mode the row is inserted or taken, processed and set to 1 in one transaction: others see nothing of
it, or a row at 1; they wait at its key meanwhile. lease_until stays NULL in it, which no committed row at 0 has: that
is how the last UPDATE finds out when the transaction is no longer the one that took the event. In `record_first` mode
taking is a transaction of its own, and the owner is known by (created_at, attempts). Every later UPDATE and DELETE
names them, so that an owner whose lease has ended, and whose event another has taken, changes nothing any more.

Why INSERT IGNORE first: a locking read of a missing row locks the gap at REPEATABLE READ, and neighbours' inserts
deadlock on it. After an IGNORE that hit a row (it holds a shared lock) the transaction ends before the row is taken by
UPDATE: no lock is raised from shared to exclusive. Several waiters at one key can still deadlock when its holder rolls
back; the caller takes again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cdc_outbox.app.consumer_connections import Work

TAKE_TRIES = 10
"""How often a row may change between looking at it and taking it before it counts as busy."""

_MICROSECONDS = 1_000_000
_KEY = "consumer_group = %s AND event_id = %s"


@dataclass(frozen=True)
class Claim:
    """An event that is ours. attempts: 1 for the first; created_at: with attempts, names this owner and no other."""

    event_id: str
    attempts: int
    created_at: str = ""


@dataclass(frozen=True)
class Held:
    """Another consumer has it, or it waits for its retry. left: seconds until the lease ends."""

    left: float


@dataclass(frozen=True)
class Done:
    """It was processed before."""


@dataclass(frozen=True)
class Free:
    """A row at 0 whose lease has ended, as it was seen."""

    claim: Claim


class ProcessedEvents:
    """The rows of one consumer group. table: its name as SQL, quoted. No method commits but where it says so."""

    def __init__(self, group: str, table: str = "processed_event", offsets: str = "consumer_offset") -> None:
        self._group = group
        self._insert = (
            f"INSERT IGNORE INTO {table} (consumer_group, event_id, state, lease_until, attempts, created_at)"
            " VALUES (%s, %s, 0, UTC_TIMESTAMP(3) + INTERVAL %s MICROSECOND, 1, UTC_TIMESTAMP(3))"
        )
        self._look = (
            "SELECT state, attempts, CAST(created_at AS CHAR),"
            f" TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(3), lease_until) FROM {table} WHERE {_KEY}"
            " LOCK IN SHARE MODE"  # the newest row, whatever a caller's snapshot shows; FOR SHARE is unknown to MariaDB
        )
        owned = f"WHERE {_KEY} AND state = 0 AND attempts = %s AND created_at = %s"
        self._retake = (
            f"UPDATE {table} SET attempts = attempts + 1, lease_until = UTC_TIMESTAMP(3) + INTERVAL %s MICROSECOND"
            f" {owned} AND (lease_until IS NULL OR lease_until <= UTC_TIMESTAMP(3))"
        )
        done = f"UPDATE {table} SET state = 1, lease_until = NULL, processed_at = UTC_TIMESTAMP(3)"
        self._finish = f"{done} {owned}"
        self._finish_open = f"{done} WHERE {_KEY} AND state = 0 AND attempts = %s AND lease_until IS NULL"
        self._lease = f"UPDATE {table} SET lease_until = UTC_TIMESTAMP(3) + INTERVAL %s MICROSECOND {owned}"
        self._delete = f"DELETE FROM {table} {owned}"
        self._count = (
            f"INSERT INTO {table} (consumer_group, event_id, state, lease_until, attempts, created_at)"
            " VALUES (%s, %s, 0, UTC_TIMESTAMP(3) + INTERVAL %s MICROSECOND, %s, UTC_TIMESTAMP(3))"
            " ON DUPLICATE KEY UPDATE"
            " lease_until = IF(state = 0, UTC_TIMESTAMP(3) + INTERVAL %s MICROSECOND, lease_until),"
            " attempts = IF(state = 0, GREATEST(attempts, %s), attempts)"
        )
        self._old = (
            # Oldest first by (state, processed_at): the optimizer may take a group's whole primary key for cheaper.
            f"SELECT event_id FROM {table} IGNORE INDEX (PRIMARY) WHERE consumer_group = %s AND"
            " ((state = 1 AND processed_at < UTC_TIMESTAMP(3) - INTERVAL %s MICROSECOND) OR (state = 0"
            " AND created_at < UTC_TIMESTAMP(3) - INTERVAL %s MICROSECOND"
            " AND (lease_until IS NULL OR lease_until < UTC_TIMESTAMP(3) - INTERVAL %s MICROSECOND))) LIMIT %s"
        )
        self._purge = (
            f"DELETE FROM {table} WHERE consumer_group = %s"
            " AND (state = 1 OR lease_until IS NULL OR lease_until < UTC_TIMESTAMP(3)) AND event_id IN ({marks})"
        )
        self._store_offset = (
            f"INSERT INTO {offsets} (consumer_group, topic, partition_id, next_offset, updated_at)"
            " VALUES (%s, %s, %s, %s, UTC_TIMESTAMP(3))"
            " ON DUPLICATE KEY UPDATE next_offset = %s, updated_at = UTC_TIMESTAMP(3)"
        )
        self._offset = (
            f"SELECT next_offset FROM {offsets} WHERE consumer_group = %s AND topic = %s AND partition_id = %s"
        )

    # -- taking -----------------------------------------------------------------------------------------------------

    def take(self, work: Work, event_id: str, lease: float | None) -> Claim | Held | Done:
        """Begin a transaction and take the event in it; it stays open only where a Claim is given.

        lease: seconds; None: the claim lives as long as the transaction.
        """
        for _ in range(TAKE_TRIES):
            work.begin()
            found = self.take_in(work, event_id, lease)
            if isinstance(found, Claim):
                return found
            work.rollback()
            if found is None:
                continue
            if not isinstance(found, Free):
                return found
            work.begin()
            if self._take_again(work, found.claim, lease):
                return Claim(event_id, found.claim.attempts + 1, found.claim.created_at)
            work.rollback()
        return Held(0.0)

    def take_in(self, work: Work, event_id: str, lease: float | None) -> Claim | Held | Done | Free | None:
        """Insert the row in the open transaction, or say what is there; None: it went away meanwhile."""
        fresh = work.execute(self._insert, (self._group, event_id, _micro(lease))) == 1
        if fresh and lease is None:
            return Claim(event_id, 1)
        rows = work.rows(self._look, (self._group, event_id))
        if not rows:
            return None
        state, attempts, created_at, left = rows[0]
        claim = Claim(event_id, int(attempts), _text(created_at))
        if fresh:
            return claim
        if state == 1:
            return Done()
        if left is not None and left > 0:
            return Held(int(left) / _MICROSECONDS)
        return Free(claim)

    def _take_again(self, work: Work, claim: Claim, lease: float | None) -> bool:
        return work.execute(self._retake, (_micro(lease), *self._owner(claim))) == 1

    def take_over_in(self, work: Work, free: Free) -> bool:
        """Take a free row in the open transaction, for as long as that lives."""
        return self._take_again(work, free.claim, None)

    def _owner(self, claim: Claim) -> tuple[object, ...]:
        return self._group, claim.event_id, claim.attempts, claim.created_at

    # -- what became of it ------------------------------------------------------------------------------------------

    def finish_open(self, work: Work, claim: Claim) -> bool:
        """Set the row to done in the transaction that took it; False: this is another transaction."""
        return work.execute(self._finish_open, (self._group, claim.event_id, claim.attempts)) == 1

    def finish(self, work: Work, claim: Claim) -> bool:
        """Set a leased row to done and commit; False: another consumer has taken it."""
        if self._alone(work, self._finish, self._owner(claim)):
            return True
        # A COMMIT that got no answer may have done it.
        rows = work.rows(self._look, (self._group, claim.event_id))
        work.rollback()
        return [(row[0], row[1], _text(row[2])) for row in rows] == [(1, claim.attempts, claim.created_at)]

    def renew(self, work: Work, claim: Claim, lease: float) -> bool:
        """Let the lease end `lease` seconds from now, and commit; False: the event is no longer ours."""
        return self._alone(work, self._lease, (_micro(lease), *self._owner(claim)))

    def free(self, work: Work, claim: Claim, wait: float) -> bool:
        """Give a leased event back, its attempts kept, to be taken in `wait` seconds; commits."""
        return self.renew(work, claim, wait)

    def delete(self, work: Work, claim: Claim) -> bool:
        """Forget a leased event, as if it had never come; commits. False: another consumer has taken it."""
        return self._alone(work, self._delete, self._owner(claim))

    def count(self, work: Work, event_id: str, attempts: int, wait: float) -> None:
        """Note a failure whose transaction was rolled back: `attempts` so far, the next in `wait` seconds; commits."""
        work.begin()
        work.execute(self._count, (self._group, event_id, _micro(wait), attempts, _micro(wait), attempts))
        work.commit()

    def _alone(self, work: Work, sql: str, args: tuple[Any, ...]) -> bool:
        work.begin()
        changed = work.execute(sql, args) == 1
        work.commit()
        return changed

    def purge(self, work: Work, age: float, batch: int) -> int:
        """Delete up to `batch` rows that were done, or came and were left, `age` seconds ago or longer; commits.

        Rows are looked for without locks and deleted by primary key: no range is locked against those who write.
        """
        micro = _micro(age)
        old = [str(event_id) for (event_id,) in work.rows(self._old, (self._group, micro, micro, micro, batch))]
        work.rollback()  # the read may have opened a transaction, and with it a snapshot
        if old:
            work.begin()
            work.execute(self._purge.format(marks=", ".join(["%s"] * len(old))), (self._group, *old))
            work.commit()
        return len(old)

    # -- progress ---------------------------------------------------------------------------------------------------

    def store_offset(self, work: Work, topic: str, partition: int, next_offset: int) -> None:
        """Note in the open transaction that everything before `next_offset` is done."""
        work.execute(self._store_offset, (self._group, topic, partition, next_offset, next_offset))

    def offset(self, work: Work, topic: str, partition: int) -> int | None:
        """What `store_offset` noted; ends the read."""
        rows = work.rows(self._offset, (self._group, topic, partition))
        work.rollback()
        return int(rows[0][0]) if rows else None


def _micro(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * _MICROSECONDS)


def _text(value: object) -> str:
    return value.decode() if isinstance(value, (bytes, bytearray)) else str(value)
