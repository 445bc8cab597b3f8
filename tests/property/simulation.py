"""The real relay, all of it from Supervisor down, on a simulated server, broker, clock and threads.

Replaced are: the MySQL session and the SQL of one table, the binlog connection, the Kafka client, `time`, `threading`
and `queue`. Everything that decides is the relay's own code.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from cdc_outbox.config import Settings
from cdc_outbox.errors import BinlogLost, CdcOutboxError, Hold
from cdc_outbox.gtid import GtidSet
from cdc_outbox.kafka.publisher import OnDeliveries
from cdc_outbox.model import Event, Position, TableName, Transaction
from cdc_outbox.mysql import checkpoint, leadership, source
from cdc_outbox.mysql.position_file import PositionFile
from cdc_outbox.relay import (
    budget,
    incarnation,
    intake,
    partition_holds,
    partition_watch,
    pipeline,
    poller,
    refusals,
    settler,
    supervisor,
    topic_holds,
    transient_rows,
    worker,
)
from cdc_outbox.relay.brake import Brake
from tests.property.broker import DEAD_LETTERS, Broker, MemoryPublisher
from tests.property.database import KIND, PAYLOAD, TABLE, Database, Row, Session, Source
from tests.property.judge import Judge
from tests.property.scheduler import (
    Process,
    Scheduler,
    SimulatedQueues,
    SimulatedThreading,
    SimulatedTime,
    Task,
)
from tests.property.table import MemoryCopies, MemoryTable

HOSTS = 2

SENDING_TIMEOUT = {"row": 6.0, "leader": 5000.0}
"""By claim mode: a leader's own rows at 1 are due at its start and must not need it, unless they are locked then."""

LOCKED_TIMEOUT = 200.0
"""The same where rows are locked."""

CHUNK = 3
"""Rows from which on a transaction comes in two parts."""


SHORTER: dict[tuple[Any, str], float] = {
    (poller, "SWEEP_INTERVAL"): 1.0,
    (poller, "PAGE"): 4,
    (poller, "FEW"): 3,
    (pipeline, "MESSAGES"): 5,
    (topic_holds, "LOOK_EVERY"): 0.7,
    (partition_holds, "MARGIN"): 0.005,
    (partition_holds, "PATIENCE"): 0.02,
    (partition_holds, "ASK_EVERY"): 0.1,
    (partition_watch, "LOOK_EVERY"): 0.01,
    (settler, "SLOW"): 0.3,
    (settler, "CHECKPOINT_SECONDS"): 5.0,
}
"""Limits of the relay that a short history would never meet."""

TELL_TIME = (poller, pipeline, refusals, partition_watch, settler, intake, incarnation, supervisor)
"""Modules that look at the clock."""

INSTANT = 0.0005
"""Seconds that a round takes in which something moved."""


class ProcessExited(BaseException):
    """os._exit."""


class Relay(Process):
    """One relay process."""

    host = 0
    """Where its position file lies."""

    commit_fault: str | None = None
    """What happens to its next commit: "lost", or "answer lost"."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(name)
        self.world = world
        self.exit: str | None = None
        self.supervisor = _Supervisor(world.settings, world.judge)
        self.publisher: MemoryPublisher | None = None
        world.scheduler.spawn(self, f"{name} main", self._main)

    def _main(self) -> None:
        try:
            self.supervisor.relay()
            self.exit = "stopped"
        except (CdcOutboxError, ProcessExited) as error:
            self.exit = repr(error)

    @property
    def ended(self) -> bool:
        return self.dead or self.exit is not None

    def request_stop(self) -> None:
        """SIGTERM."""
        self.supervisor.stop()


class _Supervisor(supervisor.Supervisor):
    """Without what only a real process has: signals, the preflight, the HTTP listener."""

    def __init__(self, settings: Settings, judge: Judge) -> None:
        super().__init__(settings, begin_anew=True)
        self._judge_of_promises = judge
        self._alerts = _Alerts(judge)  # type: ignore[assignment]

    def relay(self) -> None:
        try:
            while not self._stopping.is_set():
                self._attempt(self._lead)
        finally:
            self._leadership.close()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()

    @property
    def lease_left(self) -> float:
        return self._leadership.lease.left

    def _begin_a_new_process(self) -> None:
        raise ProcessExited("a thread did not end in time")

    def _bug(self, error: Exception) -> None:
        self._judge_of_promises.bug(error)
        super()._bug(error)


class _Alerts:
    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def alert(self, kind: str, message: str, topic: str | None = None, **fields: object) -> None:
        self._judge.alerts.add(kind)

    def flush(self, *, everything: bool = False) -> None: ...


class _Reader:
    """Stands for BinlogReader: gives what lies behind `start`, a few transactions at a time."""

    def __init__(
        self,
        world: World,
        connect: Callable[[], object],
        tables: Sequence[TableName],
        start: Position,
        sink: Callable[[list[Transaction]], None],
        **options: object,
    ) -> None:
        self._world = world
        self._start = start
        self._sink = sink
        self._stopped = False
        self.trouble: str | None = None
        self.dumped = ""

    def run(self) -> None:
        database = self._world.database
        gtids, uuid = self._start.gtid_set, database.uuid
        self.dumped = uuid
        number = 0
        if gtids is None:
            number = sum(self._start.reached(Position(*database.place(n + 1))) for n in range(len(database.binlog)))
        while not self._stopped:
            self._world.scheduler.wait(lambda number=number: self._stopped or database.readable[1] > number, 1.0)
            if (database.away and database.source is None) or database.uuid != uuid:
                raise Hold("MySQL is away, or another server in its place", reason="mysql")
            read: list[Transaction] = []
            purged, there = database.readable
            while there > number and len(read) < self._world.read_at_once:
                number += 1
                ranges = database.gtid_ranges(number)
                if gtids is not None and GtidSet(ranges).issubset(gtids) and (ranges or number <= purged):
                    continue
                if number <= purged:
                    raise BinlogLost("the binlog was purged")
                read.extend(self._transactions(number))
            if read and not self._stopped:
                self._sink(read)

    def _transactions(self, number: int) -> Iterator[Transaction]:
        database = self._world.database
        entry = database.binlog[number - 1]
        events = [_event(row) for row in entry.rows]
        if len(events) > CHUNK:
            for event in [] if database.transient else events[:CHUNK]:
                event.incomplete, event.payload = True, None
            yield Transaction(events[:CHUNK], None)
            events = events[CHUNK:]
        yield Transaction(
            events,
            database.place(number),
            gtids=database.gtid_ranges(number),
            traffic=entry.traffic,
            rotated=entry.rotated,
        )

    def request_stop(self) -> None:
        self._stopped = True

    def close_dump(self) -> None: ...


class _File(PositionFile):
    """A position file in memory."""

    def __init__(self, world: World, host: int) -> None:
        super().__init__("position.json", world.settings.name)
        self._world = world
        self._host = host

    def _stored(self) -> tuple[Position, str] | None:
        found = self._world.position_files.get(self._host)
        return None if found is None else (found[0].copy(), found[1])

    def write(self, position: Position, server_uuid: str) -> None:
        by_a_relay = self._world.scheduler.current is not None  # a person may put it anywhere: all is swept then
        self._world.scheduler.give_way()
        if by_a_relay and server_uuid == self._world.database.uuid:
            self._world.judge.position_stands(position, {})
        self._world.position_files[self._host] = (position.copy(), server_uuid)

    def check_folder(self) -> None: ...


def _event(row: Row) -> Event:
    """What a row event shows: the row as it was inserted."""
    return Event(
        TABLE,
        row.id,
        row.event_id,
        KIND,
        row.aggregate_id,
        "OrderPlaced",
        PAYLOAD,
        status=row.status,
        max_retries=row.max_retries,
        parked=row.next_retry_at is not None,
        committed_at=1,
    )


class World:
    """Everything one simulation needs; to be used inside `running`."""

    def __init__(
        self,
        *,
        claim: str = "leader",
        ordering: str = "aggregate",
        gtids: bool = True,
        max_in_flight: int = 40,
        batch: int = 5,
        read_at_once: int = 3,
        max_rate: float | None = None,
        position_in_file: bool = False,
        replication: random.Random | None = None,
        transient: bool = False,
        rows_are_locked: bool = False,
    ) -> None:
        """replication: by whose choice a replica, whose binlog is read, gets on; None: the server itself is read.

        rows_are_locked: now and then, by the application.
        """
        self.scheduler = Scheduler()
        self.judge = Judge(ordered=ordering != "none")
        self.database = Database(self.scheduler, gtids=gtids)
        self.database.transient = transient
        self.database.on_commit = self.judge.on_commit
        self.database.on_count = self.judge.on_count
        self.judge.database = self.database
        self._replication = replication
        self._source_halts_until = 0.0
        self.source_keeps_up = False
        binlog: dict[str, object] = {}
        if position_in_file:
            binlog = {"checkpoint_store": "file", "checkpoint_file": "position.json"}
        if replication is not None:
            self.database.source = Source()
            binlog["source"] = {"host": "replica"}
        self.broker = Broker(self.judge)
        self.read_at_once = read_at_once
        self.relays: list[Relay] = []
        self.position_files: dict[int, tuple[Position, str]] = {}
        """By host: the position, and the server_uuid it was written with."""
        self.steps = 0
        self.settings = Settings.model_validate(
            {
                "name": "simulated",
                "mysql": {"user": "u", "password": "p", "database": TABLE.database},
                "outbox": {
                    "claim": claim,
                    "ordering": ordering,
                    "sending_timeout": min(SENDING_TIMEOUT[claim], LOCKED_TIMEOUT if rows_are_locked else math.inf),
                    "rows": "transient" if transient else "keep",
                },
                "binlog": {**binlog, "on_purged": "stop" if transient else "sweep"},
                "kafka": {"bootstrap_servers": "nowhere:1", "dead_letter_topic": DEAD_LETTERS},
                "retry": {"waits": [1.0, 3.0], "poll_interval": 0.2, "jitter": 0.0},
                "leadership_timeout": 4.0,
                "limits": {
                    "max_in_flight": max_in_flight,
                    "batch": batch,
                    "shutdown_timeout": 5.0,
                    "max_rate": max_rate,
                },
                "http": None,
            }
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[World]:
        """Put the simulated parts in the place of the real ones."""
        real_lease = leadership.Lease
        time, threading = SimulatedTime(self.scheduler), SimulatedThreading(self.scheduler)
        places: list[tuple[Any, str, Any]] = [
            *((module, "time", time) for module in TELL_TIME),
            *((module, "threading", threading) for module in (worker, settler, budget, supervisor)),
            (pipeline, "queue", SimulatedQueues(self.scheduler)),
            (supervisor, "Brake", lambda rate: Brake(rate, time.monotonic)),
            (supervisor, "boottime", time.monotonic),
            (leadership, "boottime", time.monotonic),
            (supervisor, "os", SimpleNamespace(_exit=self._exit, environ={})),
            (supervisor, "gc", SimpleNamespace(collect=lambda: None)),
            (leadership, "Session", self._session),
            (leadership, "Lease", lambda: real_lease(time.monotonic)),
            (incarnation, "Session", self._session),
            (source, "Session", self._source_session),
            (incarnation, "OutboxTable", MemoryTable),
            (incarnation, "position_file", self._position_file),
            (checkpoint, "position_file", self._position_file),
            (transient_rows, "EventCopies", MemoryCopies),
            (incarnation, "column_names", lambda session, name: []),
            (incarnation, "make_publisher", self._publisher),
            *((module, name, value) for (module, name), value in SHORTER.items()),
            (incarnation, "BinlogReader", lambda *args, **options: _Reader(self, *args, **options)),
        ]
        with contextlib.ExitStack() as stack:
            for module, name, stand_in in places:
                stack.enter_context(patch.object(module, name, stand_in))
            logging.disable(logging.CRITICAL)
            stack.callback(logging.disable, logging.NOTSET)
            try:
                yield self
            finally:
                for relay in self.relays:
                    self.scheduler.kill(relay)

    def _exit(self, code: int) -> None:
        raise ProcessExited(f"exit code {code}")

    def _current(self) -> Relay:
        task = self.scheduler.current
        assert task is not None and isinstance(task.process, Relay)
        return task.process

    def _position_file(self, settings: Settings) -> PositionFile | None:
        if settings.binlog.checkpoint_file is None:
            return None
        task = self.scheduler.current
        return _File(self, task.process.host if task is not None and isinstance(task.process, Relay) else 0)

    def _session(self, settings: object, *, lifetime: float, read_timeout: float | None = None) -> Session:
        self.scheduler.give_way()
        return self.database.connect(self._current(), lifetime)

    def _source_session(self, settings: object, *, lifetime: float, bare: bool) -> Session:
        session = self.database.connect(self._current(), lifetime)
        session.of_source = True
        return session

    def _publisher(self, settings: object, deliver: OnDeliveries, timeout: float = 0.0) -> MemoryPublisher:
        self.scheduler.give_way()
        if self.broker.away:
            raise Hold("no broker answers", reason="kafka")
        relay = self._current()
        relay.publisher = MemoryPublisher(self.broker, relay, lambda: relay.supervisor.lease_left, deliver)
        return relay.publisher

    # -- what a test moves -----------------------------------------------------------------------------------

    def start(self) -> Relay:
        relay = Relay(self, f"relay {len(self.relays) + 1}")
        relay.host = len(self.relays) % HOSTS
        self.relays.append(relay)
        return relay

    def alive(self) -> list[Relay]:
        return [relay for relay in self.relays if not relay.ended]

    def kill(self, relay: Relay) -> None:
        """kill -9: the server notices at once that its connections are gone."""
        self.scheduler.kill(relay)
        self.database.end_sessions(relay)

    def step(self, task: Task) -> None:
        self.steps += 1
        self.scheduler.step(task)
        for relay in self.relays:
            if relay.exit is not None and not relay.dead:
                self.kill(relay)

    def advance(self, seconds: float) -> None:
        self.scheduler.now += seconds
        self.database.end_silent_sessions()
        if self._replication is not None:
            self._replicate(self._replication)

    def _replicate(self, chance: random.Random) -> None:
        """The replica that is read gets some further, or halts for as much as minutes."""
        source, now, all_there_is = self.database.source, self.scheduler.now, len(self.database.binlog)
        assert source is not None
        if self.source_keeps_up:
            source.has = all_there_is
        elif now >= self._source_halts_until:
            source.has = chance.randint(source.has, all_there_is)
            if chance.random() < 0.02:
                self._source_halts_until = now + chance.choice((0.5, 3.0, 12.0, 90.0))

    def round(self) -> None:
        """Everything that can move does, once, in hardly any time; if nothing can, time goes on until it can."""
        runnable = self.scheduler.runnable()
        for task in runnable:
            if task.runnable(self.scheduler.now):
                self.step(task)
        at_work = bool(runnable or self.broker.wire or self.broker.answers)
        self.broker.land(1000)
        self.broker.answer(1000)
        # A tenth at most: what ends silent sessions must be looked at in between.
        wait = self.scheduler.next_deadline() - self.scheduler.now
        self.advance(INSTANT if at_work else min(0.1, max(INSTANT, wait)))
