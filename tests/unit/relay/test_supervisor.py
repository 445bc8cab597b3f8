"""What a probe and a watchdog hear from the supervisor, without servers."""

from __future__ import annotations

import pytest

from cdc_outbox.config import Settings
from cdc_outbox.mysql.leadership import boottime
from cdc_outbox.relay.supervisor import Supervisor


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
