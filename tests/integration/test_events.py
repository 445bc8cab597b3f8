"""Events looked at and changed by a person, on a real MySQL: what is found, what is read for it, what is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdc_outbox.config import Settings
from cdc_outbox.errors import Refused
from cdc_outbox.model import State
from cdc_outbox.mysql import event_rows
from cdc_outbox.mysql.event_rows import LOOKED_AT, EventRow, EventRows, Filter
from cdc_outbox.mysql.session import Session
from cdc_outbox.ops import events
from tests.harness.crowd import fill, rows_read
from tests.harness.world import World

EVERY = list(State)


def find(settings: Settings, *states: State, limit: int = 100, **chosen: Any) -> list[EventRow]:
    return events.find(settings, settings.table_names, states or EVERY, Filter(**chosen), limit=limit).events


def every_state(world: World) -> None:
    with world.sql() as cursor:
        for state in State:
            fill(cursor, 3, state)


def apply(settings: Settings, action: events.Action, found: list[EventRow], reason: str = "") -> events.Done:
    return events.apply(settings, action, events.Selection.of(found), reason, lambda done, of: None)


def test_each_state_is_found_and_named(world: World, settings: Settings) -> None:
    every_state(world)
    for state in State:
        found = find(settings, state)
        assert [one.state for one in found] == [state] * 3
    assert len(find(settings)) == 18
    some = events.find(settings, settings.table_names, EVERY, Filter(), limit=5)
    assert (len(some.events), some.more) == (5, True)


def test_filters(world: World, settings: Settings) -> None:
    world.execute("ALTER TABLE outbox_event ADD COLUMN last_error VARCHAR(512) NULL")
    old = world.insert("A1", kind="order", created_at="2020-01-01 00:00:00")
    other = world.insert("a1", kind="order/eu", event_type="Orderplaced", last_error="it's 100% \\ wrong")
    assert [one.event_id for one in find(settings, aggregate="order")] == [old]
    assert [one.event_id for one in find(settings, aggregate="order/A1")] == [old]
    assert find(settings, aggregate="order/a1") == [], "aggregates are compared as bytes"
    assert [one.event_id for one in find(settings, aggregate="order/eu")] == [other]
    assert [one.event_id for one in find(settings, aggregate="order/eu/a1")] == [other]
    assert [one.event_id for one in find(settings, event_type="Orderplaced")] == [other]
    assert [one.event_id for one in find(settings, older_than=86_400.0)] == [old]
    assert [one.event_id for one in find(settings, error="'s 100% \\")] == [other]
    assert find(settings, aggregate="order", error="wrong") == []


def test_error_needs_its_column(world: World, settings: Settings) -> None:
    with pytest.raises(Refused) as refused:
        find(settings, error="x")
    assert "ADD COLUMN last_error" in (refused.value.hint or "")


def test_an_event_is_named_by_event_id_or_id(world: World, settings: Settings) -> None:
    event_id = world.insert("a1")
    number = str(world.row(event_id)["id"])
    tables = settings.table_names
    assert [one.event_id for one in events.named(settings, tables, [event_id], ids=False)] == [event_id]
    assert [one.event_id for one in events.named(settings, tables, [number], ids=False)] == [event_id]
    with pytest.raises(Refused, match="there is no event nobody"):
        events.named(settings, tables, [event_id, "nobody"], ids=False)
    # An application may count its event ids: then a number may mean two events, and only a person can say which.
    other = world.insert("a1", event_id=number)
    with pytest.raises(Refused, match="means"):
        events.named(settings, tables, [number], ids=False)
    assert [one.event_id for one in events.named(settings, tables, [number], ids=True)] == [event_id]
    assert events.named(settings, tables, [str(world.row(other)["id"])], ids=False)[0].event_id == other


def test_retry_and_skip_change_what_they_say_and_nothing_else(world: World, settings: Settings) -> None:
    every_state(world)
    before = world.execute("SELECT * FROM outbox_event WHERE NOT (status = 3) ORDER BY id")
    done = apply(settings, events.RETRY, find(settings, State.failed, State.dead))
    assert (done.changed, done.locked, done.moved_on, done.led) == (6, 0, 0, False)
    assert world.execute("SELECT * FROM outbox_event WHERE NOT (status = 3) ORDER BY id") == before
    assert world.execute("SELECT DISTINCT retry_count, next_retry_at <= NOW() FROM outbox_event WHERE status = 3") == [
        (0, 1)
    ]
    done = apply(settings, events.SKIP, find(settings, State.failed, State.parked))
    assert done.changed == 9
    skipped = world.execute(
        "SELECT status, COUNT(*) FROM outbox_event WHERE retry_count = max_retries + 1 AND next_retry_at <= NOW()"
        " GROUP BY status ORDER BY status"
    )
    assert skipped == [(0, 3), (3, 6)]


@pytest.mark.parametrize("state", [State.pending, State.sending, State.sent])
def test_what_is_not_failed_is_refused_before_anything_changes(world: World, settings: Settings, state: State) -> None:
    every_state(world)
    before = world.execute("SELECT * FROM outbox_event ORDER BY id")
    for action in (events.RETRY, events.SKIP, events.PURGE):
        with pytest.raises(Refused, match="nothing was changed"):
            events.refuse_other_states(action, find(settings, state))
        # Even past that check the row's own condition stands in the way.
        assert apply(settings, action, find(settings, state)).moved_on == 3
    assert world.execute("SELECT * FROM outbox_event ORDER BY id") == before


def test_a_row_is_changed_only_as_the_event_that_was_seen(world: World, settings: Settings) -> None:
    """Between the look and the change the table was truncated and the id used again."""
    with world.sql() as cursor:
        fill(cursor, 1, "dead")
    found = find(settings, State.dead)
    world.execute("TRUNCATE outbox_event")
    with world.sql() as cursor:
        fill(cursor, 1, "dead")
    assert find(settings, State.dead)[0].id == found[0].id
    for action in (events.RETRY, events.PURGE):
        assert apply(settings, action, found).moved_on == 1
    assert len(find(settings, State.dead)) == 1


def test_the_reason_is_kept_where_there_is_room(world: World, settings: Settings) -> None:
    world.execute("ALTER TABLE outbox_event ADD COLUMN last_error VARCHAR(512) NULL")
    with world.sql() as cursor:
        fill(cursor, 2, "dead")
    world.execute("UPDATE outbox_event SET last_error = 'too large'")
    first, second = find(settings, State.dead)
    apply(settings, events.RETRY, [first])
    apply(settings, events.RETRY, [second], "it's mended" + "x" * 600)
    assert world.row(first.event_id)["last_error"] == "too large"
    assert str(world.row(second.event_id)["last_error"]).startswith("retried: it's mended")
    apply(settings, events.SKIP, find(settings, State.failed), "customer gone")
    assert world.row(first.event_id)["last_error"] == "skipped: customer gone"


def test_many_are_changed_in_batches_around_a_locked_row(
    world: World, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_rows, "BATCH", 100)
    with world.sql() as cursor:
        fill(cursor, 950, "dead")
    found = find(settings, State.dead, limit=1000)
    steps: list[tuple[int, int]] = []
    application = world.connect(autocommit=False)
    try:
        with application.cursor() as cursor:
            cursor.execute("SELECT id FROM outbox_event WHERE id = %s FOR UPDATE", (found[10].id,))
            chosen = events.select(settings, settings.table_names, [State.dead], Filter(), 5)
            assert [one.id for one in chosen.sample] == [one.id for one in found[:5]]
            done = events.apply(settings, events.RETRY, chosen, "", lambda *step: steps.append(step))
    finally:
        application.close()
    assert (done.changed, done.locked, done.moved_on) == (949, 1, 0)
    assert [step[0] for step in steps[:10]] == [100, 200, 300, 400, 500, 600, 700, 800, 900, 950]
    assert [one.id for one in find(settings, State.dead)] == [found[10].id]


def test_purge_deletes_dead_rows_only(world: World, settings: Settings) -> None:
    every_state(world)
    assert apply(settings, events.PURGE, find(settings, State.dead)).changed == 3
    assert len(find(settings)) == 15
    assert find(settings, State.dead) == []


def test_listing_reads_little_of_a_large_table(
    world: World, settings: Settings, session: Session, request: pytest.FixtureRequest
) -> None:
    """By the server's own counters, and no plan that sorts or scans."""
    count = 1_000_000 if request.config.getoption("--long") else 100_000
    with world.sql() as cursor:
        fill(cursor, count, "sent")
        for state in ("pending", "sending", "parked", "failed", "dead"):
            fill(cursor, 2000, state, kind="other" if state == "dead" else "order")
        cursor.execute("ANALYZE TABLE outbox_event")
    rows = EventRows(session, settings.table_names[0])
    for state in State:
        assert rows_read(session.query, lambda state=state: rows.find(state, Filter(), 50, everything=False)) < 250
    seen: list[EventRow] = []
    chosen = Filter(aggregate="nobody")
    read = rows_read(session.query, lambda: seen.extend(rows.find(State.sent, chosen, 50, everything=False)))
    # Read once in the index, once in the list that comes of it, once in the table.
    assert read <= 3 * min(LOOKED_AT, count) + 100
    assert seen == []
    assert rows.more_than_looked_at(State.sent) == (count > LOOKED_AT)
    assert rows_read(session.query, lambda: rows.name_all(State.dead, Filter(aggregate="other"))) < 5000
    name = rows.find(State.sent, Filter(), 1, everything=False)[0]
    assert rows_read(session.query, lambda: rows.by_event_id([name.event_id])) < 10
    assert rows_read(session.query, lambda: rows.by_id([name.id])) < 10


def test_no_listing_sorts_or_scans(
    world: World, settings: Settings, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.sql() as cursor:
        for state in State:
            fill(cursor, 500, state)
        cursor.execute("ANALYZE TABLE outbox_event")
    rows = EventRows(session, settings.table_names[0])
    asked: list[str] = []
    monkeypatch.setattr(session, "query", lambda sql: asked.append(sql) or [])
    for state in State:
        rows.find(state, Filter(), 50, everything=False)
        rows.name_all(state, Filter(aggregate="order"))
    for sql in asked:
        (plan,) = world.execute(f"EXPLAIN FORMAT=TRADITIONAL {sql}")
        kind, key, extra = plan[4], plan[6], plan[-1] or ""
        assert kind in ("ref", "range"), sql
        assert key == "idx_status_next_retry", sql
        assert "filesort" not in extra, sql


def test_the_sql_has_one_home() -> None:
    assert "SELECT" not in Path(events.__file__).read_text("utf-8")
