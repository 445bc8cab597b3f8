"""Inserted rows, in every way that MySQL inserts them, come out of the binlog as they are in the table."""

from __future__ import annotations

import pytest

from cdc_outbox.errors import BinlogUnreadable
from cdc_outbox.model import TableName
from tests.integration.binlog_tail import TABLE, Database, Tail

pytestmark = pytest.mark.usefixtures("both_decoders")


def test_a_row_becomes_an_event(outbox: Database) -> None:
    start = outbox.position()
    outbox.execute(
        "INSERT INTO outbox_event (id, event_id, aggregate_type, aggregate_id, event_type, payload, max_retries)"
        """ VALUES (7, 'é-1', 'order', '订单', 'Created 😀', '{"b": 1, "a": ["x"]}', 5)"""
    )
    with Tail(outbox, start) as tail:
        (event,) = tail.wait_for_events(1)
    assert (event.table, event.id, event.event_id) == (outbox.outbox, 7, "é-1")
    assert (event.aggregate_type, event.aggregate_id, event.event_type) == ("order", "订单", "Created 😀")
    assert event.payload == b'{"a": ["x"], "b": 1}'
    assert (event.status, event.retry_count, event.max_retries, event.parked) == (0, 0, 5, False)
    assert event.columns is None and not event.incomplete
    now = outbox.one("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)")
    assert event.committed_at is not None and now - 60_000 < event.committed_at <= now + 1000


def test_every_row_of_a_statement_and_of_a_transaction_arrives_in_order(outbox: Database) -> None:
    start = outbox.position()
    outbox.insert("a", "b", "c")
    outbox.connection.begin()
    outbox.insert("d")
    outbox.insert("e", "f")
    outbox.connection.commit()
    with Tail(outbox, start) as tail:
        tail.wait_for_events(6)
    assert tail.event_ids == ["a", "b", "c", "d", "e", "f"]
    assert [len(t.events) for t in tail.transactions if t.events] == [3, 3]


def test_insert_select(outbox: Database) -> None:
    outbox.insert("a", "b", payload='{"k": "v"}')
    start = outbox.position()
    outbox.execute(
        "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
        " SELECT CONCAT(event_id, '2'), aggregate_type, aggregate_id, event_type, payload FROM outbox_event ORDER BY id"
    )
    with Tail(outbox, start) as tail:
        tail.wait_for_events(2)
    assert tail.event_ids == ["a2", "b2"]
    assert {event.payload for event in tail.events} == {b'{"k": "v"}'}


def test_replace_of_an_id_is_a_new_event(outbox: Database) -> None:
    outbox.insert("old")
    id = outbox.one("SELECT id FROM outbox_event")
    start = outbox.position()
    outbox.execute(
        "REPLACE INTO outbox_event (id, event_id, aggregate_type, aggregate_id, event_type, payload)"
        " VALUES (%s, 'new', 'order', 'o1', 'Created', '[1]')",
        (id,),
    )
    outbox.insert("after")
    with Tail(outbox, start) as tail:
        tail.wait(lambda: "after" in tail.event_ids)
    # MySQL may log it as one update instead; then the row is pending and the sweep finds it.
    assert tail.event_ids in (["new", "after"], ["after"])
    assert not any(event.incomplete for event in tail.events)


def test_on_duplicate_key_gives_only_what_was_inserted(outbox: Database) -> None:
    outbox.insert("a")
    start = outbox.position()
    outbox.execute(
        "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
        " VALUES ('b', 'order', 'o1', 'Created', '1'), ('a', 'order', 'o1', 'Created', '2')"
        " ON DUPLICATE KEY UPDATE payload = '3'"
    )
    with Tail(outbox, start) as tail:
        tail.wait_for_events(1)
        outbox.insert("c")
        tail.wait_for_events(2)
    assert tail.event_ids == ["b", "c"]


def test_a_row_changed_in_its_own_transaction_is_to_be_read_from_the_table(outbox: Database) -> None:
    start = outbox.position()
    outbox.connection.begin()
    outbox.insert("a")
    outbox.execute("UPDATE outbox_event SET payload = '[2]' WHERE event_id = 'a'")
    outbox.insert("b")
    outbox.connection.commit()
    outbox.connection.begin()
    outbox.insert("c")
    outbox.execute("DELETE FROM outbox_event WHERE event_id = 'c'")
    outbox.connection.commit()
    outbox.execute("UPDATE outbox_event SET status = 2")
    outbox.insert("d")
    with Tail(outbox, start) as tail:
        tail.wait_for_events(4)
    assert [(event.event_id, event.incomplete) for event in tail.events] == [
        ("a", True),
        ("b", False),
        ("c", True),
        ("d", False),
    ]


def test_partial_json_updates_are_updates(outbox: Database) -> None:
    """Of a row inserted in the same transaction only the table has the final value; other updates say nothing new."""
    outbox.insert("before", payload='{"k": "long enough to be replaced in place"}')
    start = outbox.position()
    outbox.execute("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'")
    outbox.connection.begin()
    outbox.insert("a", payload='{"k": "long enough to be replaced in place"}')
    outbox.execute("UPDATE outbox_event SET payload = JSON_SET(payload, '$.k', 'short') WHERE event_id = 'a'")
    outbox.connection.commit()
    outbox.execute("UPDATE outbox_event SET payload = JSON_SET(payload, '$.k', 'x')")
    outbox.insert("b")
    written = [kind for _, _, kind, *_ in outbox.execute(f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.offset}")]
    with Tail(outbox, start) as tail:
        tail.wait_for_events(2)
        tail.wait_for_position(outbox.position())
    assert written.count("Update_rows_partial") == 2
    assert [(event.event_id, event.incomplete) for event in tail.events] == [("a", True), ("b", False)]


def test_rows_rolled_back_to_a_savepoint_are_gone(outbox: Database) -> None:
    start = outbox.position()
    outbox.connection.begin()
    outbox.insert("a")
    outbox.execute("SAVEPOINT s")
    outbox.insert("b")
    outbox.execute("ROLLBACK TO s")
    outbox.insert("c")
    outbox.connection.commit()
    outbox.connection.begin()
    outbox.insert("never")
    outbox.connection.rollback()
    outbox.insert("d")
    with Tail(outbox, start) as tail:
        tail.wait_for_events(3)
    assert tail.event_ids == ["a", "c", "d"]


def test_columns_may_come_go_and_move(outbox: Database) -> None:
    start = outbox.position()
    outbox.insert("a")
    outbox.execute("ALTER TABLE outbox_event ADD COLUMN first_of_all VARCHAR(500) NOT NULL DEFAULT 'x' FIRST")
    outbox.insert("b")
    outbox.execute("ALTER TABLE outbox_event MODIFY COLUMN payload JSON NOT NULL AFTER id, ADD tenant INT NULL")
    outbox.execute("UPDATE outbox_event SET tenant = 4")
    outbox.insert("c")
    outbox.execute("ALTER TABLE outbox_event DROP COLUMN first_of_all, ALTER COLUMN tenant SET DEFAULT 9")
    outbox.insert("d", payload='{"deep": [1]}')
    with Tail(outbox, start, extra_columns=["tenant"]) as tail:
        tail.wait_for_events(4)
    assert tail.event_ids == ["a", "b", "c", "d"]
    assert [event.payload for event in tail.events] == [b"{}", b"{}", b"{}", b'{"deep": [1]}']
    assert [event.event_type for event in tail.events] == ["Created"] * 4
    # Before the column existed its value can only be read from the table.
    assert [(event.incomplete, event.columns) for event in tail.events] == [
        (True, {"tenant": None}),
        (True, {"tenant": None}),
        (False, {"tenant": None}),
        (False, {"tenant": "9"}),
    ]


COLUMN_ZOO = """
  bits BIT(11), yes BOOL, tiny TINYINT UNSIGNED, small SMALLINT, medium MEDIUMINT, medium_u MEDIUMINT UNSIGNED,
  big BIGINT UNSIGNED, real4 FLOAT, real8 DOUBLE, money DECIMAL(20, 4), day DATE, clock TIME(3), clock0 TIME,
  stamp TIMESTAMP(6) NULL, stamp0 TIMESTAMP NULL, at0 DATETIME, at3 DATETIME(3), at6 DATETIME(6), at5 DATETIME(5),
  years YEAR, fixed CHAR(10), wide CHAR(250), raw BINARY(8), raws VARBINARY(300),
  latin VARCHAR(40) CHARACTER SET latin1,
  three VARCHAR(40) CHARACTER SET utf8mb3, plain VARCHAR(40) CHARACTER SET ascii, cyr VARCHAR(40) CHARACTER SET koi8r,
  tiny_text TINYTEXT, medium_text MEDIUMTEXT, long_text LONGTEXT, tiny_blob TINYBLOB, medium_blob MEDIUMBLOB,
  pick ENUM('a', 'b'), picks SET('x', 'y', 'z'), place GEOMETRY, point POINT, doc JSON,
  doubled INT AS (small * 2) STORED, doubled_virtual INT AS (small * 3) VIRTUAL, hidden INT DEFAULT 5 INVISIBLE
"""


def test_columns_of_all_types_are_read_or_stepped_over(outbox: Database) -> None:
    outbox.execute(TABLE.format(name="zoo").replace("payload JSON NOT NULL,", COLUMN_ZOO + ", payload JSON NOT NULL,"))
    has_vectors = outbox.one("SELECT VERSION() >= '9.0'")
    if has_vectors:
        outbox.execute("ALTER TABLE zoo ADD COLUMN arrow VECTOR(3) AFTER id")
    start = outbox.position()
    outbox.insert("nulls", payload='{"n": null}', table="zoo")
    outbox.execute(
        "INSERT INTO zoo SET event_id = 'full', aggregate_type = 't', aggregate_id = 'i', event_type = 'e',"
        " payload = '7', bits = b'10110', yes = 1, tiny = 255, small = -32768, medium = -8388608, medium_u = 16777215,"
        " big = 18446744073709551615, real4 = 1.5, real8 = 1e300, money = -1234.5678, day = '2026-11-30',"
        " clock = '-838:59:59.000', clock0 = '10:00:00', stamp = NOW(6), stamp0 = NOW(), at0 = '2026-11-30 12:34:56',"
        " at3 = '1000-01-01 00:00:00.007', at6 = '9999-12-31 23:59:59.999999', at5 = '2026-01-02 03:04:05.12345',"
        " years = 2026, fixed = 'fix', wide = REPEAT('é', 250), raw = x'006100', raws = REPEAT('r', 300),"
        " latin = 'naïve €', three = '漢字', plain = 'ascii', cyr = 'привет', tiny_text = 't',"
        " medium_text = REPEAT('m', 70000), long_text = 'l', tiny_blob = x'ff', medium_blob = x'fe', pick = 'b',"
        " picks = 'x,z', place = ST_GeomFromText('POINT(1 2)'), point = ST_GeomFromText('POINT(3 4)'),"
        """ doc = '{"z": 1.0}'"""
    )
    printable = "yes tiny small medium medium_u big at0 at3 at6 at5 fixed wide raw raws latin three plain cyr tiny_text"
    printable += " medium_text long_text doc doubled hidden status next_retry_at event_id"
    extra = printable.split()
    with Tail(outbox, start, tables=[TableName(outbox.name, "zoo")], extra_columns=extra) as tail:
        nulls, full = tail.wait_for_events(2)
    assert (nulls.payload, full.payload) == (b'{"n": null}', b"7")
    assert not nulls.incomplete and not full.incomplete
    texts = ", ".join(f"CAST(`{name}` AS CHAR)" for name in extra)
    for event in (nulls, full):
        expected = outbox.execute(f"SELECT {texts} FROM zoo WHERE event_id = %s", (event.event_id,))[0]
        assert event.columns == dict(zip(extra, expected, strict=True))


@pytest.mark.parametrize("column", ["bits", "real8", "money", "day", "clock", "stamp", "years", "pick"])
def test_what_cannot_be_printed_is_to_be_read_from_the_table(outbox: Database, column: str) -> None:
    outbox.execute(TABLE.format(name="zoo").replace("payload JSON NOT NULL,", COLUMN_ZOO + ", payload JSON NOT NULL,"))
    start = outbox.position()
    value = {"pick": "'a'", "day": "NOW()", "stamp": "NOW()", "years": "2026"}
    outbox.execute(
        "INSERT INTO zoo SET event_id = 'e', aggregate_type = 't', aggregate_id = 'i', event_type = 'e',"
        f" payload = '7', {column} = {value.get(column, '1')}"
    )
    with Tail(outbox, start, tables=[TableName(outbox.name, "zoo")], extra_columns=[column]) as tail:
        (event,) = tail.wait_for_events(1)
    assert event.incomplete and event.event_id == "e"


@pytest.mark.parametrize(
    ("id", "payload", "value"),
    [
        ("BIGINT UNSIGNED", "LONGTEXT", "'naïve 😀'"),
        ("BIGINT", "LONGBLOB", "x'00ff10'"),
        ("INT UNSIGNED", "TEXT CHARACTER SET latin1", "'naïve €'"),
        ("MEDIUMINT", "MEDIUMTEXT CHARACTER SET utf8mb3", "REPEAT('漢', 100000)"),
        ("INT", "VARCHAR(2000)", "'short'"),
        ("SMALLINT", "JSON", "NULL"),
        ("BIGINT", "LONGTEXT", "NULL"),
    ],
)
def test_payloads_and_ids_of_other_types(outbox: Database, id: str, payload: str, value: str) -> None:
    table = TABLE.format(name="other").replace("id BIGINT NOT NULL", f"id {id} NOT NULL")
    outbox.execute(table.replace("payload JSON NOT NULL", f"payload {payload} NULL"))
    highest = {"BIGINT UNSIGNED": 2**64 - 1, "INT UNSIGNED": 2**32 - 1, "MEDIUMINT": 2**23 - 1}.get(id, 2**15 - 1)
    start = outbox.position()
    outbox.execute(
        f"INSERT INTO other SET id = {highest}, event_id = 'e', aggregate_type = 't', aggregate_id = 'i',"
        f" event_type = 'x', payload = {value}"
    )
    with Tail(outbox, start, tables=[TableName(outbox.name, "other")]) as tail:
        (event,) = tail.wait_for_events(1)
    charset = "binary" if payload == "LONGBLOB" else "utf8mb4"
    expected = outbox.one(f"SELECT CAST(CONVERT(payload USING {charset}) AS BINARY) FROM other")
    assert (event.id, event.payload, event.incomplete) == (highest, expected, False)


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_smaller_row_images(outbox: Database, image: str) -> None:
    start = outbox.position()
    outbox.execute(f"SET SESSION binlog_row_image = '{image}'")
    outbox.insert("a", payload='{"a": 1}')
    outbox.execute(
        "INSERT INTO outbox_event VALUES (99, 'b', 't', 'i', 'e', '[]', 0, 0, 3, NULL, NOW(), NOW())",
    )
    with Tail(outbox, start) as tail:
        left_out, whole = tail.wait_for_events(2)
    # MINIMAL leaves out what the statement did not name: the status for one.
    assert left_out.event_id == "a" and left_out.payload == b'{"a": 1}'
    assert left_out.incomplete == (image == "MINIMAL")
    assert (whole.id, whole.event_id, whole.incomplete) == (99, "b", False)


def test_a_partitioned_table(outbox: Database) -> None:
    """Its events carry the partition in front of their rows."""
    table = TABLE.format(name="parted").replace(",\n  UNIQUE KEY uk_event_id (event_id)", "")
    outbox.execute(table + " PARTITION BY HASH (id) PARTITIONS 4")
    start = outbox.position()
    outbox.insert(*[f"e{i}" for i in range(20)], table="parted")
    with Tail(outbox, start, tables=[TableName(outbox.name, "parted")]) as tail:
        tail.wait_for_events(20)
    assert sorted(tail.event_ids) == sorted(f"e{i}" for i in range(20))


def test_rows_that_are_not_pending_are_given_as_they_are(outbox: Database) -> None:
    start = outbox.position()
    outbox.execute(
        "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, status, retry_count,"
        " next_retry_at) VALUES ('sent', 't', 'i', 'e', '1', 2, 0, NULL), ('failed', 't', 'i', 'e', '1', 3, 2, NOW()),"
        " ('delayed', 't', 'i', 'e', '1', 0, 0, NOW())"
    )
    with Tail(outbox, start) as tail:
        tail.wait_for_events(3)
    assert [(event.event_id, event.status, event.retry_count, event.parked) for event in tail.events] == [
        ("sent", 2, 0, False),
        ("failed", 3, 2, True),
        ("delayed", 0, 0, True),
    ]


def test_two_tables_in_one_transaction_keep_their_order(outbox: Database) -> None:
    outbox.execute(TABLE.format(name="second"))
    second = TableName(outbox.name, "second")
    start = outbox.position()
    outbox.connection.begin()
    outbox.insert("a")
    outbox.insert("b", table="second")
    outbox.execute("UPDATE second SET event_type = 'x'")
    outbox.insert("c")
    outbox.connection.commit()
    with Tail(outbox, start, tables=[outbox.outbox, second]) as tail:
        tail.wait_for_events(3)
    assert [(event.table.name, event.event_id, event.incomplete) for event in tail.events] == [
        ("outbox_event", "a", False),
        ("second", "b", True),
        ("outbox_event", "c", False),
    ]


def test_rows_of_64_kib_to_20_mib(outbox: Database) -> None:
    """Packets beyond one read, and beyond the 16 MiB that a packet may have."""
    start = outbox.position()
    sizes = [65_000, 70_000, 1_000_000, (16 << 20) - 300, 20 << 20]
    for size in sizes:
        outbox.execute(
            "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
            f" VALUES ('{size}', 't', 'i', 'e', CONCAT('\"', REPEAT('x', {size}), '\"'))"
        )
    with Tail(outbox, start) as tail:
        tail.wait_for_events(len(sizes))
    assert [len(event.payload or b"") - 2 for event in tail.events] == sizes


def test_a_table_that_is_no_outbox_stops_the_reader(outbox: Database) -> None:
    outbox.execute("CREATE TABLE wrong (id INT PRIMARY KEY, payload JSON)")
    start = outbox.position()
    outbox.execute("INSERT INTO wrong VALUES (1, '{}')")
    with Tail(outbox, start, tables=[TableName(outbox.name, "wrong")]) as tail:
        error = tail.wait_for_error()
    assert isinstance(error, BinlogUnreadable)
    assert "has no column `event_id`" in error.message and start.file in error.message
    assert error.hint and "checkpoint set" in error.hint
