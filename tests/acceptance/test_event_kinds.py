"""Ways to write that bring more than a plain insert, through the whole relay: nothing lost, doubled or out of order."""

from __future__ import annotations

from tests.harness.judge import Judge
from tests.harness.world import World, wait_until


def prepare(world: World, xid: str, *event_ids: str, aggregate: str = "a1") -> None:
    """An XA transaction, prepared by a session that ends then."""
    with world.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"XA START '{xid}'")
        for event_id in event_ids:
            cursor.execute(
                "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
                " VALUES (%s, 'order', %s, 'OrderPlaced', '{}')",
                (event_id, aggregate),
            )
        cursor.execute(f"XA END '{xid}'")
        cursor.execute(f"XA PREPARE '{xid}'")


def test_xa_in_the_order_of_commits(world: World) -> None:
    relay = world.start()
    prepare(world, f"{world.name}-1", "x1", "x2")
    prepare(world, f"{world.name}-2", "never")
    world.insert("a1", event_id="e1")
    world.wait_sent("e1")
    world.execute(f"XA COMMIT '{world.name}-1'")
    world.insert("a1", event_id="e2")
    world.execute(f"XA ROLLBACK '{world.name}-2'")
    world.wait_sent("x1", "x2", "e2")
    Judge(world).check({"a1": ["e1", "x1", "x2", "e2"]})
    assert relay.stop() == 0


def test_compressed_transactions(world: World) -> None:
    world.start()
    world.execute("SET SESSION binlog_transaction_compression = ON")
    commits = []
    with world.sql() as cursor:
        for i in range(50):
            cursor.execute("BEGIN")
            commits += [world.insert("a1", payload='{"text": "' + "x" * 500 + '"}') for _ in range(4)]
            if i % 10 == 0:
                cursor.execute("UPDATE outbox_event SET event_type = 'Changed' WHERE event_id = %s", (commits[-1],))
            cursor.execute("COMMIT")
    world.wait_settled()
    Judge(world).check({"a1": commits})
    changed = [record for record in Judge(world).records() if record.headers["event_type"] == b"Changed"]
    assert len(changed) == 5


def test_a_large_compressed_transaction(world: World) -> None:
    """Larger than all that may be in flight."""
    world.start(limits={"max_in_flight": 1000, "batch": 500})
    world.execute("SET SESSION binlog_transaction_compression = ON")
    names = [f"e{i:05d}" for i in range(6000)]
    with world.sql() as cursor:
        cursor.execute("BEGIN")
        cursor.executemany(
            "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
            " VALUES (%s, 'order', 'a1', 'OrderPlaced', '{}')",
            [(name,) for name in names],
        )
        cursor.execute("COMMIT")
    wait_until(lambda: world.statuses()[names[-1]] == 2, "the last row sent")
    world.wait_settled()
    Judge(world).check({"a1": names})


ROW = "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, status) VALUES "

WAYS = {
    "many in a statement": [ROW + "('m1', 'order', 'm', 'e', '1', 0), ('m2', 'order', 'm', 'e', '2', 0)"],
    "from a query": [
        "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
        " SELECT CONCAT('q', n), 'order', 'q', 'e', CONCAT('[', n, ']') FROM (SELECT 1 n UNION SELECT 2) s ORDER BY n"
    ],
    "replaced by its id": [
        "REPLACE INTO outbox_event (id, event_id, aggregate_type, aggregate_id, event_type, payload)"
        " SELECT id, 'r1', 'order', 'r', 'e', '[1]' FROM outbox_event WHERE event_id = 'old-1'"
    ],
    "replaced by its event_id": [
        "REPLACE INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
        " VALUES ('old-2', 'order', 's', 'e', '[2]')"
    ],
    "on duplicate key": [
        ROW + "('d1', 'order', 'd', 'e', '1', 0), ('old-3', 'order', 'd', 'e', '2', 0)"
        " ON DUPLICATE KEY UPDATE event_type = 'Again'"
    ],
    "ignored": ["INSERT IGNORE " + ROW[7:] + "('old-3', 'order', 'i', 'e', '1', 0), ('i1', 'order', 'i', 'e', '1', 0)"],
    "behind a savepoint": [
        "BEGIN",
        ROW + "('p1', 'order', 'p', 'e', '1', 0)",
        "SAVEPOINT s",
        ROW + "('never', 'order', 'p', 'e', '1', 0)",
        "ROLLBACK TO s",
        ROW + "('p2', 'order', 'p', 'e', '2', 0)",
        "COMMIT",
    ],
    "in a small image": [
        "SET SESSION binlog_row_image = 'MINIMAL'",
        "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
        " VALUES ('n1', 'order', 'n', 'e', '{}')",
        "SET SESSION binlog_row_image = 'NOBLOB'",
        ROW + "('n2', 'order', 'n', 'e', '{}', 0)",
        "SET SESSION binlog_row_image = 'FULL'",
    ],
    "changed in part": [
        "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'",
        "BEGIN",
        ROW + "('j1', 'order', 'j', 'e', '{\"k\": \"long enough\"}', 0)",
        "UPDATE outbox_event SET payload = JSON_SET(payload, '$.k', 'short') WHERE event_id = 'j1'",
        "COMMIT",
        "SET SESSION binlog_row_value_options = ''",
    ],
    "as a statement": [
        "SET SESSION binlog_format = 'STATEMENT'",
        ROW + "('f1', 'order', 'f', 'e', '1', 0)",
        "SET SESSION binlog_format = 'ROW'",
    ],
    "out of the binlog": [
        "SET SESSION sql_log_bin = 0",
        ROW + "('b1', 'order', 'b', 'e', '1', 0)",
        "SET SESSION sql_log_bin = 1",
    ],
}


def test_in_whatever_way_a_row_comes_it_is_sent(world: World) -> None:
    old = [world.insert("old", event_id=f"old-{number}") for number in (1, 2, 3)]
    prepare(world, world.name, "x1", "x2", aggregate="x")  # before the relay reads
    world.start()
    world.wait_sent(*old)
    world.execute(f"XA COMMIT '{world.name}'")
    for statements in WAYS.values():
        for statement in statements:
            world.execute(statement)
    expected = ["m1", "m2", "q1", "q2", "r1", "d1", "i1", "p1", "p2", "n1", "n2", "j1", "f1", "b1", "x1", "x2"]
    world.wait_sent(*expected, "old-2")
    seen = {record.event_id: record for record in Judge(world).records()}
    assert set(seen) == {*old, *expected}
    table = dict(world.execute("SELECT event_id, CAST(payload AS CHAR) FROM outbox_event"))
    for event_id in (*expected, "old-2"):
        assert seen[event_id].value == table[event_id].encode(), event_id
    published = [record.event_id for record in Judge(world).records()]
    assert sorted(published) == sorted([*old, *expected, "old-2"]), "old-2 was replaced, and so sent anew"
