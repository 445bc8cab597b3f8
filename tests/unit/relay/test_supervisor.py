"""What the supervisor says and decides, without servers."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest
from pymysql.err import OperationalError, ProgrammingError

from cdc_outbox.config import Settings
from cdc_outbox.errors import BinlogUnreadable, Hold, Refused
from cdc_outbox.model import Position
from cdc_outbox.mysql.findings import Finding
from cdc_outbox.mysql.leadership import boottime
from cdc_outbox.relay.in_flight import InFlight
from cdc_outbox.relay.incarnation import Incarnation
from cdc_outbox.relay.supervisor import INHERITED, Supervisor


@pytest.fixture
def leading() -> Supervisor:
    """A relay that leads, its lock just confirmed."""
    settings = Settings.model_validate(
        {
            "name": "orders",
            "mysql": {"user": "u", "password": "p", "database": "shop"},
            "kafka": {"bootstrap_servers": "k:1"},
            "leadership_timeout": "10s",
        }
    )
    supervisor = Supervisor(settings)
    supervisor._state = "leader"
    supervisor._leadership.lease.renew(boottime(), 10.0)
    return supervisor


def test_a_leader_is_ready_as_long_as_its_lock_is_confirmed(leading: Supervisor) -> None:
    assert leading.ready() == (True, "leader")
    assert leading._alive()
    leading._leadership.lease.deadline = boottime() - 1
    assert leading.ready() == (False, "the leader lock was not confirmed in time")
    assert leading._alive(), "it may still notice by itself"
    leading._leadership.lease.deadline = boottime() - 11
    assert not leading._alive()


@pytest.mark.parametrize(("state", "ready"), [("standby", True), ("recovering", False), ("stopping", False)])
def test_a_standby_is_ready_and_nothing_in_between(leading: Supervisor, state: str, ready: bool) -> None:
    leading._state = state
    leading._leadership.lease.end()
    assert leading.ready() == (ready, state)
    assert leading._alive()


def test_a_hold_is_not_ready_whoever_leads(leading: Supervisor) -> None:
    leading._holds |= {"mysql", "kafka"}
    assert leading.ready() == (False, "holding: kafka, mysql")


def flowing(*, connecting: bool = False) -> Incarnation:
    """An incarnation without trouble. connecting: it has no dump yet."""
    nothing = {"ledger": InFlight(Position()), "troubles": {}, "reported": "", "report": lambda *_: None}
    return SimpleNamespace(connecting=connecting, **nothing)  # type: ignore[return-value]


def test_a_hold_for_a_replica_outlasts_a_rebuild_until_it_is_read(leading: Supervisor) -> None:
    """The new incarnation needs ten seconds to call it an outage: nobody is to be told meanwhile that it is back."""
    leading._hold("source", "no answer")
    leading._hold("mysql", "no answer")
    leading._look(flowing(connecting=True))
    assert leading.ready() == (False, "holding: source")
    leading._look(flowing())
    assert leading.ready() == (True, "leader")


@pytest.mark.parametrize("refusing", ["reach_kafka", "begin"])
def test_what_a_start_refuses_is_an_outage_once_it_has_led(leading: Supervisor, refusing: str) -> None:
    def refuse(**_: bool) -> None:
        raise Refused("not any more", reason="whose")

    steps = {"reach_kafka": lambda: None, "begin": lambda **_: None, refusing: refuse}
    incarnation: Incarnation = SimpleNamespace(**steps)  # type: ignore[assignment]
    with pytest.raises(Refused):
        leading._begin(incarnation)
    leading._has_led = True
    with pytest.raises(Hold) as caught:
        leading._begin(incarnation)
    assert (caught.value.reason, caught.value.message) == ("whose", "not any more")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OperationalError(2003, "Can't connect"), None),
        (Hold("MySQL is read-only", reason="mysql_read_only"), None),
        (ProgrammingError(1146, "Table 'shop.outbox_event' doesn't exist"), "mysql_refused"),
        (OperationalError(1054, "Unknown column 'event_id'"), "mysql_refused"),
        (Hold("binlog.checkpoint_file: it holds no position", reason="checkpoint_file"), "checkpoint_file"),
        (Hold("no broker answers", reason="kafka"), "kafka"),
    ],
    ids=["away", "read-only", "no table", "no column", "file", "kafka"],
)
def test_the_lock_and_a_write_end_only_what_they_prove_to_be_over(
    leading: Supervisor, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str | None
) -> None:
    """Else each attempt would say that it is back, and the next that it is not."""
    able = SimpleNamespace(acquire=lambda *_: True, session=None, ping=lambda: None, close=lambda: None)
    monkeypatch.setattr(leading, "_leadership", able)
    monkeypatch.setattr("cdc_outbox.relay.supervisor.report_before_leading", lambda *_: None)
    leading._has_led = True
    leading._judge(error)
    assert leading._acquire()
    assert leading._holds == (set() if reason is None else {reason})


@pytest.mark.parametrize("paused", [True, False])
def test_a_pause_that_ended_while_the_relay_was_in_an_outage_is_over(leading: Supervisor, paused: bool) -> None:
    leading._metrics.hold("paused", not paused)  # as the incarnation before left it
    leading._state = "recovering"
    leading._brake.paused = paused
    leading._look(flowing())
    assert f'cdc_outbox_hold{{reason="paused",relay="orders"}} {float(paused)}' in leading._metrics.text().decode()


def test_at_the_start_only_what_is_still_away_is_waited_for(
    leading: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = [Finding("source-reachable", "error", "no answer", heals=True)]
    monkeypatch.setattr("cdc_outbox.relay.supervisor.examine_mysql", lambda _: [Finding("mysql-reachable", "ok", "")])
    monkeypatch.setattr("cdc_outbox.relay.supervisor.examine_source", lambda _: away)
    leading._hold("mysql", "no answer either, at the first look")
    for _ in range(2):
        with pytest.raises(Hold) as caught:
            leading._check_server()
        leading._judge(caught.value)
    assert leading.ready() == (False, "holding: source")


class _Replaced(BaseException):
    """os.execv was called."""


class _Stuck:
    """An incarnation that fails, with a thread that does not end."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def reach_kafka(self) -> None: ...

    def begin(self, *, binlog_lost: bool) -> None:
        raise self._error

    def purge(self) -> None: ...

    def stop(self) -> bool:
        return False


@pytest.fixture
def replaced(leading: Supervisor, monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """Where it would replace its process, _Replaced is raised."""

    def execv(path: str, arguments: list[str]) -> None:
        raise _Replaced

    monkeypatch.setenv(INHERITED, "")
    monkeypatch.setattr(leading._leadership, "ping", lambda: None)
    monkeypatch.setattr("cdc_outbox.relay.supervisor.logging.shutdown", lambda: None)
    monkeypatch.setattr(os, "execv", execv)
    return leading


def test_an_error_that_ends_the_process_ends_it_although_a_thread_lives_on(
    replaced: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = BinlogUnreadable("a damaged event")
    monkeypatch.setattr("cdc_outbox.relay.supervisor.Incarnation", lambda **settings: _Stuck(error))
    with pytest.raises(BinlogUnreadable):
        replaced._attempt(replaced._lead)


def test_an_error_is_told_and_counted_before_the_process_replaces_itself(
    replaced: Supervisor, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    error = RuntimeError("a bug")
    monkeypatch.setattr("cdc_outbox.relay.supervisor.Incarnation", lambda **settings: _Stuck(error))
    with pytest.raises(_Replaced):
        replaced._attempt(replaced._lead)
    assert "a bug" in caplog.text
    assert json.loads(os.environ[INHERITED]) == [False, 1]
