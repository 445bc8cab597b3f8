"""MariaDB's binlog, read by file and offset: the tests of MySQL's that hold for it too, and what is its own."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from cdc_outbox.binlog.charsets import charset_of
from cdc_outbox.errors import BinlogLost, BinlogUnreadable
from cdc_outbox.model import Position
from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.endpoint import MySQLEndpoint, wait_until
from cdc_outbox.testing.services.server import Server
from tests.integration import test_binlog_connection as connections
from tests.integration import test_binlog_servers as servers
from tests.integration import test_binlog_transactions as transactions
from tests.integration.binlog_tail import Database, Tail, database_on, setting
from tests.integration.test_binlog_connection import (  # noqa: F401
    test_a_missing_grant_is_refused,
    test_a_slow_sink_holds_the_reader_back,
    test_stopping_wakes_a_reader_that_waits_for_the_server,
    test_the_same_server_id_twice_is_refused,
)
from tests.integration.test_binlog_rows import (  # noqa: F401
    test_a_partitioned_table,
    test_a_row_changed_in_its_own_transaction_is_to_be_read_from_the_table,
    test_a_table_that_is_no_outbox_stops_the_reader,
    test_columns_may_come_go_and_move,
    test_columns_of_all_types_are_read_or_stepped_over,
    test_every_row_of_a_statement_and_of_a_transaction_arrives_in_order,
    test_insert_select,
    test_on_duplicate_key_gives_only_what_was_inserted,
    test_payloads_and_ids_of_other_types,
    test_replace_of_an_id_is_a_new_event,
    test_rows_of_64_kib_to_20_mib,
    test_rows_rolled_back_to_a_savepoint_are_gone,
    test_rows_that_are_not_pending_are_given_as_they_are,
    test_smaller_row_images,
    test_two_tables_in_one_transaction_keep_their_order,
    test_what_cannot_be_printed_is_to_be_read_from_the_table,
)
from tests.integration.test_binlog_servers import (  # noqa: F401
    test_a_position_inside_a_transaction,
    test_heartbeats_move_the_position,
    test_load_data,
    test_minimal_metadata_takes_the_names_from_the_server,
    test_minimal_metadata_that_does_not_fit_is_refused,
    test_other_tables_writes_are_traffic,
    test_our_own_writes_are_no_traffic,
    test_rotation,
    test_stretches_without_events_are_joined,
)
from tests.integration.test_binlog_transactions import (  # noqa: F401
    test_a_change_of_our_table_is_a_barrier,
    test_a_large_transaction_comes_in_parts,
    test_a_transaction_of_large_rows_comes_in_parts,
    test_create_table_select_of_our_table,
    test_events_of_the_table_that_takes_the_place_of_ours,
    test_rows_of_a_large_prepared_transaction_are_not_given_before_its_commit,
    test_statement_sessions_bring_no_events,
    test_the_position_does_not_wait_for_prepared_transactions,
    test_xa_prepared_before_the_start_is_left_to_the_sweep,
)


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server[MySQLEndpoint]]:
    options: dict[str, str | int] = {"local_infile": "ON", "max_allowed_packet": 256 << 20}
    server = providers.make_mariadb(options, lambda text: print(text, file=sys.stderr))
    yield server
    server.remove()


@pytest.fixture
def outbox(own_server: Server[MySQLEndpoint]) -> Iterator[Database]:
    with database_on(own_server.endpoint) as opened:
        yield opened


def test_a_row_becomes_an_event(outbox: Database) -> None:
    """JSON is text: it comes as it was written."""
    start = outbox.position()
    outbox.execute(
        "INSERT INTO outbox_event (id, event_id, aggregate_type, aggregate_id, event_type, payload, max_retries)"
        """ VALUES (7, 'é-1', 'order', '订单', 'Created 😀', '{"b":  1.0, "a": ["x😀"]}', 5)"""
    )
    with Tail(outbox, start) as tail:
        (event,) = tail.wait_for_events(1)
    assert (event.table, event.id, event.event_id) == (outbox.outbox, 7, "é-1")
    assert (event.aggregate_type, event.aggregate_id, event.event_type) == ("order", "订单", "Created 😀")
    assert event.payload == '{"b":  1.0, "a": ["x😀"]}'.encode()
    assert event.payload == outbox.one("SELECT CAST(payload AS BINARY) FROM outbox_event")
    assert not event.incomplete and event.max_retries == 5
    now = outbox.one("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)")
    assert event.committed_at is not None and now - 60_000 < event.committed_at <= now + 1000


def test_the_character_set_of_each_of_its_collations(outbox: Database) -> None:
    """A collation that is not known makes each event be read from the table: right, and slow."""
    listed = outbox.execute(
        "SELECT id, character_set_name FROM information_schema.collation_character_set_applicability"
        " WHERE id IS NOT NULL"
    )
    assert len(listed) > 1000
    names = {"utf8": "utf8mb3"}
    found = {id: charset_of(id) for id, _ in listed}
    assert {id: names.get(name or "", name) for id, name in found.items()} == dict(listed)


def test_its_newer_default_collation(outbox: Database) -> None:
    outbox.execute("ALTER TABLE outbox_event CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci")
    start = outbox.position()
    outbox.insert("é😀")
    with Tail(outbox, start) as tail:
        (event,) = tail.wait_for_events(1)
    assert (event.event_id, event.incomplete) == ("é😀", False)


def test_lost_connections(outbox: Database, caplog: pytest.LogCaptureFixture) -> None:
    connections.test_a_killed_dump_goes_on_where_it_was(outbox, Database.position, caplog)
    outbox.execute("DELETE FROM outbox_event")
    connections.test_a_transaction_cut_in_the_middle_is_not_given_twice(outbox, Database.position)


def test_checksums(outbox: Database) -> None:
    servers.test_checksums_may_be_off_and_change(outbox, gtid=False)


def test_xa(outbox: Database) -> None:
    transactions.test_xa(outbox, compressed=False)


def test_statements_beside_rows(outbox: Database) -> None:
    """ANNOTATE_ROWS says what statement the rows are of; statement sessions write no rows."""
    start = outbox.position()
    with setting(outbox, "binlog_annotate_row_events", "1"):
        outbox.insert("a")
        outbox.execute("SET SESSION binlog_format = 'STATEMENT'")
        outbox.insert("b")
        outbox.execute("SET SESSION binlog_format = 'ROW'")
        outbox.execute("SET SESSION sql_log_bin = 0")
        outbox.insert("c")
        outbox.execute("SET SESSION sql_log_bin = 1")
        outbox.insert("d")
    with Tail(outbox, start) as tail:
        tail.wait_for_position(outbox.position())
    assert tail.event_ids == ["a", "d"]


def test_group_commits(outbox: Database) -> None:
    """A commit id stands in their GTID events."""
    start = outbox.position()
    with setting(outbox, "binlog_commit_wait_count", "2"), setting(outbox, "binlog_commit_wait_usec", "20000"):
        others = [outbox.connect(database=outbox.name) for _ in range(2)]
        for connection in others:
            connection.begin()
            connection.cursor().execute(
                "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
                " VALUES (UUID(), 'order', 'o1', 'Created', '{}')"
            )
        both = [threading.Thread(target=connection.commit) for connection in others]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        for connection in others:
            connection.close()
    outbox.insert("last")
    with Tail(outbox, start) as tail:
        tail.wait_for_events(3)
    assert tail.event_ids[2] == "last"


def test_a_purged_binlog_and_positions_that_never_were(outbox: Database) -> None:
    start = outbox.position()
    outbox.insert("a")
    outbox.execute("FLUSH BINARY LOGS")
    now = outbox.position()

    def purged() -> bool:
        """It keeps what another test's dump, cut off a moment ago, still seems to read."""
        outbox.execute(f"PURGE BINARY LOGS TO '{now.file}'")
        return start.file not in [row[0] for row in outbox.execute("SHOW BINARY LOGS")]

    assert wait_until(purged, seconds=30, pause=0.3)
    for lost in (start, Position("other.000099", 4), Position(now.file, now.offset + 100_000)):
        with Tail(outbox, lost) as tail:
            error = tail.wait_for_error()
        assert isinstance(error, BinlogLost), error


def test_a_server_that_dies(own_server: Server[MySQLEndpoint], outbox: Database) -> None:
    with Tail(outbox, outbox.position(), heartbeat=0.5) as tail:
        outbox.insert("a")
        tail.wait_for_events(1)
        own_server.kill()
        own_server.start()
        outbox.connection = outbox.connect(database=outbox.name)
        outbox.insert("b")
        tail.wait_for_events(2)
    assert tail.event_ids == ["a", "b"]


def test_binlogs_that_say_nothing_of_their_columns(outbox: Database) -> None:
    """MariaDB's default."""
    with setting(outbox, "binlog_row_metadata", "'NO_LOG'"):
        start = outbox.position()
        outbox.insert("a")
        with Tail(outbox, start) as tail:
            error = tail.wait_for_error()
    assert isinstance(error, BinlogUnreadable) and "SET GLOBAL binlog_row_metadata = FULL" in error.message


def test_compressed_events_stop_the_reader(outbox: Database) -> None:
    with setting(outbox, "log_bin_compress", "1"):
        start = outbox.position()
        outbox.insert("a", payload='"' + "x" * 3000 + '"')
        with Tail(outbox, start) as tail:
            error = tail.wait_for_error()
    assert isinstance(error, BinlogUnreadable) and "log_bin_compress = ON" in error.message
