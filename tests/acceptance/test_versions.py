"""Relays of neighbouring versions on one table: this one and the next, which has a column more in the checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cdc_outbox.mysql.upgrade import SCHEMA_VERSION
from tests.harness.judge import Judge
from tests.harness.process import RelayProcess, run_command
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer

ROOT = Path(__file__).parents[2]
NOTED = "SELECT note FROM cdc_outbox_checkpoint"


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """The next version as it would be: its table has one column more, and it writes there with each position."""
    home = tmp_path / "next"
    ignored = shutil.ignore_patterns("__pycache__", "testing")
    shutil.copytree(ROOT / "cdc_outbox", home / "cdc_outbox", ignore=ignored)
    shutil.copytree(ROOT / "schema", home / "schema")
    (home / "cdc_outbox" / "testing").mkdir()
    for name in ("__init__.py", "kill_points.py"):
        shutil.copy(ROOT / "cdc_outbox" / "testing" / name, home / "cdc_outbox" / "testing")
    changes = {
        "cdc_outbox/mysql/upgrade.py": (f"SCHEMA_VERSION = {SCHEMA_VERSION}", f"SCHEMA_VERSION = {SCHEMA_VERSION + 1}"),
        "cdc_outbox/mysql/queries.sql": (
            "SET binlog_file = %s,",
            "SET note = 'by the next version', binlog_file = %s,",
        ),
        "schema/cdc_outbox_checkpoint.sql": (
            f"  schema_version INT NOT NULL DEFAULT {SCHEMA_VERSION},",
            f"  note VARCHAR(40) NOT NULL DEFAULT '',\n  schema_version INT NOT NULL DEFAULT {SCHEMA_VERSION + 1},",
        ),
    }
    for file, (before, after) in changes.items():
        text = (home / file).read_text("utf-8")
        assert text.count(before) == 1, file
        (home / file).write_text(text.replace(before, after), "utf-8")
    return home


def program(home: Path, config: Path, *words: str) -> list[str]:
    """Python's arguments that run the `cdc-outbox` that lies there."""
    run = f"import sys; sys.path.insert(0, {str(home)!r}); from cdc_outbox.cli import main; main(sys.argv[1:])"
    return ["-c", run, "--config", str(config), *words]


def upgraded(home: Path, config: Path) -> None:
    done = RelayProcess(config, program(home, config, "init", "--upgrade"))
    assert done.wait() == 0, done.log


def test_each_takes_over_from_the_other(world: World, newer: Path) -> None:
    """old leads → the table is upgraded under it → new takes over → old takes over → nothing lost, nothing doubled."""
    config = world.config()
    old = world.start(config)
    writer = Writer(world, threads=2, rate=100).start()
    wait_until(lambda: writer.count > 50, "some are written")
    upgraded(newer, config)
    assert world.execute("SELECT schema_version FROM cdc_outbox_checkpoint") == [(SCHEMA_VERSION + 1,)]
    new = world.start(config, wait_for="standby", program=program(newer, config, "start"))
    before = writer.count
    wait_until(lambda: writer.count > before + 50, "the older one goes on, on the newer table")
    assert world.execute(NOTED) == [("",)]
    assert old.stop() == 0
    new.wait_for("leader")
    wait_until(lambda: world.execute(NOTED) == [("by the next version",)], "the newer one writes its position")
    old = world.start(config, wait_for="standby")
    before = writer.count
    wait_until(lambda: writer.count > before + 50, "more are written")
    assert new.stop() == 0
    old.wait_for("leader")
    commits = writer.stop()
    world.wait_settled()
    Judge(world).check(commits)
    Judge(world).check_no_duplicates()
    assert "Traceback" not in old.log + new.log
    done = run_command(config, "init", "--upgrade")
    assert done.returncode == 2
    assert f"schema version {SCHEMA_VERSION + 1}" in done.stderr


def test_a_newer_leader_that_is_killed_leaves_its_rows_to_an_older_standby(world: World, newer: Path) -> None:
    config = world.config()
    upgraded(newer, config)
    new = world.start(config, program=program(newer, config, "start"))
    old = world.start(config, wait_for="standby")
    writer = Writer(world, threads=2, rate=200).start()
    judge = Judge(world)
    wait_until(lambda: len(judge.snapshot().settled) > 100, "100 events settled")
    snapshot = judge.snapshot()
    new.kill()
    old.wait_for("leader")
    before = writer.count
    wait_until(lambda: writer.count > before + 50, "more are written")
    commits = writer.stop()
    world.wait_settled()
    judge.check(commits, [snapshot])
