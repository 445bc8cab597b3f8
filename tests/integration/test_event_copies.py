"""Copies of failed events on a real server: what is written, and what is there already."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_outbox.config import MySQLSettings
from cdc_outbox.model import Event, TableName
from cdc_outbox.mysql.event_copies import Copy, EventCopies
from cdc_outbox.mysql.outbox_table import OutboxTable
from cdc_outbox.mysql.session import Session
from tests.harness.world import World


@pytest.fixture
def session(world: World) -> Iterator[Session]:
    settings = MySQLSettings(
        host=world.host,
        port=world.port,
        user=world.user,
        password=world.password,  # type: ignore[arg-type]
        database=world.database,
    )
    found = Session(settings, lifetime=30.0)
    yield found
    found.close()


@pytest.fixture
def table(world: World) -> OutboxTable:
    world.execute("ALTER TABLE outbox_event ADD tenant VARCHAR(20) NULL, ADD last_error VARCHAR(512) NULL")
    return OutboxTable(TableName(world.database, "outbox_event"), extra_columns=["tenant"], has_last_error=True)


def event(table: OutboxTable, id: int, event_id: str, payload: bytes | None = b"{}") -> Event:
    return Event(
        table.name,
        id,
        event_id,
        "order",
        "a1",
        "OrderPlaced",
        payload,
        committed_at=1_700_000_000_000,
        columns={"tenant": "t'1"},
        max_retries=5,
    )


def insert(session: Session, table: OutboxTable, *copies: Copy) -> None:
    with session.transaction():
        EventCopies(table).insert(session, copies)


def test_a_copy_is_the_row_again_at_3(world: World, session: Session, table: OutboxTable) -> None:
    payload = '{"b": null, "ä": [1.5, "x\\u0000\'"]}'.encode()
    insert(
        session,
        table,
        Copy(event(table, 7, "failed", payload), 1, 60, "MESSAGE_TOO_LARGE: …"),
        Copy(event(table, 9, "dead"), 5, None, "why"),
        Copy(event(table, 8, "parked"), 0, 0),
    )
    rows = world.execute(
        "SELECT id, event_id, status, retry_count, max_retries, next_retry_at > NOW() + INTERVAL 50 SECOND, last_error,"
        " tenant, UNIX_TIMESTAMP(created_at) FROM outbox_event ORDER BY id"
    )
    assert [row[:8] for row in rows] == [
        (7, "failed", 3, 1, 5, 1, "MESSAGE_TOO_LARGE: …", "t'1"),
        (8, "parked", 3, 0, 5, 0, None, "t'1"),
        (9, "dead", 3, 5, 5, None, "why", "t'1"),
    ]
    assert {float(row[8]) for row in rows} == {1_700_000_000.0}
    assert table.fetch(session, [7])[7].payload == payload
    assert set(EventCopies(table).statuses(session, ["failed", "dead", "never"])) == {"failed", "dead"}


def test_what_is_there_stays_as_it_is(world: World, session: Session, table: OutboxTable) -> None:
    world.insert("a1", event_id="one", id=5, status=2)
    insert(session, table, Copy(event(table, 5, "one"), 1, 60), Copy(event(table, 6, "two"), 0, 0))
    insert(session, table, Copy(event(table, 6, "two"), 3, None))
    assert world.execute("SELECT id, event_id, status, retry_count FROM outbox_event ORDER BY id") == [
        (5, "one", 2, 0),
        (6, "two", 3, 0),
    ]


def test_an_id_that_another_event_has_by_now_is_left_to_it(world: World, session: Session, table: OutboxTable) -> None:
    world.insert("a1", event_id="other", id=5)
    insert(session, table, Copy(event(table, 5, "one"), 1, 60), Copy(event(table, 6, "two"), 0, 0))
    found = {event_id: id for id, event_id in world.execute("SELECT id, event_id FROM outbox_event")}
    assert (found["other"], found["two"]) == (5, 6)
    assert found["one"] > 6


def test_many_are_written_in_parts(world: World, session: Session, table: OutboxTable) -> None:
    insert(session, table, *(Copy(event(table, id, f"e{id}"), 0, 0) for id in range(1, 1202)))
    large = [Copy(event(table, id, f"e{id}", b'"' + b"x" * 3_000_000 + b'"'), 0, 0) for id in (2001, 2002, 2003)]
    insert(session, table, *large)
    assert world.execute("SELECT COUNT(*) FROM outbox_event")[0][0] == 1204


def test_sent_copies_are_deleted_and_no_others(world: World, session: Session, table: OutboxTable) -> None:
    for status in range(4):
        world.insert("a1", event_id=f"e{status}", id=status + 1, status=status)
    with session.transaction():
        count = table.delete_sent(session, [(1, "e0"), (2, "e1"), (3, "e2"), (4, "e3"), (2, "another")])
    assert count == 2
    assert [one for one, _ in world.execute("SELECT event_id, id FROM outbox_event ORDER BY id")] == ["e2", "e3"]
