"""What counts as traffic that makes a checkpoint worth writing (P8): other tables', never a relay's own writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cdc_outbox.binlog.reader import BinlogReader
from cdc_outbox.config import load_settings
from cdc_outbox.model import TableName, Transaction
from cdc_outbox.mysql.checkpoint import server_position
from cdc_outbox.mysql.session import Session, connect
from tests.harness.world import World, wait_until

if TYPE_CHECKING:
    from tests.conftest import MakeMySQL


def traffic_of(world: World, *statements: str) -> int:
    """Bytes of traffic that a reader counts for these statements."""
    settings = load_settings(world.config(), {})
    session = Session(settings.mysql, lifetime=60)
    start = server_position(session)
    row = session.row("SELECT @@server_uuid")
    assert row is not None
    for statement in statements:
        world.execute(statement)
    end = server_position(session)
    session.close()
    seen: list[Transaction] = []
    reader = BinlogReader(
        lambda: connect(settings.mysql, read_timeout=20),
        [TableName(world.database, "outbox_event")],
        start,
        seen.extend,
        server_id=4_100_000_001,
        server_uuid=row[0],
    )
    thread = threading.Thread(target=reader.run)
    thread.start()
    try:
        wait_until(lambda: reader.position.reached(end), "the reader at the server's position")
    finally:
        reader.request_stop()
        thread.join(20)
    assert not thread.is_alive()
    return sum(transaction.traffic for transaction in seen)


@pytest.fixture
def world(make_world: Callable[..., World], make_mysql: MakeMySQL) -> World:
    """On a server of its own: what other tests write is traffic as well."""
    return make_world(mysql=make_mysql().endpoint)


def test_status_changes_and_any_relays_checkpoint_are_no_traffic(world: World) -> None:
    world.insert("a1")
    world.execute("INSERT INTO cdc_outbox_checkpoint (name, epoch, updated_at) VALUES ('another', 1, NOW(6))")
    assert (
        traffic_of(
            world,
            "UPDATE outbox_event SET status = 2",
            "UPDATE cdc_outbox_checkpoint SET updated_at = NOW(6)",
            "DELETE FROM outbox_event",
        )
        == 0
    )


def test_another_tables_rows_are_traffic(world: World) -> None:
    world.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
    assert traffic_of(world, "INSERT INTO orders VALUES (1)") > 0
