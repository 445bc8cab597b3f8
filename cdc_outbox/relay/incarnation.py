"""One incarnation of the relay: from raising the epoch to the end of its last thread. A rebuild makes a new one.

The recovery path, the only one there is, is `recover`: its order is what the promises P1, P2, P6 and P7 stand on.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cdc_outbox.binlog.reader import BinlogReader
from cdc_outbox.errors import BinlogLost, Hold
from cdc_outbox.kafka.formats import make_router
from cdc_outbox.kafka.publisher import START_TIMEOUT, make_publisher
from cdc_outbox.model import Position, TableName
from cdc_outbox.mysql.checkpoint import (
    RESET,
    Fence,
    check_executed,
    check_reachable,
    committed_position,
    raise_epoch,
    read_checkpoint,
    server_position,
    stored_position,
    uses_gtids,
)
from cdc_outbox.mysql.outbox_table import OutboxTable, column_names
from cdc_outbox.mysql.position_file import position_file
from cdc_outbox.mysql.session import Session
from cdc_outbox.mysql.source import (
    SOURCE,
    binlog_session,
    check_history,
    connect_to_read,
    first_position,
    of_source,
)
from cdc_outbox.ops.log import log_event
from cdc_outbox.relay.budget import Budget
from cdc_outbox.relay.in_flight import InFlight
from cdc_outbox.relay.intake import Intake
from cdc_outbox.relay.partition_watch import PartitionWatch
from cdc_outbox.relay.pipeline import Pipeline
from cdc_outbox.relay.poller import Poller
from cdc_outbox.relay.refusals import Refusals
from cdc_outbox.relay.retry import RetryPolicy
from cdc_outbox.relay.settler import Settler
from cdc_outbox.relay.topic_holds import TopicHolds
from cdc_outbox.relay.transient_rows import TransientIntake
from cdc_outbox.relay.turns import Turns
from cdc_outbox.relay.worker import Worker
from cdc_outbox.testing.kill_points import kill_point

if TYPE_CHECKING:
    from cdc_outbox.config import Settings
    from cdc_outbox.kafka.publisher import Delivery, Publisher
    from cdc_outbox.mysql.leadership import Leadership
    from cdc_outbox.ops.log import Alerts
    from cdc_outbox.ops.metrics import Metrics
    from cdc_outbox.ops.tracing import Tracing
    from cdc_outbox.relay.brake import Brake
    from cdc_outbox.relay.suspects import Suspects

logger = logging.getLogger(__name__)

HEARTBEAT = 2.0
"""Seconds between the server's signs of life on an idle dump; three missed ones mean a dead peer."""

JOIN_TIMEOUT = 6.0
"""Seconds that a stage's threads may take to end: longer than any single wait in them."""

SENDING_TIMEOUT = 300.0
"""Default of outbox.sending_timeout, in seconds."""


@dataclass(frozen=True)
class Recovered:
    """Where an incarnation begins."""

    start: Position
    boundary: Position  # the server's position after the epoch was raised
    bootstrap: bool


class _Reading(Worker):
    """The reader's thread."""

    def __init__(self, reader: BinlogReader, on_failure: Callable[[BaseException], None]) -> None:
        super().__init__("reader", on_failure)
        self._reader = reader

    def _run(self) -> None:
        self._reader.run()

    def request_stop(self) -> None:
        super().request_stop()
        self._reader.request_stop()


class Incarnation:
    """Built with the lock held, on the supervising thread. Afterwards `stop` must be called, whatever happened."""

    def __init__(
        self,
        *,
        settings: Settings,
        leadership: Leadership,
        metrics: Metrics,
        alerts: Alerts,
        suspects: Suspects,
        brake: Brake,
        server_id: int,
        may_begin_anew: bool,
        on_failure: Callable[[BaseException], None],
        tracing: Tracing | None = None,
    ) -> None:
        """server_id: what the reader calls itself to MySQL. may_begin_anew: without a checkpoint, too, although rows
        are transient and no sweep finds what was committed before."""
        self._suspects = suspects
        self._brake = brake
        self._tracing = tracing
        self._server_id = server_id
        self._may_begin_anew = may_begin_anew
        self._settings = settings
        self._leadership = leadership
        self._metrics = metrics
        self._alerts = alerts
        self._on_failure = on_failure
        self._sessions: list[Session] = []
        self._workers: list[Worker] = []
        self._publisher: Publisher | None = None
        self._deliver: Callable[[list[Delivery]], None] = lambda deliveries: None
        self.recovered: Recovered | None = None
        self._position_file = position_file(settings)
        self.budget = Budget(settings.limits.max_in_flight, settings.limits.max_in_flight_bytes)
        self.ledger = InFlight(Position())
        self._reader: BinlogReader | None = None
        self._fence: Fence | None = None
        self.reported = ""
        """The state last left in the checkpoint row."""

    # -- begin ------------------------------------------------------------------------------------------------

    def reach_kafka(self) -> None:
        """First of all: while the broker is away nothing else is touched. Raises Refused, Hold."""
        # Meanwhile nobody pings the lock.
        patience = min(START_TIMEOUT, self._settings.leadership_timeout / 2)
        self._publisher = make_publisher(self._settings.kafka, self._delivered, patience)
        self._leadership.ping()  # that may have taken long

    def begin(self, *, binlog_lost: bool = False) -> None:
        """Recover and start the threads. binlog_lost: the last incarnation could not read on from the checkpoint."""
        session = self._session()
        tables = self._tables(session)
        fence, blocked = self._recover(session, tables, binlog_lost=binlog_lost)
        kill_point("recovered")
        self._fence = fence
        self._build(session, fence, tables)
        self.ledger.block(blocked)
        for worker in self._workers[:-1]:
            worker.start()
        assert self.recovered is not None
        if not self.recovered.bootstrap:
            self._begin_reading()

    def _delivered(self, deliveries: list[Delivery]) -> None:
        self._deliver(deliveries)

    def _session(self) -> Session:
        session = Session(self._settings.mysql, lifetime=self._settings.leadership_timeout)
        self._sessions = [*(one for one in self._sessions if not one.closed), session]
        return session

    def _tables(self, session: Session) -> dict[TableName, OutboxTable]:
        columns = self._settings.outbox.columns
        extra = sorted({*columns.headers.values(), *filter(None, [columns.topic, columns.key])} - STANDARD_COLUMNS)
        return {
            name: OutboxTable(name, extra_columns=extra, has_last_error="last_error" in column_names(session, name))
            for name in self._settings.table_names
        }

    def _recover(
        self, session: Session, tables: Mapping[TableName, OutboxTable], *, binlog_lost: bool
    ) -> tuple[Fence, list[tuple[TableName, str, str]]]:
        """Raise the epoch on the lock's session; then, fenced, free the rows at 1 and read what is blocked."""
        settings = self._settings
        first = self._look_ahead(session)
        fence = raise_epoch(self._leadership.session, settings.name, secrets.token_hex(16))
        kill_point("epoch-raised")
        with session.transaction():
            fence.check(session)
            if settings.outbox.claim == "leader":
                # Rows at 1 become due retries before the blocked aggregates are read, or theirs would be missed.
                for table in tables.values():
                    table.release_sending(session)
            checkpoint = read_checkpoint(session, settings.name)
            self._brake.paused = checkpoint is not None and checkpoint.paused
            blocked = [a for table in tables.values() for a in table.blocked_aggregates(session)]
        position = stored_position(settings, checkpoint)
        transient = settings.outbox.transient
        sweep_first = (
            checkpoint is not None
            and not transient
            and (
                checkpoint.state == RESET
                or (self._position_file is not None and self._position_file.written_elsewhere(checkpoint.server_uuid))
            )
        )
        never_read = position is None
        try:
            if position is not None:
                if binlog_lost:
                    raise BinlogLost(f"the server cannot be read on from the checkpoint {position}")
                self._check_position(session, position)
                self.recovered = self._recovered(session, position, bootstrap=sweep_first)
        except BinlogLost as lost:
            if settings.binlog.on_purged == "stop":
                raise
            self._alerts.alert(
                "binlog_lost",
                f"{lost.message}; everything pending is swept by SQL, then reading goes on from now",
            )
            position = None
        if position is None:
            if transient and not self._may_begin_anew:
                raise BinlogLost(f"relay {settings.name!r} has no checkpoint any more")
            start = first if first is not None and never_read else committed_position(session)
            self.recovered = self._recovered(session, start, bootstrap=not transient)
            if transient:
                self._keep_first_position(session, fence, start)
        self._leadership.ping()
        return fence, blocked

    def _keep_first_position(self, session: Session, fence: Fence, start: Position) -> None:
        """Without it a crash before the first outcome would leave none, and no sweep finds what was committed since."""
        with session.transaction():
            fence.advance(session, start)
        if self._position_file is not None:
            self._position_file.write(start, self._leadership.server_uuid)

    def _look_ahead(self, session: Session) -> Position | None:
        """What may have to be waited for, before the epoch is raised: each attempt would raise it anew.

        Gives where a first start with `binlog.start: earliest` begins. It may lie as far back as it likes: what is read
        up to the boundary is looked up in the table.
        """
        settings = self._settings
        if self._position_file is not None:
            self._position_file.check_folder()
        if settings.binlog.source is not None and not uses_gtids(session):
            raise Hold("gtid_mode is not ON on the primary, and binlog.source can be read by GTID only", reason="mysql")
        stored = stored_position(settings, read_checkpoint(session, settings.name))
        return first_position(settings, session) if stored is None and settings.binlog.start == "earliest" else None

    def _check_position(self, session: Session, position: Position) -> None:
        """Raise BinlogLost unless reading can go on there. A replica is asked by the reader, before it begins."""
        if self._settings.binlog.source is None:
            check_reachable(session, position)
        elif position.gtid_set is None:
            raise BinlogLost(f"the checkpoint {position} is the primary's file and offset, which binlog.source has not")
        else:
            check_executed(session, position.gtid_set)

    @staticmethod
    def _recovered(session: Session, start: Position, *, bootstrap: bool) -> Recovered:
        return Recovered(start, server_position(session, gtids=start.gtid_set is not None), bootstrap)

    def _build(self, session: Session, fence: Fence, tables: Mapping[TableName, OutboxTable]) -> None:
        settings, recovered, lease = self._settings, self.recovered, self._leadership.lease
        assert recovered is not None and self._publisher is not None
        self.ledger = InFlight(
            recovered.start,
            ordered=settings.outbox.ordering != "none",
            waiting_room=settings.limits.max_in_flight // 4,
        )
        topic_holds = TopicHolds()
        transient = settings.outbox.transient
        self._intake = (TransientIntake if transient else Intake)(
            self._session,
            fence,
            tables,
            self.ledger,
            lease=lease,
            claim_rows=settings.outbox.claim == "row",
            check_until=recovered.boundary,
            session_lifetime=settings.leadership_timeout,
        )
        router = make_router(settings.outbox.columns, settings.kafka)
        partitions = PartitionWatch(
            topics=router.topics if router.by_aggregate else {},
            publisher=self._publisher,
            ledger=self.ledger,
            budget=self.budget,
            metrics=self._metrics,
            alerts=self._alerts,
            linger=settings.kafka.linger,
        )
        self._pipeline = Pipeline(
            publisher=self._publisher,
            router=router,
            intake=self._intake,
            ledger=self.ledger,
            budget=self.budget,
            lease=lease,
            refusals=Refusals(
                publisher=self._publisher,
                router=router,
                ledger=self.ledger,
                lease=lease,
                retries=RetryPolicy(settings.retry.waits, settings.retry.jitter),
                metrics=self._metrics,
                alerts=self._alerts,
                topic_holds=topic_holds,
                max_record_bytes=settings.kafka.max_record_bytes,
            ),
            metrics=self._metrics,
            alerts=self._alerts,
            suspects=self._suspects,
            brake=self._brake,
            topic_holds=topic_holds,
            partitions=partitions,
            turns=Turns() if settings.outbox.ordering == "strict" else None,
            batch=settings.limits.batch,
            on_failure=self._on_failure,
            transient=transient,
            tracing=self._tracing,
        )
        self._deliver = self._pipeline.deliver
        settler = Settler(
            session=session,
            fence=fence,
            tables=tables,
            ledger=self.ledger,
            budget=self.budget,
            lease=lease,
            metrics=self._metrics,
            alerts=self._alerts,
            batch=settings.limits.batch,
            ping_every=settings.leadership_timeout / 3,
            on_failure=self._on_failure,
            position_file=self._position_file,
            server_uuid=self._leadership.server_uuid,
            transient=transient,
        )
        self.ledger.on_outcome = settler.wake
        poller = Poller(
            session=self._session(),
            binlog_session=partial(binlog_session, settings),
            dumped=lambda: "" if self._reader is None else self._reader.dumped,
            fence=fence,
            tables=tables,
            ledger=self.ledger,
            budget=self.budget,
            brake=self._brake,
            topic_holds=topic_holds,
            partitions=partitions,
            waits=settings.retry.waits,
            lease=lease,
            metrics=self._metrics,
            alerts=self._alerts,
            submit=self._pipeline.submit,
            batch=settings.limits.batch,
            poll_interval=settings.retry.poll_interval,
            sending_timeout=settings.outbox.sending_timeout or SENDING_TIMEOUT,
            ping_every=settings.leadership_timeout / 3,
            watermark=recovered.boundary,
            bootstrap=recovered.bootstrap,
            transient=transient,
            on_swept=self._begin_reading_after,
            on_failure=self._on_failure,
        )
        reader = BinlogReader(
            partial(connect_to_read, settings),
            settings.table_names,
            recovered.start.copy(),
            self._pipeline.tail,
            server_id=self._server_id,
            server_uuid=self._leadership.server_uuid,
            extra_columns=next(iter(tables.values())).extra_columns,
            heartbeat=HEARTBEAT,
            first_images=transient,
            describe=lambda name: column_names_of(settings, name),
            admit=None
            if settings.binlog.source is None
            else lambda connection, position: check_history(connection, settings, position),
        )
        self._reader = reader
        self._pipeline.close_dump = reader.close_dump
        self._reading = _Reading(reader, self._on_failure)
        self._workers = [self._pipeline, settler, poller, self._reading]

    def _begin_reading(self) -> None:
        self.ledger.reading = True
        self._reading.start()

    def _begin_reading_after(self, swept: Position) -> None:
        """The sweep is over, on the poller's thread: rows that it handed over lie before `swept`."""
        kill_point("swept-everything")
        self._intake.check_again_until(swept)
        log_event(
            logger,
            logging.INFO,
            "sweep_done",
            "Everything pending was swept; reading goes on from the binlog",
        )
        self._begin_reading()

    # -- end --------------------------------------------------------------------------------------------------

    @property
    def troubles(self) -> dict[str, str]:
        """Reason of a hold: what is suffered from right now, while the stages go on."""
        found: dict[str, str] = {}
        kafka = self._publisher.trouble() if self._publisher is not None else None
        if kafka is not None and len(self.ledger):
            found["kafka"] = kafka
        source = self._reader.trouble if self._reader is not None else None
        if source is not None:
            found[SOURCE] = of_source(self._settings, source)
        return found

    @property
    def connecting(self) -> bool:
        """The reader has begun and has no dump now: a hold of the last incarnation for the source's sake goes on."""
        return self.ledger.reading and self._reader is not None and not self._reader.dumped

    @property
    def publisher_name(self) -> str:
        return self._publisher.name if self._publisher is not None else ""

    def report(self, state: str, last_error: str | None) -> None:
        """Leave a word in the checkpoint row, for `status`."""
        if self._fence is not None and self.ledger.reading:  # until a sweep is over, the row says that it is owed
            self._fence.report(self._leadership.session, state, last_error)
            self.reported = state

    def stop_taking(self) -> None:
        """Nothing new is read, polled or handed over; what is out goes on."""
        for worker in self._workers[2:]:
            worker.request_stop()
        self.budget.close()
        self._pipeline.finish()

    def drained(self) -> bool:
        """What was handed over is acknowledged and written, what was only claimed put back. The rest stays pending."""
        return self._pipeline.finished and not self.ledger.unfinished()

    def purge(self) -> None:
        """Leadership is gone: drop what the client has not sent yet. First of all, from any thread."""
        if self._publisher is not None:
            self._publisher.purge()

    def stop(self) -> bool:
        """End every thread, the client's included; False when one did not end in time."""
        self.budget.close()
        for worker in self._workers:
            worker.request_stop()
        deadline = time.monotonic() + JOIN_TIMEOUT
        for worker in self._workers[:2]:
            worker.join(1.0)  # the settler finishes the batch that it is writing
        for session in self._sessions:
            session.interrupt()
        ended = [worker.join(max(0.1, deadline - time.monotonic())) for worker in self._workers]
        if self._publisher is not None:
            ended.append(self._publisher.close(5.0))
        for session in self._sessions:
            session.close()
        for reason in ("partition", "topic"):  # the next one finds them anew; until it begins, nobody looks
            self._metrics.hold(reason, False)
        return all(ended)


STANDARD_COLUMNS = frozenset({"id", "event_id", "aggregate_type", "aggregate_id", "event_type"})
"""Columns that may be mapped and that every Event has as a field."""


def column_names_of(settings: Settings, table: TableName) -> list[str]:
    """The table's columns in order, asked on a connection of its own."""
    session = Session(settings.mysql, lifetime=60)
    try:
        return column_names(session, table)
    finally:
        session.close()
