"""What a recovery does while something that it needs is away."""

from __future__ import annotations

import random

import pytest
from pymysql.err import OperationalError

from tests.property.database import Row
from tests.property.simulation import World
from tests.property.test_stop import insert, until


def test_no_epoch_is_raised_while_the_replica_cannot_say_where_a_first_start_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each attempt would raise it anew, for as long as the replica is away."""
    world = World(replication=random.Random(1))
    begin_early = world.settings.binlog.model_copy(update={"start": "earliest"})
    world.settings = world.settings.model_copy(update={"binlog": begin_early})
    world.source_keeps_up = True

    def away(*_: object, **__: object) -> None:
        raise OperationalError(2003, "Can't connect to MySQL server")

    with world.running():
        insert(world, Row(1, "e1", "a"))
        with monkeypatch.context() as patched:
            patched.setattr("cdc_outbox.mysql.source.Session", away)
            relay = world.start()
            later = world.scheduler.now + 10.0
            until(world, lambda: world.scheduler.now > later)
            assert relay.supervisor.ready() == (False, "holding: source")
            assert world.database.checkpoint is None
        until(world, lambda: world.database.rows[1].status == 2)
        assert world.database.checkpoint is not None
        assert world.database.checkpoint.epoch == 1
        assert world.judge.broken == []
