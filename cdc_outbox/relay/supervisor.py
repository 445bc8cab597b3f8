"""The life of the process: standby, lead, rebuild, drain, exit. Owns signals, the lock session and the backoff.

Runs on the main thread. Whatever fails anywhere ends up in `_judge`, the one place that decides what a failure means
for the process.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import TYPE_CHECKING

from pymysql.err import MySQLError

from cdc_outbox import __version__
from cdc_outbox.binlog.accelerator import decoder
from cdc_outbox.errors import (
    EXIT_BUG,
    EXIT_CLEAN,
    EXIT_FORCED,
    BinlogLost,
    CdcOutboxError,
    Hold,
    LeadershipLost,
    Refused,
    Stopped,
)
from cdc_outbox.mysql.checkpoint import refuse_without_checkpoint, report_before_leading
from cdc_outbox.mysql.leadership import Leadership, boottime
from cdc_outbox.mysql.preflight import examine_mysql, refusal
from cdc_outbox.mysql.session import is_retriable, mysql_trouble
from cdc_outbox.mysql.source import SOURCE
from cdc_outbox.mysql.source_preflight import examine_source
from cdc_outbox.ops.health import HealthServer
from cdc_outbox.ops.log import Alerts, log_event, log_exception
from cdc_outbox.ops.metrics import Metrics
from cdc_outbox.ops.service_manager import ServiceManager
from cdc_outbox.ops.tracing import make_tracing
from cdc_outbox.relay.backoff import Backoff
from cdc_outbox.relay.brake import Brake
from cdc_outbox.relay.incarnation import Incarnation
from cdc_outbox.relay.suspects import Suspects
from cdc_outbox.testing.kill_points import kill_point

if TYPE_CHECKING:
    from cdc_outbox.config import Settings

logger = logging.getLogger(__name__)

TICK = 0.25
"""Seconds between looks at pings, holds and gauges."""

INHERITED = "_CDC_OUTBOX_INHERITED"
"""Environment variable by which a process tells its replacement whether it had led, and how many bugs it counted."""

BUGS = 3
"""Unclassified errors in a row, without a settled event between them, that end the process."""


OVER_WITH_A_WRITE = {"mysql", "mysql_read_only"}
"""Reasons of holds that are over once the lock is had and a write taken. What else is waited for shows later."""


class Supervisor:
    """One relay process. `run` returns the exit code."""

    def __init__(self, settings: Settings, *, begin_anew: bool = False) -> None:
        """begin_anew: with `rows: transient`, start without a checkpoint as well."""
        self._settings = settings
        self._begin_anew = begin_anew
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._failure: BaseException | None = None
        self._failure_lock = threading.Lock()
        self._leadership = Leadership(settings)
        self._metrics = Metrics(settings.name)
        self._alerts = Alerts(self._metrics.alert)
        self._tracing = make_tracing(settings)
        self._manager = ServiceManager()
        self._backoff = Backoff(0.1, 1.0)
        self._suspects = Suspects()
        self._brake = Brake(settings.limits.max_rate)
        self._has_led, self._bugs = json.loads(os.environ.pop(INHERITED, "[false, 0]"))
        self._pinged_at = 0.0
        self._binlog_lost = False
        self._holds: set[str] = set()
        self._state = "starting"
        self._last_error: str | None = None
        # Another one for each process: a dump that a frozen predecessor left open is then nobody's namesake.
        self._server_id = settings.binlog_server.server_id or secrets.randbelow(2**31 - 1) + 2**31

    def run(self) -> int:
        """Relay until a signal or an error that a person must deal with; raises the latter."""
        _calm_the_collector()
        http = HealthServer(self._settings.http, self._metrics, self.ready) if self._settings.http else None
        with self._signals():
            log_event(
                logger,
                logging.INFO,
                "starting",
                f"cdc-outbox {__version__}, relay {self._settings.name!r}",
                pid=os.getpid(),
                decoder=decoder().kind,
            )
            if http is not None:
                http.start()
            self._manager.watch(self._alive)
            try:
                self._attempt(self._check_server)
                while not self._stopping.is_set():
                    self._attempt(self._lead)
            finally:
                self._manager.stopping()
                self._leadership.close()
                self._alerts.flush(everything=True)
                if self._tracing is not None:
                    self._tracing.close()
                if http is not None:
                    http.stop()
                self._manager.close()
        log_event(
            logger,
            logging.INFO,
            "stopped",
            "The relay has stopped; what is left is taken up at the next start",
        )
        return EXIT_CLEAN

    def ready(self) -> tuple[bool, str]:
        """For /readyz: leading and flowing, or a healthy standby."""
        if self._holds:
            return False, "holding: " + ", ".join(sorted(self._holds))
        if self._state == "leader" and self._leadership.lease.left <= 0:
            return False, "the leader lock was not confirmed in time"
        return self._state in {"leader", "standby"}, self._state

    def _alive(self) -> bool:
        """For the watchdog: a leader whose lease ran out long ago does not look after anything any more."""
        return self._state != "leader" or self._leadership.lease.left > -self._settings.leadership_timeout

    # -- signals ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT ask to stop, a second one forces; the handlers found are put back."""
        before = {one: signal.signal(one, self._on_signal) for one in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stopping.is_set():
            os.write(sys.stderr.fileno(), b"cdc-outbox: forced to stop; records in flight may be sent again\n")
            os._exit(EXIT_FORCED)
        self._stopping.set()
        self._wake.set()

    # -- attempts and what their failures mean ----------------------------------------------------------------

    def _attempt(self, what: Callable[[], None]) -> None:
        """Do it; after an outage wait and do it again, until it returns or the relay is asked to stop."""
        while not self._stopping.is_set():
            try:
                what()
                return
            except Stopped:
                return
            except Exception as error:
                self._judge(error)
            # An incarnation is full of cycles, and the collector is calmed: a night's outage would pile them up, each
            # with a Kafka client and its threads.
            self._failure = None
            gc.collect()
            self._wait(self._backoff.next())

    def _wait(self, seconds: float) -> None:
        self._stopping.wait(seconds)

    def _judge(self, error: Exception) -> None:
        """Return: the relay waits and tries again. Raise: it ends, with the error's exit code."""
        known: BaseException = error
        if isinstance(error, (MySQLError, OSError)):
            known = mysql_trouble(error, self._settings.mysql)
            if isinstance(known, Refused) and self._has_led:
                known = known.as_hold()
        if isinstance(known, LeadershipLost):
            self._leadership.close()
            log_event(logger, logging.WARNING, "leadership_lost", str(known))
        elif isinstance(known, BinlogLost):
            if self._settings.binlog.on_purged == "stop":
                lost = (
                    "what it no longer holds is lost"
                    if self._settings.outbox.transient
                    else "a sweep finds what is pending"
                )
                raise BinlogLost(
                    f'{known.message}; binlog.on_purged is "stop"',
                    hint=f"cdc-outbox checkpoint reset --to now (or earliest), then start: {lost}",
                )
            self._binlog_lost = True
        elif isinstance(known, Hold):
            self._hold(known.reason, str(known))
            if known.reason in {"kafka", SOURCE}:
                with contextlib.suppress(MySQLError, OSError, Hold):
                    self._leadership.ping()  # nobody has, for as long as Kafka was waited for
                    report_before_leading(self._leadership.session, self._settings.name, "holding", str(known))
            else:
                # The name may lead to another server by now: everything is opened anew, the lock session first.
                self._leadership.close()
        elif isinstance(known, CdcOutboxError):
            raise known
        else:
            self._bug(error)
        self._last_error = str(known)

    def _bug(self, error: Exception) -> None:
        self._bugs += 1
        try:
            raise error
        except Exception:
            log_exception(
                logger,
                "unexpected_error",
                f"Unexpected {type(error).__name__}; the relay starts again inside",
            )
        self._metrics.alert("unexpected_error")
        if self._bugs >= BUGS:
            raise CdcOutboxError(
                f"the same start failed {BUGS} times without progress, last with {type(error).__name__}: {error}",
                hint="please report the traceback above",
            ) from error

    def _hold(self, reason: str, why: str) -> None:
        if reason not in self._holds:
            self._holds.add(reason)
            self._alerts.alert("hold", f"Holding, nothing is lost and no retry spent: {why}", topic=reason)
            self._manager.ready(f"holding: {reason}")
        self._metrics.hold(reason, True)
        self._last_error = why

    def _flowing(self, *, but: Collection[str] = ()) -> None:
        """All holds are over but these."""
        over = self._holds.difference(but)
        for reason in over:
            self._metrics.hold(reason, False)
            log_event(logger, logging.INFO, "recovered", f"{reason} is back; events flow again", reason=reason)
        self._holds -= over
        if over and not self._holds:
            self._manager.ready(self._state)

    # -- start ------------------------------------------------------------------------------------------------

    def _check_server(self) -> None:
        """The preflight of `start`: an unreachable server is an outage, anything else wrong a refusal."""
        findings = [*examine_mysql(self._settings), *examine_source(self._settings)]
        for finding in findings:
            if finding.level == "warning":
                log_event(
                    logger,
                    logging.WARNING,
                    "preflight",
                    f"{finding.found}: {finding.why}",
                    check=finding.check,
                )
        refused = refusal(findings)
        if isinstance(refused, Hold):
            self._flowing(but={refused.reason})  # what was waited for before answers by now
        if refused is not None:
            raise refused
        if self._settings.outbox.transient and not (self._begin_anew or self._has_led):
            refuse_without_checkpoint(self._settings)

    # -- leading ----------------------------------------------------------------------------------------------

    def _lead(self) -> None:
        """Take the lock, run one incarnation until it fails or the relay stops."""
        if self._leadership.lease.left <= 0 and not self._acquire():
            return
        self._leadership.ping()
        incarnation = Incarnation(
            settings=self._settings,
            leadership=self._leadership,
            metrics=self._metrics,
            alerts=self._alerts,
            suspects=self._suspects,
            brake=self._brake,
            server_id=self._server_id,
            may_begin_anew=self._begin_anew and not self._has_led,
            on_failure=self._on_failure,
            tracing=self._tracing,
        )
        self._failure = None
        self._wake.clear()
        self._state = "recovering"
        failed: BaseException | None = None
        try:
            self._begin(incarnation)
            self._tell(incarnation)
            self._watch(incarnation)
            self._drain(incarnation)
        except BaseException as error:
            failed = error
            incarnation.purge()
            raise
        finally:
            ended = incarnation.stop()
            self._metrics.leader.set(0)
            self._state = "recovering"
            if not ended:
                if isinstance(failed, Exception) and not isinstance(failed, Stopped):
                    self._judge(failed)  # nobody else would tell of it, nor count it
                self._begin_a_new_process()

    def _begin_a_new_process(self) -> None:
        """A client thread that lives on could publish beside the next incarnation: only exec is rid of it."""
        if self._stopping.is_set():
            log_event(logger, logging.ERROR, "threads_left", "A thread did not end in time; the process exits")
            os._exit(EXIT_BUG)
        log_event(logger, logging.ERROR, "threads_left", "A thread did not end in time; the process replaces itself")
        logging.shutdown()
        os.environ[INHERITED] = json.dumps([self._has_led, self._bugs])
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])

    def _begin(self, incarnation: Incarnation) -> None:
        """What a first start refuses is an outage of ours later: a login, a table or a grant that was good before."""
        try:
            incarnation.reach_kafka()
            incarnation.begin(binlog_lost=self._binlog_lost)
        except Refused as refused:
            if self._has_led:
                raise refused.as_hold() from refused
            raise
        self._binlog_lost = False

    def _acquire(self) -> bool:
        self._state = "standby"
        held = self._leadership.acquire(self._stopping, self._on_standby)
        if held:
            kill_point("lock-taken")
            if self._holds:
                # A server with a full disk, or under a backup's lock, answers whatever does not write.
                report_before_leading(
                    self._leadership.session, self._settings.name, "recovering", self._last_error or ""
                )
                self._flowing(but=self._holds - OVER_WITH_A_WRITE)
        return held

    def _on_standby(self, holder: int) -> None:
        self._flowing()
        self._metrics.follow()
        self._manager.ready("standby")
        log_event(
            logger,
            logging.INFO,
            "standby",
            f"Standby: the relay at MySQL connection {holder} leads; waiting for its lock",
        )

    def _on_failure(self, error: BaseException) -> None:
        """A stage failed; called on its thread. The first failure counts, the others follow from it."""
        with self._failure_lock:
            if self._failure is None:
                self._failure = error
        self._wake.set()

    def _tell(self, incarnation: Incarnation) -> None:
        settings, recovered = self._settings, incarnation.recovered
        assert recovered is not None
        mysql = settings.mysql
        whole = ", ".join(str(table) for table in settings.table_names)
        mode = "GTID" if recovered.start.gtid_set is not None else "file and offset"
        begin = "a sweep of everything pending, then the binlog from" if recovered.bootstrap else "the binlog from"
        if settings.binlog.source is not None:
            server = settings.binlog_server
            begin = begin.replace("the binlog", f"the binlog of {server.host}:{server.port}")
        for event, line in (
            (
                "connected_mysql",
                f"MySQL {mysql.host}:{mysql.port} as {mysql.user}, server {self._leadership.server_uuid}",
            ),
            ("connected_kafka", f"Kafka {settings.kafka.bootstrap_servers} by {incarnation.publisher_name}"),
            ("tables", f"{whole} to topic {settings.kafka.topic}, claim: {settings.outbox.claim}"),
            ("reading", f"Reading {begin} {recovered.start or 'its beginning'} ({mode})"),
            (
                "leader",
                f"This relay leads {settings.name!r} (MySQL connection {self._leadership.session.thread_id})",
            ),
        ):
            log_event(logger, logging.INFO, event, line)
        self._has_led = True
        self._state = "leader"
        self._metrics.leader.set(1)
        self._manager.ready("leader")

    def _watch(self, incarnation: Incarnation) -> None:
        """Ping, look for failures and holds, until asked to stop."""
        self._pinged_at = 0.0
        while not self._stopping.is_set():
            self._wake.wait(TICK)
            self._raise_failure()
            self._ping_in_time()
            self._look(incarnation)

    def _ping_in_time(self) -> None:
        """Confirm the lead every third of leadership_timeout."""
        now = boottime()
        if now - self._pinged_at >= self._settings.leadership_timeout / 3:
            self._pinged_at = now
            self._leadership.ping()
            kill_point("confirmed")

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _look(self, incarnation: Incarnation) -> None:
        """Gauges, holds, progress."""
        ledger = incarnation.ledger
        self._metrics.in_flight.set(len(ledger))
        self._metrics.blocked_aggregates.set(ledger.blocked)
        self._metrics.oldest_commit = ledger.oldest_commit()
        self._alerts.flush()
        troubles = incarnation.troubles
        for reason, trouble in troubles.items():
            self._hold(reason, trouble)
        self._flowing(but={*troubles, SOURCE} if incarnation.connecting else troubles)
        state = "paused" if self._brake.paused else "holding" if self._holds else "leader"
        if (state == "paused") != (self._state == "paused"):
            self._tell_of_pause()
        self._metrics.hold("paused", self._brake.paused)  # it may have begun, or ended, between two incarnations
        self._state = state
        if state != incarnation.reported:
            self._report(incarnation, state)
        if ledger.settled:
            self._bugs = 0
            self._backoff.reset()

    def _tell_of_pause(self) -> None:
        if self._brake.paused:
            log_event(logger, logging.WARNING, "paused", "Paused: nothing is published until `cdc-outbox resume`")
        else:
            log_event(logger, logging.INFO, "resumed", "Resumed: events flow again")

    def _report(self, incarnation: Incarnation, state: str) -> None:
        """Leave the state in the checkpoint row; where that is locked for long, at the next look."""
        try:
            incarnation.report(state, self._last_error)
        except MySQLError as error:
            if not is_retriable(error):
                raise

    def _drain(self, incarnation: Incarnation) -> None:
        """Asked to stop: take nothing new, let what is out be acknowledged and written."""
        self._state = "stopping"
        self._manager.stopping()
        incarnation.stop_taking()
        deadline = boottime() + self._settings.limits.shutdown_timeout
        log_event(
            logger,
            logging.INFO,
            "draining",
            "Stopping: what is with Kafka is finished first; a second signal forces",
        )
        while not incarnation.drained() and boottime() < deadline:
            self._raise_failure()
            time.sleep(0.02)
            self._ping_in_time()
        if not incarnation.drained():
            left = incarnation.ledger.unfinished()
            log_event(
                logger,
                logging.WARNING,
                "drain_timeout",
                f"{left} events were not acknowledged in limits.shutdown_timeout; they stay pending",
            )
            incarnation.purge()
        self._report(incarnation, "stopped")


def _calm_the_collector() -> None:
    """Tens of thousands of events are alive at a time and die by reference count: looking for cycles among them every
    700 allocations costs more than half of what the relay itself does for an event."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
