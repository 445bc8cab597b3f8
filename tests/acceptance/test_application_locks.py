"""Rows that the application, or another worker, keeps locked: what must wait for them waits, nothing else does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from tests.harness.judge import Judge
from tests.harness.world import World, wait_until

ROWS_NOBODY_WAITS_FOR = 1100
"""More than the newest rows that a bootstrap waits for."""


@contextlib.contextmanager
def locked(world: World, event_id: str) -> Iterator[None]:
    """The row is locked by an open transaction inside the block."""
    connection = world.connect(autocommit=False)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT id FROM outbox_event WHERE event_id = %s FOR UPDATE", (event_id,))
        yield
    finally:
        connection.rollback()
        connection.close()


def insert_sent_rows(world: World) -> None:
    with world.sql() as cursor:
        cursor.executemany(
            "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, status)"
            " VALUES (%s, 'order', 'old', 'OrderPlaced', '{}', 2)",
            [(f"old-{number}",) for number in range(ROWS_NOBODY_WAITS_FOR)],
        )


def test_a_sweep_before_reading_waits_for_a_locked_row(world: World) -> None:
    """Reading begun meanwhile would publish later events of its aggregate before it."""
    first = world.insert("a1")
    insert_sent_rows(world)
    with locked(world, first):
        relay = world.start()
        relay.wait_for("row_locked")
        second = world.insert("a1")
        assert world.statuses()[second] == 0
    world.wait_sent(first, second)
    Judge(world).check({"a1": [first, second]})


def test_a_row_at_1_that_is_locked_at_take_over_holds_up_nobody_else(world: World) -> None:
    claimed = world.insert("a1", status=1)
    insert_sent_rows(world)
    with locked(world, claimed):
        world.start(outbox={"sending_timeout": "2s"})
        world.wait_sent(world.insert("a2"))
    world.wait_sent(claimed)


def test_a_locked_head_of_an_aggregate_hides_no_other(world: World) -> None:
    """More rows wait behind it than fit a page."""
    head = world.insert("a1", status=3, retry_count=1, next_retry_at="2020-01-01")
    behind = [world.insert("a1", next_retry_at="2020-01-01") for _ in range(30)]
    other = world.insert("a2", status=3, retry_count=1, next_retry_at="2020-01-01")
    with locked(world, head):
        world.start(limits={"batch": 10})
        world.wait_sent(other)
    world.wait_settled()
    Judge(world).check({"a1": [head, *behind], "a2": [other]})


@pytest.mark.parametrize("claim", ["row", pytest.param("leader", marks=pytest.mark.long)])
def test_rows_behind_another_workers_row_go_when_that_is_done(world: World, claim: str) -> None:
    world.start(outbox={"claim": claim, "sending_timeout": "1h"})
    world.wait_sent(world.insert("a2"))
    theirs = world.insert("a1", status=1)
    wait_until(lambda: _blocks(world, "a1"), "their row blocks its aggregate", timeout=60)
    ours = [world.insert("a1") for _ in range(3)]
    wait_until(lambda: all(world.row(one)["next_retry_at"] for one in ours), "ours are parked behind it")
    world.execute("UPDATE outbox_event SET status = 2 WHERE event_id = %s", theirs)
    world.wait_sent(*ours)
    assert [record.event_id for record in Judge(world).records() if record.event_id in ours] == ours


def _blocks(world: World, aggregate: str) -> bool:
    """A row put in now is parked."""
    probe = world.insert(aggregate)
    wait_until(
        lambda: world.row(probe)["status"] == 2 or world.row(probe)["next_retry_at"] is not None, "the probe is decided"
    )
    return world.row(probe)["next_retry_at"] is not None


def test_another_workers_row_is_left_alone_at_a_start(world: World) -> None:
    theirs, behind = world.insert("a1", status=1), world.insert("a1")
    world.start(outbox={"claim": "row", "sending_timeout": "1h"})
    world.wait_sent(world.insert("a2"))
    wait_until(lambda: world.row(behind)["next_retry_at"], "what follows it is parked")
    assert world.row(theirs)["status"] == 1
    assert theirs not in {record.event_id for record in Judge(world).records()}


def test_a_row_that_its_worker_forgot_is_retried(world: World) -> None:
    forgotten = world.insert("a1", status=1)
    relay = world.start(outbox={"claim": "row", "sending_timeout": "1s"})
    relay.wait_for("sending_abandoned")
    world.wait_sent(forgotten)
    assert world.row(forgotten)["retry_count"] == 0


def test_sigterm_while_rows_are_waited_for(world: World) -> None:
    pending = world.insert("a1")
    with locked(world, pending):
        relay = world.start()
        relay.wait_for("row_locked")
        assert relay.stop() == 0


def test_sigterm_while_another_relay_has_the_table(world: World) -> None:
    leader = world.start()
    other = world.start(world.config(name="other"), wait_for=None)
    other.wait_for("starting")
    assert other.stop() in {0, 2}  # 2: it was told before that the table has a relay
    assert leader.running
