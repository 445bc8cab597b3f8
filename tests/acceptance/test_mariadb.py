"""The relay on MariaDB: the same table, the same commands; the position is file and offset, JSON is text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pymysql
import pytest

from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.harness.judge import Judge
from tests.harness.kafka import read_topic
from tests.harness.process import run_command
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer

if TYPE_CHECKING:
    from tests.conftest import MakeMySQL

MakeWorld = Callable[..., World]


@pytest.fixture
def server(make_mariadb: MakeMySQL) -> Server[MySQLEndpoint]:
    return make_mariadb()


@pytest.fixture
def world(make_world: MakeWorld, server: Server[MySQLEndpoint]) -> Iterator[World]:
    yield make_world(mysql=server.endpoint)


@pytest.mark.parametrize("claim", ["leader", "row"])
def test_under_load_killed_and_started_again(world: World, claim: str) -> None:
    config = world.config(outbox={"claim": claim, "sending_timeout": "2s" if claim == "row" else None})
    before = world.insert("agg-before", payload='{"b":  1.0,   "a": "é"}')
    relay = world.start(config)
    writer = Writer(world, threads=2, rate=150).start()
    judge = Judge(world)
    wait_until(lambda: len(judge.snapshot().settled) > 200, "200 events settled")
    world.execute("FLUSH BINARY LOGS")
    relay.kill()
    snapshot = judge.snapshot()
    relay = world.start(config)
    more = writer.count + 300
    wait_until(lambda: writer.count > more, "300 events more")
    commits = writer.stop()
    world.wait_settled()
    judge.check(commits, [snapshot])
    assert "sweep_done" not in relay.events(), "the position was followed"
    record = next(one for one in judge.records() if one.event_id == before)
    assert record.value == '{"b":  1.0,   "a": "é"}'.encode()
    assert relay.stop() == 0


def test_retries_parking_and_dead_letters(world: World) -> None:
    world.start(kafka={"max_record_bytes": "2KiB", "batch_bytes": "2KiB"})
    bad = world.insert("a1", payload='{"pad": "' + "x" * 3000 + '"}', max_retries=1)
    after = [world.insert("a1") for _ in range(5)]
    world.wait_settled()
    assert (world.row(bad)["status"], world.row(bad)["retry_count"]) == (3, 1)
    (letter,) = read_topic(world.bootstrap, world.dead_letter_topic)
    assert letter.headers["event_id"].decode() == bad
    Judge(world).check({"a1": [bad, *after]})


def test_what_is_no_plain_insert(world: World) -> None:
    """XA, a savepoint, a statement session, a row beside the binlog, a column that comes first."""
    world.start()
    insert = "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES "
    for statement in (
        "XA START 'x'",
        insert + "('x1', 'order', 'x', 'e', '1')",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA COMMIT 'x'",
        "BEGIN",
        insert + "('p1', 'order', 'p', 'e', '1')",
        "SAVEPOINT s",
        insert + "('never', 'order', 'p', 'e', '1')",
        "ROLLBACK TO s",
        insert + "('p2', 'order', 'p', 'e', '2')",
        "UPDATE outbox_event SET payload = '[3]' WHERE event_id = 'p2'",
        "COMMIT",
        "SET SESSION binlog_format = 'STATEMENT'",
        insert + "('s1', 'order', 's', 'e', '1')",
        "SET SESSION binlog_format = 'ROW'",
        "SET SESSION sql_log_bin = 0",
        insert + "('b1', 'order', 'b', 'e', '1')",
        "SET SESSION sql_log_bin = 1",
        "ALTER TABLE outbox_event ADD COLUMN tenant VARCHAR(20) NOT NULL DEFAULT 'none' FIRST",
        insert + "('t1', 'order', 't', 'e', '1')",
    ):
        world.execute(statement)
    expected = ["x1", "p1", "p2", "s1", "b1", "t1"]
    world.wait_sent(*expected)
    records = {record.event_id: record.value for record in Judge(world).records()}
    assert records == {**dict.fromkeys(expected, b"1"), "p2": b"[3]"}
    Judge(world).check_no_duplicates()


def test_a_standby_and_a_server_that_dies(world: World, server: Server[MySQLEndpoint]) -> None:
    config = world.config()
    leader = world.start(config)
    standby = world.start(config, wait_for="standby")
    world.wait_sent(first := world.insert("a1"))
    leader.kill()
    standby.wait_for("leader")
    world.wait_sent(second := world.insert("a1"))
    world.close_session()
    server.kill()
    standby.wait_for("hold")
    server.start()
    standby.wait_for("recovered")
    world.wait_sent(third := world.insert("a1"))
    judge = Judge(world)
    judge.check_complete({"a1": [first, second, third]})
    judge.check_order({"a1": [first, second, third]})


def test_an_account_with_no_more_than_it_needs(world: World, server: Server[MySQLEndpoint]) -> None:
    config = world.config(mysql={"user": "relay", "password": "secret-word"})
    script = run_command(config, "init", "--print").stdout
    world.execute("CREATE USER relay IDENTIFIED BY 'secret-word'")
    assert "/*!80014 GRANT SESSION_VARIABLES_ADMIN" in script
    for statement in script.split(";\n"):
        if re.sub(r"^--.*", "", statement, flags=re.M).strip():
            world.execute(statement)
    done = run_command(config, "doctor")
    assert done.returncode == 0, done.stdout
    world.execute("REVOKE BINLOG ADMIN ON *.* FROM relay")
    assert "GRANT BINLOG ADMIN" in run_command(config, "doctor").stdout
    world.start(config)
    world.wait_sent(world.insert("a1"))


def test_what_is_not_supported_is_refused_at_start(make_mariadb: MakeMySQL, make_world: MakeWorld) -> None:
    server = make_mariadb(binlog_row_metadata="NO_LOG", log_bin_compress="ON")
    world = make_world(mysql=server.endpoint)
    relay = world.start(wait_for=None)
    assert relay.wait() == 2
    assert "binlog_row_metadata = NO_LOG" in relay.log and "log_bin_compress = ON" in relay.log
    place = server.endpoint
    with pymysql.connect(host=place.host, port=place.port, user=place.user) as connection:
        for line in relay.lines[-1]["hint"].splitlines():
            connection.cursor().execute(line)
    relay = world.start()
    world.wait_sent(world.insert("a1"))
