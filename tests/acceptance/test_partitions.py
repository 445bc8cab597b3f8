"""An outbox that is partitioned by id, as docs/migrate.md makes it: the relay on it, and an old partition let go."""

from __future__ import annotations

import json

from tests.docs.blocks import ROOT, blocks
from tests.harness.judge import Judge
from tests.harness.process import run_command
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer


def statements(beginning: str) -> list[str]:
    (block,) = [one for one in blocks(ROOT / "docs" / "migrate.md") if one.text.startswith(beginning)]
    return [one for one in block.text.split(";\n") if one.strip()]


def test_a_partitioned_outbox_and_a_partition_that_goes(world: World) -> None:
    for statement in statements("ALTER TABLE outbox_event DROP INDEX"):
        world.execute(statement.replace("1000000", "200"))
    config = world.config()
    found = json.loads(run_command(config, "doctor", "--json").stdout)["findings"]
    wrong = {one["check"]: one for one in found if one["level"] != "ok"}
    assert wrong["outbox-layout"]["level"] == "warning"
    assert "(event_id, id)" in wrong["outbox-layout"]["found"]
    waiting = world.insert("later", status=3, next_retry_at="2099-01-01")
    relay = world.start(config)
    writer = Writer(world, threads=2, rate=200).start()
    wait_until(lambda: writer.count > 400, "two partitions have rows")
    below = "SELECT COUNT(*) FROM outbox_event PARTITION (p0) WHERE status < 2"
    wait_until(lambda: world.execute(below) == [(0,)], "everything in p0 is sent")
    for statement in statements("CREATE TABLE outbox_event_old"):
        world.execute(statement)
    seen = writer.count
    wait_until(lambda: writer.count > seen + 200, "it goes on")
    commits = writer.stop()
    wait_until(lambda: world.execute("SELECT COUNT(*) FROM outbox_event WHERE status < 2") == [(0,)], "all are sent")
    judge = Judge(world)
    assert world.execute("SELECT event_id FROM outbox_event WHERE id < 200") == [(waiting,)]
    judge.check_order(commits)
    assert {one.event_id for one in judge.records()} == {event for events in commits.values() for event in events}
    judge.check_no_duplicates()
    assert "Traceback" not in relay.log
    assert relay.stop() == 0
