"""The checks on real servers: well set, broken on purpose, mended by the very fix that a finding names."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import pytest

from cdc_outbox.config import Settings
from cdc_outbox.errors import Hold, Refused
from cdc_outbox.mysql import schema
from cdc_outbox.mysql.preflight import Finding, examine_mysql, refusal
from cdc_outbox.mysql.session import Session
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from tests.harness.proxy import Proxy
from tests.integration.greetings import another_connection_id


def settings(server: MySQLEndpoint, database: str, **sections: dict[str, object]) -> Settings:
    mysql = {
        "host": server.host,
        "port": server.port,
        "user": server.user,
        "password": server.password,
        "database": database,
    }
    return Settings.model_validate(
        {
            "name": "orders",
            "kafka": {"bootstrap_servers": "localhost:9092"},
            **sections,
            "mysql": {**mysql, **sections.get("mysql", {})},
        }
    )


@contextmanager
def connected(server: MySQLEndpoint) -> Iterator[Callable[[str], list[tuple[Any, ...]]]]:
    """Runs statements as the account that may do everything."""
    connection = pymysql.connect(
        host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
    )

    def run(sql: str) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    with connection:
        yield run


def initialise(chosen: Settings) -> None:
    session = Session(chosen.mysql, lifetime=30)
    try:
        schema.create(session, chosen)
    finally:
        session.close()


def wrong(findings: list[Finding]) -> dict[str, str]:
    return {one.check: one.level for one in findings if one.level != "ok"}


def find(findings: list[Finding], check: str) -> Finding:
    return next(one for one in findings if one.check == check)


@pytest.fixture
def initialised(mysql_server: MySQLEndpoint, database: str) -> Settings:
    chosen = settings(mysql_server, database)
    initialise(chosen)
    return chosen


@pytest.fixture
def account(mysql_server: MySQLEndpoint, initialised: Settings) -> Iterator[Settings]:
    """The same server through an account with the printed grants."""
    user, password = f"t_{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
    limited = settings(mysql_server, initialised.mysql.database, mysql={"user": user, "password": password})
    with connected(mysql_server) as run:
        run(f"CREATE USER {schema.account(user)} IDENTIFIED BY '{password}'")
        try:
            for grant in schema.grants(limited):
                run(grant)
            yield limited
        finally:
            run(f"DROP USER {schema.account(user)}")


def test_what_init_makes_passes(initialised: Settings) -> None:
    findings = examine_mysql(initialised)
    assert wrong(findings) == {}
    assert refusal(findings) is None


def test_without_init_the_fix_is_init(mysql_server: MySQLEndpoint, database: str) -> None:
    findings = examine_mysql(settings(mysql_server, database))
    assert wrong(findings) == {"outbox-table": "error", "checkpoint-table": "error"}
    refused = refusal(findings)
    assert isinstance(refused, Refused) and refused.hint == "cdc-outbox init"


def test_a_database_that_is_not_there(mysql_server: MySQLEndpoint, database: str) -> None:
    findings = examine_mysql(settings(mysql_server, f"{database}_not"))
    assert wrong(findings) == {"mysql-database": "error"}
    assert str(find(findings, "mysql-database").fix).startswith(f"CREATE DATABASE `{database}_not`;")


@pytest.mark.parametrize(
    ("breakage", "check"),
    [
        ("ALTER TABLE outbox_event DROP COLUMN max_retries", "outbox-layout"),
        ("ALTER TABLE outbox_event MODIFY status VARCHAR(10) NOT NULL", "outbox-layout"),
        ("ALTER TABLE outbox_event MODIFY event_id VARCHAR(64) NULL", "outbox-layout"),
        ("ALTER TABLE outbox_event RENAME COLUMN event_id TO Event_Id", "outbox-layout"),
        ("ALTER TABLE outbox_event DROP INDEX uk_event_id", "outbox-layout"),
        (
            "ALTER TABLE outbox_event DROP INDEX uk_event_id, ADD INDEX uk_event_id (event_id)",
            "outbox-layout",
        ),
        ("ALTER TABLE outbox_event DROP INDEX idx_status_next_retry", "outbox-layout"),
        ("ALTER TABLE outbox_event RENAME INDEX idx_status_next_retry TO due", "outbox-layout"),
        ("ALTER TABLE outbox_event ALTER INDEX idx_status_next_retry INVISIBLE", "outbox-layout"),
        ("ALTER TABLE outbox_event MODIFY id BIGINT NOT NULL, DROP PRIMARY KEY", "outbox-layout"),
        ("ALTER TABLE outbox_event DROP COLUMN id", "outbox-layout"),
        ("ALTER TABLE outbox_event DROP COLUMN id, ADD COLUMN n INT NOT NULL PRIMARY KEY", "outbox-layout"),
        ("ALTER TABLE outbox_event ENGINE=MyISAM", "outbox-table"),
        ("ALTER TABLE outbox_event ADD COLUMN last_error VARCHAR(100)", "outbox-last-error"),
        ("ALTER TABLE outbox_event ADD COLUMN tenant VARCHAR(8) NOT NULL", "outbox-extra-columns"),
        ("ALTER TABLE outbox_event ADD COLUMN day DATE NOT NULL", "outbox-extra-columns"),
        ("ALTER TABLE outbox_event MODIFY updated_at DATETIME NOT NULL", "outbox-updated-at"),
        ("ALTER TABLE cdc_outbox_checkpoint DROP COLUMN paused, DROP COLUMN gtid_set", "checkpoint-table"),
        ("ALTER TABLE cdc_outbox_checkpoint DROP PRIMARY KEY", "checkpoint-table"),
        ("ALTER TABLE cdc_outbox_checkpoint ENGINE=MyISAM", "checkpoint-table"),
    ],
)
def test_the_fix_of_a_finding_mends_the_table(
    mysql_server: MySQLEndpoint, initialised: Settings, breakage: str, check: str
) -> None:
    with connected(mysql_server) as run:
        run(f"USE `{initialised.mysql.database}`")
        run(breakage)
        finding = find([one for one in examine_mysql(initialised) if one.level != "ok"], check)
        assert finding.fix is not None
        run(finding.fix)
    left = wrong(examine_mysql(initialised))
    # A primary key that ADD COLUMN displaced stays as a column that every insert owes.
    assert left == ({"outbox-extra-columns": "warning"} if "COLUMN n" in breakage else {})


def test_a_view_is_no_outbox(mysql_server: MySQLEndpoint, initialised: Settings) -> None:
    with connected(mysql_server) as run:
        run(f"USE `{initialised.mysql.database}`")
        run("RENAME TABLE outbox_event TO real_one")
        run("CREATE VIEW outbox_event AS SELECT * FROM real_one")
    assert wrong(examine_mysql(initialised)) == {"outbox-table": "error"}


def test_mapped_columns_must_exist(mysql_server: MySQLEndpoint, initialised: Settings) -> None:
    mapped = settings(
        mysql_server,
        initialised.mysql.database,
        outbox={"columns": {"topic": "destination", "headers": {"trace": "trace_id"}}},
    )
    findings = examine_mysql(mapped)
    assert wrong(findings) == {"outbox-mapped-columns": "error"}
    assert "destination, trace_id" in find(findings, "outbox-mapped-columns").found


def test_the_printed_grants_pass(account: Settings) -> None:
    assert wrong(examine_mysql(account)) == {}


@pytest.mark.parametrize(
    ("revoked", "check", "level"),
    [
        ("REPLICATION SLAVE ON *.*", "grant-replication-slave", "error"),
        ("REPLICATION CLIENT ON *.*", "grant-replication-client", "error"),
        ("SESSION_VARIABLES_ADMIN ON *.*", "grant-session-variables", "warning"),
        ("UPDATE ON outbox_event", "grant-outbox", "error"),
        ("SELECT, UPDATE, INSERT ON outbox_event", "grant-outbox", "error"),
        ("UPDATE ON cdc_outbox_checkpoint", "grant-checkpoint", "error"),
        ("INSERT ON cdc_outbox_checkpoint", "grant-checkpoint", "error"),
        ("SELECT ON cdc_outbox_checkpoint", "grant-checkpoint", "error"),
    ],
)
def test_a_missing_grant_is_found_and_its_fix_restores_it(
    mysql_server: MySQLEndpoint, account: Settings, revoked: str, check: str, level: str
) -> None:
    with connected(mysql_server) as run:
        run(f"USE `{account.mysql.database}`")
        run(f"REVOKE {revoked} FROM {schema.account(account.mysql.user)}")
        findings = examine_mysql(account)
        assert wrong(findings) == {check: level}
        run(str(find(findings, check).fix))
    assert wrong(examine_mysql(account)) == {}


def test_grants_that_come_by_a_default_role_are_seen(mysql_server: MySQLEndpoint, account: Settings) -> None:
    to, role = schema.account(account.mysql.user), schema.account(f"{account.mysql.user}_role")
    with connected(mysql_server) as run:
        run(f"REVOKE REPLICATION SLAVE ON *.* FROM {to}")
        run(f"CREATE ROLE {role}")
        try:
            run(f"GRANT REPLICATION SLAVE ON *.* TO {role}")
            run(f"GRANT {role} TO {to}")
            run(f"SET DEFAULT ROLE {role} TO {to}")
            assert wrong(examine_mysql(account)) == {}
        finally:
            run(f"DROP ROLE {role}")


def test_a_wrong_password_is_refused_and_not_repeated(mysql_server: MySQLEndpoint, database: str) -> None:
    chosen = settings(mysql_server, database, mysql={"user": "nobody", "password": "s3cret-pass"})
    findings = examine_mysql(chosen)
    assert wrong(findings) == {"mysql-credentials": "error"}
    assert isinstance(refusal(findings), Refused)
    assert "s3cret-pass" not in str(findings)


def test_a_certificate_that_nobody_trusts(mysql_server: MySQLEndpoint, database: str) -> None:
    chosen = settings(mysql_server, database, mysql={"tls": {"mode": "verify_ca"}})
    assert wrong(examine_mysql(chosen)) == {"mysql-tls": "error"}


def test_a_server_that_is_away_is_waited_for(mysql_server: MySQLEndpoint, database: str) -> None:
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        port = nobody_listens.getsockname()[1]
        findings = examine_mysql(settings(mysql_server, database, mysql={"host": "127.0.0.1", "port": port}))
    assert wrong(findings) == {"mysql-reachable": "error"}
    assert isinstance(refusal(findings), Hold)


def test_a_zone_that_the_server_does_not_know(mysql_server: MySQLEndpoint, database: str) -> None:
    chosen = settings(mysql_server, database, mysql={"time_zone": "Mars/Olympus"})
    assert find(examine_mysql(chosen), "time-zone").level == "error"


def test_a_table_under_ddl_is_a_warning_not_a_wait(mysql_server: MySQLEndpoint, initialised: Settings) -> None:
    with connected(mysql_server) as run:
        run(f"USE `{initialised.mysql.database}`")
        run("LOCK TABLES outbox_event WRITE")
        findings = examine_mysql(initialised)
    assert wrong(findings) == {"outbox-table": "warning"}


def test_a_pooling_proxy_is_refused(mysql_server: MySQLEndpoint, initialised: Settings) -> None:
    with Proxy(mysql_server.host, mysql_server.port, another_connection_id) as proxy:
        place = {"host": proxy.host, "port": proxy.port, "tls": {"mode": "disabled"}}
        findings = examine_mysql(settings(mysql_server, initialised.mysql.database, mysql=place))
    assert wrong(findings) == {"proxy": "error"}


def test_a_server_without_a_binlog(make_mysql: Callable[..., Any]) -> None:
    server = make_mysql(skip_log_bin="1").endpoint
    findings = examine_mysql(settings(server, "mysql"))
    assert find(findings, "log-bin").level == "error"
    assert "binlog-format" not in {one.check for one in findings}


def test_a_server_set_loosely(make_mysql: Callable[..., Any]) -> None:
    server = make_mysql(
        gtid_mode="OFF",
        enforce_gtid_consistency="OFF",
        binlog_row_image="MINIMAL",
        binlog_row_metadata="MINIMAL",
        binlog_row_value_options="PARTIAL_JSON",
        binlog_checksum="NONE",
        binlog_order_commits="OFF",
        binlog_transaction_compression="ON",
        binlog_expire_logs_seconds=3600,
        sync_binlog=0,
        binlog_ignore_db="shop",
        server_id=77,
    ).endpoint
    with connected(server) as run:
        run("CREATE DATABASE shop")
        _load_a_zone_with_summer_time(run)
        chosen = settings(server, "shop", mysql={"server_id": 77, "time_zone": "Test/Summer"})
        initialise(chosen)
        findings = examine_mysql(chosen)
        assert wrong(findings) == {
            "binlog-row-image": "warning",
            "binlog-row-metadata": "warning",
            "binlog-checksum": "warning",
            "binlog-order-commits": "warning",
            "binlog-retention": "warning",
            "binlog-filter": "error",
            "server-id": "error",
            "durability": "warning",
            "time-zone": "warning",
        }
        assert find(findings, "gtid-mode").found.startswith("gtid_mode = OFF")
        for finding in findings:
            if finding.fix and finding.fix.startswith("SET PERSIST"):
                run(finding.fix)
        _assert_read_only_is_waited_for(run, server)
    left = settings(server, "shop")
    assert wrong(examine_mysql(left)) == {"binlog-filter": "error"}


def _assert_read_only_is_waited_for(run: Callable[[str], list[tuple[Any, ...]]], server: MySQLEndpoint) -> None:
    chosen = settings(server, "shop", mysql={"user": "relay", "password": "x-1"})
    run("CREATE USER 'relay'@'%' IDENTIFIED BY 'x-1'")
    for grant in schema.grants(chosen):
        run(grant)
    run("SET GLOBAL super_read_only = ON")
    findings = [one for one in examine_mysql(chosen) if one.check != "binlog-filter"]
    run("SET GLOBAL super_read_only = OFF")
    run("SET GLOBAL read_only = OFF")
    assert wrong(findings) == {"read-only": "error"}
    assert isinstance(refusal(findings), Hold)


def _load_a_zone_with_summer_time(run: Callable[[str], list[tuple[Any, ...]]]) -> None:
    """UTC+1 with an hour more from April to September of this year and the next two."""
    run("INSERT INTO mysql.time_zone (Time_zone_id, Use_leap_seconds) VALUES (9999, 'N')")
    run("INSERT INTO mysql.time_zone_name VALUES ('Test/Summer', 9999)")
    run("INSERT INTO mysql.time_zone_transition_type VALUES (9999, 0, 3600, 0, 'W'), (9999, 1, 7200, 1, 'S')")
    for year in range(3):
        for month, kind in (("04", 1), ("10", 0)):
            at = f"UNIX_TIMESTAMP(CONCAT(YEAR(NOW()) + {year}, '-{month}-01'))"
            run(f"INSERT INTO mysql.time_zone_transition VALUES (9999, {at}, {kind})")
    run("FLUSH TABLES")
