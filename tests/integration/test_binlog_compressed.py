"""Compressed transactions of a real server: all rows, in parts where they are many, in bounded memory."""

from __future__ import annotations

import pytest

from cdc_outbox.model import Event, Transaction
from tests.integration.binlog_tail import Database, Tail, peak_memory

MIB = 1 << 20


@pytest.fixture
def outbox(outbox: Database) -> Database:
    """Its session compresses what it commits."""
    outbox.execute("SET SESSION binlog_transaction_compression = ON")
    return outbox


def kinds(outbox: Database, file: str, offset: int) -> list[str]:
    """What the server says it wrote from there on."""
    return [kind for _, _, kind, *_ in outbox.execute(f"SHOW BINLOG EVENTS IN '{file}' FROM {offset} LIMIT 1000")]


@pytest.mark.parametrize("gtid", [False, True])
def test_compressed_and_plain_transactions(outbox: Database, gtid: bool) -> None:
    beginning = outbox.position()
    start = outbox.gtid_position() if gtid else beginning
    outbox.insert("a", "b", payload='{"k": "' + "x" * 2000 + '"}')
    outbox.execute("SET SESSION binlog_transaction_compression = OFF")
    outbox.insert("c")
    outbox.execute("SET SESSION binlog_transaction_compression = ON")
    outbox.connection.begin()
    outbox.insert("d", payload='["' + "é" * 2000 + '"]')
    outbox.insert("e", payload='["' + "é" * 2000 + '"]')
    outbox.execute("UPDATE outbox_event SET event_type = 'Changed' WHERE event_id = 'e'")
    outbox.connection.commit()
    with Tail(outbox, start) as tail:
        tail.wait_for_events(5)
        tail.wait_for_position(outbox.gtid_position() if gtid else outbox.position())
    assert kinds(outbox, beginning.file, beginning.offset).count("Transaction_payload") == 2
    assert tail.event_ids == ["a", "b", "c", "d", "e"]
    assert tail.events[3].payload == ('["' + "é" * 2000 + '"]').encode()
    assert [event.incomplete for event in tail.events] == [False] * 3 + [True] * 2
    assert all(event.committed_at for event in tail.events)


def test_positions_between_compressed_transactions(outbox: Database) -> None:
    """Each one's end is a place to begin from."""
    start = outbox.position()
    for name in "abc":
        outbox.insert(name, payload='["' + "x" * 2000 + '"]')
    with Tail(outbox, start) as tail:
        tail.wait_for_events(3)
        ends = [t.end for t in tail.transactions if t.events]
    for index, end in enumerate(ends[:2]):
        assert end is not None
        with Tail(outbox, type(start)(*end)) as again:
            again.wait(lambda again=again: "c" in again.event_ids)
        assert again.event_ids == ["b", "c"][index:]


def test_a_large_one_comes_in_parts_and_nothing_twice(outbox: Database) -> None:
    """Also when the connection is lost while it is read."""
    rows = [f"e{i}" for i in range(3000)]
    start = outbox.position()
    outbox.insert(*rows, payload='{"k": "' + "x" * 100 + '"}')
    outbox.insert("last")
    killed: list[int] = []
    with Tail(outbox, start, chunk_events=500) as tail:
        taken = tail.reader._sink

        def cut(transactions: list[Transaction]) -> None:
            taken(transactions)
            if not killed and transactions[-1].end is None:
                killed.append(len(tail.events))
                tail.reader.close_dump()

        tail.reader._sink = cut
        tail.wait(lambda: "last" in tail.event_ids)
    assert killed and killed[0] < 1000
    assert tail.event_ids == [*rows, "last"]
    parts = [t for t in tail.transactions if t.events]
    assert [t.end is None for t in parts] == [True] * (len(parts) - 2) + [False] * 2


@pytest.mark.parametrize("mib", [200, pytest.param(3000, marks=pytest.mark.long)])
def test_memory_while_a_large_one_is_read(outbox: Database, mib: int) -> None:
    """Half of it rows of another table, half of ours; together they are a small event."""
    outbox.execute("CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, text LONGTEXT)")
    start = outbox.position()
    outbox.connection.begin()
    for i in range(mib // 2):
        outbox.execute(f"INSERT INTO other (text) VALUES (REPEAT('x', {MIB}))")
        outbox.execute(
            "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
            f" VALUES ('e{i}', 'order', 'o1', 'Created', CONCAT('\"', REPEAT('x', {MIB}), '\"'))"
        )
    outbox.connection.commit()
    assert outbox.position().offset - start.offset < mib * MIB // 50
    seen: list[str] = []

    def see(event: Event) -> None:
        assert len(event.payload or b"") == MIB + 2
        seen.append(event.event_id)

    peak = peak_memory(outbox, start, see, chunk_bytes=4 * MIB)
    assert seen == [f"e{i}" for i in range(mib // 2)]
    assert peak < 32 * MIB
