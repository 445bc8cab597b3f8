"""Whether a relay can work with a MySQL server, an account and its tables: every check. Changes nothing.

Privileges are tried (EXPLAIN asks for those of the statement it explains), not read from SHOW GRANTS, which
leaves out roles and partial revokes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING, Any

from pymysql.err import MySQLError

from cdc_outbox.model import TableName
from cdc_outbox.mysql import schema, server_checks, table_checks
from cdc_outbox.mysql.connection_checks import (
    DENIED,
    denied,
    no_answer,
    no_connection,
    replication_grants,
    server_variables,
    tls,
)
from cdc_outbox.mysql.findings import Finding, refusal
from cdc_outbox.mysql.flavour import fix_in_mariadb, is_mariadb, row_image_privilege
from cdc_outbox.mysql.probe import Probe

if TYPE_CHECKING:
    from cdc_outbox.config import Settings

__all__ = ["Finding", "examine_mysql", "refusal"]

CLOCK_TOLERANCE = 2.0
"""Seconds by which this host's clock may differ from the server's, the round trip left out."""

_UNKNOWN_DATABASE = 1049
_NO_TABLE = 1146
_LOCKED = 1205
_READ_ONLY = frozenset({1290, 1836})
"""The server asks for this before it asks for privileges; a finding of its own."""


def examine_mysql(settings: Settings) -> list[Finding]:
    """Every check of the server, the account and the tables; trouble is a finding, not an exception.

    After a finding that leaves nothing to ask (unreachable, no MySQL) the later checks are left out.
    """
    try:
        server = Probe(settings.mysql)
    except (MySQLError, OSError) as error:
        return [no_connection(error, settings.mysql)]
    findings = [Finding("mysql-reachable", "ok", f"MySQL at {settings.mysql.host}:{settings.mysql.port}")]
    mariadb = is_mariadb(server.greeting_version)
    try:
        for found in _examine(server, settings):
            finding = replace(found, fix=fix_in_mariadb(found.fix)) if mariadb and found.fix else found
            findings.append(finding)  # one by one: what was found before the server went away is kept
    except (MySQLError, OSError) as error:
        findings[0] = no_answer(error, settings.mysql)
    finally:
        server.close()
    return findings


def _examine(server: Probe, settings: Settings) -> Iterator[Finding]:
    variables = server_variables(server)
    kind = server_checks.server_kind(variables, server.greeting_version)
    yield kind
    if kind.level == "error":
        return
    yield from tls(server, settings.mysql.tls.mode)
    yield _proxy(server, settings)
    cluster = server_checks.cluster(variables)
    if cluster:
        yield cluster
    yield server_checks.read_only(variables)
    yield from server_checks.binlog(variables, settings.mysql.server_id, transient=settings.outbox.transient)
    yield from server_checks.durability(variables, settings.outbox.claim)
    server.answer("SET SESSION lock_wait_timeout = 1")
    ((current_user,),) = server.rows("SELECT CURRENT_USER()")
    account = schema.account(*current_user.rsplit("@", 1))
    databases = [table.database for table in settings.table_names]
    yield from replication_grants(server, databases, account, reads_binlog=settings.binlog.source is None)
    yield _row_image_grant(server, account)
    yield _time_zone(server, settings)
    yield _clock(server)
    database = _database(server, settings)
    if database:
        yield database
        return
    for table in settings.table_names:
        yield from _outbox_table(server, settings, table, account)
    yield from _checkpoint_table(server, settings, account)


def _proxy(server: Probe, settings: Settings) -> Finding:
    seen = [(str(uuid), int(number)) for _ in range(3) for uuid, number in _identity(server)]
    finding = server_checks.proxy(server.greeting_id, seen)
    if finding.level == "error":
        return finding
    second = Probe(settings.mysql)
    try:
        return server_checks.one_server([seen[0][0], *(str(uuid) for uuid, _ in _identity(second))]) or finding
    finally:
        second.close()


def _identity(server: Probe) -> list[tuple[Any, ...]]:
    return server.rows("SELECT @@server_uuid, CONNECTION_ID()")


def _row_image_grant(server: Probe, account: str) -> Finding:
    code, _ = server.answer("SET SESSION binlog_row_image = 'MINIMAL'")
    if code not in DENIED:
        return Finding("grant-session-variables", "ok", "binlog_row_image = MINIMAL in our sessions")
    privilege = row_image_privilege(server.greeting_version)
    return Finding(
        "grant-session-variables",
        "warning",
        f"{account} lacks {privilege}",
        "optional: without it each status change writes whole rows to the binlog, not a few bytes",
        f"GRANT {privilege} ON *.* TO {account};",
    )


def _time_zone(server: Probe, settings: Settings) -> Finding:
    wanted = settings.mysql.time_zone
    if wanted and server.answer("SET SESSION time_zone = %s", args=(wanted,))[0]:
        return Finding(
            "time-zone",
            "error",
            f"mysql.time_zone = {wanted!r} is unknown to the server",
            "named zones need the server's zone tables",
            'mysql: {time_zone: "+00:00"}  # or: mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql mysql',
        )
    noons = (f"TIMESTAMP(CURDATE() + INTERVAL {month} MONTH, '12:00:00')" for month in range(12))
    offsets = ", ".join(f"UNIX_TIMESTAMP({noon}) % 86400" for noon in noons)
    ((name, system, *seconds),) = server.rows(f"SELECT @@session.time_zone, @@system_time_zone, {offsets}")
    return server_checks.time_zone(f"SYSTEM ({system})" if name == "SYSTEM" else name, seconds)


def _clock(server: Probe) -> Finding:
    before = time.time()
    ((theirs,),) = server.rows("SELECT UTC_TIMESTAMP(6)")
    after = time.time()
    ahead = theirs.replace(tzinfo=UTC).timestamp() - (before + after) / 2
    if abs(ahead) <= CLOCK_TOLERANCE + (after - before) / 2:
        return Finding("clock", "ok", "this host's clock agrees with the server's")
    return Finding(
        "clock",
        "warning",
        f"the server's clock is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} this host's",
        "retries follow the server's clock, but lag and the timestamps of records are wrong by as much",
        "timedatectl set-ntp true  # on both hosts",
    )


def _database(server: Probe, settings: Settings) -> Finding | None:
    database = settings.mysql.database
    code, _ = server.answer(f"USE {schema.identifier(database)}")
    if code == _UNKNOWN_DATABASE:
        return Finding(
            "mysql-database",
            "error",
            f"mysql.database: there is no database {database!r}",
            "the outbox and the checkpoint live there",
            f"CREATE DATABASE {schema.identifier(database)};  -- then `cdc-outbox init`",
        )
    if code:
        return Finding(
            "mysql-database",
            "error",
            f"mysql.database: {settings.mysql.user!r} may not use {database!r} ({code})",
            "it does not exist, or the account has no grant in it",
            "; ".join(schema.grants(settings)) + ";",
        )
    return None


def _outbox_table(server: Probe, settings: Settings, table: TableName, account: str) -> Iterator[Finding]:
    code, _ = server.answer(f"SELECT 1 FROM {table.quoted} LIMIT 0")
    if code:
        yield _no_table(
            "outbox-table", "grant-outbox", table, code, schema.table_grant("SELECT, UPDATE", table, account)
        )
        return
    layout = server.layout(table)
    columns = settings.outbox.columns
    mapped = [columns.key, *([columns.topic] if columns.topic else []), *columns.headers.values()]
    findings = table_checks.outbox(table, layout, mapped)
    yield from findings
    if any(finding.level == "error" for finding in findings):
        return
    changed = ["status = 0", "retry_count = 0", "next_retry_at = NULL"]
    if layout.column("last_error"):
        changed.append("last_error = NULL")
    tried = [f"EXPLAIN UPDATE {table.quoted} SET {', '.join(changed)} WHERE id = 0"]
    if settings.outbox.transient:
        tried += [
            f"EXPLAIN INSERT INTO {table.quoted} (event_id) VALUES ('')",
            f"EXPLAIN DELETE FROM {table.quoted} WHERE id = 0",
        ]
    grant = schema.table_grant(schema.outbox_privileges(settings), table, account)
    yield _may(server, "grant-outbox", table, tried, grant)


def _checkpoint_table(server: Probe, settings: Settings, account: str) -> Iterator[Finding]:
    table = schema.checkpoint_table(settings)
    grant = schema.table_grant("SELECT, INSERT, UPDATE", table, account)
    code, _ = server.answer(f"SELECT 1 FROM {table.quoted} LIMIT 0")
    if code:
        yield _no_table("checkpoint-table", "grant-checkpoint", table, code, grant)
        return
    findings = table_checks.checkpoint(table, server.layout(table))
    yield from findings
    if any(finding.level == "error" for finding in findings):
        return
    tried = [
        f"EXPLAIN INSERT INTO {table.quoted} (name, shard, epoch) VALUES ('', 0, 0)",
        f"EXPLAIN UPDATE {table.quoted} SET epoch = 0 WHERE name = '' AND shard = 0",
    ]
    yield _may(server, "grant-checkpoint", table, tried, grant)


def _no_table(check: str, grant_check: str, table: TableName, code: int, grant: str) -> Finding:
    if code in {_NO_TABLE, _UNKNOWN_DATABASE}:
        return Finding(check, "error", f"there is no table {table}", "it has not been created yet", "cdc-outbox init")
    if code == _LOCKED:
        return _locked(check, table)
    return denied(
        grant_check,
        f"the account may not read {table}, or there is no such table",
        "without a grant the server does not say which",
        f"{grant};  -- after `cdc-outbox init`, where the table is missing".removesuffix(";"),
    )


def _may(server: Probe, check: str, table: TableName, statements: list[str], grant: str) -> Finding:
    answers = [server.answer(statement)[0] for statement in statements]
    codes = [code for code in answers if code and code not in _READ_ONLY]
    if _LOCKED in codes:
        return _locked(check, table)
    if not codes:
        return Finding(check, "ok", f"{table}: privileges as needed")
    return denied(check, f"the account may not change {table} ({codes[0]})", "outcomes could not be written", grant)


def _locked(check: str, table: TableName) -> Finding:
    return Finding(
        check,
        "warning",
        f"{table} is locked by somebody's DDL or LOCK TABLES",
        "it could not be looked at; the relay too waits until the lock is gone",
        "SHOW PROCESSLIST;  -- who holds it",
    )
