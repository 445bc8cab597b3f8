"""The lock session on a real server: whose session is ended, and which server is led on."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from cdc_outbox.config import Settings, load_settings
from cdc_outbox.errors import LeadershipLost
from cdc_outbox.mysql.leadership import Leadership
from cdc_outbox.mysql.session import Session
from tests.harness.world import World

NOBODY_STOPS = threading.Event()


@pytest.fixture
def settings(world: World) -> Settings:
    return load_settings(world.config(leadership_timeout="30s"), {})


@pytest.fixture
def leadership(settings: Settings) -> Iterator[Leadership]:
    found = Leadership(settings)
    yield found
    found.close()


@pytest.fixture
def lost(leadership: Leadership) -> Iterator[Session]:
    """A session that holds the lock, and that its relay can no longer reach: the server does not know that yet."""
    assert leadership.acquire(NOBODY_STOPS, lambda holder: None)
    session = leadership.session
    leadership._session = None
    yield session
    session.close()


def test_a_relay_ends_its_own_old_session_and_leads_again(leadership: Leadership, lost: Session) -> None:
    assert leadership.acquire(NOBODY_STOPS, lambda holder: None)
    assert leadership.session.thread_id != lost.thread_id
    with pytest.raises(Exception, match=r"Lost connection|gone away|\(0, ''\)|killed"):
        lost.ping()


def test_a_session_that_another_relay_leads_with_is_left_alone(
    settings: Settings, leadership: Leadership, lost: Session
) -> None:
    """Our old connection's id is not the lock's: whoever has it now is a stranger."""
    lost.close()
    other = Leadership(settings)
    assert other.acquire(NOBODY_STOPS, lambda holder: None)
    stop = threading.Event()
    told: list[int] = []

    def on_standby(holder: int) -> None:
        told.append(holder)
        stop.set()

    assert not leadership.acquire(stop, on_standby)
    assert told == [other.session.thread_id]
    other.ping()
    other.close()


def test_another_server_behind_the_lock_session_ends_the_lead(leadership: Leadership) -> None:
    assert leadership.acquire(NOBODY_STOPS, lambda holder: None)
    leadership.server_uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    with pytest.raises(LeadershipLost, match="another server"):
        leadership.ping()
