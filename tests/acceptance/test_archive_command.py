"""`archive` beside a relay and writers, killed in the middle, and what a relay makes of rows that are gone."""

from __future__ import annotations

import json
import signal
import subprocess

from cdc_outbox.model import TableName
from cdc_outbox.mysql import schema
from tests.harness.crowd import fill
from tests.harness.judge import Judge
from tests.harness.process import COMMAND, environment, run_command
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer


def make_archive(world: World) -> None:
    world.execute(schema.ddl("archive", TableName(world.database, "outbox_event_archive")))


def counted(world: World, table: str) -> int:
    return int(world.execute(f"SELECT COUNT(*) FROM {table}")[0][0])


def test_killed_and_interrupted_it_loses_and_doubles_nothing(world: World) -> None:
    make_archive(world)
    with world.sql() as cursor:
        fill(cursor, 3000, "sent", days=2)
    before = [one for (one,) in world.execute("SELECT event_id FROM outbox_event ORDER BY event_id")]
    config = world.config()
    words = [*COMMAND, "--config", str(config), "archive", "--older-than", "1h", "--batch", "10", "--pause", "5ms"]
    for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
        moved = counted(world, "outbox_event_archive")
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment()) as process:
            wait_until(lambda moved=moved: counted(world, "outbox_event_archive") >= moved + 200, "some are moved")
            process.send_signal(number)
            assert process.wait(30) == code
            assert process.stderr is not None
            said = process.stderr.read()
        assert "Traceback" not in said
        assert 0 < counted(world, "outbox_event") < 3000
        assert counted(world, "outbox_event") + counted(world, "outbox_event_archive") == 3000
    assert "run it again to go on" in said
    left = counted(world, "outbox_event")
    done = run_command(config, "archive", "--older-than", "1h", "--json")
    assert json.loads(done.stdout)["rows"] == left
    assert [one for (one,) in world.execute("SELECT event_id FROM outbox_event_archive ORDER BY event_id")] == before


def test_beside_a_relay_and_writers(world: World) -> None:
    """Everything that is sent is moved at once; no event is lost, doubled or published out of order."""
    make_archive(world)
    config = world.config()
    world.start(config)
    writer = Writer(world, threads=2, limit=600, rate=200).start()
    while writer.count < 600:
        done = run_command(config, "archive", "--older-than", "0s", "--batch", "50")
        assert done.returncode == 0, done.stderr
    commits = writer.join()
    world.wait_settled()
    assert run_command(config, "archive", "--older-than", "0s").returncode == 0
    wait_until(lambda: not world.execute("SELECT 1 FROM outbox_event WHERE created_at < NOW()"), "all are moved")
    events = {one for part in commits.values() for one in part}
    archived = [one for (one,) in world.execute("SELECT event_id FROM outbox_event_archive")]
    assert len(archived) == len(set(archived)) == len(events)
    judge = Judge(world, table="outbox_event_archive")
    judge.check(commits)


def test_rows_that_are_gone_are_not_sent_again(world: World) -> None:
    """The position lies before their inserts: the relay finds no row, and takes it for deleted on purpose."""
    config = world.config()
    relay = world.start(config)
    world.wait_sent(world.insert("a1"))
    assert relay.stop() == 0
    row = world.execute("SELECT binlog_file, binlog_pos, gtid_set FROM cdc_outbox_checkpoint")[0]
    relay = world.start(config)
    sent = [world.insert(f"a{n % 3}") for n in range(30)]
    world.wait_sent(*sent)
    assert relay.stop() == 0
    world.execute("UPDATE cdc_outbox_checkpoint SET binlog_file = %s, binlog_pos = %s, gtid_set = %s", *row)
    world.execute("UPDATE outbox_event SET created_at = NOW() - INTERVAL 1 DAY")
    done = run_command(config, "archive", "--older-than", "1h", "--delete")
    assert "31 rows" in done.stdout
    world.start(config)
    world.wait_sent(world.insert("a1", event_id="later"))
    judge = Judge(world)
    judge.check_no_duplicates()
    assert len(judge.records()) == 32
