"""A replica that follows a primary by GTID, and what an operator does with it."""

from __future__ import annotations

from typing import Any

import pymysql

from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.server import Server


def run(server: Server[MySQLEndpoint], statement: str, *values: object) -> tuple[Any, ...]:
    place = server.endpoint
    with (
        pymysql.connect(host=place.host, port=place.port, user=place.user, password=place.password) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(statement, values or None)
        return cursor.fetchall()


def follow(replica: Server[MySQLEndpoint], primary: Server[MySQLEndpoint]) -> None:
    run(replica, "SET GLOBAL super_read_only = ON")
    run(
        replica,
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = %s, SOURCE_PORT = %s, SOURCE_USER = %s, SOURCE_AUTO_POSITION = 1,"
        " GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1, SOURCE_RETRY_COUNT = 1000",
        primary.endpoint.host,
        primary.endpoint.port,
        primary.endpoint.user,
    )
    run(replica, "START REPLICA")


def promote(replica: Server[MySQLEndpoint]) -> None:
    run(replica, "STOP REPLICA")
    run(replica, "RESET REPLICA ALL")
    run(replica, "SET GLOBAL super_read_only = OFF")
    run(replica, "SET GLOBAL read_only = OFF")


def catch_up(replica: Server[MySQLEndpoint], primary: Server[MySQLEndpoint]) -> None:
    (gtids,) = run(primary, "SELECT @@global.gtid_executed")[0]
    assert run(replica, "SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, 60)", gtids) == ((0,),)
