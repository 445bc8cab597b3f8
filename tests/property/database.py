"""A MySQL server in memory: rows, row locks, transactions, named locks, the checkpoint table and a binlog.

It answers the statements that are not about an outbox table; those are in table.py. Both are held to a real server by
test_database.py. Reads see what is committed (READ COMMITTED), writes wait for row locks up to LOCK_WAIT seconds.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pymysql.err import OperationalError

from cdc_outbox.gtid import GtidRange, GtidSet
from cdc_outbox.model import TableName
from cdc_outbox.mysql.outbox_table import Row as Name
from cdc_outbox.mysql.queries import query
from cdc_outbox.mysql.session import LOCK_WAIT, LOCK_WAIT_TIMEOUT
from tests.property.scheduler import Process, Scheduler

FIRST_SERVER, SECOND_SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
"""The primary, and the replica that may take over from it."""

TABLE = TableName("shop", "outbox_event")
KIND = "order"
PAYLOAD = b"{}"
CHECKPOINT = "the checkpoint row"
LOST_CONNECTION = 2013


@dataclass(frozen=True)
class Row:
    """One row of the outbox table; times in whole seconds, as DATETIME has them."""

    id: int
    event_id: str
    aggregate_id: str
    status: int = 0
    retry_count: int = 0
    max_retries: int = 3
    next_retry_at: int | None = None
    updated_at: int = 0

    @property
    def dead(self) -> bool:
        return self.status == 3 and self.next_retry_at is None

    @property
    def settled(self) -> bool:
        return self.status == 2 or self.dead


@dataclass(frozen=True)
class Checkpoint:
    """The columns of cdc_outbox_checkpoint, in the order of `checkpoint_read`."""

    epoch: int = 0
    owner: str = ""
    server_uuid: str = FIRST_SERVER
    binlog_file: str | None = None
    binlog_pos: int | None = None
    gtid_set: str | None = None
    state: str | None = None
    last_error: str | None = None
    paused: bool = False
    schema_version: int = 1
    updated_at: float = 0.0


@dataclass
class Entry:
    """One commit in the binlog: what it inserted, or other tables' traffic in bytes. A new file is none."""

    file: int
    offset: int
    gtid: GtidRange | None
    rows: Sequence[Row] = ()
    traffic: int = 0
    rotated: bool = False


@dataclass(frozen=True)
class Replica:
    """What a replica holds: everything that the primary held at one moment."""

    rows: dict[int, Row]
    checkpoint: Checkpoint | None
    binlog: list[Entry]


@dataclass
class Source:
    """A replica that is read: it has the first `has` entries of the binlog; of these the first `purged` are purged."""

    has: int = 0
    purged: int = 0


@dataclass(frozen=True)
class Change:
    """What one commit did to a row."""

    before: Row
    after: Row


class Database:
    """The server. gtids: gtid_mode=ON."""

    def __init__(self, scheduler: Scheduler, *, gtids: bool) -> None:
        self.scheduler = scheduler
        self.gtids = gtids
        self.rows: dict[int, Row] = {}
        self.unseen: dict[int, list[Row]] = {}
        """In the binlog and not yet visible, by the number of their entry: the time between sync and commit."""
        self.owned: set[int] = set()
        """Entries that are visible and not yet in gtid_executed."""
        self.locked: set[int] = set()
        """Rows that an application's transaction has locked."""
        self.locks: dict[object, Session] = {}
        self.named: dict[str, Session] = {}
        self.checkpoint: Checkpoint | None = None
        self.binlog: list[Entry] = []
        self.purged = 0
        self.file = 1
        self.uuid = FIRST_SERVER
        self.replica: Replica | None = None
        """What the replica will ever have of this server."""
        self.source: Source | None = None
        """Whose binlog is read; None: this server's own."""
        self.transient = False
        """Applications delete their rows in the transaction that inserts them."""
        self.away = False
        self.read_only = False
        self.sessions: list[Session] = []
        self.started_at = scheduler.now
        self.statements = 0
        self.on_commit: Callable[[Session, Sequence[Change], bool], None] = lambda session, changes, position: None
        """Told of every commit: (session, rows changed, the position was written)."""
        self.on_count: Callable[[Sequence[Name], Sequence[Name]], None] = lambda asked, matched: None
        """Told of every status change: (rows named, rows that were as expected)."""

    @property
    def now(self) -> int:
        return int(self.scheduler.now)

    # -- applications and people -----------------------------------------------------------------------------

    def insert(self, rows: Iterable[Row], *, shown: bool = True, visible: bool = True, owned: bool = False) -> None:
        """One commit. shown: the binlog has its rows; visible: a SELECT shows them at once, unless an earlier commit
        is not visible yet: they become so in the order of the binlog (binlog_order_commits). owned: gtid_executed
        will hold it a little later."""
        inserted = [replace(row, updated_at=self.now) for row in rows]
        if shown:
            self.log(rows=inserted)
        if self.transient:
            return
        if not shown or (visible and not self.unseen):
            self.rows.update({row.id: row for row in inserted})
            if shown and owned:
                self.owned.add(len(self.binlog))
        else:
            self.unseen[len(self.binlog)] = inserted

    def log(self, *, rows: Sequence[Row] = (), traffic: int = 0) -> None:
        """One more transaction in the binlog."""
        number = sum(entry.gtid is not None and entry.gtid.source == self.uuid for entry in self.binlog) + 1
        end = self.place(len(self.binlog))[1] + 10
        self.binlog.append(Entry(self.file, end, GtidRange(self.uuid, number, number), rows, traffic))

    def become_visible(self) -> None:
        """The oldest commit that is not visible yet becomes so."""
        for number in sorted(self.unseen)[:1]:
            self.rows.update({row.id: row for row in self.unseen.pop(number)})

    def traffic(self, size: int) -> None:
        """A commit to other tables."""
        self.log(traffic=size)

    def free(self, id: int) -> bool:
        """Nobody has the row locked."""
        return id in self.rows and self.holder(id) is None

    def holder(self, key: object) -> object:
        if key in self.locked or any(row.id == key for rows in self.unseen.values() for row in rows):
            return "the application"
        return self.locks.get(key)

    # -- the server's own life -------------------------------------------------------------------------------

    def connect(self, process: Process | None, lifetime: float) -> Session:
        if self.away:
            raise OperationalError(2003, "Can't connect to MySQL server")
        session = Session(self, process, lifetime, len(self.sessions) + 1)
        self.sessions.append(session)
        return session

    def end_silent_sessions(self) -> None:
        """wait_timeout: a session that nobody speaks in is ended, and its locks with it."""
        for session in self.sessions:
            if self.scheduler.now - session.busy_until > session.lifetime:
                session.end()

    def end_sessions(self, process: Process | None = None) -> None:
        """The server restarts, or a process is gone and its connections with it."""
        for session in self.sessions:
            if process is None or session.process is process:
                session.end()

    def purge(self) -> None:
        """FLUSH BINARY LOGS and PURGE everything before."""
        self.file += 1
        self.purged = len(self.binlog)
        if self.source is not None and self.file % 2:
            self.source.purged = self.source.has  # with every other purge of the primary's, not with each
        self.binlog.append(Entry(self.file, 4, None, rotated=True))

    def replicate(self) -> None:
        """The replica has what there is now, and will have no more."""
        if not self.unseen:
            self.replica = Replica(dict(self.rows), self.checkpoint, list(self.binlog))

    def fail_over(self) -> Replica | None:
        """The replica takes over: connections and named locks are gone, and with them what it never got. Its own binlog
        has the same transactions, in one file."""
        found, self.replica = self.replica, None
        if found is None or self.uuid != FIRST_SERVER:
            return None
        self.end_sessions()
        self.uuid, self.file, self.purged = SECOND_SERVER, 1, 0
        self.rows, self.checkpoint, self.binlog = dict(found.rows), found.checkpoint, []
        self.unseen, self.owned, self.locked = {}, set(), set()
        self.started_at = self.scheduler.now
        if self.source is not None:
            # One that has no more than the new primary. Nobody else may be read.
            self.source = Source(sum(not entry.rotated for entry in found.binlog[: self.source.has]))
        for entry in found.binlog:
            if not entry.rotated:
                self.binlog.append(replace(entry, file=1, offset=self.place(len(self.binlog))[1] + 10))
        return found

    def place(self, number: int) -> tuple[str, int]:
        """The end of the first `number` entries."""
        file, offset = (self.binlog[number - 1].file, self.binlog[number - 1].offset) if number else (1, 4)
        return f"binlog.{file:06d}", offset

    def files(self) -> list[tuple[str, int]]:
        """Those that were not purged, and their sizes."""
        ends = {self.place(number)[0]: self.place(number)[1] for number in range(self.purged, len(self.binlog) + 1)}
        return (
            [(name, size) for name, size in sorted(ends.items()) if name >= self.place(self.purged + 1)[0]]
            if (self.purged)
            else sorted(ends.items())
        )

    def gtid_ranges(self, number: int) -> list[GtidRange]:
        gtid = self.binlog[number - 1].gtid
        return [] if gtid is None else [gtid]

    def executed(self) -> GtidSet:
        numbers = range(1, len(self.binlog) + 1)
        return self.gtids_of(n for n in numbers if n not in self.unseen and n not in self.owned)

    def gtids_of(self, numbers: Iterable[int]) -> GtidSet:
        return GtidSet(one for number in numbers for one in self.gtid_ranges(number))

    @property
    def readable(self) -> tuple[int, int]:
        """(entries that the server which is read has purged, entries that it has)."""
        source = self.source
        return (self.purged, len(self.binlog)) if source is None else (source.purged, source.has)


@dataclass
class Session:
    """One connection; stands for cdc_outbox.mysql.session.Session."""

    database: Database
    process: Process | None
    lifetime: float
    thread_id: int
    ended: bool = False
    closed: bool = False
    writes: dict[int, Row] = field(default_factory=dict)
    deletes: set[int] = field(default_factory=set)
    """Of the rows written, those that the open transaction deletes in the end."""
    checkpoint: Checkpoint | None = None
    """What the open transaction makes of the checkpoint row, None: nothing."""
    moves_position: bool = False
    in_transaction: bool = False
    of_source: bool = False
    fence: tuple[int, str] | None = None
    """(epoch, owner) that the open transaction was begun with."""

    def __post_init__(self) -> None:
        self.busy_until = self.database.scheduler.now

    # -- what the relay calls --------------------------------------------------------------------------------

    def query(self, sql: str, args: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self.statement():
            return self._answer(sql, args)[0]

    def row(self, sql: str, args: Sequence[object] = ()) -> tuple[Any, ...] | None:
        rows = self.query(sql, args)
        return rows[0] if rows else None

    def execute(self, sql: str, args: Sequence[object] = ()) -> int:
        with self.statement():
            return self._answer(sql, args)[1]

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with self.statement():
            self.in_transaction = True
        try:
            yield
        except BaseException:
            self.rollback()
            raise
        self._commit()

    def ping(self) -> None:
        self.query("SELECT 1")

    def interrupt(self) -> None:
        self.end()

    def close(self) -> None:
        self.closed = True
        self.end()

    # -- statements ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def statement(self) -> Iterator[None]:
        """Around every statement: others go first, and outside a transaction it commits by itself."""
        scheduler = self.database.scheduler
        scheduler.give_way()
        self._check()
        self.database.statements += 1
        self.busy_until = scheduler.now
        try:
            yield
        except BaseException:
            if not self.in_transaction:
                self.rollback()
            raise
        if not self.in_transaction:
            self._apply()

    def _check(self) -> None:
        if self.ended:
            raise OperationalError(LOST_CONNECTION, "Lost connection to MySQL server during query")

    def lock(self, keys: Iterable[object], *, skip: bool = False, share: bool = False) -> set[object]:
        """Lock them in order, waiting for others; gives those that are ours. share: only wait for others' locks."""
        ours: set[object] = set()
        for key in sorted(keys, key=str):
            if not self._is_free(key):
                if skip:
                    continue
                self._wait(lambda key=key: self._is_free(key), LOCK_WAIT)
                if not self._is_free(key):
                    raise OperationalError(LOCK_WAIT_TIMEOUT, "Lock wait timeout exceeded; try restarting transaction")
            if not share:
                self.database.locks[key] = self
            ours.add(key)
        return ours

    def _is_free(self, key: object) -> bool:
        return self.database.holder(key) in (None, self)

    def _wait(self, ready: Callable[[], bool], seconds: float) -> None:
        self.busy_until = self.database.scheduler.now + seconds
        self.database.scheduler.wait(lambda: self.ended or ready(), seconds)
        self._check()

    def view(self) -> dict[int, Row]:
        """The rows as this session sees them."""
        return {id: row for id, row in {**self.database.rows, **self.writes}.items() if id not in self.deletes}

    def unlock(self) -> None:
        for key in [key for key, holder in self.database.locks.items() if holder is self]:
            del self.database.locks[key]

    def end(self) -> None:
        """The server's side of the connection is gone."""
        self.ended = True
        self.rollback()
        for name in [name for name, holder in self.database.named.items() if holder is self]:
            del self.database.named[name]
        self.database.sessions = [one for one in self.database.sessions if one is not self]

    def rollback(self) -> None:
        self.writes = {}
        self.deletes = set()
        self.checkpoint = None
        self.moves_position = False
        self.in_transaction = False
        self.fence = None
        self.unlock()

    def _commit(self) -> None:
        self.database.scheduler.give_way()
        self._check()
        self.busy_until = self.database.scheduler.now
        fault = getattr(self.process, "commit_fault", None) if self.writes else None
        if fault is None:
            self._apply()
            return
        self.process.commit_fault = None  # type: ignore[union-attr]
        if fault == "answer lost":
            self._apply()
        self.end()
        self._check()

    def _apply(self) -> None:
        database = self.database
        inserted = [row for id, row in self.writes.items() if id not in database.rows and database.transient]
        changes = [Change(database.rows[id], row) for id, row in self.writes.items() if id in database.rows]
        changes += [Change(replace(row, status=0, retry_count=0, next_retry_at=None), row) for row in inserted]
        if changes or self.checkpoint is not None:
            database.on_commit(self, changes, self.moves_position)
            database.rows.update({change.after.id: change.after for change in changes})
            for id in self.deletes:
                database.rows.pop(id, None)
            if self.checkpoint is not None:
                database.checkpoint = replace(self.checkpoint, updated_at=database.scheduler.now)
            database.log(rows=inserted)
        self.rollback()

    # -- the statements that are not about an outbox table ---------------------------------------------------

    def _answer(self, sql: str, args: Sequence[object]) -> tuple[list[tuple[Any, ...]], int]:
        """(rows, matched rows)."""
        named = _NAMED.get(sql)
        if named is not None:
            return getattr(self, f"_{named}")(*args)  # type: ignore[no-any-return]
        if sql == "ROLLBACK":
            self.rollback()
            self.in_transaction = True  # what follows, up to the end of the block, is in no transaction that matters
            return [], 0
        if sql.startswith("KILL "):
            for session in [one for one in self.database.sessions if one.thread_id == int(sql.split()[1])]:
                session.end()
            return [], 0
        rows = self._server_facts(sql)
        return rows, len(rows)

    def _server_facts(self, sql: str) -> list[tuple[Any, ...]]:
        database = self.database
        owned = ",".join(
            f"{one.source}:{one.first}#9"
            for number in sorted({*database.unseen, *database.owned})
            for one in database.gtid_ranges(number)
        )
        gone, there = database.readable if self.of_source else (database.purged, 0)
        executed = database.gtids_of(range(1, there + 1)) if self.of_source else database.executed()
        purged = database.gtids_of(range(1, gone + 1))
        facts: dict[str, object] = {
            "@@global.gtid_owned": owned,
            "@@global.gtid_executed": executed,
            "@@global.gtid_purged": purged,
            "@@server_uuid": database.uuid,
            "1": 1,
        }
        if sql.startswith("SELECT "):
            return [tuple(str(facts[name]) for name in sql.removeprefix("SELECT ").split(", "))]
        variables = {
            "gtid_mode": "ON" if database.gtids else "OFF",
            "gtid_purged": str(purged),
            "binlog_expire_logs_seconds": "86400",
            "Uptime": str(int(database.scheduler.now - database.started_at)),
        }
        asked = re.fullmatch(r"SHOW GLOBAL (?:VARIABLES|STATUS) LIKE '(\w+)'", sql)
        if asked is not None:
            return [(asked[1], variables[asked[1]])]
        if sql == "SHOW BINARY LOGS":
            return list(database.files())
        assert sql == "SHOW BINARY LOG STATUS", f"the simulated server knows no {sql}"
        return [database.place(len(database.binlog))]

    def _lock_try(self, name: str, seconds: float) -> tuple[list[tuple[Any, ...]], int]:
        named = self.database.named
        self._wait(lambda: named.get(name, self) is self, seconds)
        return [(int(named.setdefault(name, self) is self),)], 1

    def _lock_holder(self, name: str) -> tuple[list[tuple[Any, ...]], int]:
        holder = self.database.named.get(name)
        return [(None if holder is None else holder.thread_id,)], 1

    def _leader_ping(self, name: str) -> tuple[list[tuple[Any, ...]], int]:
        return [(int(self.database.named.get(name) is self), self.database.uuid, int(self.database.read_only))], 1

    def _checkpoint_create(self, name: str) -> tuple[list[tuple[Any, ...]], int]:
        if self.database.checkpoint is None:
            self.checkpoint = Checkpoint(server_uuid=self.database.uuid)
        return [], 1

    def _checkpoint_read(self, name: str) -> tuple[list[tuple[Any, ...]], int]:
        found = self.database.checkpoint
        return ([] if found is None else [tuple(vars(found).values())]), 1

    def _is_paused(self, name: str) -> tuple[list[tuple[Any, ...]], int]:
        found = self.database.checkpoint
        return ([] if found is None else [(found.paused,)]), 1

    def _pause(self, name: str, paused: int) -> tuple[list[tuple[Any, ...]], int]:
        self.lock([CHECKPOINT])
        before = self.database.checkpoint or Checkpoint(server_uuid=self.database.uuid)
        self.checkpoint = replace(before, paused=bool(paused))
        return [], 1

    def _epoch_raise(self, owner: str, name: str) -> tuple[list[tuple[Any, ...]], int]:
        uuid = self.database.uuid
        return self._update(
            lambda row: replace(
                row,
                epoch=row.epoch + 1,
                owner=owner,
                binlog_pos=None if row.server_uuid != uuid and row.gtid_set is None else row.binlog_pos,
                server_uuid=uuid,
                state="reset" if row.state == "reset" else "recovering",
            )
        )

    def _fence(self, name: str, epoch: int, owner: str) -> tuple[list[tuple[Any, ...]], int]:
        self.fence = (epoch, owner)
        self.lock([CHECKPOINT])
        found = self.checkpoint or self.database.checkpoint
        return ([(1,)] if found is not None and self._fits(found, self.fence) else []), 1

    def _fits(self, row: Checkpoint, fence: tuple[int, str]) -> bool:
        return (row.epoch, row.owner) == fence and row.server_uuid == self.database.uuid

    def _fence_and_position(self, *args: Any) -> tuple[list[tuple[Any, ...]], int]:
        file, offset, gtids, _, epoch, owner = args
        self.fence = (epoch, owner)
        self.moves_position = True
        return self._update(
            lambda row: replace(row, binlog_file=file, binlog_pos=offset, gtid_set=gtids), (epoch, owner)
        )

    def _checkpoint_state(
        self, state: str, error: str | None, name: str, epoch: int, owner: str
    ) -> tuple[list[tuple[Any, ...]], int]:
        return self._update(lambda row: replace(row, state=state, last_error=error), (epoch, owner))

    def _state_of_the_lock_holder(self, state: str, error: str, name: str) -> tuple[list[tuple[Any, ...]], int]:
        return self._update(
            lambda row: replace(row, state=row.state if row.state == "reset" else state, last_error=error)
        )

    def _position_set(
        self, name: str, file: str | None, offset: int | None, gtids: str | None, state: str
    ) -> tuple[list[tuple[Any, ...]], int]:
        before = self.database.checkpoint or Checkpoint()
        self.lock([CHECKPOINT])
        self.checkpoint = Checkpoint(
            before.epoch + 1, "", self.database.uuid, file, offset, gtids, state, before.last_error, before.paused
        )
        return [], 1

    def _update(
        self, change: Callable[[Checkpoint], Checkpoint], expected: tuple[int, str] | None = None
    ) -> tuple[list[tuple[Any, ...]], int]:
        self.lock([CHECKPOINT])
        found = self.checkpoint or self.database.checkpoint
        if found is None or (expected is not None and not self._fits(found, expected)):
            return [], 0
        self.checkpoint = change(found)
        return [], 1


_NAMED = {
    "SELECT paused FROM cdc_outbox_checkpoint WHERE name = %s AND shard = 0": "is_paused",
}
_NAMED |= {
    query(name): name
    for name in (
        "lock_try",
        "lock_holder",
        "leader_ping",
        "checkpoint_create",
        "checkpoint_read",
        "epoch_raise",
        "fence",
        "fence_and_position",
        "checkpoint_state",
        "state_of_the_lock_holder",
        "position_set",
        "pause",
    )
}
