"""The soak's short sibling: the same code for some seconds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from tests.harness.world import World
from tests.soak.faults import ENDS_A_RELAY, KINDS, Faults, schedule
from tests.soak.soak import Soak

if TYPE_CHECKING:
    from tests.conftest import MakeKafka, MakeMySQL


def test_a_short_soak(make_world: Callable[..., World], make_mysql: MakeMySQL, make_kafka: MakeKafka) -> None:
    mysql, kafka = make_mysql(), make_kafka()
    world = make_world(mysql=mysql.endpoint, kafka=kafka.endpoint)
    with closing(Soak(world, mysql, kafka, print)) as soak:
        report = soak.run(seed=8, seconds=10, every=(1.0, 2.0), rate=50)
    assert report.events > 100
    assert sum(report.faults.values()) >= 2
    assert "| events committed |" in report.page("python -m tests.soak")


def test_a_seed_gives_the_same_faults_again() -> None:
    assert schedule(7, 600, (5, 30)) == schedule(7, 600, (5, 30)) != schedule(8, 600, (5, 30))
    assert not {fault.kind for fault in schedule(7, 6000, (5, 30), keep_relays=True)} & set(ENDS_A_RELAY)
    assert all(hasattr(Faults, kind) for kind in KINDS)
