"""The poller's thread: due retries, parked rows, rows the tail never saw, rows left at 1; it also frees aggregates.

Owns its SQL session. A row it takes goes 0/3 → 1 in a fenced transaction and then to the relay thread, never to
Kafka from here.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from pymysql.err import MySQLError

from cdc_outbox.errors import Hold
from cdc_outbox.model import SKIPPED, Aggregate, Event, Position, Status, TableName
from cdc_outbox.mysql.checkpoint import (
    Fence,
    committed_position,
    is_paused,
    purged_gtids,
    retention_left,
    server_position,
    server_uuid,
)
from cdc_outbox.mysql.outbox_table import Candidate, OutboxTable, Row, RowStatus
from cdc_outbox.mysql.session import Session, is_retriable
from cdc_outbox.relay.in_flight import Envelope, InFlight, RowKey, Stage
from cdc_outbox.relay.pipeline import Freed, Queued
from cdc_outbox.relay.worker import Worker
from cdc_outbox.testing.kill_points import kill_point

if TYPE_CHECKING:
    from cdc_outbox.mysql.leadership import Lease
    from cdc_outbox.ops.log import Alerts
    from cdc_outbox.ops.metrics import Metrics
    from cdc_outbox.relay.brake import Brake
    from cdc_outbox.relay.budget import Budget
    from cdc_outbox.relay.partition_holds import HeldPartitions
    from cdc_outbox.relay.partition_watch import PartitionWatch
    from cdc_outbox.relay.topic_holds import TopicHolds

logger = logging.getLogger(__name__)

SWEEP_INTERVAL = 10.0
"""Seconds between two listings of pending rows."""

COUNT_INTERVAL = 15.0
"""Seconds between counts of parked and dead rows for the metrics."""

PAGE = 1000
"""Pending rows noted at a time."""

PATIENCE = 30.0
"""Seconds after which a watermark that the stream has not passed is looked at again: a GTID may have been owned and
rolled back, or put into gtid_purged by hand, and then never comes."""

FEW = 100
"""Stuck rows of an aggregate up to which its new tail events wait in memory for the pass that frees it."""

WAIT_FOR_LOCKS = 0.25
"""Seconds between looks at rows that a sweep must wait for."""

RESERVE = 10
"""The tail may fill the budget: one part in so many stays the poller's."""

HELD_REST = 10
"""A look at due rows that passed over some of a held partition is followed by so many times its own length without."""

HELD_PAGE = 10_000
"""Due rows looked at at a time while a partition is held: each page sorts them all."""

BUSY_WAIT = 0.02
"""Seconds between passes while rows are taken or aggregates worked off; doubles while nothing is taken."""


class Poller(Worker):
    """One pass looks at all tables. bootstrap: sweep everything pending first, then call on_swept once.

    transient: there are rows of failed events only, and nothing to sweep.
    """

    def __init__(
        self,
        *,
        session: Session,
        binlog_session: Callable[[Session], AbstractContextManager[Session]],
        dumped: Callable[[], str],
        fence: Fence,
        tables: Mapping[TableName, OutboxTable],
        ledger: InFlight,
        budget: Budget,
        brake: Brake,
        topic_holds: TopicHolds,
        partitions: PartitionWatch,
        waits: Sequence[float],
        lease: Lease,
        metrics: Metrics,
        alerts: Alerts,
        submit: Callable[[Queued | Freed], None],
        batch: int,
        poll_interval: float,
        sending_timeout: float,
        ping_every: float,
        watermark: Position,
        bootstrap: bool,
        transient: bool = False,
        on_swept: Callable[[Position], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """binlog_session: a session on the server whose binlog is read, given ours on the primary; raises Hold.

        dumped: server_uuid of the one that the reader reads now, empty while it reads none.
        """
        super().__init__("poller", on_failure)
        self._session = session
        self._binlog_session = binlog_session
        self._dumped = dumped
        self._fence = fence
        self._tables = tables
        self._ledger = ledger
        self._budget = budget
        self._brake = brake
        self._topic_holds = topic_holds
        self._partitions = partitions
        self._look_at_held: dict[TableName, float] = {}
        self._sorted: tuple[HeldPartitions, set[Aggregate], set[Aggregate]] = (partitions.held, set(), set())
        """Blocked aggregates: of these held partitions, and of others."""
        self._waits = waits
        self._lease = lease
        self._metrics = metrics
        self._alerts = alerts
        self._submit = submit
        self._batch = batch
        self._poll_interval = poll_interval
        self._sending_timeout = sending_timeout
        self._ping_every = ping_every
        self._bootstrap = bootstrap
        self._transient = transient
        self._on_swept = on_swept
        self._gtids = watermark.gtid_set is not None
        self._pinged_at = time.monotonic()
        self._notes: dict[TableName, list[Row]] = {}
        self._above: dict[TableName, int] = {}
        self._watermark: Position | None = watermark
        self._watermark_at = time.monotonic()
        self._listed_at = time.monotonic()
        self._counted_at = 0.0
        self._looked_at = float("-inf")
        self._look_every = min(SWEEP_INTERVAL, sending_timeout / 2)
        self._foreign: dict[RowKey, tuple[Aggregate, object, float]] = {}

    def _run(self) -> None:
        if self._bootstrap:
            self._sweep_everything()
            if self._stop.is_set():
                return
            self._on_swept(server_position(self._session, gtids=self._gtids))
        wait = self._poll_interval
        while not self._stop.is_set():
            self._lease.check()
            try:
                changed, busy = self._pass()
            except MySQLError as error:
                if not is_retriable(error):
                    raise
                changed, busy = False, True
            longer = min(wait * 2, self._poll_interval) if busy else self._poll_interval
            wait = BUSY_WAIT if changed else longer
            self._rest(wait)

    def _rest(self, seconds: float) -> None:
        """Wait; the server ends a session that is silent for long."""
        while seconds > self._ping_every and not self._stop.wait(self._ping_every):
            self._session.ping()
            seconds -= self._ping_every
        self._stop.wait(seconds)

    def _close(self) -> None:
        self._session.close()

    # -- a pass -----------------------------------------------------------------------------------------------

    def _pass(self) -> tuple[bool, bool]:
        """(rows were taken, blocked aggregates are being worked off)."""
        number, quiet = self._ledger.begin_pass()
        changed = False
        look = time.monotonic() - self._looked_at >= self._look_every
        if look:
            self._looked_at = time.monotonic()
        later: set[Aggregate] = set()
        for table in self._tables.values():
            retry, parked, sending, self._brake.paused = table.due_or_stuck(self._session, self._fence.name)
            if self._ledger.blocked or retry or parked:
                later.update(table.failed_aggregates(self._session))
            if (retry or parked) and (not self._transient or self._is_past_watermark()):
                changed |= self._take_due(table)
            if look and (sending or self._foreign):
                self._look_at_sending(table)
        busy = False
        if self._ledger.blocked:
            busy = self._free(number, quiet, later)
        if not self._transient:
            changed |= self._sweep()
        if time.monotonic() - self._counted_at >= COUNT_INTERVAL and not self._stop.is_set():
            self._count()
        return changed, busy

    def _count(self) -> None:
        """The gauges that only the tables know."""
        self._counted_at = time.monotonic()
        waiting = [table.waiting(self._session) for table in self._tables.values()]
        self._metrics.parked_events.set(sum(parked for parked, _ in waiting))
        self._metrics.dead_events.set(sum(dead for _, dead in waiting))
        with contextlib.suppress(Hold), self._binlog_session(self._session) as server:
            self._metrics.keeps_binlogs(retention_left(server, 0))

    def _take_due(self, table: OutboxTable) -> bool:
        """Claim rows whose time has come, in id order, and queue them.

        Page after page: the rows of one aggregate that may not go yet must not hide those of others.
        """
        ordered, held, partitions = self._ledger.ordered, self._topic_holds.types, self._partitions.held
        began = time.monotonic()
        if partitions and began < self._look_at_held.get(table.name, 0.0):
            return False
        without: set[Aggregate] = set()
        if ordered:
            without = self._ledger.held_aggregates() | {one for one, _, _ in self._foreign.values()}
        above = 0
        while not self._stop.is_set():
            room = self._room()
            if room is None:
                return False
            self._lease.check()
            with self._claiming() as queued:
                page = max(room[0], HELD_PAGE) if partitions else room[0]
                found = table.due(self._session, page, above, without, ordered=ordered, held=held, waits=self._waits)
                may_go = [one for one in found if one.event.skipped or one.event.aggregate not in partitions]
                free = _fitting(may_go, room[1])[: room[0]]
                queued.extend(self._queue(table, free))
                for envelope in queued:
                    envelope.overdue = envelope.event.aggregate_type in held
                rows = _rows(queued)
                if rows and table.claim_due(self._session, rows) != len(rows):
                    raise AssertionError("locked rows changed under us")
                kill_point("due-not-committed")
            if queued:
                kill_point("due-claimed")
                self._hand_on(table, queued)
                return True
            if not found:
                return False
            if len(may_go) < len(found):  # there may be many, and each look goes over them all
                now = time.monotonic()
                self._look_at_held[table.name] = now + HELD_REST * (now - began)
            last = free[-1] if len(free) < len(may_go) else found[-1]
            above = last.event.id  # a page may be short because of locked rows: only an empty one is the last
        return False

    @contextlib.contextmanager
    def _claiming(self) -> Iterator[list[Envelope]]:
        """A fenced transaction around claims; what was entered in the ledger is taken out again where it fails."""
        queued: list[Envelope] = []
        try:
            with self._session.transaction():
                self._fence.check(self._session)
                yield queued
        except BaseException:
            self._ledger.forget(queued)
            raise

    def _room(self) -> tuple[int, int] | None:
        """(rows, bytes) that may be taken now; a tail that fills the budget leaves the poller its share. None: none."""
        events, size = self._budget.free()
        if not self._ledger.held_by_poller:
            events = max(events, self._budget.max_events // RESERVE)
            size = max(size, self._budget.max_bytes // RESERVE)
        events = min(events, self._batch, self._brake.room)
        return (events, size) if events > 0 and size > 0 else None

    def _queue(self, table: OutboxTable, candidates: Sequence[Candidate]) -> list[Envelope]:
        """Of these rows those whose earlier rows are all sent, dead or handed over, entered in the ledger."""
        if not candidates:
            return []
        events = [candidate.event for candidate in candidates]
        earlier: dict[Aggregate, deque[Row]] = defaultdict(deque)
        if self._ledger.ordered:
            aggregates = {event.aggregate for event in events}
            for aggregate, row in sorted(self._open_before(table, events[-1].id, aggregates), key=lambda one: one[1]):
                earlier[aggregate].append(row)
        stopped: set[Aggregate] = set()

        def passable(event: Event) -> bool:
            aggregate = event.aggregate
            rows = earlier[aggregate]
            while aggregate not in stopped and rows and rows[0][0] < event.id:
                key = (table.name, *rows.popleft())
                if not self._ledger.handed_over(key):
                    stopped.add(aggregate)
                    self._ledger.park_if_waiting(key)
            return aggregate not in stopped

        return self._ledger.queue(events, passable)

    def _open_before(self, table: OutboxTable, below: int, aggregates: set[Aggregate]) -> list[tuple[Aggregate, Row]]:
        """Rows of these aggregates that are not sent or dead; with `rows: transient` what the ledger has stands for
        those that have none, and those at 0 are of no interest."""
        found = table.open_before(self._session, below, aggregates, pending=not self._transient)
        return found + self._ledger.tail_rows(aggregates) if self._transient else found

    def _hand_on(self, table: OutboxTable, queued: Sequence[Envelope]) -> None:
        """Read the payloads of claimed rows and give them to the relay thread."""
        if not queued:
            return
        full = table.fetch(self._session, [envelope.event.id for envelope in queued])
        present: list[Envelope] = []
        for envelope in queued:
            event = full.get(envelope.event.id)
            if event is None or event.event_id != envelope.event.event_id:
                self._ledger.skip(envelope)
                continue
            envelope.load(event)
            present.append(envelope)
        self._read_why_skipped(table, present)
        self._budget.add(len(present), sum(envelope.size for envelope in present))
        self._submit(Queued(present))

    def _read_why_skipped(self, table: OutboxTable, envelopes: Sequence[Envelope]) -> None:
        """Rows that a person gave up carry the reason in last_error; the dead letter and the alert repeat it."""
        skipped = [envelope for envelope in envelopes if envelope.event.skipped]
        if skipped:
            said = table.last_errors(self._session, [envelope.event.id for envelope in skipped])
            for envelope in skipped:
                reason = said.get(envelope.event.id, "")
                envelope.reason = reason if reason.startswith(SKIPPED) else ""

    # -- freeing aggregates -----------------------------------------------------------------------------------

    def _free(self, number: int, quiet: Sequence[Aggregate], later: set[Aggregate]) -> bool:
        """Release the quiet aggregates of which nothing is failed, parked or at 1; True while some are worked off."""
        if not self._ledger.ordered:  # nothing is in the way of what waits in memory, for a lock or to go alone
            self._submit(Freed(number, quiet))
            return True
        # Rows of these stay parked: nobody looks whether any are left.
        held, everyone = self._topic_holds.types, self._ledger.blocked_aggregates()
        in_held = self._in_held_partitions(everyone)
        blocked = [a for a in everyone if a not in later and a[1] not in held and a not in in_held]
        stuck: dict[Aggregate, int] = {}
        for table in self._tables.values():
            stuck.update(table.stuck(self._session, [a for a in blocked if a[0] == table.name]))
        foreign = {aggregate for aggregate, _, _ in self._foreign.values()}
        self._ledger.drain({a for a in blocked if stuck.get(a, 0) <= FEW and a not in foreign})
        free = [a for a in quiet if a not in later and a not in stuck and a[1] not in held and a not in in_held]
        if free:
            kill_point("freed")
            self._submit(Freed(number, free))
        return bool(blocked)

    def _in_held_partitions(self, aggregates: Sequence[Aggregate]) -> set[Aggregate]:
        """Those of them. There may be a great many, in every pass the same, and each costs the hash of its key."""
        held = self._partitions.held
        if not held:
            self._sorted = (held, set(), set())
            return set()
        _, inside, outside = self._sorted if self._sorted[0] is held else (held, set(), set())
        new = [one for one in aggregates if one not in inside and one not in outside]
        inside.update(one for one in new if one in held)
        outside.update(one for one in new if one not in inside)
        if len(inside) + len(outside) > 2 * len(aggregates):
            inside.intersection_update(aggregates)
            outside.intersection_update(aggregates)
        self._sorted = (held, inside, outside)
        return inside

    # -- rows left at 1 ---------------------------------------------------------------------------------------

    def _look_at_sending(self, table: OutboxTable) -> None:
        """Rows at 1 that are not ours block; unchanged for the sending timeout they become due retries."""
        now = time.monotonic()
        seen: dict[RowKey, tuple[Aggregate, object, float]] = {}
        abandoned: list[Row] = []
        strange = self._strange_rows(table)
        # Asked again: what was settled between the two looks is no stranger.
        still = table.statuses(self._session, [row[0] for _, row, _ in strange])
        for aggregate, row, updated in strange:
            key = (table.name, *row)
            if row[0] not in still or still[row[0]].status != Status.SENDING:
                continue
            self._ledger.block([aggregate])
            before = self._foreign.get(key)
            since = before[2] if before is not None and before[1] == updated else now
            seen[key] = (aggregate, updated, since)
            if now - since >= self._sending_timeout:
                abandoned.append(row)
        if abandoned:
            with self._session.transaction():
                self._fence.check(self._session)
                count = table.release_abandoned(self._session, abandoned, self._sending_timeout)
            if count:
                self._alerts.alert(
                    "sending_abandoned",
                    f"{count} rows of {table.name} stood at 1 for {self._sending_timeout:g} s; they are retried",
                )
        for row in abandoned:
            del seen[(table.name, *row)]
        self._foreign = {k: v for k, v in self._foreign.items() if k[0] != table.name} | seen

    def _strange_rows(self, table: OutboxTable) -> list[tuple[Aggregate, Row, object]]:
        """The first rows at 1 that are not in the ledger, however many of ours come before them."""
        strange: list[tuple[Aggregate, Row, object]] = []
        above, limit = 0, self._budget.max_events + PAGE
        while len(strange) < limit:
            page = table.sending(self._session, above, limit)
            strange.extend(one for one in page if not self._ledger.holds((table.name, *one[1])))
            if len(page) < limit:
                break
            above = page[-1][1][0]
        return strange

    # -- the sweep: pending rows that the tail never saw ------------------------------------------------------

    def _sweep_due(self) -> bool:
        return self._watermark is None and time.monotonic() - self._listed_at >= SWEEP_INTERVAL

    def _sweep(self) -> bool:
        """Note what is pending, take the server's position, wait for the stream to pass it; the rest was missed.

        No clock decides, and no listing begins while the stream is behind the last watermark.
        """
        if self._watermark is not None:
            if not self._is_past_watermark():
                return False
            notes, self._notes = self._notes, {}
            return sum(self._take_missed(self._tables[name], rows) for name, rows in notes.items()) > 0
        if any(self._above.values()) or self._sweep_due():
            self._note_pending()
        return False

    def _is_past_watermark(self) -> bool:
        """The stream is; then there is none any more. With `rows: transient` the first one is the only one: what comes
        before a copy in its aggregate may have no row, and must have been read again."""
        if self._watermark is None:
            return True
        if self._ledger.streamed_past(self._watermark):
            self._watermark = None
            return True
        if time.monotonic() - self._watermark_at > PATIENCE:
            self._look_at_watermark(self._watermark)
        return False

    def _note_pending(self) -> None:
        self._listed_at = time.monotonic()
        for name, table in self._tables.items():
            above = self._above.get(name, 0)
            rows = table.pending_page(self._session, above, table.highest_id(self._session), PAGE)
            self._above[name] = rows[-1][0] if len(rows) == PAGE else 0
            self._notes[name] = [row for row in rows if not self._ledger.holds((name, *row))]
        if any(self._notes.values()):
            self._take_watermark()

    def _take_watermark(self) -> None:
        self._watermark = server_position(self._session, gtids=self._gtids)
        self._watermark_at = time.monotonic()

    def _look_at_watermark(self, old: Position) -> None:
        """Do not wait for what never comes: the server does not send it, or its GTID was owned and given back."""
        with contextlib.suppress(Hold), self._binlog_session(self._session) as server:
            replica = server is not self._session
            if not replica or server_uuid(server) == self._dumped():  # behind one name there may be many
                self._ledger.unreadable(purged_gtids(server))
                if replica:
                    self._tell_how_far_behind(old, committed_position(server))
        now = server_position(self._session, gtids=self._gtids)
        if old.gtid_set is not None and now.gtid_set is not None:
            # Nothing newer: a reader that stays behind by more than our patience would never be done.
            now = Position(gtid_set=old.gtid_set.difference(old.gtid_set.difference(now.gtid_set)))
        self._watermark, self._watermark_at = now, time.monotonic()

    def _tell_how_far_behind(self, committed: Position, replicated: Position) -> None:
        """committed: on the primary, longer than our patience ago; replicated: on the replica, now."""
        if committed.gtid_set is not None and replicated.gtid_set is not None:
            missing = committed.gtid_set.difference(replicated.gtid_set)
            if missing:
                self._alerts.alert(
                    "source_behind",
                    f"binlog.source has not got {missing} yet, committed on the primary more than {PATIENCE:g} s ago:"
                    " their events wait for it",
                )

    def _take_missed(self, table: OutboxTable, rows: Sequence[Row]) -> bool:
        """Hand over or park those of the rows that are still pending and that nobody has in hand."""
        left = [id for id, event_id in rows if not self._ledger.holds((table.name, id, event_id))]
        found = False
        while left and not self._stop.is_set():
            self._lease.check()
            room = self._room()
            if room is None:
                self._pause(BUSY_WAIT)
                continue
            try:
                last = self._take_pending(table, left[: room[0]], room[1])
            except MySQLError as error:
                if not is_retriable(error):
                    raise
                self._pause(BUSY_WAIT)
                continue
            found = found or last is not None
            left = left[room[0] :] if last is None else [id for id in left if id > last]
        return found

    def _take_pending(self, table: OutboxTable, ids: Sequence[int], room: int) -> int | None:
        """Deal with the first of these rows that have room; gives the last id dealt with, None: none is pending."""
        with self._claiming() as queued:
            pending = table.pending_rows(self._session, ids)
            candidates = _fitting([c for c in pending if not self._ledger.holds(c.event.key)], room)
            held, partitions = self._topic_holds.types, self._partitions.held
            free = [c for c in candidates if c.event.aggregate_type not in held and c.event.aggregate not in partitions]
            queued.extend(self._queue(table, free))
            claimed = _rows(queued)
            if claimed:
                table.mark_sending(self._session, claimed)
            taken = {envelope.event.key for envelope in queued}
            # What may not go yet is parked: left at 0 it would block nothing after a restart.
            waiting = [c.event for c in candidates if c.event.key not in taken]
            if waiting:
                self._ledger.block({event.aggregate for event in waiting})
                table.park(self._session, [(event.id, event.event_id) for event in waiting])
            kill_point("missed-not-committed")
        kill_point("missed-claimed")
        self._hand_on(table, queued)
        return candidates[-1].event.id if candidates else None

    def _sweep_everything(self) -> None:
        """The bootstrap: all that is pending now, in id order; returns once it is handed over or blocks."""
        for table in self._tables.values():
            self._wait_for_commits(table)
            top, above = table.highest_id(self._session), 0
            while not self._stop.is_set():
                rows = table.pending_page(self._session, above, top, PAGE)
                if not rows:
                    break
                above = rows[-1][0]
                self._sweep_page(table, rows)
        while self._ledger.stages()[Stage.QUEUED] and not self._stop.is_set():
            self._lease.check()
            self._pause(BUSY_WAIT)

    def _sweep_page(self, table: OutboxTable, rows: Sequence[Row]) -> None:
        """Until every row of the page is handed over or parked: one that is locked now must not be overtaken."""
        while rows and not self._stop.is_set():
            self._take_missed(table, rows)
            now = table.statuses(self._session, [id for id, _ in rows])
            rows = [
                (id, event_id)
                for id, event_id in rows
                if id in now
                and now[id] == RowStatus(event_id, Status.PENDING, False)
                and not self._ledger.holds((table.name, id, event_id))
            ]
            if rows:
                self._alerts.alert(
                    "row_locked", f"row {rows[0][0]} of {table.name} is locked; the sweep before reading waits for it"
                )
                self._pause(WAIT_FOR_LOCKS)

    def _pause(self, seconds: float) -> None:
        """A short wait among many: now and then the server must hear of us, and we of a person's `resume`."""
        self._stop.wait(seconds)
        if time.monotonic() - self._pinged_at >= min(self._ping_every, self._poll_interval):
            self._pinged_at = time.monotonic()
            self._brake.paused = is_paused(self._session, self._fence.name)

    def _wait_for_commits(self, table: OutboxTable) -> None:
        """A position by file and offset may lie behind rows that no SELECT shows yet: they are waited for.

        gtid_executed, the start point in GTID mode, lags and never leads.
        """
        while not self._gtids and not self._stop.is_set():
            self._lease.check()
            try:
                table.wait_for_commits(self._session)
                return
            except MySQLError as error:
                if not is_retriable(error):
                    raise
                self._alerts.alert(
                    "row_locked", f"the newest rows of {table.name} are locked; the sweep before reading waits for them"
                )
                self._pause(WAIT_FOR_LOCKS)


def _fitting(candidates: Sequence[Candidate], room: int) -> list[Candidate]:
    """The first candidates that have room together; one alone always has."""
    fitting: list[Candidate] = []
    for candidate in candidates:
        room -= candidate.payload_size
        if room < 0 and fitting:
            break
        fitting.append(candidate)
    return fitting


def _rows(envelopes: Sequence[Envelope]) -> list[Row]:
    return [(envelope.event.id, envelope.event.event_id) for envelope in envelopes]
