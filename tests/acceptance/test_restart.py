"""Restart safety: kill -9, lost checkpoints, take-over. Nothing lost, order kept, nothing settled sent again."""

from __future__ import annotations

import json
import signal
import time

import pytest

from tests.harness.judge import Judge
from tests.harness.process import run_command
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer

ELSEWHERE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
@pytest.mark.parametrize("claim", ["leader", "row"])
def test_kill_9_five_times_under_load(world: World, client: str, claim: str) -> None:
    config = world.config(kafka={"client": client}, outbox={"claim": claim, "sending_timeout": "2s"})
    judge = Judge(world)
    writer = Writer(world, threads=2, rate=150).start()
    snapshots = []
    for round in range(1, 6):
        relay = world.start(config)
        wait_until(lambda target=round * 200: len(judge.snapshot().settled) >= target, f"{round * 200} events settled")
        relay.kill()
        snapshots.append(judge.snapshot())
    commits = writer.stop()
    world.start(config)
    world.wait_settled()
    judge.check(commits, snapshots)


def test_kill_9_in_a_large_transaction(world: World) -> None:
    """The position stands at transaction ends only: 3,000 rows of one commit come back whole."""
    config = world.config(limits={"batch": 100, "max_in_flight": 500})
    world.start(config).kill()
    rows = [f"a{n % 7}-{n}" for n in range(3000)]
    with world.sql() as cursor:
        cursor.execute("BEGIN")
        cursor.executemany(
            "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
            " VALUES (%s, 'order', %s, 'OrderPlaced', '{}')",
            [(row, row.split("-")[0]) for row in rows],
        )
        cursor.execute("COMMIT")
    judge = Judge(world)
    relay = world.start(config)
    wait_until(lambda: judge.snapshot().settled, "the first rows settled")
    relay.kill()
    snapshot = judge.snapshot()
    world.start(config)
    world.wait_settled()
    commits = {f"a{k}": [row for row in rows if row.startswith(f"a{k}-")] for k in range(7)}
    judge.check(commits, [snapshot])


def test_what_was_settled_past_the_position_is_not_sent_again(world: World) -> None:
    """A position may be old: the rows say what is done (P5, P7)."""
    config = world.config()
    relay = world.start(config)
    relay.wait_for("sweep_done")
    old = "SELECT gtid_set, binlog_file, binlog_pos FROM cdc_outbox_checkpoint WHERE gtid_set IS NOT NULL"
    position = wait_until(lambda: world.execute(old), "a first position")[0]
    settled = [world.insert(f"a{n % 3}") for n in range(30)]
    world.wait_sent(*settled)
    assert relay.stop() == 0
    world.execute("UPDATE cdc_outbox_checkpoint SET gtid_set = %s, binlog_file = %s, binlog_pos = %s", *position)
    new = world.insert("a1")
    world.start(config)
    world.wait_sent(new)
    commits = {f"a{k}": [one for n, one in enumerate(settled) if n % 3 == k] for k in range(3)}
    commits["a1"].append(new)
    Judge(world).check(commits)


def test_a_standby_takes_over_from_a_killed_leader(world: World) -> None:
    config = world.config()
    leader = world.start(config)
    standby = world.start(config, wait_for="standby")
    writer = Writer(world, threads=2, rate=150).start()
    judge = Judge(world)
    wait_until(lambda: len(judge.snapshot().settled) > 100, "100 events settled by the first leader")
    leader.kill()
    snapshot = judge.snapshot()
    standby.wait_for("leader")
    wait_until(lambda: len(judge.snapshot().settled) > len(snapshot.settled) + 100, "100 more by the second")
    commits = writer.stop()
    world.wait_settled()
    judge.check(commits, [snapshot])


def test_a_frozen_leader_is_replaced_and_writes_nothing_when_it_wakes(world: World) -> None:
    config = world.config()
    frozen = world.start(config)
    standby = world.start(config, wait_for="standby")
    writer = Writer(world, threads=2, rate=150).start()
    judge = Judge(world)
    wait_until(lambda: len(judge.snapshot().settled) > 100, "100 events settled by the first leader")
    frozen.pause()
    standby.wait_for("leader")
    (epoch,) = world.execute("SELECT epoch, owner FROM cdc_outbox_checkpoint")
    wait_until(lambda: len(judge.snapshot().settled) > 300, "the second leader settles")
    frozen.resume()
    frozen.wait_for("leadership_lost")
    frozen.wait_for("standby")
    commits = writer.stop()
    world.wait_settled()
    assert world.execute("SELECT epoch, owner FROM cdc_outbox_checkpoint") == [epoch], "the woken one raised the epoch"
    judge.check_complete(commits)
    judge.check_order(commits)


def test_clean_stop_hands_over(world: World) -> None:
    config = world.config()
    leader = world.start(config)
    standby = world.start(config, wait_for="standby")
    writer = Writer(world, threads=2, rate=150).start()
    judge = Judge(world)
    wait_until(lambda: len(judge.snapshot().settled) > 100, "100 events settled by the first leader")
    assert leader.stop() == 0
    standby.wait_for("leader")
    commits = writer.stop()
    world.wait_settled()
    judge.check(commits)


def test_a_lost_checkpoint_costs_nothing_but_a_sweep(world: World) -> None:
    config = world.config()
    relay = world.start(config)
    writer = Writer(world, threads=2, rate=150).start()
    judge = Judge(world)
    wait_until(lambda: len(judge.snapshot().settled) > 100, "100 events settled")
    relay.kill()
    snapshot = judge.snapshot()
    world.execute("DELETE FROM cdc_outbox_checkpoint")
    relay = world.start(config)
    relay.wait_for("sweep_done")
    commits = writer.stop()
    world.wait_settled()
    judge.check(commits, [snapshot])


def test_a_checkpoint_of_another_server_is_not_followed(world: World) -> None:
    config = world.config()
    relay = world.start(config)
    world.wait_sent(world.insert("a1"))
    relay.kill()
    world.execute(
        "UPDATE cdc_outbox_checkpoint SET gtid_set = '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-99',"
        " binlog_file = 'binlog.999999', server_uuid = '3e11fa47-71ca-11e1-9e33-c80aa9429562'"
    )
    event_id = world.insert("a1")
    relay = world.start(config)
    relay.wait_for("binlog_lost")
    world.wait_sent(event_id)


def test_on_purged_stop_is_obeyed(world: World) -> None:
    config = world.config(binlog={"on_purged": "stop"})
    relay = world.start(config)
    world.wait_sent(world.insert("a1"))
    relay.kill()
    world.execute(
        "UPDATE cdc_outbox_checkpoint SET gtid_set = '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-99',"
        " binlog_file = 'binlog.999999', server_uuid = '3e11fa47-71ca-11e1-9e33-c80aa9429562'"
    )
    relay = world.start(config, wait_for=None)
    assert relay.wait() == 3
    assert "checkpoint reset" in relay.log
    assert run_command(config, "checkpoint", "reset", "--yes").returncode == 0
    world.start(config)
    world.wait_sent(world.insert("a2"))


def test_a_position_that_stays_another_servers_stays_refused(world: World) -> None:
    """By file and offset the server may well have the place; the first refusal must not make it its own."""
    config = world.config(binlog={"on_purged": "stop"})
    relay = world.start(config)
    world.wait_sent(world.insert("a1"))
    assert relay.stop() == 0
    file, offset = world.execute("SHOW BINARY LOG STATUS")[0][:2]
    world.execute(
        "UPDATE cdc_outbox_checkpoint SET gtid_set = NULL, binlog_file = %s, binlog_pos = %s,"
        " server_uuid = '3e11fa47-71ca-11e1-9e33-c80aa9429562'",
        file,
        offset,
    )
    for _ in range(2):
        assert world.start(config, wait_for=None).wait() == 3


def test_a_position_that_is_no_gtid_set_is_refused(world: World) -> None:
    config = world.config()
    relay = world.start(config)
    world.wait_sent(world.insert("a1"))
    assert relay.stop() == 0
    world.execute("UPDATE cdc_outbox_checkpoint SET gtid_set = 'rubbish'")
    relay = world.start(config, wait_for=None)
    assert relay.wait() == 2
    assert "UPDATE cdc_outbox_checkpoint SET gtid_set = NULL" in relay.log
    assert "Traceback" not in relay.log


def test_the_position_may_be_in_a_file(world: World) -> None:
    file = world.folder / "position.json"
    config = world.config(binlog={"checkpoint_store": "file", "checkpoint_file": str(file)})
    relay = world.start(config)
    writer = Writer(world, threads=2, rate=100).start()
    judge = Judge(world)
    wait_until(lambda: len(judge.snapshot().settled) > 100, "100 events settled")
    relay.kill()
    snapshot = judge.snapshot()
    assert world.execute("SELECT gtid_set FROM cdc_outbox_checkpoint") == [(None,)]
    relay = world.start(config)
    assert "sweep_done" not in relay.events(), "the file was followed"
    commits = writer.stop()
    world.wait_settled()
    judge.check(commits, [snapshot])
    assert relay.stop() == 0
    shown = json.loads(file.read_text())["gtid_set"]
    assert shown in run_command(config, "checkpoint", "show").stdout
    file.unlink()
    last = world.insert("a1")
    world.start(config).wait_for("sweep_done")
    world.wait_sent(last)


def test_behind_a_file_of_another_server_all_is_swept_first(world: World) -> None:
    """A replica that took over may have the events and lack their outcomes: they go before what comes after them."""
    file = world.folder / "position.json"
    config = world.config(binlog={"checkpoint_store": "file", "checkpoint_file": str(file)})
    relay = world.start(config)
    world.wait_sent(world.insert("a1"))
    assert relay.stop() == 0
    first = world.insert("a1")
    stored = json.loads(file.read_text())
    ((executed,),) = world.execute("SELECT @@global.gtid_executed")
    file.write_text(json.dumps({**stored, "gtid_set": executed, "server_uuid": ELSEWHERE}))
    second = world.insert("a1")
    relay = world.start(config)
    world.wait_sent(first, second)
    assert "binlog_lost" not in relay.events()
    assert [record.event_id for record in Judge(world).records()][-2:] == [first, second]
    assert relay.stop() == 0
    assert json.loads(file.read_text())["server_uuid"] == stored["server_uuid"]


def test_a_reset_keeps_the_order_of_what_is_pending(world: World) -> None:
    config = world.config()
    relay = world.start(config)
    first = world.insert("a1")
    world.wait_sent(first)
    assert relay.stop() == 0
    pending = [world.insert("a1") for _ in range(5)]
    assert run_command(config, "checkpoint", "reset", "--yes").returncode == 0
    relay = world.start(config)
    new = world.insert("a1")
    world.wait_sent(*pending, new)
    Judge(world).check({"a1": [first, *pending, new]})
    relay.wait_for("sweep_done")


def test_a_second_signal_forces(world: World) -> None:
    """Nothing can be drained while a row that was read is locked; a person who cannot wait says so twice."""
    relay = world.start()
    world.wait_sent(world.insert("a1"))
    connection = world.connect(autocommit=False)
    try:
        with connection.cursor() as cursor:
            locked = world.insert("a2")
            cursor.execute("SELECT id FROM outbox_event WHERE event_id = %s FOR UPDATE", (locked,))
            wait_until(lambda: len(Judge(world).records()) == 2, "the locked event in Kafka")
            relay.signal(signal.SIGTERM)
            relay.wait_for("draining")
            relay.signal(signal.SIGTERM)
            assert relay.wait() == 4
    finally:
        connection.close()


def test_two_names_on_one_table_are_refused(world: World) -> None:
    world.start()
    other = world.start(name="another", wait_for=None)
    assert other.wait() == 2
    assert "already relayed" in other.log


def test_what_the_binlog_does_not_show_is_swept(world: World) -> None:
    """sql_log_bin=0 and STATEMENT sessions write rows that no row event shows."""
    world.start()
    with world.sql() as cursor:
        cursor.execute("SET sql_log_bin = 0")  # of this test's session, which ends with it
        cursor.execute(
            "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
            " VALUES ('hidden', 'order', 'a9', 'OrderPlaced', '{}')"
        )
    world.wait_sent("hidden")


def test_an_idle_relay_writes_nothing(world: World) -> None:
    """P8: the relay's own writes are no reason to write again."""
    world.start()
    world.wait_sent(world.insert("a1"))

    def written() -> object:
        return world.execute("SELECT updated_at, binlog_pos, gtid_set FROM cdc_outbox_checkpoint")

    def gtids() -> object:
        return world.execute("SELECT @@global.gtid_executed")

    time.sleep(2)  # what the last settle caused has come back through the binlog by then
    before = written()
    time.sleep(5)
    assert written() == before
