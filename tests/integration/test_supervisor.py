"""The life of the process where no signal and no outage decides."""

from __future__ import annotations

import weakref

import pytest

from cdc_outbox.config import load_settings
from cdc_outbox.errors import EXIT_BUG, CdcOutboxError, Hold
from cdc_outbox.relay.incarnation import Incarnation
from cdc_outbox.relay.supervisor import BUGS, Supervisor
from tests.harness.world import World


def test_a_failed_start_leaves_nothing_behind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka may be away for a night, with a new client every second."""

    class Client:
        pass

    clients: list[weakref.ref[Client]] = []
    supervisor = Supervisor(load_settings(world.config(http=None), {}))

    def fail(incarnation: Incarnation, *, binlog_lost: bool) -> None:
        client = Client()
        clients.append(weakref.ref(client))
        if len(clients) == 3:
            supervisor._stopping.set()
        raise Hold("no broker answers", reason="kafka")

    monkeypatch.setattr(Incarnation, "begin", fail)
    world.init(world.config(http=None))
    assert supervisor.run() == 0
    assert [client() for client in clients] == [None] * 3


def test_the_same_bug_again_and_again_ends_the_process(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Incarnation] = []

    def fail(incarnation: Incarnation, *, binlog_lost: bool) -> None:
        tried.append(incarnation)
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(Incarnation, "begin", fail)
    config = world.config(http=None)
    world.init(config)
    with pytest.raises(CdcOutboxError, match="ZeroDivisionError") as ended:
        Supervisor(load_settings(config, {})).run()
    assert ended.value.exit_code == EXIT_BUG
    assert len(tried) == BUGS
