"""What an incarnation leaves behind when it ends."""

from __future__ import annotations

import pytest

from cdc_outbox.ops.metrics import Metrics
from cdc_outbox.relay.budget import Budget
from cdc_outbox.relay.incarnation import Incarnation


@pytest.mark.parametrize("reason", ["partition", "topic"])
def test_what_it_held_is_not_shown_while_nobody_looks(reason: str) -> None:
    """After it a broker may be away for hours before there is a next one."""
    ended = Incarnation.__new__(Incarnation)
    ended._metrics, ended.budget = Metrics("test"), Budget(1, 1)
    ended._workers, ended._sessions, ended._publisher = [], [], None
    ended._metrics.hold(reason, True)
    assert ended.stop()
    assert ended._metrics.registry.get_sample_value("cdc_outbox_hold", {"relay": "test", "reason": reason}) == 0
