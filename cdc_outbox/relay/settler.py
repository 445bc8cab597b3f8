"""The settler's thread: writes outcomes into the rows, in batches, with the position in the same fenced transaction.

Owns the write session. The only place besides the poller's claims that changes a row, and the only one that moves
the position.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pymysql.err import MySQLError

from cdc_outbox.model import Position, Status, TableName
from cdc_outbox.mysql.outbox_table import OutboxTable, Row
from cdc_outbox.mysql.session import DEADLOCK, LOCK_WAIT_TIMEOUT, Session, error_code, is_retriable
from cdc_outbox.ops.log import log_event
from cdc_outbox.relay.in_flight import Envelope, InFlight, Stage
from cdc_outbox.relay.transient_rows import write_copies
from cdc_outbox.relay.worker import Worker
from cdc_outbox.testing.kill_points import kill_point

if TYPE_CHECKING:
    from cdc_outbox.mysql.checkpoint import Fence
    from cdc_outbox.mysql.leadership import Lease
    from cdc_outbox.mysql.position_file import PositionFile
    from cdc_outbox.ops.log import Alerts
    from cdc_outbox.ops.metrics import Metrics, Outcome
    from cdc_outbox.relay.budget import Budget

logger = logging.getLogger(__name__)

GATHER = 0.2
"""Seconds that outcomes are gathered before they are written, unless a batch is full sooner."""

IDLE = 0.25
"""Seconds between looks at what is slow, at the position and at the session, while nothing is owed."""

SLOW = 1.0
"""Seconds in flight after which a row is marked 1."""

CHECKPOINT_SECONDS = 30.0
CHECKPOINT_TRAFFIC = 64 << 20
"""Other tables' traffic moves the checkpoint after so many seconds or bytes."""

LOCKED_INTERVAL = 1.0
"""Seconds between looks at rows that were locked by somebody else."""

DEADLOCK_TRIES = 10

_TARGET = {
    Stage.ACKED: (Status.SENT, False),
    Stage.REFUSED: (Status.FAILED, True),
    Stage.DEAD: (Status.FAILED, False),
    Stage.PARKING: (Status.PENDING, True),
    Stage.PUT_BACK: (Status.FAILED, True),
    Stage.HANDED: (Status.SENDING, False),
}
"""What a row says once the outcome is written: (status, next_retry_at is set)."""

_OUTCOME: dict[Stage, Outcome] = {
    Stage.ACKED: "sent",
    Stage.REFUSED: "failed",
    Stage.DEAD: "dead",
    Stage.PARKING: "parked",
}


class Settler(Worker):
    """Writes what the ledger owes. `wake` may be called from any thread, with the ledger's lock held."""

    def __init__(
        self,
        *,
        session: Session,
        fence: Fence,
        tables: Mapping[TableName, OutboxTable],
        ledger: InFlight,
        budget: Budget,
        lease: Lease,
        metrics: Metrics,
        alerts: Alerts,
        batch: int,
        ping_every: float,
        on_failure: Callable[[BaseException], None],
        position_file: PositionFile | None = None,
        server_uuid: str = "",
        transient: bool = False,
    ) -> None:
        """position_file: where the position goes instead of the checkpoint row; server_uuid: whose it is.

        transient: rows are there of failed events only, see transient_rows.
        """
        super().__init__("settler", on_failure)
        self._session = session
        self._fence = fence
        self._tables = tables
        self._ledger = ledger
        self._budget = budget
        self._lease = lease
        self._metrics = metrics
        self._alerts = alerts
        self._batch = batch
        self._ping_every = ping_every
        self._position_file = position_file
        self._server_uuid = server_uuid
        self._transient = transient
        self._owed = threading.Event()
        self._full = threading.Event()
        self._locked: list[Envelope] = []
        self._tried_locked = 0.0
        self._looked_for_slow = 0.0
        self._spoke = time.monotonic()
        self._wrote_position = time.monotonic()

    def wake(self) -> None:
        self._owed.set()
        if self._ledger.owed >= self._batch:
            self._full.set()

    def request_stop(self) -> None:
        super().request_stop()
        self._owed.set()
        self._full.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._owed.wait(IDLE):
                self._full.wait(GATHER)
            self._settle()
        self._settle()  # what became owed while the last batch was written

    def _settle(self) -> None:
        self._owed.clear()
        self._full.clear()
        while self.settle_once() >= self._batch:
            pass

    def _close(self) -> None:
        self._session.close()

    def settle_once(self) -> int:
        """Write one batch of what is owed, mark what is slow, move the position; gives the number of outcomes."""
        self._lease.check()
        batch = self._ledger.take_outcomes(self._batch)
        slow = self._slow()
        if batch or slow or self._position_due():
            self._write(batch, slow)
        elif time.monotonic() - self._spoke > self._ping_every:
            self._session.ping()
            self._spoke = time.monotonic()
        if self._locked and time.monotonic() - self._tried_locked >= LOCKED_INTERVAL:
            self._write_around_locks(self._locked)
        return len(batch)

    def _slow(self) -> list[Envelope]:
        now = time.monotonic()
        if self._transient or now - self._looked_for_slow < IDLE:
            return []
        self._looked_for_slow = now
        return self._ledger.slow(now - SLOW)

    def _position_due(self) -> bool:
        """Other tables' traffic moves the position in time, a new binlog file at once, our own writes never."""
        worth = self._ledger.position_worth_writing
        if worth == "in time":
            waited = time.monotonic() - self._wrote_position
            return waited >= CHECKPOINT_SECONDS or self._ledger.traffic >= CHECKPOINT_TRAFFIC
        return worth == "now"

    # -- one SQL transaction ----------------------------------------------------------------------------------

    def _write(self, batch: Sequence[Envelope], slow: Sequence[Envelope]) -> None:
        progress = self._ledger.propose(batch)
        reading = self._ledger.reading
        for attempt in range(DEADLOCK_TRIES):
            try:
                with self._session.transaction():
                    if reading and self._position_file is None:
                        self._fence.advance(self._session, progress.position)
                    else:
                        self._fence.check(self._session)
                    kill_point("position-not-committed")
                    self._apply(batch, slow)
                    kill_point("outcomes-not-committed")
                break
            except MySQLError as error:
                if error_code(error) == LOCK_WAIT_TIMEOUT:
                    self._ledger.retract(batch)
                    self._write_around_locks([*self._locked, *batch])
                    return
                if error_code(error) != DEADLOCK or attempt == DEADLOCK_TRIES - 1:
                    raise
        kill_point("outcomes-committed")
        if reading and self._position_file is not None:
            self._keep_in_file(self._position_file, progress.position)
        self._ledger.settle(batch, progress)
        self._spoke = self._wrote_position = time.monotonic()
        self._settled(batch)
        for envelope in slow:
            envelope.sending = True

    def _keep_in_file(self, file: PositionFile, position: Position) -> None:
        """After the outcomes are committed. A file that stays behind only costs looks at statuses after a restart."""
        try:
            file.write(position, self._server_uuid)
        except OSError as error:
            self._alerts.alert("checkpoint_file", f"the position could not be written to {file.path}: {error}")

    def _write_around_locks(self, batch: Sequence[Envelope]) -> None:
        """A row is locked by the application: settle the others, keep that one, leave the position where it is."""
        free: list[Envelope] = []
        try:
            with self._session.transaction():
                self._fence.check(self._session)
                free = self._not_locked(batch)
                self._apply(free, ())
        except MySQLError as error:
            if not is_retriable(error):
                raise
            free = []  # the checkpoint row itself was waited for: all of them later
        self._ledger.settle_rows(free)
        self._settled(free)
        written = set(free)
        self._locked = [envelope for envelope in batch if envelope not in written]
        self._tried_locked = self._spoke = time.monotonic()
        for envelope in self._locked:
            self._alerts.alert(
                "row_locked",
                f"row {envelope.event.id} of {envelope.event.table} is locked by another transaction;"
                " its status is written later",
            )

    def _not_locked(self, batch: Sequence[Envelope]) -> list[Envelope]:
        """Those that can be written now, locked for it, and those that are gone."""
        ids: dict[TableName, list[int]] = defaultdict(list)
        for envelope in batch:
            ids[envelope.event.table].append(envelope.event.id)
        locked: set[tuple[TableName, int]] = set()
        for name, part in ids.items():
            present = self._tables[name].statuses(self._session, part)
            ours = self._tables[name].statuses(self._session, part, "FOR UPDATE SKIP LOCKED")
            locked.update((name, id) for id in present.keys() - ours.keys())
        return [e for e in batch if (e.event.table, e.event.id) not in locked]

    def _settled(self, batch: Sequence[Envelope]) -> None:
        self._budget.give_back(len(batch), sum(envelope.size for envelope in batch))
        for stage, count in Counter(envelope.outcome for envelope in batch).items():
            if stage in _OUTCOME:
                self._metrics.events[_OUTCOME[stage]].inc(count)

    def _apply(self, batch: Sequence[Envelope], slow: Sequence[Envelope]) -> None:
        """Every status change of the batch, grouped so that each statement does one thing to many rows."""
        if self._transient:
            batch = write_copies(self._session, self._tables, batch)
        groups: dict[tuple[TableName, Stage, int, str], list[Envelope]] = defaultdict(list)
        for envelope in batch:
            stage = envelope.stage
            if stage is Stage.PARKING and envelope.sending:
                stage = Stage.PUT_BACK  # it was marked 1 while the relay thread decided
            error = str(envelope.error) if envelope.error is not None and stage in (Stage.REFUSED, Stage.DEAD) else ""
            groups[envelope.event.table, stage, envelope.retry_in, error].append(envelope)
        for envelope in slow:
            groups[envelope.event.table, Stage.HANDED, 0, ""].append(envelope)
        for (name, stage, seconds, error), envelopes in groups.items():
            table = self._tables[name]
            rows = [(envelope.event.id, envelope.event.event_id) for envelope in envelopes]
            matched = self._change(table, stage, rows, seconds, error)
            if matched != len(rows):
                self._explain(table, stage, rows, matched)

    def _change(self, table: OutboxTable, stage: Stage, rows: Sequence[Row], seconds: int, error: str) -> int:
        session = self._session
        if stage is Stage.ACKED:
            return table.delete_sent(session, rows) if self._transient else table.mark_sent(session, rows)
        if stage is Stage.REFUSED:
            return table.mark_failed(session, rows, seconds, error)
        if stage is Stage.DEAD:
            return table.mark_dead(session, rows, error)
        if stage is Stage.PARKING:
            return table.park(session, rows)
        if stage is Stage.PUT_BACK:
            return table.put_back(session, rows)
        return table.mark_sending(session, rows)

    def _explain(self, table: OutboxTable, stage: Stage, rows: Sequence[Row], matched: int) -> None:
        """Fewer rows were as expected: say which are gone and which somebody else has changed."""
        now = table.statuses(self._session, [id for id, _ in rows])
        gone = [id for id, event_id in rows if id not in now or now[id].event_id != event_id]
        changed = [
            id
            for id, event_id in rows
            if id in now and now[id].event_id == event_id and (now[id].status, now[id].parked) != _TARGET[stage]
        ]
        self._metrics.events["skipped"].inc(len(rows) - matched)
        if gone:
            log_event(
                logger,
                logging.INFO,
                "rows_deleted",
                f"{len(gone)} rows of {table.name} were deleted before their status was written",
            )
        already = len(rows) - matched - len(gone) - len(changed)
        if changed or already > 0:
            self._alerts.alert(
                "row_changed",
                f"{len(changed) + max(0, already)} rows of {table.name} were changed by somebody else while in flight"
                f" (first id {changed[0] if changed else rows[0][0]}); they are left as they are",
            )
