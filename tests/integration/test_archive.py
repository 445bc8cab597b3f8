"""Sent rows out of the outbox, on a real MySQL: which go, what of them arrives, and what an interruption leaves."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from cdc_outbox.config import Settings, load_settings
from cdc_outbox.errors import Refused
from cdc_outbox.model import TableName
from cdc_outbox.mysql import schema
from cdc_outbox.mysql.archive_table import SentRows, holds
from cdc_outbox.mysql.outbox_table import spans
from cdc_outbox.mysql.session import Session
from cdc_outbox.ops.archive import BARREN, Progress, archive, archive_name
from tests.harness.crowd import fill, rows_read
from tests.harness.world import World

STATES = ("pending", "parked", "sending", "sent", "failed", "dead")
HOUR = 3600.0


@pytest.fixture
def settings(world: World) -> Settings:
    world.execute(schema.ddl("archive", TableName(world.database, "outbox_event_archive")))
    return load_settings(world.config(), {})


def run(settings: Settings, *, into: str | None = "outbox_event_archive", **options: Any) -> Progress:
    (table,) = settings.table_names
    chosen = {"older_than": HOUR, "batch": 1000, "pause": 0.0, "dry_run": False, "on_progress": lambda now: None}
    return archive(settings, table, None if into is None else archive_name(table, into), **{**chosen, **options})


def ids(world: World, table: str = "outbox_event") -> list[int]:
    return [id for (id,) in world.execute(f"SELECT id FROM {table} ORDER BY id")]


def columns(table: str) -> str:
    return f"SELECT {', '.join(schema.column_definitions('outbox_event'))} FROM {table} ORDER BY id"


def every_state(world: World, days: float) -> None:
    with world.sql() as cursor:
        for state in STATES:
            fill(cursor, 20, state, days=days)


def test_only_what_is_sent_and_old_goes_and_arrives_as_it_was(world: World, settings: Settings) -> None:
    every_state(world, 2)
    every_state(world, 0)
    world.execute('UPDATE outbox_event SET payload = \'{"n": 1.50, "文": [null]}\' WHERE status = 2')
    world.execute("UPDATE outbox_event SET updated_at = created_at")
    before = world.execute(columns("outbox_event"))
    steps: list[Progress] = []
    end = run(settings, batch=7, on_progress=steps.append)
    assert (end.moved, end.left) == (20, 0)
    assert max(after.moved - before.moved for before, after in pairwise(steps)) <= 7
    assert [now.share for now in steps] == sorted(now.share for now in steps)
    there, left = world.execute(columns("outbox_event_archive")), world.execute(columns("outbox_event"))
    assert {row[6] for row in there} == {2}
    assert sorted(there + left) == sorted(before)
    assert world.execute("SELECT MIN(archived_at >= NOW() - INTERVAL 60 SECOND) FROM outbox_event_archive") == [(1,)]
    assert run(settings).moved == 0


def test_delete_needs_no_archive_and_dry_run_changes_nothing(world: World, settings: Settings) -> None:
    world.execute("DROP TABLE outbox_event_archive")
    every_state(world, 2)
    assert run(settings, dry_run=True).moved == 20
    assert len(ids(world)) == 120
    assert run(settings, into=None).moved == 20
    assert len(ids(world)) == 100


def test_ids_need_not_follow_creation_to_the_row(world: World, settings: Settings) -> None:
    """Young rows before, between and behind old ones; only a long stretch of young ones ends the search."""
    with world.sql() as cursor:
        for days in (0, 2, 0, 2):
            fill(cursor, 25, "sent", days=days)
        fill(cursor, 10 * BARREN, "sent")
        fill(cursor, 5, "sent", days=2)
    assert run(settings, batch=10).moved >= 50
    assert world.execute("SELECT COUNT(*) FROM outbox_event_archive WHERE created_at > NOW() - INTERVAL 1 HOUR") == [
        (0,)
    ]


def test_an_interruption_leaves_each_row_once(
    world: World, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the copy and before the delete of the third batch."""
    with world.sql() as cursor:
        fill(cursor, 50, "sent", days=2)
    before = ids(world)
    expect, calls = SentRows._expect, iter(range(100))

    def interrupted(count: int, expected: int) -> None:
        if next(calls) == 4:
            raise KeyboardInterrupt
        expect(count, expected)

    monkeypatch.setattr(SentRows, "_expect", staticmethod(interrupted))
    with pytest.raises(KeyboardInterrupt):
        run(settings, batch=10)
    assert len(ids(world, "outbox_event_archive")) == 20
    assert sorted(ids(world) + ids(world, "outbox_event_archive")) == before
    monkeypatch.undo()
    assert run(settings, batch=10).moved == 30
    assert ids(world, "outbox_event_archive") == before


def test_a_row_is_looked_at_again_under_its_lock(world: World, settings: Settings) -> None:
    """Between the look and the move a person set one back to 0, and another id was used again."""
    with world.sql() as cursor:
        fill(cursor, 4, "sent", days=2)
    session = Session(settings.mysql, lifetime=60)
    try:
        rows = SentRows(session, settings.table_names[0], None, HOUR)
        page = rows.page(0, 100, 10)
        assert len(page.old) == 4
        world.execute("UPDATE outbox_event SET status = 0 WHERE id = %s", page.old[0])
        world.execute("UPDATE outbox_event SET created_at = NOW(), event_id = 'new' WHERE id = %s", page.old[1])
        assert rows.move(page.old) == 2
    finally:
        session.close()
    assert ids(world) == page.old[:2]


def test_a_locked_row_is_left_and_holds_up_nobody(world: World, settings: Settings) -> None:
    with world.sql() as cursor:
        fill(cursor, 30, "sent", days=2)
    locked = ids(world)[4]
    application = world.connect(autocommit=False)
    try:
        with application.cursor() as cursor:
            cursor.execute("SELECT id FROM outbox_event WHERE id = %s FOR UPDATE", (locked,))
            end = run(settings, batch=10)
    finally:
        application.close()
    assert (end.moved, end.left) == (29, 1)
    assert ids(world) == [locked]


def test_ages_are_by_the_relays_time_zone(world: World, settings: Settings) -> None:
    """The application writes created_at in its own zone; a DATETIME does not say in which."""
    world.execute("SET time_zone = '-08:00'")
    with world.sql() as cursor:
        fill(cursor, 5, "sent")
    there = load_settings(world.config(mysql={**mysql_of(settings), "time_zone": "-08:00"}), {})
    assert run(there).moved == 0
    assert run(settings, dry_run=True).moved == 5, "in the server's zone they look hours old"
    world.execute("UPDATE outbox_event SET created_at = NOW() - INTERVAL 2 HOUR")
    assert run(there).moved == 5


def mysql_of(settings: Settings) -> dict[str, Any]:
    mysql = settings.mysql
    return {
        "host": mysql.host,
        "port": mysql.port,
        "user": mysql.user,
        "password": mysql.password.get_secret_value(),
        "database": mysql.database,
    }


def test_an_archive_that_is_missing_or_too_small_is_refused_with_its_fix(world: World, settings: Settings) -> None:
    world.execute("DROP TABLE outbox_event_archive")
    world.execute(
        "ALTER TABLE outbox_event ADD COLUMN tenant VARCHAR(300), MODIFY COLUMN created_at DATETIME(3) NOT NULL"
    )
    with world.sql() as cursor:
        fill(cursor, 3, "sent", days=2)
    world.execute("UPDATE outbox_event SET tenant = REPEAT('x', 300), created_at = '2020-01-01 00:00:00.125'")
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            run(settings)
        assert "nothing was moved" in refused.value.message
        hint = refused.value.hint or ""
        world.execute(re.search(r"(CREATE|ALTER) TABLE.*;", hint, flags=re.S)[0])  # type: ignore[index]
    assert run(settings).moved == 3
    assert world.execute("SELECT DISTINCT LENGTH(tenant), MICROSECOND(created_at) FROM outbox_event_archive") == [
        (300, 125_000)
    ]


def test_ids_in_a_row_are_one_range_whose_last_stands_alone() -> None:
    assert spans([7]) == "id IN (7)"
    assert spans([1, 2, 3, 5, 6]) == "id IN (1,2,3,5,6)"
    assert spans([1, 4, 5, 6, 7, 9, 20, 21, 22, 23]) == "id BETWEEN 4 AND 6 OR id BETWEEN 20 AND 22 OR id IN (1,7,9,23)"


def test_gaps_between_the_ids(world: World, settings: Settings) -> None:
    """Runs, single rows and what lies between them, each row once and none that is not sent."""
    with world.sql() as cursor:
        fill(cursor, 200, "sent", days=2)
    world.execute("UPDATE outbox_event SET status = 0 WHERE id % 7 = 0")
    world.execute("DELETE FROM outbox_event WHERE id BETWEEN 40 AND 60 OR id % 11 = 0")
    sent = [id for (id,) in world.execute("SELECT id FROM outbox_event WHERE status = 2")]
    assert run(settings, batch=64).moved == len(sent)
    assert ids(world, "outbox_event_archive") == sent
    assert world.execute("SELECT DISTINCT status FROM outbox_event") == [(0,)]


def test_no_more_rows_a_second_than_allowed(world: World, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are no larger than a second's rows, and each with the rest behind it takes as long as its rows may; what
    it would rest is only noted."""
    with world.sql() as cursor:
        fill(cursor, 60, "sent", days=2)
    rests: list[float] = []
    monkeypatch.setattr("cdc_outbox.ops.archive.time.sleep", rests.append)
    assert run(settings, batch=20, rate=0.01).moved == 60
    assert len(rests) == 60
    assert all(90 < one <= 100 for one in rests)


def test_which_types_hold_which() -> None:
    assert holds("varchar(255)", "varchar(64)")
    assert not holds("varchar(63)", "varchar(64)")
    assert holds("datetime(6)", "datetime")
    assert not holds("datetime", "datetime(3)")
    assert not holds("bigint", "bigint unsigned")
    assert holds("json", "json")
    assert not holds("json", "longtext")


def test_months_are_split_off_and_dropped_as_the_how_to_says(world: World, settings: Settings) -> None:
    world.execute(
        "ALTER TABLE outbox_event_archive REORGANIZE PARTITION p_rest INTO ("
        "PARTITION p2020_01 VALUES LESS THAN ('2020-02-01'), PARTITION p_rest VALUES LESS THAN (MAXVALUE))"
    )
    with world.sql() as cursor:
        fill(cursor, 6, "sent", days=2)
    world.execute("UPDATE outbox_event SET created_at = '2020-01-15' LIMIT 4")
    assert run(settings).moved == 6
    world.execute("ALTER TABLE outbox_event_archive DROP PARTITION p2020_01")
    assert len(ids(world, "outbox_event_archive")) == 2


def test_it_is_refused_to_move_a_table_into_itself_or_an_event_into_its_double(
    world: World, settings: Settings
) -> None:
    with pytest.raises(Refused, match=r"one of outbox\.tables"):
        run(settings, into="outbox_event")
    with world.sql() as cursor:
        fill(cursor, 3, "sent", days=2)
    copied = "id, event_id, aggregate_type, aggregate_id, event_type, payload, created_at, updated_at"
    world.execute(f"INSERT INTO outbox_event_archive ({copied}) SELECT {copied} FROM outbox_event LIMIT 1")
    with pytest.raises(Refused, match="as after a restore"):
        run(settings)
    assert len(ids(world)) == 3


def test_it_reads_each_row_a_few_times_and_plans_by_the_primary_key(
    world: World, settings: Settings, request: pytest.FixtureRequest
) -> None:
    count = 1_000_000 if request.config.getoption("--long") else 20_000
    with world.sql() as cursor:
        fill(cursor, count, "sent", days=2)
        fill(cursor, 2000, "dead", days=2)
        fill(cursor, 30_000, "sent")
        cursor.execute("ANALYZE TABLE outbox_event")
    session = Session(settings.mysql, lifetime=600)
    try:
        rows = SentRows(session, settings.table_names[0], archive_name(settings.table_names[0], None), HOUR)
        ends = rows.ends()
        assert ends is not None
        assert rows_read(session.query, rows.ends) < 500

        def one_batch() -> None:
            assert rows.move(rows.page(ends[0] - 1, ends[2], 1000).old) == 1000

        # The page, the lock, the copy and the delete: each once.
        assert rows_read(session.query, one_batch) < 4 * 1000 + 200
        ids = rows.page(ends[0], ends[2], 1000).old
        assert spans(ids) == f"id BETWEEN {ids[0]} AND {ids[-1] - 1} OR id IN ({ids[-1]})"
        for chosen in (ids, ids[::2]):
            parts = {"rows": spans(chosen), "into": rows.into.quoted, "columns": "id"} if rows.into else {}
            for name, values in (("archive_lock", (rows.cutoff,)), ("archive_copy", ()), ("archive_delete", ())):
                plan = world.execute(f"EXPLAIN FORMAT=TRADITIONAL {rows._query(name, **parts)}", *values)[-1]
                assert (plan[4], plan[6]) == ("range", "PRIMARY"), name
    finally:
        session.close()


def test_the_account_needs_what_the_how_to_says_and_no_more(world: World, settings: Settings) -> None:
    with world.sql() as cursor:
        fill(cursor, 3, "sent", days=2)
    user = f"t_{world.database[-12:]}"
    world.execute(f"CREATE USER '{user}'@'%' IDENTIFIED BY 'pass-for-a-test'")
    try:
        world.execute(f"GRANT SELECT, UPDATE ON outbox_event TO '{user}'@'%'")
        account = {**mysql_of(settings), "user": user, "password": "pass-for-a-test"}
        limited = load_settings(world.config(mysql=account), {})
        with pytest.raises(Refused) as refused:
            run(limited, into=None)
        assert "GRANT DELETE ON" in (refused.value.hint or "")
        world.execute(f"GRANT DELETE ON outbox_event TO '{user}'@'%'")
        world.execute(f"GRANT INSERT ON outbox_event_archive TO '{user}'@'%'")
        assert run(limited).moved == 3
    finally:
        world.execute(f"DROP USER '{user}'@'%'")
