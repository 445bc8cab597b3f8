"""Outages of any length cost no event and no retry (P3); the relay holds, says so, and goes on by itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import pymysql
import pytest

from tests.harness import recovery
from tests.harness.judge import Judge
from tests.harness.load import no_retry_spent
from tests.harness.recovery import Note
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer

if TYPE_CHECKING:
    from tests.conftest import MakeKafka, MakeMySQL

CLIENTS = ["kafka-python", "confluent"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_broker_that_dies_and_comes_back(
    make_world: Callable[..., World], make_kafka: MakeKafka, record_property: Note, client: str
) -> None:
    broker = make_kafka()
    world = make_world(kafka=broker.endpoint)
    relay = world.start(kafka={"client": client})
    writer = Writer(world, threads=2, rate=100).start()
    judge = Judge(world)
    wait_until(lambda: len(judge.snapshot().settled) > 100, "100 events settled")
    broker.kill()
    relay.wait_for("hold")
    before = writer.count
    wait_until(lambda: writer.count > before + 200, "200 more events committed meanwhile")
    assert no_retry_spent(world)
    assert recovery.measure(world, broker.start, record_property) < recovery.AT_MOST
    relay.wait_for("recovered")
    commits = writer.stop()
    world.wait_settled()
    judge.check_complete(commits)
    judge.check_order(commits)
    assert no_retry_spent(world)
    assert relay.running


@pytest.mark.parametrize("client", CLIENTS)
def test_a_broker_that_is_away_at_the_start(
    make_world: Callable[..., World], make_kafka: MakeKafka, client: str
) -> None:
    broker = make_kafka()
    world = make_world(kafka=broker.endpoint)
    broker.kill()
    relay = world.start(kafka={"client": client}, wait_for="hold")
    event_id = world.insert("a1")
    broker.start()
    relay.wait_for("leader")
    world.wait_sent(event_id)
    Judge(world).check({"a1": [event_id]})


def test_a_broker_away_while_the_relay_stops(make_world: Callable[..., World], make_kafka: MakeKafka) -> None:
    broker = make_kafka()
    world = make_world(kafka=broker.endpoint)
    config = world.config(limits={"shutdown_timeout": "2s"})
    relay = world.start(config)
    world.wait_sent(world.insert("a1"))
    broker.kill()
    event_id = world.insert("a1")
    relay.wait_for("hold")
    assert relay.stop() == 0
    assert no_retry_spent(world)
    broker.start()
    world.start(config)
    world.wait_sent(event_id)


def test_mysql_that_dies_and_comes_back(
    make_world: Callable[..., World], make_mysql: MakeMySQL, record_property: Note
) -> None:
    server = make_mysql()
    world = make_world(mysql=server.endpoint)
    relay = world.start()
    sent = [world.insert(f"a{n % 3}") for n in range(30)]
    world.wait_sent(*sent)
    world.close_session()
    server.kill()
    relay.wait_for("hold")
    assert recovery.measure(world, server.start, record_property) < recovery.AT_MOST
    relay.wait_for("leader", count=2)
    more = [world.insert(f"a{n % 3}") for n in range(30)]
    world.wait_sent(*more)
    commits = {f"a{k}": [one for n, one in enumerate(sent + more) if n % 3 == k] for k in range(3)}
    Judge(world).check(commits)
    assert relay.running


def test_mysql_that_freezes(make_world: Callable[..., World], make_mysql: MakeMySQL, record_property: Note) -> None:
    """A server that answers nothing costs the lease; nothing is written until it is confirmed again."""
    server = make_mysql()
    world = make_world(mysql=server.endpoint)
    relay = world.start()
    world.wait_sent(world.insert("a1"))
    server.pause()
    relay.wait_for("leadership_lost")
    assert recovery.measure(world, server.resume, record_property) < recovery.AT_MOST
    relay.wait_for("leader", count=2)
    Judge(world).check_no_duplicates()


def test_mysql_away_at_the_start(make_world: Callable[..., World], make_mysql: MakeMySQL) -> None:
    server = make_mysql()
    world = make_world(mysql=server.endpoint)
    world.close_session()
    server.kill()
    relay = world.start(wait_for="hold")
    server.start()
    relay.wait_for("leader")
    world.wait_sent(world.insert("a1"))


def test_a_read_only_server_is_waited_for(
    make_world: Callable[..., World], make_mysql: MakeMySQL, record_property: Note
) -> None:
    server = make_mysql()
    world = make_world(mysql=server.endpoint)
    relay = world.start()
    world.wait_sent(world.insert("a1"))
    world.execute("SET GLOBAL read_only = 1")
    relay.wait_for("hold")

    def write_again() -> None:
        world.execute("SET GLOBAL read_only = 0")

    assert recovery.measure(world, write_again, record_property) < recovery.AT_MOST
    assert relay.running


def _refused(world: World) -> int:
    """Logins that were not accepted since the server's start."""
    return int(world.execute("SHOW GLOBAL STATUS LIKE 'Aborted_connects'")[0][1])


def test_a_password_that_stops_working_is_waited_for(make_world: Callable[..., World], make_mysql: MakeMySQL) -> None:
    """At a start it would be refused; a relay that has led waits until the password works again."""
    server = make_mysql()
    world = make_world(mysql=server.endpoint)
    world.execute("CREATE USER relay@'%' IDENTIFIED BY 'first'")
    world.execute("GRANT ALL ON *.* TO relay@'%'")
    relay = world.start(mysql={"user": "relay", "password": "first"})
    world.wait_sent(world.insert("a1"))
    world.execute("ALTER USER relay@'%' IDENTIFIED BY 'second'")
    for (connection,) in world.execute("SELECT id FROM information_schema.processlist WHERE user = 'relay'"):
        with suppress(pymysql.MySQLError):
            world.execute(f"KILL {connection}")
    relay.wait_for("hold")
    before = _refused(world)  # the server's start has some, and threads that were just ending
    wait_until(lambda: not relay.running or _refused(world) > before + 2, "it was refused and tried again")
    world.execute("ALTER USER relay@'%' IDENTIFIED BY 'first'")
    world.wait_sent(world.insert("a1"))
    assert relay.running


def test_without_gtids_file_and_offset_are_the_position(
    make_world: Callable[..., World], make_mysql: MakeMySQL
) -> None:
    server = make_mysql(gtid_mode="OFF", enforce_gtid_consistency="OFF")
    world = make_world(mysql=server.endpoint)
    config = world.config()
    relay = world.start(config)
    writer = Writer(world, threads=2, rate=100).start()
    judge = Judge(world)
    wait_until(lambda: len(judge.snapshot().settled) > 100, "100 events settled")
    world.execute("FLUSH BINARY LOGS")
    wait_until(lambda: len(judge.snapshot().settled) > 200, "200 events settled")
    relay.kill()
    snapshot = judge.snapshot()
    relay = world.start(config)
    commits = writer.stop()
    world.wait_settled()
    judge.check(commits, [snapshot])
    assert "sweep_done" not in relay.events(), "the position was followed"


def test_gtids_switched_on_under_a_position_by_file(make_world: Callable[..., World], make_mysql: MakeMySQL) -> None:
    """The position keeps the kind it began with, and what the binlog does not show is found all the same."""
    server = make_mysql(gtid_mode="OFF", enforce_gtid_consistency="ON")
    world = make_world(mysql=server.endpoint)
    relay = world.start()
    world.wait_sent(world.insert("a1"))
    for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"):
        world.execute(f"SET GLOBAL gtid_mode = {mode}")
    with world.sql() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        cursor.execute(
            "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
            " VALUES ('hidden', 'order', 'a2', 'OrderPlaced', '{}')"
        )
        cursor.execute("SET SESSION sql_log_bin = 1")
    world.wait_sent(world.insert("a3"), "hidden")
    assert relay.running


THREADS_THAT_LIVE_ON = """
import os, sys
from cdc_outbox.cli import main
from cdc_outbox.relay import supervisor
from cdc_outbox.relay.incarnation import Incarnation

if supervisor.INHERITED not in os.environ:
    stop = Incarnation.stop
    Incarnation.stop = lambda incarnation: stop(incarnation) and False
main(["--config", sys.argv[1], "start"])
"""


def test_a_thread_that_does_not_end_takes_the_process_with_it(world: World) -> None:
    """It could publish beside the next incarnation. The process replaces itself and goes on where it was."""
    config = world.config()
    relay = world.start(config, program=["-c", THREADS_THAT_LIVE_ON, str(config)])
    before = world.insert("a1")
    world.wait_sent(before)
    for (session,) in world.execute(
        "SELECT id FROM information_schema.processlist WHERE db = %s AND id <> CONNECTION_ID()", world.database
    ):
        world.execute("KILL %s", session)
    relay.wait_for("threads_left")
    relay.wait_for("leader", count=2)
    after = world.insert("a1")
    world.wait_sent(after)
    Judge(world).check_order({"a1": [before, after]})
    assert relay.stop() == 0
    assert {line["pid"] for line in relay.lines if line["event"] == "starting"} == {relay.pid}


def test_a_short_lease_is_kept_while_kafka_is_away(make_world: Callable[..., World], make_kafka: MakeKafka) -> None:
    broker = make_kafka()
    world = make_world(kafka=broker.endpoint)
    relay = world.start(kafka={"client": "kafka-python"}, leadership_timeout="3s")
    broker.kill()
    world.insert("a1")
    relay.wait_for("hold")
    words = set()

    def tried_often() -> bool:
        words.add(world.execute("SELECT updated_at FROM cdc_outbox_checkpoint")[0][0])
        return len(words) > 6

    wait_until(tried_often, "it looks for Kafka again and again")
    assert "leadership_lost" not in relay.events()
    assert relay.events().count("hold") == 1
    assert "recovered" not in relay.events()


def test_a_purged_binlog_is_swept_over(make_world: Callable[..., World], make_mysql: MakeMySQL) -> None:
    server = make_mysql()
    world = make_world(mysql=server.endpoint)
    config = world.config()
    relay = world.start(config)
    first = world.insert("a1")
    world.wait_sent(first)
    assert relay.stop() == 0
    missed = [world.insert("a1") for _ in range(10)]
    world.execute("FLUSH BINARY LOGS")
    (file,) = world.execute("SHOW BINARY LOG STATUS")[0][:1]
    world.execute(f"PURGE BINARY LOGS TO '{file}'")
    relay = world.start(config)
    relay.wait_for("binlog_lost")
    relay.wait_for("sweep_done")
    last = world.insert("a1")
    world.wait_sent(*missed, last)
    Judge(world).check({"a1": [first, *missed, last]})
    assert relay.events().count("binlog_lost") == 1, "it is told once, and not tried again and again"
