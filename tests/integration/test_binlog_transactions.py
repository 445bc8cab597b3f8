"""Where transactions end, what counts as traffic, what is a barrier, and what stops the reader."""

from __future__ import annotations

import pymysql
import pytest
from pymysql.constants import ER

from cdc_outbox.model import Transaction
from cdc_outbox.testing.services.endpoint import wait_until
from tests.integration.binlog_tail import Database, Tail


def read(outbox: Database, *statements: str) -> list[Transaction]:
    """The transactions of these statements, of this database only; each ends up in an entry of its own."""
    start = outbox.position()
    with Tail(outbox, start) as tail:
        tail.wait(lambda: tail.connects > 0)
        for statement in statements:
            outbox.execute(statement)
            tail.wait_for_position(outbox.position())
    return tail.transactions


INSERT = (
    "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
    " VALUES ('{}', 'order', 'o1', 'Created', '[]')"
)


def test_a_large_transaction_comes_in_parts(outbox: Database) -> None:
    start = outbox.position()
    outbox.insert("before")
    outbox.insert(*[f"e{i}" for i in range(2500)], payload='{"k": "' + "x" * 100 + '"}')
    outbox.insert("after")
    with Tail(outbox, start, chunk_events=1000) as tail:
        tail.wait_for_events(2502)
    assert tail.event_ids == ["before", *[f"e{i}" for i in range(2500)], "after"]
    parts = [t for t in tail.transactions if t.events]
    assert [t.end is None for t in parts] == [False, True, True, False, False]
    # What a later statement of the same transaction does to the rows of a part is not known yet.
    assert [all(event.incomplete for event in t.events) for t in parts] == [False, True, True, False, False]
    if outbox.has_gtids:
        assert [len(t.gtids) for t in parts] == [1, 0, 0, 1, 1]


def test_a_transaction_of_large_rows_comes_in_parts(outbox: Database) -> None:
    start = outbox.position()
    outbox.insert(*[f"e{i}" for i in range(8)], payload='"' + "x" * 100_000 + '"')
    with Tail(outbox, start, chunk_bytes=250_000) as tail:
        tail.wait_for_events(8)
    assert [len(t.events) for t in tail.transactions if t.events] == [3, 3, 2]


def prepare(outbox: Database, xid: str, *event_ids: str, compressed: bool = False) -> None:
    """xid as it stands in SQL. Prepared by a session of its own, which ends: as after a crash of the application."""
    values = ", ".join(f"('{event_id}', 'order', 'o1', 'Created', '[]')" for event_id in event_ids)
    with outbox.connect(database=outbox.name) as connection, connection.cursor() as cursor:
        if compressed:
            cursor.execute("SET SESSION binlog_transaction_compression = ON")
        cursor.execute(f"XA START {xid}")
        cursor.execute(
            f"INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES {values}"
        )
        cursor.execute(f"XA END {xid}")
        cursor.execute(f"XA PREPARE {xid}")


def end_prepared(outbox: Database, statement: str) -> None:
    """MariaDB lets go of it a moment after the session's end; until then it says that there is no such transaction."""

    def ended() -> bool:
        try:
            outbox.execute(statement)
        except pymysql.err.MySQLError as error:
            if error.args[0] != ER.XAER_NOTA:
                raise
            return False
        return True

    assert wait_until(ended, seconds=20)


@pytest.mark.parametrize("compressed", [False, True])
def test_xa(outbox: Database, compressed: bool) -> None:
    """What is prepared may yet be rolled back: it comes with its COMMIT, in the order of the commits."""
    if compressed:
        outbox.execute("SET SESSION binlog_transaction_compression = ON")
    start = outbox.position()
    prepare(outbox, "'x1'", "x1", compressed=compressed)
    end_prepared(outbox, "XA COMMIT 'x1'")
    prepare(outbox, "'x2'", "x2", compressed=compressed)
    end_prepared(outbox, "XA ROLLBACK 'x2'")
    outbox.execute("XA START 'x3'")
    outbox.insert("x3")
    outbox.execute("XA END 'x3'")
    outbox.execute("XA COMMIT 'x3' ONE PHASE")
    outbox.insert("last")
    now = outbox.position()
    with Tail(outbox, start) as tail:
        tail.wait_for_position(now)
    assert tail.event_ids == ["x1", "x3", "last"]
    assert not any(event.incomplete for event in tail.events)


def test_the_position_does_not_wait_for_prepared_transactions(outbox: Database) -> None:
    start = outbox.position()
    with Tail(outbox, start) as tail:
        prepare(outbox, r"'odd \" name', 'branch', 7", "a", "b")
        outbox.insert("other")
        tail.wait_for_position(outbox.position())
        assert tail.event_ids == ["other"]
        end_prepared(outbox, r"XA COMMIT 'odd \" name', 'branch', 7")
        tail.wait_for_events(3)
        tail.wait_for_position(outbox.position())
    assert tail.event_ids == ["other", "a", "b"]


def test_xa_prepared_before_the_start_is_left_to_the_sweep(outbox: Database) -> None:
    prepare(outbox, "'x'", "a")
    with Tail(outbox, outbox.position()) as tail:
        end_prepared(outbox, "XA COMMIT 'x'")
        outbox.insert("last")
        tail.wait(lambda: "last" in tail.event_ids)
    assert tail.event_ids == ["last"]


def test_rows_of_a_large_prepared_transaction_are_not_given_before_its_commit(outbox: Database) -> None:
    start = outbox.position()
    rows = [f"e{i}" for i in range(50)]
    for end in ("ROLLBACK", "COMMIT"):
        prepare(outbox, "'x1'", *rows)
        end_prepared(outbox, f"XA {end} 'x1'")
    outbox.insert("last")
    with Tail(outbox, start, chunk_events=10) as tail:
        tail.wait(lambda: "last" in tail.event_ids)
    assert tail.event_ids == [*rows, "last"]
    assert [t.end is None for t in tail.transactions if t.events] == [True] * 4 + [False] * 2


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE outbox_event",
        "truncate table `outbox_event`",
        "DROP TABLE IF EXISTS other, outbox_event",
        "RENAME TABLE outbox_event TO outbox_old, outbox_new TO outbox_event",
        "ALTER TABLE outbox_event ADD COLUMN tenant INT",
        "/* by the migration tool */ ALTER TABLE outbox_event ADD INDEX (status)",
        "CREATE INDEX more ON outbox_event (status)",
    ],
)
def test_a_change_of_our_table_is_a_barrier(outbox: Database, statement: str) -> None:
    outbox.execute("CREATE TABLE outbox_new LIKE outbox_event")
    seen = read(outbox, INSERT.format("a"), statement)
    barriers = [t for t in seen if t.barrier]
    if statement.startswith("CREATE INDEX"):
        assert not barriers  # rows stay what they are
        return
    (barrier,) = barriers
    assert barrier.barrier is not None and "outbox_event" in barrier.barrier and not barrier.events
    assert [bool(t.events) for t in seen if t.events or t.barrier] == [True, False]


def test_events_of_the_table_that_takes_the_place_of_ours(outbox: Database) -> None:
    """As gh-ost and pt-osc do: rows copied into the new table are not ours, rows after the swap are."""
    outbox.insert("a")
    seen = read(
        outbox,
        "CREATE TABLE _new LIKE outbox_event",
        "ALTER TABLE _new ADD COLUMN tenant INT FIRST",
        "INSERT INTO _new (id, event_id, aggregate_type, aggregate_id, event_type, payload) SELECT id, event_id,"
        " aggregate_type, aggregate_id, event_type, payload FROM outbox_event",
        "RENAME TABLE outbox_event TO _old, _new TO outbox_event",
        INSERT.format("b"),
    )
    assert [event.event_id for t in seen for event in t.events] == ["b"]


def test_statement_sessions_bring_no_events(outbox: Database) -> None:
    """Their rows are in no binlog event; the sweep finds them."""
    try:
        outbox.execute("SET SESSION binlog_format = 'STATEMENT'")
    except Exception as error:  # a server that has no such format any more
        pytest.skip(str(error))
    seen = read(outbox, INSERT.format("a"), "SET SESSION binlog_format = 'ROW'", INSERT.format("b"))
    assert [event.event_id for t in seen for event in t.events] == ["b"]


def test_create_table_select_of_our_table(outbox: Database) -> None:
    outbox.insert("a")
    outbox.execute("RENAME TABLE outbox_event TO _old")
    seen = read(outbox, "CREATE TABLE outbox_event SELECT * FROM _old", "UPDATE outbox_event SET status = 2")
    assert [event.event_id for t in seen for event in t.events] == ["a"]
