"""Who may publish: named locks on a session of their own, and the lease that they are worth to this process."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pymysql.err import MySQLError

from cdc_outbox.errors import Hold, LeadershipLost, Refused
from cdc_outbox.mysql.queries import query
from cdc_outbox.mysql.session import Session

if TYPE_CHECKING:
    from cdc_outbox.config import Settings
    from cdc_outbox.model import TableName

LOCK_PREFIX = "cdc_outbox"
ASK = 1
"""Seconds a standby waits in GET_LOCK at a time: a dead waiter would inherit the lock."""

MARGIN = 1.0
"""Seconds by which our own deadline comes before the server's."""


def boottime() -> float:
    """Seconds on a clock that goes on through a suspend, as the server's does."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))  # macOS has no other name for it


def lock_name(database: str, name: str) -> str:
    """The lock of one relay name; lock names are server-wide and at most 64 characters long."""
    return f"{LOCK_PREFIX}:{hashlib.sha256(f'{database}/{name}'.encode()).hexdigest()[:40]}"


def table_lock_name(table: TableName) -> str:
    """The lock of one outbox table: two relay names on one table are refused."""
    return lock_name(str(table), "/table")


def lock_owner(session: Session, settings: Settings) -> int | None:
    """The connection id of the relay that leads now, None without one."""
    row = session.row(query("lock_holder"), (lock_name(settings.mysql.database, settings.name),))
    return None if row is None or row[0] is None else int(row[0])


class Lease:
    """Until when this process may act as the leader, by its own clock. Read by every thread, renewed by pings."""

    def __init__(self, clock: Callable[[], float] = boottime) -> None:
        self._clock = clock
        self.deadline = 0.0

    def renew(self, sent: float, timeout: float) -> None:
        """A ping sent at `sent` was answered: the server keeps the lock `timeout` seconds from then at least."""
        self.deadline = sent + timeout - MARGIN

    def end(self) -> None:
        self.deadline = 0.0

    @property
    def left(self) -> float:
        return self.deadline - self._clock()

    def check(self) -> None:
        if self._clock() >= self.deadline:
            raise LeadershipLost("the leader lock could not be confirmed in time; nothing more is published or written")


@dataclass(frozen=True)
class _Held:
    thread_id: int
    opened: float


class Leadership:
    """The lock session. Used by the supervising thread only; the lease may be read by all."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._timeout = settings.leadership_timeout
        self._name = lock_name(settings.mysql.database, settings.name)
        self._session: Session | None = None
        self._last: _Held | None = None
        self.server_uuid = ""
        self.lease = Lease()

    @property
    def session(self) -> Session:
        if self._session is None:
            raise LeadershipLost("the lock session is closed")
        return self._session

    def acquire(self, stop: threading.Event, on_standby: Callable[[int], None]) -> bool:
        """Wait for the locks; False when asked to stop. on_standby is told once which connection holds the lock.

        Raises MySQL's errors, and Refused when one of the tables is led under another name.
        """
        self.close()
        self._session = Session(self._settings.mysql, lifetime=self._timeout)
        session = self._session
        told = False
        while not stop.is_set():
            if self._try(self._name):
                if not self._lock_tables(stop):
                    return False
                self._last = _Held(session.thread_id, boottime())
                self.ping()
                return True
            holder = lock_owner(session, self._settings)
            if holder is not None and not told and not self._end_own_old_session(holder):
                on_standby(holder)
                told = True
        return False

    def _try(self, lock: str) -> bool:
        row = self.session.row(query("lock_try"), (lock, ASK))
        return row is not None and row[0] == 1

    def _lock_tables(self, stop: threading.Event) -> bool:
        patience = boottime() + self._timeout + 2
        for table in self._settings.table_names:
            while not self._try(table_lock_name(table)):
                if stop.is_set():
                    return False
                if boottime() > patience:
                    row = self.session.row(query("lock_holder"), (table_lock_name(table),))
                    self.close()
                    raise Refused(
                        f"table {table} is already relayed under another name (MySQL connection {row and row[0]})",
                        hint="one relay name per table: use the same `name` for a standby, or other outbox.tables",
                    )
        return True

    def _end_own_old_session(self, holder: int) -> bool:
        """After a cut our last session may hold the lock until the server's timeout: end it, if it is still the one.

        False where the lock is another's, or our session was told to end before and could not.
        """
        last = self._last
        if last is None or last.thread_id != holder:
            return False
        self._last = None
        uptime = self.session.row("SHOW GLOBAL STATUS LIKE 'Uptime'")
        if uptime is None or int(uptime[1]) <= boottime() - last.opened:
            return False  # a server that restarted since gives the same connection ids to others
        with contextlib.suppress(MySQLError):
            self.session.execute(f"KILL {last.thread_id}")
        return True

    def ping(self) -> None:
        """Confirm lock, server and read-write state, and renew the lease."""
        sent = boottime()
        try:
            row = self.session.row(query("leader_ping"), (self._name,))
        except (MySQLError, OSError) as error:
            raise LeadershipLost(f"the lock session is lost ({error})") from error
        if row is None or not row[0]:
            raise LeadershipLost("the server no longer counts the leader lock as ours")
        if self.server_uuid and row[1] != self.server_uuid:
            raise LeadershipLost(f"the lock session reached another server (server_uuid {row[1]})")
        if row[2]:
            raise Hold("MySQL is read-only (read_only=ON)", reason="mysql_read_only")
        self.server_uuid = row[1]
        self.lease.renew(sent, self._timeout)

    def interrupt(self) -> None:
        """Wake a wait in GET_LOCK or in a ping, from a signal handler's thread."""
        if self._session is not None:
            self._session.interrupt()

    def close(self) -> None:
        """Give the locks up: the server frees them with the session."""
        self.lease.end()
        self.server_uuid = ""
        if self._session is not None:
            self._session.close()
            self._session = None
