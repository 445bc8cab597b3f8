"""The life of the process where no signal and no outage decides."""

from __future__ import annotations

import pytest

from cdc_outbox.config import load_settings
from cdc_outbox.errors import EXIT_BUG, CdcOutboxError
from cdc_outbox.relay.incarnation import Incarnation
from cdc_outbox.relay.supervisor import BUGS, Supervisor
from tests.harness.world import World


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
