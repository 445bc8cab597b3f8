"""Transactions, rows and files of sizes that need care: constant memory, packets of 16 MiB, offsets of 32 bits."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from cdc_outbox.model import Event
from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.integration import binlog_tail
from tests.integration.binlog_tail import Database, Tail, database_on, peak_memory

MIB = 1 << 20
GIB = 1 << 30


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server[MySQLEndpoint]]:
    """It takes statements and rows of up to 1 GiB."""
    options = {"max_allowed_packet": GIB, "innodb_redo_log_capacity": GIB}
    server = providers.make_mysql(options, lambda text: print(text, file=sys.stderr))
    yield server
    server.remove()


@pytest.fixture
def outbox(own_server: Server[MySQLEndpoint]) -> Iterator[Database]:
    with database_on(own_server.endpoint) as opened:
        yield opened


def insert_many(outbox: Database, rows: int) -> None:
    """One transaction; event ids e1, e2 …"""
    outbox.execute(f"SET SESSION cte_max_recursion_depth = {rows}")
    outbox.execute(
        "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
        f" WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows})"
        """ SELECT CONCAT('e', n), 'order', CONCAT('o', n), 'Created', '{"key": "some value"}' FROM s"""
    )


@pytest.mark.parametrize("rows", [50_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_memory_while_many_rows_are_read(outbox: Database, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binlog_tail, "DEADLINE", 300.0)
    start = outbox.position()
    insert_many(outbox, rows)
    outbox.insert("last")
    seen = 0

    def see(event: Event) -> None:
        nonlocal seen
        seen += 1
        assert event.event_id == (f"e{seen}" if seen <= rows else "last")

    peak = peak_memory(outbox, start, see)
    assert seen == rows + 1
    assert peak < 24 * MIB


def test_rows_beyond_a_packet(outbox: Database) -> None:
    """A packet carries 16 MiB less a byte: its first byte, and the event. An empty one follows a full one."""
    fills_a_packet = 0xFFFFFF - 1
    start = outbox.position()
    fills_it = fills_a_packet - _beside_the_text(outbox)
    lengths = [*range(fills_it - 2, fills_it + 3), 64 * MIB]
    for number, length in enumerate(lengths):
        _insert_text(outbox, f"{number:06}", length)
    written = outbox.execute(f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.offset}")
    assert fills_a_packet in [end - at for _, at, kind, _, end, _ in written if kind == "Write_rows"]
    with Tail(outbox, start) as tail:
        tail.wait_for_events(1 + len(lengths))
    assert [len(event.payload or b"") - 2 for event in tail.events[1:]] == lengths


def _beside_the_text(outbox: Database) -> int:
    """Bytes of an event with one row, without the text that it inserts."""
    start = outbox.position()
    _insert_text(outbox, "probe0", 3 * MIB)
    rows = outbox.execute(f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.offset}")
    outbox.execute("DELETE FROM outbox_event")
    (size,) = [end - at for _, at, kind, _, end, _ in rows if kind == "Write_rows"]
    return int(size) - 3 * MIB


def _insert_text(outbox: Database, event_id: str, length: int) -> None:
    outbox.execute(
        "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
        f""" VALUES ('{event_id}', 'order', 'o1', 'Created', CONCAT('"', REPEAT('x', {length}), '"'))"""
    )


@pytest.mark.long
def test_a_transaction_beyond_4_gib(outbox: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions in events have 32 bits. It needs 10 GB of disk."""
    monkeypatch.setattr(binlog_tail, "DEADLINE", 600.0)
    outbox.execute("CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, n INT, text LONGTEXT)")
    outbox.execute("SET SESSION binlog_row_image = 'FULL'")
    for _ in range(16):
        outbox.execute(f"INSERT INTO other (n, text) VALUES (0, REPEAT('x', {16 * MIB}))")
    start = outbox.position()
    with Tail(outbox, start) as tail:
        outbox.insert("before")
        outbox.connection.begin()
        for i in range(9):
            outbox.insert(f"e{i}")
            outbox.execute("UPDATE other SET n = n + 1")  # the text stands twice in the binlog, and nowhere else
        outbox.connection.commit()
        outbox.insert("after")
        tail.wait(lambda: "after" in tail.event_ids)
        tail.wait_for_position(outbox.position())
        assert tail.connects == 1
    assert tail.event_ids == ["before", *[f"e{i}" for i in range(9)], "after"]
    (large,) = [t for t in tail.transactions if any(event.event_id == "e8" for event in t.events)]
    sizes = {row[0]: row[1] for row in outbox.execute("SHOW BINARY LOGS")}
    assert large.end is not None and large.end[1] > 4 * GIB
    assert 0 <= sizes[large.end[0]] - large.end[1] < 100  # a ROTATE follows
    with Tail(outbox, start) as again:
        again.wait(lambda: "after" in again.event_ids)
    assert again.event_ids == tail.event_ids
