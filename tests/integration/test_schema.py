"""`init` on a real server: what it creates, what it leaves alone, what the grants are good for."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from cdc_outbox.config import Settings
from cdc_outbox.errors import Fenced, Refused
from cdc_outbox.model import Event
from cdc_outbox.mysql import schema
from cdc_outbox.mysql.checkpoint import raise_epoch, reset, server_position
from cdc_outbox.mysql.outbox_table import OutboxTable
from cdc_outbox.mysql.session import Session
from cdc_outbox.testing.services.endpoint import MySQLEndpoint

COM_BINLOG_DUMP = 0x12


def settings(server: MySQLEndpoint, database: str, *tables: str, **mysql: object) -> Settings:
    return Settings.model_validate(
        {
            "name": "orders",
            "mysql": {
                "host": server.host,
                "port": server.port,
                "user": server.user,
                "password": server.password,
                "database": database,
                **mysql,
            },
            "outbox": {"tables": list(tables) or ["outbox_event"]},
            "kafka": {"bootstrap_servers": "localhost:9092"},
        }
    )


@contextmanager
def session(chosen: Settings) -> Iterator[Session]:
    opened = Session(chosen.mysql, lifetime=30)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def relay(mysql_server: MySQLEndpoint, database: str) -> Iterator[Settings]:
    """The tables exist, and the settings name an account with the printed grants and nothing more."""
    owner = settings(mysql_server, database)
    user, password = f"t_{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
    limited = settings(mysql_server, database, user=user, password=password)
    with session(owner) as admin:
        schema.create(admin, owner)
        admin.execute(f"CREATE USER {schema.account(user)} IDENTIFIED BY '{password}'")
        try:
            for grant in schema.grants(limited):
                admin.execute(grant)
            yield limited
        finally:
            admin.execute(f"DROP USER {schema.account(user)}")


def test_init_creates_what_is_missing_and_only_that(mysql_server: MySQLEndpoint, database: str) -> None:
    chosen = settings(mysql_server, database, "orders", "outbox_event")
    with session(chosen) as open_session:
        open_session.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
        assert [table.name for table in schema.missing(open_session, chosen)] == [
            "outbox_event",
            "cdc_outbox_checkpoint",
        ]
        created = schema.create(open_session, chosen, consumer=True)
        assert created == [
            f"{database}.outbox_event",
            f"{database}.cdc_outbox_checkpoint",
            f"{database}.processed_event",
            f"{database}.consumer_offset",
        ]
        assert schema.create(open_session, chosen, consumer=True) == []
        (definition,) = open_session.query("SHOW CREATE TABLE orders")
        assert "event_id" not in definition[1]


@pytest.mark.parametrize("comments", ["zh", "en"])
def test_the_server_keeps_the_agreed_columns(
    mysql_server: MySQLEndpoint, database: str, comments: schema.Comments
) -> None:
    chosen = settings(mysql_server, database)
    with session(chosen) as open_session:
        schema.create(open_session, chosen, comments)
        columns = open_session.query(
            "SELECT column_name, column_type, is_nullable, column_default, extra"
            " FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = 'outbox_event' ORDER BY ordinal_position",
            (database,),
        )
        (comment,) = open_session.query(
            "SELECT column_comment FROM information_schema.columns"
            " WHERE table_schema = %s AND table_name = 'outbox_event' AND column_name = 'event_id'",
            (database,),
        )
    now = "CURRENT_TIMESTAMP"
    assert columns == [
        ("id", "bigint", "NO", None, "auto_increment"),
        ("event_id", "varchar(64)", "NO", None, ""),
        ("aggregate_type", "varchar(64)", "NO", None, ""),
        ("aggregate_id", "varchar(64)", "NO", None, ""),
        ("event_type", "varchar(128)", "NO", None, ""),
        ("payload", "json", "NO", None, ""),
        ("status", "tinyint", "NO", "0", ""),
        ("retry_count", "int", "NO", "0", ""),
        ("max_retries", "int", "NO", "3", ""),
        ("next_retry_at", "datetime", "YES", None, ""),
        ("created_at", "datetime", "NO", now, "DEFAULT_GENERATED"),
        ("updated_at", "datetime", "NO", now, f"DEFAULT_GENERATED on update {now}"),
    ]
    assert comment[0].isascii() is (comments == "en")


def test_the_archive_takes_a_row_as_it_is(mysql_server: MySQLEndpoint, database: str) -> None:
    chosen = settings(mysql_server, database)
    (table,) = chosen.table_names
    with session(chosen) as open_session:
        schema.create(open_session, chosen)
        open_session.execute(schema.ddl("archive", table._replace(name="old")))
        OutboxTable(table).insert(open_session, Event(table, 0, "e1", "order", "1", "Placed", b"{}"))
        columns = ", ".join(schema.column_definitions("outbox_event"))
        moved = f"INSERT INTO old ({columns}) SELECT {columns} FROM outbox_event"
        assert open_session.execute(moved) == 1


def test_names_and_owners_are_compared_as_bytes(mysql_server: MySQLEndpoint, database: str) -> None:
    chosen = settings(mysql_server, database)
    with session(chosen) as open_session:
        schema.create(open_session, chosen)
        fence = raise_epoch(open_session, "orders", "owner-a")
        raise_epoch(open_session, "Orders", "owner-b")
        fence.check(open_session)
        with pytest.raises(Fenced):
            replace(fence, owner="Owner-A").check(open_session)


def test_a_missing_database_is_refused_with_its_statement(mysql_server: MySQLEndpoint, database: str) -> None:
    chosen = settings(mysql_server, database, f"{database}_not.outbox_event")
    with session(chosen) as open_session, pytest.raises(Refused, match="no database") as refused:
        schema.create(open_session, chosen)
    assert refused.value.hint == f"CREATE DATABASE `{database}_not`;"


def test_an_account_that_may_not_create_is_told_what_to_run(relay: Settings) -> None:
    wanted = relay.model_copy(update={"outbox": relay.outbox.model_copy(update={"tables": ["second"]})})
    with session(relay) as open_session, pytest.raises(Refused, match="may not create") as refused:
        schema.create(open_session, wanted)
    assert "init --print" in str(refused.value.hint)


def test_the_printed_script_is_enough(mysql_server: MySQLEndpoint, database: str) -> None:
    user = f"t_{uuid.uuid4().hex[:12]}"
    chosen = settings(mysql_server, database, user=user)
    script = re.sub(r"-- (CREATE USER .* BY )'…';.*", r"\1'x-1';", schema.script(chosen))
    with session(settings(mysql_server, database)) as admin:
        try:
            for statement in script.split(";\n"):
                if statement.strip():
                    admin.execute(statement)
            assert schema.missing(admin, chosen) == []
        finally:
            admin.execute(f"DROP USER IF EXISTS {schema.account(user)}")


def test_the_granted_account_can_do_everything_a_relay_does(relay: Settings) -> None:
    table = relay.table_names[0]
    event = Event(table, 0, "e1", "order", "1", "Placed", b"{}")
    with session(relay) as first, session(relay) as second:
        OutboxTable(table).insert(first, event)
        fence = raise_epoch(first, relay.name, "owner")
        with first.transaction():
            fence.advance(first, server_position(first))
            assert first.execute(f"UPDATE {table.quoted} SET status = 2 WHERE id = 1 AND event_id = 'e1'") == 1
        reset(first, relay, "now")
        reset(first, relay, "earliest")
        assert first.query(f"SELECT id FROM {table.quoted} FOR UPDATE") == [(1,)]
        assert first.query(f"SELECT id FROM {table.quoted} FOR SHARE") == [(1,)]
        first.query("SHOW BINARY LOGS")
        assert first.row("SELECT @@session.binlog_row_image") == ("MINIMAL",)
        assert first.row("SELECT GET_LOCK('cdc-outbox-test-grants', 0)") == (1,)
        assert second.row("SELECT IS_USED_LOCK('cdc-outbox-test-grants')") == (first.thread_id,)
        second.execute(f"KILL {first.thread_id}")
    assert _first_dump_packet(relay)[0] == 0


def _first_dump_packet(relay: Settings) -> bytes:
    """The first packet of a binlog dump by the settings' account: it begins with 0, or 255 for an error."""
    connection: Any = pymysql.connect(
        host=relay.mysql.host,
        port=relay.mysql.port,
        user=relay.mysql.user,
        password=relay.mysql.password.get_secret_value(),
        read_timeout=10,
    )
    with connection:
        with connection.cursor() as cursor:
            cursor.execute("SET @source_binlog_checksum = 'CRC32', @replica_uuid = UUID()")
            cursor.execute("SHOW BINARY LOGS")
            newest = cursor.fetchall()[-1][0]
        position, flags, server_id = 4, 0, uuid.uuid4().int % 2**31 + 2**31 - 1
        body = position.to_bytes(4, "little") + flags.to_bytes(2, "little") + server_id.to_bytes(4, "little")
        connection._execute_command(COM_BINLOG_DUMP, body + newest.encode())
        packet: bytes = connection._read_packet().get_all_data()
        return packet
