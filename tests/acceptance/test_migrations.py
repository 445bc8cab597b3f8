"""The outbox table migrated while it is in use, by the statements that gh-ost and pt-online-schema-change send."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import pytest

from tests.harness.judge import Judge
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer

COLUMNS = (
    "id, event_id, aggregate_type, aggregate_id, event_type, payload, status, retry_count, max_retries, next_retry_at,"
    " created_at, updated_at"
)
CHANGE = (
    "ADD COLUMN tenant VARCHAR(40) NOT NULL DEFAULT 'none' FIRST, MODIFY COLUMN payload JSON NOT NULL AFTER tenant,"
    " ADD COLUMN note INT NULL AFTER status, MODIFY COLUMN aggregate_id VARCHAR(80) NOT NULL"
)
"""Columns come first, in the middle and move: a row read by the old layout would be another row."""


@contextmanager
def session(world: World) -> Iterator[Any]:
    with world.connect() as connection, connection.cursor() as cursor:
        yield cursor


def chunks(cursor: Any, size: int = 200) -> Iterator[tuple[int, int]]:
    cursor.execute("SELECT COALESCE(MAX(id), 0) FROM outbox_event")
    highest = cursor.fetchone()[0]
    for first in range(1, highest + 1, size):
        yield first, min(first + size - 1, highest)


def by_triggers(world: World) -> None:
    """pt-online-schema-change: triggers keep the copy up, one RENAME swaps the two."""
    with session(world) as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1, lock_wait_timeout = 60")
        cursor.execute("CREATE TABLE _outbox_event_new LIKE outbox_event")
        cursor.execute(f"ALTER TABLE _outbox_event_new {CHANGE}")
        cursor.execute(
            "CREATE TRIGGER pt_osc_del AFTER DELETE ON outbox_event FOR EACH ROW"
            " DELETE IGNORE FROM _outbox_event_new WHERE _outbox_event_new.id <=> OLD.id"
        )
        values = ", ".join(f"NEW.{name.strip()}" for name in COLUMNS.split(","))
        cursor.execute(
            "CREATE TRIGGER pt_osc_upd AFTER UPDATE ON outbox_event FOR EACH ROW BEGIN"
            " DELETE IGNORE FROM _outbox_event_new WHERE !(OLD.id <=> NEW.id) AND _outbox_event_new.id <=> OLD.id;"
            f" REPLACE INTO _outbox_event_new ({COLUMNS}) VALUES ({values}); END"
        )
        cursor.execute(
            "CREATE TRIGGER pt_osc_ins AFTER INSERT ON outbox_event FOR EACH ROW"
            f" REPLACE INTO _outbox_event_new ({COLUMNS}) VALUES ({values})"
        )
        for first, last in chunks(cursor):
            copy = (
                f"INSERT LOW_PRIORITY IGNORE INTO _outbox_event_new ({COLUMNS}) SELECT {COLUMNS} FROM outbox_event"
                f" FORCE INDEX(PRIMARY) WHERE id >= {first} AND id <= {last} LOCK IN SHARE MODE"
            )
            again_after_a_deadlock(cursor, copy)
        cursor.execute("ANALYZE TABLE _outbox_event_new")
        cursor.fetchall()
        cursor.execute("RENAME TABLE outbox_event TO _outbox_event_old, _outbox_event_new TO outbox_event")
        cursor.execute("DROP TABLE IF EXISTS _outbox_event_old")
        for name in ("pt_osc_del", "pt_osc_upd", "pt_osc_ins"):
            cursor.execute(f"DROP TRIGGER IF EXISTS {name}")


def again_after_a_deadlock(cursor: Any, statement: str) -> None:
    """As the tool does."""
    for _ in range(50):
        try:
            cursor.execute(statement)
        except pymysql.err.OperationalError as error:
            if error.args[0] not in (1213, 1205):
                raise
        else:
            return
    raise AssertionError("50 deadlocks")


def by_the_binlog(world: World) -> None:
    """gh-ost: copies, applies what it reads in the binlog, and swaps behind a lock that nobody can slip past.

    What it reads is applied in one go here, under the lock, where the table stands still.
    """
    with session(world) as cursor:
        cursor.execute("CREATE TABLE _outbox_event_ghc (id BIGINT AUTO_INCREMENT PRIMARY KEY, hint VARCHAR(64))")
        cursor.execute("CREATE TABLE _outbox_event_gho LIKE outbox_event")
        cursor.execute(f"ALTER TABLE _outbox_event_gho {CHANGE}")
        for first, last in chunks(cursor):
            cursor.execute(
                f"INSERT IGNORE INTO _outbox_event_gho ({COLUMNS}) SELECT {COLUMNS} FROM outbox_event"
                f" FORCE INDEX (PRIMARY) WHERE id >= {first} AND id <= {last} LOCK IN SHARE MODE"
            )
    with session(world) as locking, session(world) as applying, world.connect() as renaming:
        locking.execute(
            "CREATE TABLE _outbox_event_del (id INT AUTO_INCREMENT PRIMARY KEY) COMMENT='ghost-cut-over-sentry'"
        )
        locking.execute("LOCK TABLES outbox_event WRITE, _outbox_event_del WRITE")
        locking.execute(f"SELECT {COLUMNS} FROM outbox_event")
        marks = ", ".join(["%s"] * len(COLUMNS.split(",")))
        applying.executemany(f"REPLACE INTO _outbox_event_gho ({COLUMNS}) VALUES ({marks})", locking.fetchall())
        rename = threading.Thread(
            target=renaming.cursor().execute,
            args=("RENAME TABLE outbox_event TO _outbox_event_del, _outbox_event_gho TO outbox_event",),
        )
        rename.start()
        asked = "SELECT COUNT(*) FROM information_schema.processlist WHERE id = %s AND state LIKE '%%metadata lock%%'"

        def waits() -> bool:
            applying.execute(asked, (renaming.thread_id(),))  # type: ignore[no-untyped-call]
            return bool(applying.fetchone()[0])

        wait_until(waits, "the RENAME waiting for the lock")
        locking.execute("DROP TABLE IF EXISTS _outbox_event_del")
        locking.execute("UNLOCK TABLES")
        rename.join(60)
        assert not rename.is_alive()
    world.execute("DROP TABLE _outbox_event_ghc")
    world.execute("DROP TABLE _outbox_event_del")


def in_place(world: World) -> None:
    with session(world) as cursor:
        cursor.execute(f"ALTER TABLE outbox_event {CHANGE}, ALGORITHM=COPY")


@pytest.mark.parametrize(
    ("migrate", "claim"),
    [(by_triggers, "leader"), (by_triggers, "row"), (by_the_binlog, "leader"), (in_place, "leader")],
)
def test_a_migration_under_load(world: World, migrate: Any, claim: str) -> None:
    relay = world.start(outbox={"claim": claim})
    writer = Writer(world, threads=1, rate=150, deadlocks=migrate is by_triggers).start()
    wait_until(lambda: writer.count > 300, "300 events written")
    migrate(world)
    moved = writer.count
    wait_until(lambda: writer.count > moved + 300, "300 events more, into the new table")
    commits = writer.stop()
    world.wait_settled()
    Judge(world).check(commits)
    first = world.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE()"
        " AND table_name = 'outbox_event' AND ordinal_position <= 2 ORDER BY ordinal_position"
    )
    assert [name for (name,) in first] == ["tenant", "payload"]
    assert "Traceback" not in relay.log
    assert relay.stop() == 0


def test_a_migration_while_the_relay_is_away(world: World) -> None:
    """Its rows were written in the old layout, under the old table; it reads them when there is only the new one."""
    relay = world.start()
    world.wait_sent(world.insert("a1", event_id="first"))
    assert relay.stop() == 0
    before = [world.insert("a1") for _ in range(5)]
    by_triggers(world)
    after = [world.insert("a1") for _ in range(5)]
    world.start()
    world.wait_settled()
    Judge(world).check({"a1": ["first", *before, *after]})
