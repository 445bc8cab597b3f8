"""A replica that follows a primary by GTID, and what an operator does with the two."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql

from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.harness.world import wait_until

MySQLServer = Server[MySQLEndpoint]


@dataclass(frozen=True)
class Pair:
    """replica follows primary by GTID: other files, another uuid."""

    primary: MySQLServer
    replica: MySQLServer


def made_pair(stack: ExitStack) -> Pair:
    """Two servers of their own, removed with the stack."""
    servers = []
    for options in ({"server_id": 1}, {"server_id": 2, "log_bin": "other"}):
        servers.append(providers.make_mysql(options, lambda text: print(text, file=sys.stderr)))  # type: ignore[arg-type]
        stack.callback(servers[-1].remove)
    pair = Pair(*servers)
    follow(pair.replica, pair.primary)
    return pair


@contextmanager
def session(server: MySQLServer) -> Iterator[pymysql.cursors.Cursor]:
    """A cursor of the account that may do everything; each statement commits by itself."""
    place = server.endpoint
    with (
        pymysql.connect(
            host=place.host, port=place.port, user=place.user, password=place.password, autocommit=True
        ) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor


def run(server: MySQLServer, statement: str, *values: object) -> tuple[Any, ...]:
    with session(server) as cursor:
        cursor.execute(statement, values or None)
        return cursor.fetchall()


def follow(replica: MySQLServer, primary: MySQLServer) -> None:
    run(replica, "SET GLOBAL super_read_only = ON")
    run(
        replica,
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = %s, SOURCE_PORT = %s, SOURCE_USER = %s, SOURCE_AUTO_POSITION = 1,"
        " GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1",
        primary.endpoint.host,
        primary.endpoint.port,
        primary.endpoint.user,
    )
    run(replica, "START REPLICA")


def promote(replica: MySQLServer) -> None:
    run(replica, "STOP REPLICA")
    run(replica, "RESET REPLICA ALL")
    run(replica, "SET GLOBAL super_read_only = OFF")
    run(replica, "SET GLOBAL read_only = OFF")


def catch_up(replica: MySQLServer, primary: MySQLServer) -> None:
    (gtids,) = run(primary, "SELECT @@global.gtid_executed")[0]
    assert run(replica, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 60)", gtids) == ((0,),)


@contextmanager
def standing_still(replica: MySQLServer) -> Iterator[None]:
    """It receives and does not apply."""
    run(replica, "STOP REPLICA SQL_THREAD")
    try:
        yield
    finally:
        run(replica, "START REPLICA SQL_THREAD")


def received(replica: MySQLServer, primary: MySQLServer) -> bool:
    """Whether the replica has received, if not applied, all that the primary has committed."""
    (gtids,) = run(primary, "SELECT @@global.gtid_executed")[0]
    ((there,),) = run(
        replica,
        "SELECT GTID_SUBSET(%s, CONCAT(@@global.gtid_executed, ',', received_transaction_set))"
        " FROM performance_schema.replication_connection_status",
        gtids,
    )
    return bool(there)


def purge(server: MySQLServer) -> None:
    """All its binlog files but a new one are gone. One that is still read, or that MariaDB's checkpoint has not left,
    the server keeps without an error: it is asked again."""
    run(server, "FLUSH BINARY LOGS")
    *_, (last, *_) = run(server, "SHOW BINARY LOGS")

    def purged() -> bool:
        run(server, "PURGE BINARY LOGS TO %s", last)
        return bool(run(server, "SHOW BINARY LOGS")[0][0] == last)

    wait_until(purged, f"no binlog file of the server's before {last}")


def commit_empty(server: MySQLServer, gtid: str) -> None:
    """A transaction of that name with nothing in it: how an operator excuses one that a replica alone has."""
    with session(server) as cursor:
        for statement in (f"SET gtid_next = '{gtid}'", "BEGIN", "COMMIT", "SET gtid_next = AUTOMATIC"):
            cursor.execute(statement)
