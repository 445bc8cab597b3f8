"""Worker ids leased through MySQL: the table cdc_outbox_worker gives each span of a worker's time once."""

from __future__ import annotations

import os
import random
import socket
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cdc_outbox.app.ids_snowflake import WORKERS
from cdc_outbox.app.outbox_connection import error_number
from cdc_outbox.errors import NoWorkerId

_DUPLICATE, _DEADLOCK, _LOCK_WAIT, _NO_TABLE = 1062, 1213, 1205, 1146
_PATIENCE = 10.0
"""Seconds for which a free worker id is tried for, while other processes are quicker."""
_LOST_RACE = 0.05
"""Longest pause, in seconds, before the next try."""
_RETRY_RENEWAL = 1.0
"""Seconds after which a renewal that failed is tried again, while the lease lasts."""

_TAKE = """\
UPDATE {table} SET owner = %s, host = %s, lease_until = NOW(3) + INTERVAL %s SECOND,
  floor_ms = ceiling_ms, ceiling_ms = GREATEST(ceiling_ms, %s) + %s
WHERE lease_until < NOW(3) ORDER BY lease_until, worker_id LIMIT 1"""
_ADD = """\
INSERT INTO {table} (worker_id, owner, host, lease_until, floor_ms, ceiling_ms)
SELECT COALESCE(MAX(worker_id) + 1, 0), %s, %s, NOW(3) + INTERVAL %s SECOND, 0, %s FROM {table}
HAVING COALESCE(MAX(worker_id) + 1, 0) < %s"""
_KEEP = """\
UPDATE {table} SET lease_until = NOW(3) + INTERVAL %s SECOND, ceiling_ms = GREATEST(ceiling_ms, %s)
WHERE worker_id = %s AND owner = %s"""
_LOOK = "SELECT worker_id, floor_ms, ceiling_ms FROM {table} WHERE owner = %s"
_GIVE_BACK = """\
UPDATE {table} SET lease_until = NOW(3) - INTERVAL 1 SECOND, ceiling_ms = LEAST(ceiling_ms, %s)
WHERE worker_id = %s AND owner = %s"""


@dataclass(slots=True)
class Span:
    """A worker id with the times that its holder may put into ids: floor < t <= ceiling, in ms since 1970.

    renew_at, over_at: seconds of the clock that goes on through suspend: when to extend it, when it is over.
    """

    worker: int
    owner: str
    floor: int
    ceiling: int
    renew_at: float
    over_at: float

    def covers(self, moment: int) -> bool:
        """False when this must be extended before an id with this time is given."""
        return moment <= self.ceiling and _clock() < self.renew_at


class WorkerLease:
    """Leases worker ids for SnowflakeIds.

    connect: opens a DB-API connection (PyMySQL, mysqlclient, mysql-connector-python) that this closes again; called
    every third of `seconds` while ids are made, never while none are. table: `name` or `database.name`, as in
    schema/cdc_outbox_worker.sql. seconds: how long a worker id stays with a process that died.
    """

    def __init__(self, connect: Callable[[], Any], *, table: str = "cdc_outbox_worker", seconds: int = 60) -> None:
        if seconds < 3:
            raise ValueError(f"seconds is {seconds}; a lease must last 3 s at least")
        self._connect = connect
        self._table = table
        self._quoted = ".".join(f"`{part.replace('`', '``')}`" for part in table.split(".", 1)).replace("%", "%%")
        self._seconds = seconds

    def extend(self, span: Span | None, moment: int) -> Span:
        """The span, kept further; or another one where it was lost. It covers `moment`, or all of it is later.

        While the lease lasts, a database that does not answer is no error. Raises NoWorkerId.
        """
        asked = _clock()
        try:
            return self._extend(span, moment, asked)
        except NoWorkerId:
            raise
        except Exception as error:  # each driver has classes of its own
            if span is not None and moment <= span.ceiling and _clock() < span.over_at:
                span.renew_at = min(_clock() + _RETRY_RENEWAL, span.over_at)
                return span
            raise self._trouble(error) from error

    def release(self, span: Span, last: int) -> None:
        """Let others have the worker id; no id of it has a time after `last`. Where that fails, the lease runs out."""
        with suppress(Exception):
            connection = self._connect()
            try:
                self._run(connection, _GIVE_BACK, last, span.worker, span.owner)
            finally:
                connection.close()

    def _extend(self, span: Span | None, moment: int, asked: float) -> Span:
        reserved = self._seconds * 1000
        connection = self._connect()
        try:
            if span is not None:
                self._run(connection, _KEEP, self._seconds, moment + reserved, span.worker, span.owner)
                if kept := self._look(connection, span.owner, asked):
                    return kept
            owner, host = uuid.uuid4().hex, f"{socket.gethostname()[:200]}:{os.getpid()}"
            while _clock() < asked + _PATIENCE:
                taken = self._run(connection, _TAKE, owner, host, self._seconds, moment, reserved)
                if taken == 0:
                    taken = self._run(connection, _ADD, owner, host, self._seconds, moment + reserved, WORKERS)
                    if taken == 0:
                        break
                if taken and (found := self._look(connection, owner, asked)):
                    return found
                time.sleep(random.uniform(0, _LOST_RACE))
            raise NoWorkerId(
                f"No Snowflake worker id is free: all {WORKERS} in {self._table} are leased",
                hint="Each process needs one. SELECT host, lease_until shows who has them; a dead one's is free after"
                f" {self._seconds} s",
            )
        finally:
            connection.close()

    def _look(self, connection: Any, owner: str, asked: float) -> Span | None:
        cursor = connection.cursor()
        try:
            cursor.execute(_LOOK.format(table=self._quoted), (owner,))
            row = cursor.fetchone()
            connection.commit()
        finally:
            cursor.close()
        if row is None:
            return None
        worker, floor, ceiling = row
        return Span(worker, owner, floor, ceiling, asked + self._seconds / 3, asked + self._seconds - 1)

    def _run(self, connection: Any, statement: str, *values: object) -> int | None:
        """How many rows it changed; None where another process came first."""
        cursor = connection.cursor()
        try:
            cursor.execute(statement.format(table=self._quoted), values)
            changed = int(cursor.rowcount)
            connection.commit()
        except Exception as error:
            connection.rollback()
            if error_number(error) in {_DUPLICATE, _DEADLOCK, _LOCK_WAIT}:
                return None
            raise
        finally:
            cursor.close()
        return changed

    def _trouble(self, error: Exception) -> NoWorkerId:
        if error_number(error) == _NO_TABLE:
            return NoWorkerId(
                f"There is no table {self._table} to lease a Snowflake worker id from",
                hint="`cdc-outbox init --workers` creates it; its SQL is schema/cdc_outbox_worker.sql",
            )
        return NoWorkerId(
            f"No Snowflake worker id can be leased from {self._table}: {error}",
            hint="The connection needs SELECT, INSERT and UPDATE on it",
        )


def _clock() -> float:
    """Seconds of a clock that nobody sets and that goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
