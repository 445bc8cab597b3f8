"""Servers set up differently: checksums off, minimal metadata, GTIDs off or tagged, purged and rotated binlogs."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from cdc_outbox.errors import BinlogLost, BinlogUnreadable
from cdc_outbox.gtid import GtidSet
from cdc_outbox.model import Position, Transaction
from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.integration.binlog_tail import Database, Tail, database_on, setting


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server[MySQLEndpoint]]:
    """A server whose global settings these tests may change; nobody else writes to it."""
    server = providers.make_mysql({"local_infile": "ON"}, lambda text: print(text, file=sys.stderr))
    yield server
    server.remove()


@pytest.fixture
def outbox(own_server: Server[MySQLEndpoint]) -> Iterator[Database]:
    with database_on(own_server.endpoint) as opened:
        yield opened


def column_names(outbox: Database) -> list[str]:
    """Looked up over a connection of its own: the reader's thread asks, while the test uses the database's."""
    with outbox.connect() as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = 'outbox_event'"
            " ORDER BY ordinal_position",
            (outbox.name,),
        )
        return [name for (name,) in cursor.fetchall()]


def read(outbox: Database, *statements: str) -> list[Transaction]:
    """All transactions of the server while these statements ran."""
    start = outbox.position()
    with Tail(outbox, start) as tail:
        for statement in statements:
            outbox.execute(statement)
        tail.wait_for_position(outbox.position())
    return tail.transactions


@pytest.mark.parametrize("gtid", [False, True])
def test_checksums_may_be_off_and_change(outbox: Database, gtid: bool) -> None:
    start = outbox.gtid_position() if gtid else outbox.position()
    outbox.insert("a")
    with setting(outbox, "binlog_checksum", "'NONE'"), Tail(outbox, start) as tail:
        outbox.insert("b")
        tail.wait_for_events(2)
        outbox.insert("c")
        tail.wait_for_events(3)
        with Tail(outbox, outbox.position()) as begun_without:
            outbox.insert("d")
            begun_without.wait_for_events(1)
        outbox.execute("SET GLOBAL binlog_checksum = 'CRC32'")
        outbox.insert("e")
        tail.wait_for_events(5)
    assert tail.event_ids == ["a", "b", "c", "d", "e"]
    assert begun_without.event_ids == ["d"]


def test_minimal_metadata_takes_the_names_from_the_server(outbox: Database) -> None:
    with setting(outbox, "binlog_row_metadata", "'MINIMAL'"):
        start = outbox.position()
        outbox.insert("a", payload='["é"]')
        asked = []

        def describe(table: object) -> list[str]:
            asked.append(table)
            return column_names(outbox)

        with Tail(outbox, start, describe=describe) as tail:
            tail.wait_for_events(1)
            outbox.execute("UPDATE outbox_event SET status = 2")
            outbox.insert("b")
            tail.wait_for_events(2)
            assert asked == [outbox.outbox]
            # The same types under other names: what was looked up is not used again.
            outbox.execute(
                "ALTER TABLE outbox_event RENAME COLUMN aggregate_id TO t, RENAME COLUMN aggregate_type TO aggregate_id"
            )
            outbox.execute("ALTER TABLE outbox_event RENAME COLUMN t TO aggregate_type")
            outbox.insert("c")
            tail.wait_for_events(3)
    assert [(event.event_id, event.aggregate_type, event.aggregate_id) for event in tail.events] == [
        ("a", "order", "o1"),
        ("b", "order", "o1"),
        ("c", "order", "o1"),
    ]
    assert tail.events[0].payload == '["é"]'.encode()


@pytest.mark.parametrize("names", [None, ["id", "event_id"]])
def test_minimal_metadata_that_does_not_fit_is_refused(outbox: Database, names: list[str] | None) -> None:
    with setting(outbox, "binlog_row_metadata", "'MINIMAL'"):
        start = outbox.position()
        outbox.insert("a")
        with Tail(outbox, start, describe=names and (lambda table: names)) as tail:
            error = tail.wait_for_error()
    assert isinstance(error, BinlogUnreadable) and "SET GLOBAL binlog_row_metadata = FULL" in error.message


def test_updates_alone_need_no_names(outbox: Database) -> None:
    with setting(outbox, "binlog_row_metadata", "'MINIMAL'"):
        outbox.insert("a")
        seen = read(outbox, "UPDATE outbox_event SET status = 2")
    assert seen and not any(t.events for t in seen)


def test_without_gtids(outbox: Database) -> None:
    for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"):
        outbox.execute(f"SET GLOBAL gtid_mode = {mode}")
    outbox.execute("SET GLOBAL enforce_gtid_consistency = OFF")
    try:
        start = outbox.position()
        outbox.insert("a")
        outbox.execute("CREATE TABLE other (a INT) ENGINE = MyISAM")
        for end in ("ROLLBACK TO s", "ROLLBACK"):
            # A table without transactions is logged apart, whatever becomes of the rest.
            outbox.connection.begin()
            outbox.insert(f"before {end}")
            outbox.execute("SAVEPOINT s")
            outbox.insert(f"behind {end}")
            outbox.execute("INSERT INTO other VALUES (1)")
            outbox.execute(end)
            outbox.connection.commit()
        outbox.insert("b")
        now = outbox.one("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)")
        with Tail(outbox, start) as tail:
            tail.wait(lambda: "b" in tail.event_ids)
    finally:
        outbox.execute("SET GLOBAL enforce_gtid_consistency = ON")
        for mode in ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"):
            outbox.execute(f"SET GLOBAL gtid_mode = {mode}")
    given = {event.event_id: event for event in tail.events}
    assert list(given) == ["a", "before ROLLBACK TO s", "b"]
    assert not any(event.incomplete for event in given.values())
    assert not any(t.gtids for t in tail.transactions if t.events)
    assert given["b"].committed_at is not None and abs(given["b"].committed_at - now) < 60_000


def test_load_data(outbox: Database, tmp_path: object) -> None:
    path = f"{tmp_path}/rows.tsv"
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.writelines(f'e{i}\torder\to{i}\tCreated\t{{"i": {i}}}\n' for i in range(300))
    start = outbox.position()
    with outbox.connect(database=outbox.name, local_infile=True) as connection, connection.cursor() as cursor:
        cursor.execute(
            f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE outbox_event CHARACTER SET utf8mb4"
            " (event_id, aggregate_type, aggregate_id, event_type, payload)"
        )
    with Tail(outbox, start) as tail:
        tail.wait_for_events(300)
    assert tail.event_ids == [f"e{i}" for i in range(300)]
    assert tail.events[299].payload == b'{"i": 299}'


def test_rotation(outbox: Database) -> None:
    start = outbox.position()
    with Tail(outbox, start) as tail:
        outbox.insert("a")
        outbox.execute("FLUSH BINARY LOGS")
        outbox.insert("b")
        outbox.execute("FLUSH BINARY LOGS")
        tail.wait_for_position(outbox.position())
    assert tail.event_ids == ["a", "b"]
    assert sum(t.rotated for t in tail.transactions) == 2
    assert tail.reader.position.file > start.file


def test_a_start_by_gtid_set(outbox: Database) -> None:
    outbox.insert("before")
    start = outbox.gtid_position()
    outbox.execute("FLUSH BINARY LOGS")
    outbox.insert("a")
    with Tail(outbox, start) as tail:
        tail.wait_for_events(1)
        outbox.insert("b")
        tail.wait_for_position(outbox.gtid_position())
        assert tail.event_ids == ["a", "b"]
        assert tail.reader.position.gtid_set == outbox.gtid_position().gtid_set


def test_a_hole_in_the_set_is_filled(outbox: Database) -> None:
    server = outbox.one("SELECT @@server_uuid")
    outbox.insert("a", "b")
    outbox.insert("c")
    whole = outbox.gtid_position().gtid_set
    assert whole is not None
    last = max(gtid.last for gtid in whole if gtid.source == server)
    first = GtidSet.parse(f"{server}:1-{last - 2},{server}:{last}")
    with Tail(outbox, Position(gtid_set=first)) as tail:
        tail.wait_for_events(2)
        assert tail.event_ids == ["a", "b"]
        outbox.execute("FLUSH BINARY LOGS")
        tail.wait_for_position(outbox.gtid_position())
    assert tail.event_ids == ["a", "b"]


def test_tagged_gtids(outbox: Database) -> None:
    try:
        outbox.execute("SET SESSION gtid_next = 'AUTOMATIC:orders'")
    except Exception as error:  # MySQL before 8.3
        pytest.skip(str(error))
    untagged = outbox.gtid_position()
    outbox.insert("a")
    outbox.execute("SET SESSION gtid_next = 'AUTOMATIC:billing_2'")
    outbox.insert("b")
    outbox.execute("SET SESSION gtid_next = 'AUTOMATIC'")
    tagged = outbox.gtid_position()
    outbox.execute("FLUSH BINARY LOGS")
    outbox.insert("c")
    for start, expected in ((untagged, ["a", "b", "c"]), (tagged, ["c"])):
        with Tail(outbox, start) as tail:
            tail.wait_for_position(outbox.gtid_position())
        assert tail.event_ids == expected
        assert tail.reader.position.gtid_set == outbox.gtid_position().gtid_set
    a = tail.events[0]
    assert a.committed_at is not None and a.committed_at > 1_700_000_000_000


def test_a_purged_binlog(outbox: Database) -> None:
    by_file, by_gtid = outbox.position(), outbox.gtid_position()
    outbox.insert("a")
    outbox.execute("FLUSH BINARY LOGS")
    outbox.execute(f"PURGE BINARY LOGS TO '{outbox.position().file}'")
    for start in (by_file, by_gtid):
        with Tail(outbox, start) as tail:
            error = tail.wait_for_error()
        assert isinstance(error, BinlogLost), error
        assert str(start) in error.message and "1236" in error.message


def test_positions_that_the_server_never_had(outbox: Database) -> None:
    now, gtids = outbox.position(), outbox.gtid_position().gtid_set
    assert gtids is not None
    server = outbox.one("SELECT @@server_uuid")
    ahead = gtids.union(GtidSet.parse(f"{server}:1-1000000"))
    for lost in (Position(now.file, now.offset + 100_000), Position("other.000099", 4), Position(gtid_set=ahead)):
        with Tail(outbox, lost) as tail:
            assert isinstance(tail.wait_for_error(), BinlogLost)


def test_a_position_inside_a_transaction(outbox: Database) -> None:
    """Its rows would be read without their beginning: a library in its place loses them in silence."""
    start = outbox.position()
    outbox.connection.begin()
    outbox.insert("a")
    outbox.insert("b")
    outbox.connection.commit()
    rows = outbox.execute(f"SHOW BINLOG EVENTS IN '{start.file}' FROM {start.offset}")
    inside = [offset for _, offset, kind, *_ in rows[1:] if kind != "Gtid"]
    assert len(inside) >= 6  # BEGIN, table map and rows twice, XID
    for offset in inside[1:]:
        with Tail(outbox, Position(start.file, offset)) as tail:
            error = tail.wait_for_error()
        assert isinstance(error, BinlogUnreadable) and "inside a transaction" in error.message


def test_heartbeats_move_the_position(outbox: Database) -> None:
    """What the server leaves out because we have it already shows only in heartbeats."""
    start = outbox.position()
    with Tail(outbox, start, heartbeat=0.2) as tail:
        outbox.execute("FLUSH BINARY LOGS")
        tail.wait_for_position(outbox.position())
        quiet = len(tail.transactions)
        outbox.insert("a")
        tail.wait_for_events(1)
    assert len(tail.transactions) - quiet <= 2


def test_a_server_that_dies_begins_a_new_file(own_server: Server[MySQLEndpoint], outbox: Database) -> None:
    """No ROTATE ends the old file then."""
    with Tail(outbox, outbox.gtid_position(), heartbeat=0.5) as tail:
        outbox.insert("a")
        tail.wait_for_events(1)
        file = tail.reader.position.file
        own_server.kill()
        own_server.start()
        outbox.connection = outbox.connect(database=outbox.name)
        outbox.insert("b")
        tail.wait_for_events(2)
    assert tail.event_ids == ["a", "b"]
    assert tail.reader.position.file > file


def test_our_own_writes_are_no_traffic(outbox: Database) -> None:
    outbox.execute("CREATE TABLE cdc_outbox_checkpoint (name INT PRIMARY KEY, position INT)")
    outbox.execute("INSERT INTO cdc_outbox_checkpoint VALUES (1, 1)")
    outbox.insert("a")
    seen = read(
        outbox,
        "UPDATE outbox_event SET status = 2",
        "UPDATE cdc_outbox_checkpoint SET position = 2",
        "DELETE FROM outbox_event",
    )
    assert sum(t.traffic for t in seen) == 0 and not any(t.events for t in seen)


def test_other_tables_writes_are_traffic(outbox: Database) -> None:
    outbox.execute("CREATE TABLE other (a VARCHAR(2000))")
    seen = read(outbox, "INSERT INTO other VALUES (REPEAT('x', 1500)), (REPEAT('y', 1500))")
    assert 3000 < sum(t.traffic for t in seen) < 5000
    seen = read(outbox, "CREATE TABLE third (a INT)")
    assert 0 < sum(t.traffic for t in seen) < 1000
    assert not any(t.barrier for t in seen)


def test_stretches_without_events_are_joined(outbox: Database) -> None:
    outbox.execute("CREATE TABLE other (a INT)")
    start = outbox.position()
    outbox.insert("a")
    for i in range(200):
        outbox.execute(f"INSERT INTO other VALUES ({i})")
    outbox.insert("b")
    end = outbox.position()
    with Tail(outbox, start) as tail:
        tail.wait_for_position(end)
    between = [t for t in tail.transactions if not t.events]
    assert 1 <= len(between) < 50
    if outbox.has_gtids:
        assert sum(gtid.last - gtid.first + 1 for t in tail.transactions for gtid in t.gtids) >= 202


OTHERS = ["11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222:from_berlin"]


def insert_as(outbox: Database, gtid: str, event_id: str) -> None:
    """As a replica applies it: under another server's GTID."""
    with outbox.connect(database=outbox.name) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION gtid_next = %s", (gtid,))
        cursor.execute(
            "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
            " VALUES (%s, 'order', 'o1', 'Created', '{}')",
            (event_id,),
        )
        cursor.execute("SET SESSION gtid_next = 'AUTOMATIC'")


def test_transactions_of_several_servers(outbox: Database) -> None:
    """In the order in which they are here; each source has its own numbers, with holes."""
    start = outbox.gtid_position()
    for number in (1, 2, 5, 4):
        for place, source in enumerate(OTHERS):
            insert_as(outbox, f"{source}:{number}", f"{place}-{number}")
        outbox.insert(f"own-{number}")
    outbox.execute("FLUSH BINARY LOGS")
    expected = [f"{place}-{number}" for number in (1, 2, 5, 4) for place in (0, 1, "own")]
    with Tail(outbox, start) as tail:
        tail.wait_for_events(len(expected))
        tail.wait_for_position(outbox.gtid_position())
        assert tail.event_ids == expected
        assert tail.reader.position.gtid_set == outbox.gtid_position().gtid_set
    known = start.gtid_set
    assert known is not None
    own = outbox.one("SELECT @@server_uuid")
    last = next(gtid.last for gtid in known if gtid.source == own)
    half = known.union(GtidSet.parse(f"{OTHERS[0]}:1-2,{OTHERS[1]}:1:5,{own}:1-{last + 3}"))
    with Tail(outbox, Position(gtid_set=half)) as tail:
        tail.wait_for_position(outbox.gtid_position())
    assert tail.event_ids == ["1-2", "0-5", "0-4", "1-4", "own-4"]


def test_a_restored_server_names_gtids_that_it_has_no_events_of(outbox: Database) -> None:
    """gtid_purged, as a restored dump sets it: whoever has them reads on, whoever lacks one has lost the binlog."""
    restored = f"{OTHERS[0]}:100-200"
    outbox.insert("before")
    start = outbox.gtid_position()
    outbox.execute(f"SET GLOBAL gtid_purged = '+{restored}'")
    assert start.gtid_set is not None
    outbox.insert("a")
    with Tail(outbox, Position(gtid_set=start.gtid_set.union(GtidSet.parse(restored)))) as tail:
        tail.wait_for_position(outbox.gtid_position())
        assert tail.event_ids == ["a"]
    with Tail(outbox, start) as tail:
        assert isinstance(tail.wait_for_error(), BinlogLost)


def test_a_seek_over_many_files(outbox: Database) -> None:
    """By set the server finds the file; nothing of those before it is sent."""
    sets = []
    for i in range(60):
        outbox.insert(f"e{i}")
        outbox.execute("FLUSH BINARY LOGS")
        sets.append(outbox.gtid_position())
    for after in (57, 20):
        with Tail(outbox, sets[after]) as tail:
            tail.wait_for_position(outbox.gtid_position())
        assert tail.event_ids == [f"e{i}" for i in range(after + 1, 60)]
        files = {t.end[0] for t in tail.transactions if t.end is not None}
        assert len(files) <= 60 - after + 1
