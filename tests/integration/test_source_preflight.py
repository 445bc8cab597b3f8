"""The checks of `binlog.source` on real servers: well set, broken on purpose, mended by the fix that they name."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cdc_outbox.config import Settings
from cdc_outbox.errors import Hold, Refused
from cdc_outbox.mysql import schema
from cdc_outbox.mysql.findings import Finding, refusal
from cdc_outbox.mysql.preflight import examine_mysql
from cdc_outbox.mysql.source_preflight import examine_source
from cdc_outbox.ops import doctor
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.harness.proxy import Proxy
from tests.harness.replication import catch_up, follow, run
from tests.integration.greetings import tidb
from tests.integration.test_checks import blocking_server
from tests.integration.test_preflight import connected, find, initialise, settings, wrong

THE_SAME = {"source-replication": "warning"}
"""What there is to say of a source that is the primary itself."""


def reading(primary: MySQLEndpoint, database: str, port: int, **source: object) -> Settings:
    return settings(primary, database, binlog={"source": {"host": "127.0.0.1", "port": port, **source}})


def of_the_replica(chosen: Settings, monkeypatch: pytest.MonkeyPatch) -> list[Finding]:
    """What doctor says, with no broker asked."""
    monkeypatch.setattr(doctor, "_examine_broker", lambda _: [Finding("kafka-reachable", "ok", "")])
    return doctor.examine(chosen, deadline=60)


def test_a_replica_that_follows_passes_and_one_that_halts_is_told(
    make_mysql: Callable[..., Server[MySQLEndpoint]], monkeypatch: pytest.MonkeyPatch
) -> None:
    primary, replica = make_mysql(server_id=1), make_mysql(server_id=2, log_bin="other")
    follow(replica, primary)
    run(primary, "CREATE DATABASE shop")
    chosen = reading(primary.endpoint, "shop", replica.port)
    initialise(chosen)
    catch_up(replica, primary)
    findings = of_the_replica(chosen, monkeypatch)
    assert wrong(findings) == {}
    assert {"source-reachable", "source-format", "source-history", "log-bin"} <= {one.check for one in findings}
    run(replica, "STOP REPLICA SQL_THREAD")
    run(primary, "CREATE DATABASE other")
    halted = find(examine_source(chosen), "source-replication")
    assert halted.level == "warning" and "SQL thread: No" in halted.found
    run(replica, "CHANGE REPLICATION FILTER REPLICATE_IGNORE_DB = (shop)")
    findings = examine_source(chosen)
    assert wrong(findings) == {"source-replication": "warning", "source-filter": "error"}
    for statement in str(find(findings, "source-filter").fix).split(";")[:-1]:
        run(replica, statement)
    assert wrong(examine_source(chosen)) == {}
    run(replica, "STOP REPLICA SQL_THREAD")
    run(replica, "CHANGE REPLICATION FILTER REPLICATE_WILD_IGNORE_TABLE = ('shop.x%%')")
    assert wrong(examine_source(chosen)) == {"source-replication": "warning", "source-filter": "warning"}


def test_a_replica_set_loosely(mysql_server: MySQLEndpoint, database: str, make_mysql: Callable[..., Any]) -> None:
    replica = make_mysql(
        gtid_mode="OFF",
        enforce_gtid_consistency="OFF",
        log_replica_updates="OFF",
        replica_preserve_commit_order="OFF",
        binlog_row_image="MINIMAL",
        binlog_row_metadata="MINIMAL",
        binlog_checksum="NONE",
        binlog_expire_logs_seconds=3600,
        binlog_ignore_db=database,
        server_id=77,
    )
    chosen = reading(mysql_server, database, replica.port, server_id=77)
    initialise(chosen)
    findings = examine_source(chosen)
    assert wrong(findings) == {
        "source-row-image": "warning",
        "source-row-metadata": "warning",
        "source-checksum": "warning",
        "source-retention": "warning",
        "source-server-id": "error",
        "source-log-bin": "error",
        "source-commit-order": "error",
        "source-filter": "error",
        "source-gtid-mode": "error",
    }
    assert isinstance(refusal(findings), Refused)
    assert wrong(examine_mysql(chosen)) == {}, "the primary is judged by itself"
    with connected(replica.endpoint) as run_there:
        for finding in findings:
            if finding.fix and "SET PERSIST" in finding.fix:
                for statement in finding.fix.partition("--")[0].split(";")[:-1]:
                    if "REPLICA SQL_THREAD" not in statement:  # there is no channel yet
                        run_there(statement)
    left = wrong(examine_source(reading(mysql_server, database, replica.port)))
    assert left == {"source-log-bin": "error", "source-filter": "error", "source-replication": "warning"}


def test_a_primary_without_gtids_and_a_server_that_is_no_replica_of_it(make_mysql: Callable[..., Any]) -> None:
    primary, stranger = make_mysql(gtid_mode="ON_PERMISSIVE"), make_mysql(server_id=9)
    run(stranger, "CREATE DATABASE staging")
    chosen = reading(primary.endpoint, "mysql", stranger.port)
    found = find(examine_source(chosen), "source-gtid-mode")
    assert found.level == "error" and "the primary has gtid_mode = ON_PERMISSIVE" in found.found
    run(primary, "SET GLOBAL gtid_mode = ON")
    findings = examine_source(chosen)
    assert wrong(findings) == {"source-history": "error", "source-replication": "warning"}
    found = find(findings, "source-history")
    assert run(stranger, "SELECT @@global.gtid_executed")[0][0] in found.found
    with connected(primary.endpoint) as run_there:
        for statement in str(found.fix).partition("--")[0].split(";")[:-1]:
            run_there(statement)
    assert wrong(examine_source(chosen)) == {"source-replication": "warning"}


@pytest.fixture
def reader(mysql_server: MySQLEndpoint) -> Iterator[tuple[str, str]]:
    """User and password of an account without a grant."""
    user, password = f"t_{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
    with connected(mysql_server) as run_there:
        run_there(f"CREATE USER {schema.account(user)} IDENTIFIED BY '{password}'")
        yield user, password
        run_there(f"DROP USER {schema.account(user)}")


def test_an_account_of_its_own_needs_two_grants(
    mysql_server: MySQLEndpoint, database: str, reader: tuple[str, str]
) -> None:
    user, password = reader
    chosen = reading(mysql_server, database, mysql_server.port, user=user, password=password)
    findings = examine_source(chosen)
    assert wrong(findings) == {"source-grant-client": "error", "source-grant-slave": "error", **THE_SAME}
    printed = [grant for grant in schema.grants(chosen) if schema.account(user) in grant]
    assert printed == [f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {schema.account(user)}"]
    with connected(mysql_server) as run_there:
        for check in ("source-grant-client", "source-grant-slave"):
            run_there(str(find(findings, check).fix))
        assert wrong(examine_source(chosen)) == THE_SAME
        run_there(f"REVOKE ALL ON *.* FROM {schema.account(user)}")
        run_there(printed[0])
        assert wrong(examine_source(chosen)) == THE_SAME


def test_a_relay_with_a_source_needs_no_dump_of_the_primary(
    mysql_server: MySQLEndpoint, database: str, reader: tuple[str, str]
) -> None:
    user, password = reader
    with_source = settings(
        mysql_server,
        database,
        mysql={"user": user, "password": password},
        binlog={"source": {"host": "127.0.0.1", "user": "root"}},
    )
    initialise(reading(mysql_server, database, mysql_server.port))
    with connected(mysql_server) as run_there:
        for grant in schema.grants(with_source):
            if "'root'" not in grant:
                assert "REPLICATION SLAVE" not in grant
                run_there(grant)
    assert wrong(examine_mysql(with_source)) == {}


def test_what_keeps_us_out(mysql_server: MySQLEndpoint, database: str) -> None:
    port = mysql_server.port
    refused = examine_source(reading(mysql_server, database, port, user="nobody", password="s3cret-pass"))
    assert wrong(refused) == {"source-credentials": "error"} and "s3cret-pass" not in str(refused)
    assert "binlog.source: {user, password}" in str(refused[0].fix)
    untrusted = examine_source(reading(mysql_server, database, port, tls={"mode": "verify_ca"}))
    assert wrong(untrusted) == {"source-tls": "error"}
    assert "binlog.source.tls.mode = verify_ca" in untrusted[0].found
    with blocking_server() as (_, blocked):
        assert wrong(examine_source(reading(mysql_server, database, blocked))) == {"source-answer": "error"}
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        away = examine_source(reading(mysql_server, database, nobody_listens.getsockname()[1]))
    assert wrong(away) == {"source-reachable": "error"}
    held = refusal(away)
    assert isinstance(held, Hold) and held.reason == "source"


def test_another_kind_of_server(mysql_server: MySQLEndpoint, database: str, make_mariadb: Callable[..., Any]) -> None:
    with Proxy(mysql_server.host, mysql_server.port, tidb) as proxy:
        found = examine_source(reading(mysql_server, database, proxy.port, tls={"mode": "disabled"}))
    assert wrong(found) == {"source-kind": "error"} and "TiDB" in find(found, "source-kind").found
    mariadb = make_mariadb().endpoint
    found = examine_source(reading(mysql_server, database, mariadb.port, user=mariadb.user, password=mariadb.password))
    assert wrong(found) == {"source-kind": "error"} and "MariaDB" in find(found, "source-kind").found


def test_without_a_source_there_is_nothing_to_check(mysql_server: MySQLEndpoint, database: str) -> None:
    assert examine_source(settings(mysql_server, database)) == []
