"""Whether the replica of `binlog.source` can be read in the primary's place: every check. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pymysql.err import MySQLError

from cdc_outbox.gtid import GtidSet
from cdc_outbox.mysql import schema, server_checks
from cdc_outbox.mysql.checkpoint import server_position, server_uuid
from cdc_outbox.mysql.connection_checks import (
    no_answer,
    no_connection,
    replication_grants,
    server_variables,
    tls,
    unreachable,
)
from cdc_outbox.mysql.findings import Finding
from cdc_outbox.mysql.flavour import is_mariadb
from cdc_outbox.mysql.probe import ANSWER_TIMEOUT, Probe
from cdc_outbox.mysql.session import Session

if TYPE_CHECKING:
    from cdc_outbox.config import Settings
    from cdc_outbox.mysql.server_checks import Variables

SECTION = "binlog.source"

_ITS_OWN = {
    "mysql-reachable": "source-reachable",
    "mysql-credentials": "source-credentials",
    "mysql-tls": "source-tls",
    "mysql-answer": "source-answer",
    "server-kind": "source-kind",
    "log-bin": "source-log-bin",
    "binlog-format": "source-format",
    "binlog-row-image": "source-row-image",
    "binlog-row-metadata": "source-row-metadata",
    "binlog-checksum": "source-checksum",
    "binlog-retention": "source-retention",
    "binlog-filter": "source-filter",
    "server-id": "source-server-id",
    "grant-replication-client": "source-grant-client",
    "grant-replication-slave": "source-grant-slave",
}
"""Checks of the primary that are made of the replica too, and what they are called then; others are not."""


def examine_source(settings: Settings) -> list[Finding]:
    """Every check of the replica, none without `binlog.source`; trouble is a finding, not an exception."""
    if settings.binlog.source is None:
        return []
    where = settings.binlog_server
    try:
        replica = Probe(where)
    except (MySQLError, OSError) as error:
        return list(_of_source([no_connection(error, where, SECTION)]))
    findings = [Finding("source-reachable", "ok", f"the binlog is read from MySQL at {where.host}:{where.port}")]
    try:
        for finding in _examine(replica, settings):
            findings.append(finding)  # one by one: what was found before it went away is kept
    except (MySQLError, OSError) as error:
        findings[:1] = _of_source([no_answer(error, where, SECTION)])
    finally:
        replica.close()
    return findings


def away_source(settings: Settings, text: str) -> list[Finding]:
    """What there is to say of a replica that does not answer."""
    return list(_of_source([unreachable(settings.binlog_server, text, SECTION)]))


def _of_source(found: Iterator[Finding] | Sequence[Finding]) -> Iterator[Finding]:
    for finding in found:
        if finding.check in _ITS_OWN:
            yield replace(finding, check=_ITS_OWN[finding.check], found=f"{SECTION}: {finding.found}")


def _examine(replica: Probe, settings: Settings) -> Iterator[Finding]:
    variables = server_variables(replica)
    kind = _kind(variables, replica.greeting_version)
    yield kind
    if kind.level == "error":
        return
    yield from _of_source(tls(replica, settings.binlog_server.tls.mode, SECTION))
    source = settings.binlog.source
    section = "mysql" if source is None or source.server_id is None else SECTION
    transient = settings.outbox.transient
    found = server_checks.binlog(variables, settings.binlog_server.server_id, section, transient=transient)
    yield from _of_source(found)
    yield from _log_replica_updates(variables)
    yield commit_order(variables)
    ((current_user,),) = replica.rows("SELECT CURRENT_USER()")
    databases = [table.database for table in settings.table_names]
    account = schema.account(*current_user.rsplit("@", 1))
    yield from _of_source(replication_grants(replica, databases, account))
    channels = replica.answer("SHOW REPLICA STATUS", "SHOW SLAVE STATUS")[1]
    yield from _filters(channels, databases)
    yield from _beside_the_primary(replica, variables, channels, settings)


def _kind(variables: Variables, greeting: str) -> Finding:
    if is_mariadb(variables.text("version")):
        return Finding(
            "source-kind",
            "error",
            f"{SECTION}: the server is MariaDB",
            "a replica is read by GTID, and MariaDB's GTIDs are another thing",
            "binlog: {source: null}  # read the primary",
        )
    (kind,) = _of_source([server_checks.server_kind(variables, greeting)])
    return kind


def _log_replica_updates(variables: Variables) -> Iterator[Finding]:
    if variables.on("log_replica_updates") or variables.on("log_slave_updates"):
        return
    yield Finding(
        "source-log-bin",
        "error",
        f"{SECTION}: log_replica_updates = OFF",
        "what the replica gets from the primary is not in its binlog",
        "my.cnf of the replica: [mysqld] log_replica_updates = ON — and restart it",
    )


def commit_order(variables: Variables) -> Finding:
    """Workers that commit side by side write a binlog in another order than the primary's."""
    workers = variables.number("replica_parallel_workers")
    if workers is None:
        workers = variables.number("slave_parallel_workers") or 0
    if variables.on("replica_preserve_commit_order") or variables.on("slave_preserve_commit_order") or workers <= 1:
        return Finding("source-commit-order", "ok", f"{SECTION}: transactions are applied in the primary's order")
    return Finding(
        "source-commit-order",
        "error",
        f"{SECTION}: replica_preserve_commit_order = OFF with {workers} workers",
        "transactions stand in its binlog in another order than the primary committed them: events of one aggregate"
        " would be published out of order",
        "STOP REPLICA SQL_THREAD; SET PERSIST replica_preserve_commit_order = ON; START REPLICA SQL_THREAD;",
    )


def _filters(channels: Sequence[Mapping[str, Any]], databases: Sequence[str]) -> Iterator[Finding]:
    for channel in channels:
        hidden = server_checks.binlog_filter(
            str(channel.get("replicate_do_db") or ""), str(channel.get("replicate_ignore_db") or ""), databases
        )
        by_table = [
            name
            for name in ("do_table", "ignore_table", "wild_do_table", "wild_ignore_table")
            if channel.get(f"replicate_{name}")
        ]
        if hidden is not None or by_table:
            filters = ", ".join(by_table) if hidden is None else "do_db, ignore_db"
            yield Finding(
                "source-filter",
                "error" if hidden is not None else "warning",
                f"{SECTION}: replication filters ({filters})",
                "rows that the replica leaves out come by the sweep only: late, and in the order of their ids",
                "STOP REPLICA SQL_THREAD; CHANGE REPLICATION FILTER REPLICATE_DO_DB = (), REPLICATE_IGNORE_DB = (),"
                " REPLICATE_DO_TABLE = (), REPLICATE_IGNORE_TABLE = (), REPLICATE_WILD_DO_TABLE = (),"
                " REPLICATE_WILD_IGNORE_TABLE = (); START REPLICA SQL_THREAD;",
            )


def _beside_the_primary(
    replica: Probe, variables: Variables, channels: Sequence[Mapping[str, Any]], settings: Settings
) -> Iterator[Finding]:
    """What needs an answer of the primary, too; where it gives none, its own checks say so."""
    ((uuid, executed),) = replica.rows("SELECT @@server_uuid, @@global.gtid_executed")
    modes = {SECTION: variables.text("gtid_mode")}
    try:
        primary = Session(settings.mysql, lifetime=ANSWER_TIMEOUT, bare=True)
    except (MySQLError, OSError):
        yield gtid_mode(modes)
        return
    try:
        modes["the primary"] = dict(primary.query("SHOW GLOBAL VARIABLES LIKE 'gtid_mode'")).get("gtid_mode", "absent")
        mode = gtid_mode(modes)
        yield mode
        if mode.level == "error":
            return
        theirs = server_uuid(primary)
        has = server_position(primary, gtids=True).gtid_set
    finally:
        primary.close()
    yield history(GtidSet.parse(executed).difference(has or GtidSet()))
    yield replication(channels, the_primary_itself=uuid == theirs)


def gtid_mode(modes: Mapping[str, str]) -> Finding:
    """modes: gtid_mode of each server that was asked."""
    wrong = [f"{server} has gtid_mode = {mode}" for server, mode in modes.items() if mode != "ON"]
    if not wrong:
        return Finding("source-gtid-mode", "ok", "gtid_mode = ON on both servers")
    return Finding(
        "source-gtid-mode",
        "error",
        f"{SECTION}: {', '.join(wrong)}",
        "a replica has other files than its primary: only a GTID set is a place in both",
        "SET PERSIST enforce_gtid_consistency = 'ON'; SET PERSIST gtid_mode = 'OFF_PERMISSIVE';"
        " SET PERSIST gtid_mode = 'ON_PERMISSIVE'; SET PERSIST gtid_mode = 'ON';  -- each step on both servers",
    )


def history(strange: GtidSet) -> Finding:
    """strange: what the replica has and the primary has not."""
    if not strange:
        return Finding("source-history", "ok", f"{SECTION}: it has nothing that the primary has not")
    first = next(iter(strange))
    return Finding(
        "source-history",
        "error",
        f"{SECTION}: it has transactions that the primary has not: {strange}",
        "it is no replica of this primary, was written to by itself, or the primary lost them; what they hold must not"
        " be published",
        f"SET gtid_next = '{first.source}:{first.first}'; BEGIN; COMMIT; SET gtid_next = 'AUTOMATIC';"
        f"  -- on the primary, for each that may be ignored; or {SECTION}.host: a faithful replica",
    )


def replication(channels: Sequence[Mapping[str, Any]], *, the_primary_itself: bool) -> Finding:
    """channels: rows of SHOW REPLICA STATUS."""
    if the_primary_itself:
        return Finding(
            "source-replication",
            "warning",
            f"{SECTION} leads to the primary itself",
            "it works, and takes nothing off the primary",
            "binlog: {source: {host: a replica of the primary}}",
        )
    halted = []
    for channel in channels:
        for thread in ("io", "sql"):
            state = channel.get(f"replica_{thread}_running") or channel.get(f"slave_{thread}_running")
            if state != "Yes":
                error = channel.get(f"last_{thread}_error")
                halted.append(f"{thread.upper()} thread: {state}" + (f", {error}" if error else ""))
    if channels and not halted:
        return Finding("source-replication", "ok", f"{SECTION}: it follows the primary")
    return Finding(
        "source-replication",
        "warning",
        f"{SECTION}: replication does not run ({'; '.join(halted) or 'no channel'})",
        "new events wait until it does",
        "START REPLICA;",
    )
