"""Status changes on a real server: conditional, named by id and event_id, behind the fence (P4, P6)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from cdc_outbox.config import Settings
from cdc_outbox.errors import Fenced
from cdc_outbox.model import Event, Position, Status, TableName, Transaction
from cdc_outbox.mysql.checkpoint import Fence, raise_epoch, read_checkpoint
from cdc_outbox.mysql.outbox_table import OutboxTable
from cdc_outbox.mysql.queries import query
from cdc_outbox.mysql.session import LOCK_WAIT, Session
from cdc_outbox.ops.log import Alerts
from cdc_outbox.ops.metrics import Metrics
from cdc_outbox.relay.budget import Budget
from cdc_outbox.relay.in_flight import InFlight
from cdc_outbox.relay.intake import Intake
from cdc_outbox.relay.settler import Settler

if TYPE_CHECKING:
    from tests.harness.world import World


@pytest.fixture
def table(world: World) -> OutboxTable:
    return OutboxTable(TableName(world.database, "outbox_event"))


class AlwaysLeader:
    """A lease that does not end while a test runs."""

    def check(self) -> None: ...


def intake(settings: Settings, fence: Fence, table: OutboxTable, ledger: InFlight, *, check_until: Position) -> Intake:
    return Intake(
        lambda: Session(settings.mysql, lifetime=60),
        fence,
        {table.name: table},
        ledger,
        lease=AlwaysLeader(),  # type: ignore[arg-type]
        claim_rows=True,
        check_until=check_until,
        session_lifetime=60,
    )


def row_of(world: World, event_id: str) -> tuple[int, str]:
    return (int(world.row(event_id)["id"]), event_id)


@pytest.mark.parametrize("status", [2, 3])
def test_a_row_changes_only_from_what_is_expected(
    world: World, session: Session, table: OutboxTable, status: int
) -> None:
    row = row_of(world, world.insert("a1", status=status))
    with session.transaction():
        assert table.mark_sent(session, [row]) == 0
        assert table.mark_sending(session, [row]) == 0
        assert table.mark_failed(session, [row], 10, "why") == 0
        assert table.mark_dead(session, [row], "why") == 0
        assert table.park(session, [row]) == 0
        assert table.put_back(session, [row]) == 0
    assert world.row(row[1])["status"] == status


def test_a_row_is_named_by_id_and_event_id(world: World, session: Session, table: OutboxTable) -> None:
    """After a TRUNCATE or a restore the id belongs to another event."""
    row = row_of(world, world.insert("a1"))
    with session.transaction():
        assert table.mark_sent(session, [(row[0], "an-older-event")]) == 0
    assert world.row(row[1])["status"] == 0


def test_matched_rows_are_counted_not_changed_ones(world: World, session: Session, table: OutboxTable) -> None:
    rows = [row_of(world, world.insert("a1")) for _ in range(3)]
    with session.transaction():
        assert table.mark_sending(session, rows) == 3
        assert table.mark_sending(session, rows) == 0
        assert table.mark_sent(session, rows) == 3
        assert session.execute("UPDATE outbox_event SET status = 2") == 3, "they say so already"


def test_a_session_ends_soon_and_writes_small_images(settings: Settings) -> None:
    """A frozen leader's locks must not outlive its lead; each status change would carry the payload otherwise."""
    session = Session(settings.mysql, lifetime=7)
    assert session.row("SELECT @@session.wait_timeout, @@session.binlog_row_image") == (7, "MINIMAL")
    session.close()


def test_retry_fields_are_written_by_the_databases_clock(world: World, session: Session, table: OutboxTable) -> None:
    row = row_of(world, world.insert("a1", retry_count=1))
    with session.transaction():
        table.mark_failed(session, [row], 600, "why")
    found = world.row(row[1])
    assert (found["status"], found["retry_count"]) == (3, 2)
    (seconds,) = world.execute("SELECT TIMESTAMPDIFF(SECOND, NOW(), next_retry_at) FROM outbox_event")[0]
    assert 590 <= seconds <= 600


def test_a_deposed_relay_writes_nothing(world: World, settings: Settings, session: Session, table: OutboxTable) -> None:
    """The epoch was raised by a successor: neither a claim nor a settle of the old one gets through."""
    row = row_of(world, world.insert("a1"))
    old = raise_epoch(session, settings.name, "the-old-one")
    raise_epoch(session, settings.name, "the-new-one")
    with pytest.raises(Fenced), session.transaction():
        old.check(session)
        table.mark_sending(session, [row])
    with pytest.raises(Fenced), session.transaction():
        old.advance(session, Position("binlog.000001", 4))
        table.mark_sent(session, [row])
    assert world.row(row[1])["status"] == 0
    checkpoint = read_checkpoint(session, settings.name)
    assert checkpoint is not None
    assert checkpoint.position is None
    assert checkpoint.owner == "the-new-one"


def test_a_fence_is_not_matched_by_its_number_alone(world: World, settings: Settings, session: Session) -> None:
    """The row was deleted, epochs began again: the woken relay's 1 must not match the new 1."""
    old = raise_epoch(session, settings.name, "the-old-one")
    world.execute("DELETE FROM cdc_outbox_checkpoint")
    new = raise_epoch(session, settings.name, "the-new-one")
    assert (old.epoch, new.epoch) == (1, 1)
    with pytest.raises(Fenced), session.transaction():
        old.check(session)


def test_status_changes_use_the_primary_key_whatever_their_number(
    world: World, session: Session, table: OutboxTable
) -> None:
    """With as many ids as rows of a status the optimizer prefers idx_status_next_retry, and locks the writers out."""
    with world.sql() as cursor:
        cursor.executemany(
            "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
            " VALUES (%s, 'order', 'a1', 'OrderPlaced', '{}')",
            [(f"e{n}",) for n in range(6000)],
        )
    rows = list(session.query("SELECT id, event_id FROM outbox_event ORDER BY id LIMIT 5000"))
    named = ",".join(f"({id},'{event_id}')" for id, event_id in rows)
    for name in STATUS_CHANGES:
        statement = query(name, table=table.name.quoted, rows=named, seconds=1, last_error="")
        (plan,) = session.query(f"EXPLAIN FORMAT=TRADITIONAL {statement}")
        key, scanned = plan[6], plan[9]
        assert (key, scanned) == ("PRIMARY", 5000), name


STATUS_CHANGES = [
    "mark_sent",
    "mark_sending",
    "mark_failed",
    "mark_dead",
    "park",
    "put_back",
    "claim_due",
    "release_abandoned",
]


def test_a_claim_that_comes_short_takes_exactly_what_is_pending(
    world: World, settings: Settings, session: Session, table: OutboxTable
) -> None:
    """Gone and sent rows are skipped; behind another worker's row the aggregate is blocked and nothing claimed."""
    fence = raise_epoch(session, settings.name, "me")
    ids = [world.insert(aggregate) for aggregate in ("gone", "sent", "taken", "taken", "free")]
    events = [
        Event(table.name, world.row(one)["id"], one, "order", one.split("-")[0], "OrderPlaced", b"{}") for one in ids
    ]
    world.execute("DELETE FROM outbox_event WHERE event_id = %s", ids[0])
    world.execute("UPDATE outbox_event SET status = 2 WHERE event_id = %s", ids[1])
    world.execute("UPDATE outbox_event SET status = 1 WHERE event_id = %s", ids[2])
    ledger = InFlight(Position())
    envelopes = ledger.admit([Transaction(events, ("binlog.000001", 100))])
    found = intake(settings, fence, table, ledger, check_until=Position("binlog.000001", 4))
    try:
        go, dropped = found.claim(envelopes)
    finally:
        found.close()
    assert [e.event.event_id for e in dropped] == ids[:3]
    assert [(e.event.event_id, e.sending) for e in go] == [(ids[3], False), (ids[4], True)]
    assert ledger.blocks(events[3]) is not None
    assert world.statuses() == {ids[1]: 2, ids[2]: 1, ids[3]: 0, ids[4]: 1}


def test_a_row_that_the_binlog_shows_before_its_commit_is_waited_for(
    world: World, settings: Settings, table: OutboxTable
) -> None:
    """As under semi-synchronous replication; the replica may take longer than a lock wait lasts."""
    fence = Fence(settings.name, 1, "me")
    connection = world.connect(autocommit=False)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
            " VALUES ('shown', 'order', 'a1', 'OrderPlaced', '{}')"
        )
        row_id = cursor.lastrowid
    ledger = InFlight(Position("binlog.000001", 4))
    shown = ledger.admit(
        [Transaction([Event(table.name, row_id, "shown", "order", "a1", "OrderPlaced", b"{}")], ("binlog.000001", 100))]
    )
    found = intake(settings, fence, table, ledger, check_until=Position("binlog.000001", 200))
    committing = threading.Timer(LOCK_WAIT + 0.5, connection.commit)
    committing.start()
    try:
        go, dropped = found.sift(shown)
    finally:
        committing.join()
        found.close()
        connection.close()
    assert (go, dropped) == (shown, [])


def settler(settings: Settings, fence: Fence, table: OutboxTable, ledger: InFlight, alerts: Alerts) -> Settler:
    return Settler(
        session=Session(settings.mysql, lifetime=60),
        fence=fence,
        tables={table.name: table},
        ledger=ledger,
        budget=Budget(1000, 1 << 20),
        lease=AlwaysLeader(),  # type: ignore[arg-type]
        metrics=Metrics(settings.name),
        alerts=alerts,
        batch=100,
        ping_every=10,
        on_failure=lambda error: None,
    )


def test_a_count_that_comes_short_is_looked_into(
    world: World, settings: Settings, session: Session, table: OutboxTable
) -> None:
    """Rows that a person changed or deleted while in flight stay as they are, and somebody is told."""
    fence = raise_epoch(session, settings.name, "me")
    ids = [world.insert("a1") for _ in range(3)]
    events = [Event(table.name, world.row(one)["id"], one, "order", "a1", "OrderPlaced", b"{}") for one in ids]
    ledger = InFlight(Position())
    envelopes = ledger.queue(events, lambda _: True)
    ledger.hand(envelopes, now=0)
    ledger.acknowledge(envelopes)
    world.execute("UPDATE outbox_event SET status = 3, next_retry_at = NULL WHERE event_id = %s", ids[0])
    world.execute("DELETE FROM outbox_event WHERE event_id = %s", ids[1])
    told: list[str] = []
    found = settler(settings, fence, table, ledger, Alerts(told.append))
    try:
        found.settle_once()
    finally:
        found._close()
    assert world.statuses() == {ids[0]: Status.FAILED, ids[2]: Status.SENT}
    assert told == ["row_changed"]
    assert ledger.idle()
