"""`rows: transient`: the application deletes the row in the transaction that inserts it; only what fails has a row."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc_outbox.testing import kill_points
from tests.harness.judge import Judge
from tests.harness.kafka import create_topic, read_topic, set_topic_config
from tests.harness.process import RelayProcess, run_command
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer

LARGE = '{"pad": "' + "x" * 3000 + '"}'
ROWS = "SELECT event_id, status, retry_count, next_retry_at IS NOT NULL FROM outbox_event ORDER BY id"


def config(world: World, **sections: Any) -> Path:
    return world.config(
        **{**sections, "outbox": {"rows": "transient"}, "binlog": {"on_purged": "stop", **sections.get("binlog", {})}}
    )


def first_start(world: World, path: Path, wait_for: str | None = "leader", **environ: str) -> RelayProcess:
    return world.start(
        path, wait_for=wait_for, program=("-m", "cdc_outbox", "--config", str(path), "start", "--yes"), environ=environ
    )


def commit(world: World, *rows: dict[str, object], then: str | None = None) -> list[str]:
    """Insert them, and delete them or do what `then` says, in one transaction; gives their event ids."""
    inserted: dict[str, int] = {}
    with world.sql() as cursor:
        cursor.execute("BEGIN")
        for row in rows:
            event_id = world.insert(**row)  # type: ignore[arg-type]
            ((inserted[event_id],),) = world.execute("SELECT LAST_INSERT_ID()")
        cursor.execute(then or f"DELETE FROM outbox_event WHERE id IN ({', '.join(map(str, inserted.values()))})")
        cursor.execute("COMMIT")
    return [*inserted]


def sent(world: World, count: int) -> list[str]:
    """Event ids in Kafka, once there are so many."""

    def found() -> list[str]:
        return [one.event_id for one in Judge(world).records()]

    wait_until(lambda: len(found()) >= count, f"{count} records")
    return found()


def check_all_arrive(world: World, commits: dict[str, list[str]]) -> None:
    """Once nothing is too large any more: all of it comes, in order, and no copy stays behind."""
    committed = {one for events in commits.values() for one in events}
    wait_until(lambda: committed <= {one.event_id for one in Judge(world).records()}, "everything is in Kafka")
    wait_until(lambda: world.execute(ROWS) == [], "no copy is left")
    Judge(world).check_order(commits)


def order(world: World, aggregate: str) -> list[str]:
    return [one.event_id for one in Judge(world).records() if one.key == aggregate.encode()]


def test_rows_that_are_deleted_at_once_are_sent_as_they_were_inserted(world: World) -> None:
    first_start(world, config(world))
    one = commit(world, {"payload": '{"n": 1}'})
    two = commit(world, {}, {"aggregate": "a2"}, {})
    changed = commit(
        world, {"payload": '{"n": 2}'}, then="UPDATE outbox_event SET payload = '{\"n\": 3}', aggregate_id = 'other'"
    )
    world.execute("DELETE FROM outbox_event")
    with world.sql() as cursor:  # in several parts
        cursor.execute("BEGIN")
        cursor.executemany(
            "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
            " VALUES (%s, 'order', 'many', 'OrderPlaced', '{}')",
            [(f"many-{number}",) for number in range(6000)],
        )
        cursor.execute("DELETE FROM outbox_event")
        cursor.execute("COMMIT")
    assert len(sent(world, 6005)) == 6005
    assert order(world, "a1") == [*one, two[0], two[2], *changed]
    assert order(world, "many") == [f"many-{number}" for number in range(6000)]
    (last,) = [one for one in Judge(world).records() if one.event_id == changed[0]]
    assert (last.key, last.value) == (b"a1", b'{"n": 2}')
    assert world.execute(ROWS) == []


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_refused_is_written_again_and_retried_and_its_successors_follow(world: World, restart: bool) -> None:
    create_topic(world.bootstrap, world.topic, max_message_bytes="2000")
    path = config(world, retry={"waits": ["6s" if restart else "2s"]})
    relay = first_start(world, path)
    (bad,) = commit(world, {"payload": LARGE, "max_retries": 10})
    after = commit(world, {}, {})
    others = commit(world, {"aggregate": "a2"})
    wait_until(lambda: len(world.execute(ROWS)) == 3, "copies of the failed one and of those behind it")
    copies = world.execute(ROWS)
    assert copies[0] == (bad, 3, 1, 1)
    assert copies[1:] == [(one, 3, 0, 1) for one in after]
    assert world.row(bad)["payload"].replace(" ", "") == LARGE.replace(" ", "")
    assert sent(world, 1) == others
    if restart:
        relay.kill()
        relay = world.start(path)
    after += commit(world, {})
    set_topic_config(world.bootstrap, world.topic, "max.message.bytes", "100000")
    wait_until(lambda: world.execute(ROWS) == [], "the copies are gone once they are sent")
    assert list(dict.fromkeys(order(world, "a1"))) == [bad, *after]
    (record,) = [one for one in Judge(world).records() if one.event_id == bad][:1]
    assert (record.value or b"").decode() == LARGE
    if not restart:
        Judge(world).check_no_duplicates()
    assert relay.stop() == 0


@pytest.fixture
def account(world: World) -> Iterator[str]:
    """An account with the grants that `init --print` prints, password `secret`."""
    name = f"r{uuid.uuid4().hex[:10]}"
    printed = run_command(config(world, mysql={"user": name}), "init", "--print")
    world.execute(f"CREATE USER {name} IDENTIFIED BY 'secret'")
    for line in printed.stdout.splitlines():
        if line.startswith("GRANT"):
            world.execute(line.rstrip(";"))
    yield name
    world.execute(f"DROP USER {name}")


def test_what_is_dead_stays_and_can_be_retried_by_hand(world: World, account: str) -> None:
    create_topic(world.bootstrap, world.topic, max_message_bytes="2000")
    path = config(world, mysql={"user": account, "password": "secret"})
    first_start(world, path)
    (dead,) = commit(world, {"payload": LARGE, "max_retries": 0})
    (after,) = commit(world, {})
    assert sent(world, 1) == [after]
    wait_until(lambda: world.execute(ROWS) == [(dead, 3, 0, 0)], "it is dead")
    (letter,) = read_topic(world.bootstrap, world.dead_letter_topic)
    assert letter.event_id == dead
    set_topic_config(world.bootstrap, world.topic, "max.message.bytes", "100000")

    def retried_and_gone() -> bool:
        """A topic's limit is believed for 5 s: who is quicker than that retries once more."""
        if world.execute(ROWS) == [(dead, 3, 0, 0)]:
            assert run_command(path, "events", "retry", dead).returncode == 0
        return world.execute(ROWS) == []

    wait_until(retried_and_gone, "it is sent and gone")
    assert sent(world, 2) == [after, dead]


def test_without_a_checkpoint_a_start_must_be_confirmed(world: World) -> None:
    path = config(world)
    relay = world.start(path, wait_for=None)
    assert relay.wait() == 2
    assert "--yes" in relay.log
    assert "binlog.start" in relay.log
    relay = first_start(world, path)
    one = commit(world, {})
    assert sent(world, 1) == one
    assert relay.stop() == 0
    two = commit(world, {})
    relay = world.start(path)
    assert sent(world, 2) == [*one, *two]
    assert relay.stop() == 0
    world.execute("DELETE FROM cdc_outbox_checkpoint")
    assert world.start(path, wait_for=None).wait() == 2


@pytest.mark.parametrize("store", ["mysql", "file"])
def test_what_is_committed_before_a_crash_without_any_outcome_is_not_lost(world: World, store: str) -> None:
    """The first start has confirmed where reading begins: that must be there for the next one."""
    file = {"checkpoint_file": str(world.folder / "position")} if store == "file" else {}
    path = config(world, binlog={"checkpoint_store": store, **file})
    relay = first_start(world, path, **{kill_points.VARIABLE: "sent"})
    committed = commit(world, {}, {})
    assert relay.wait() == -signal.SIGKILL
    committed += commit(world, {})
    relay = world.start(path)
    wait_until(lambda: list(dict.fromkeys(order(world, "a1"))) == committed, "all of them, in order")
    assert relay.stop() == 0


def test_a_binlog_that_is_gone_is_the_end(world: World) -> None:
    path = config(world)
    relay = first_start(world, path)
    sent_at_first = commit(world, {})
    assert sent(world, 1) == sent_at_first
    assert relay.stop() == 0
    world.execute("UPDATE cdc_outbox_checkpoint SET gtid_set = '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-99'")
    relay = world.start(path, wait_for=None)
    assert relay.wait() == 3
    assert "is lost" in relay.log


def test_an_event_that_is_not_whole_in_the_binlog_stops_the_relay(world: World) -> None:
    path = config(world)
    relay = first_start(world, path)
    world.execute("SET SESSION binlog_row_image = 'MINIMAL'")
    commit(world, {})
    assert relay.wait() == 5
    assert "binlog_row_image" in relay.log


@pytest.mark.parametrize(
    "point",
    [
        "outcomes-not-committed",
        pytest.param("outcomes-committed", marks=pytest.mark.long),
        "due-claimed",
        pytest.param("sent", marks=pytest.mark.long),
        pytest.param("refused", marks=pytest.mark.long),
        pytest.param("position-not-committed", marks=pytest.mark.long),
    ],
)
def test_killed_under_load_nothing_is_lost_and_the_order_kept(world: World, point: str) -> None:
    create_topic(world.bootstrap, world.topic, max_message_bytes="2000")
    path = config(world, limits={"batch": 20})
    relay = first_start(world, path, wait_for=None, **{kill_points.VARIABLE: f"{point}:2"})
    relay.wait_for("leader")
    bad = {f"bad-{n}": commit(world, {"aggregate": f"bad-{n}", "payload": LARGE, "max_retries": 30}) for n in range(4)}
    for aggregate in bad:
        bad[aggregate] += commit(world, {"aggregate": aggregate})
    writer = Writer(world, threads=2, aggregates=6, rate=60, transient=True).start()
    assert relay.wait() == -signal.SIGKILL
    relay = world.start(path)
    for aggregate in bad:
        bad[aggregate] += commit(world, {"aggregate": aggregate})
    commits = {**writer.stop(), **bad}
    set_topic_config(world.bootstrap, world.topic, "max.message.bytes", "100000")
    check_all_arrive(world, commits)
    assert relay.stop() == 0


def test_a_test_event_and_a_refused_combination(world: World) -> None:
    path = config(world)
    first_start(world, path)
    assert run_command(path, "emit", "--count", "2").returncode == 0
    done = run_command(world.config(outbox={"rows": "transient"}), "status")
    assert done.returncode == 2
    assert "on_purged: stop" in done.stderr
    done = run_command(
        world.config(outbox={"rows": "transient", "claim": "row"}, binlog={"on_purged": "stop"}), "status"
    )
    assert done.returncode == 2
    assert "claim" in done.stderr
    assert world.execute(ROWS) == []
