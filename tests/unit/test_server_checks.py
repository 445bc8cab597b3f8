"""What each server variable means: level, stable id and fix."""

from __future__ import annotations

import pytest

from cdc_outbox.mysql import server_checks
from cdc_outbox.mysql.findings import Finding
from cdc_outbox.mysql.server_checks import Variables

GOOD = {
    "version": "9.7.4",
    "version_comment": "MySQL Community Server - GPL",
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "binlog_checksum": "CRC32",
    "binlog_transaction_compression": "OFF",
    "binlog_expire_logs_seconds": "2592000",
    "binlog_expire_logs_auto_purge": "ON",
    "server_id": "1",
    "gtid_mode": "ON",
    "sync_binlog": "1",
    "innodb_flush_log_at_trx_commit": "1",
    "read_only": "OFF",
    "super_read_only": "OFF",
}


def variables(**changes: str | None) -> Variables:
    values = {**GOOD, **changes}
    return Variables({name: value for name, value in values.items() if value is not None})


def everything(seen: Variables, claim: str = "leader", server_id: int | None = None) -> list[Finding]:
    return [
        server_checks.server_kind(seen, seen.text("version")),
        *filter(None, [server_checks.cluster(seen)]),
        server_checks.read_only(seen),
        *server_checks.binlog(seen, server_id),
        *server_checks.durability(seen, claim),
    ]


def wrong(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(one.check, one.level) for one in findings if one.level != "ok"]


def test_a_well_set_server_gives_no_complaint() -> None:
    assert wrong(everything(variables())) == []


def test_a_server_that_does_not_know_the_newer_variables_is_no_crash() -> None:
    absent = {name: None for name in GOOD if name not in {"version", "log_bin", "server_id"}}
    assert wrong(everything(variables(**absent))) == [
        ("binlog-row-metadata", "warning"),
        ("binlog-checksum", "warning"),
    ]


@pytest.mark.parametrize(
    ("changes", "check", "level", "fix"),
    [
        ({"log_bin": "OFF"}, "log-bin", "error", "log_bin = binlog"),
        ({"binlog_format": "STATEMENT"}, "binlog-format", "error", "SET PERSIST binlog_format = 'ROW';"),
        ({"binlog_format": "MIXED"}, "binlog-format", "error", "SET PERSIST binlog_format = 'ROW';"),
        ({"binlog_row_image": "MINIMAL"}, "binlog-row-image", "warning", "binlog_row_image = 'FULL'"),
        ({"binlog_row_image": "NOBLOB"}, "binlog-row-image", "warning", "binlog_row_image = 'FULL'"),
        (
            {"binlog_row_metadata": "MINIMAL"},
            "binlog-row-metadata",
            "warning",
            "binlog_row_metadata = 'FULL'",
        ),
        ({"binlog_checksum": "NONE"}, "binlog-checksum", "warning", "binlog_checksum = 'CRC32'"),
        ({"binlog_order_commits": "OFF"}, "binlog-order-commits", "warning", "binlog_order_commits = ON;"),
        ({"binlog_expire_logs_seconds": "86400"}, "binlog-retention", "warning", "= 604800"),
        ({"server_id": "0"}, "server-id", "error", "server_id = 1"),
        ({"gtid_mode": "ON_PERMISSIVE"}, "gtid-mode", "warning", "SET PERSIST gtid_mode = 'ON';"),
        ({"sync_binlog": "0"}, "durability", "warning", "SET PERSIST sync_binlog = 1;"),
        ({"innodb_flush_log_at_trx_commit": "2"}, "durability", "warning", "flush_log_at_trx_commit = 1"),
        ({"rpl_semi_sync_source_enabled": "ON"}, "semi-sync", "warning", "claim: row"),
        ({"group_replication_single_primary_mode": "OFF"}, "cluster", "error", "single_primary_mode()"),
        ({"wsrep_on": "ON"}, "cluster", "error", "not in a Galera cluster"),
        ({"read_only": "ON"}, "read-only", "error", "SET GLOBAL read_only = OFF"),
        ({"version": "10.5.23-MariaDB-log"}, "server-kind", "error", "10.6 or newer"),
        ({"binlog_row_metadata": "NO_LOG"}, "binlog-row-metadata", "error", "binlog_row_metadata = 'FULL'"),
        ({"log_bin_compress": "ON"}, "binlog-compression", "error", "log_bin_compress = OFF"),
        ({"version": "8.0.11-TiDB-v7.5.0"}, "server-kind", "error", "a MySQL server"),
        ({"version": "5.7.44-log"}, "server-kind", "error", "8.0 or newer"),
        ({"version_comment": "(ProxySQL)"}, "proxy", "error", "the server's own address"),
    ],
)
def test_each_setting_that_matters_has_its_finding(changes: dict[str, str], check: str, level: str, fix: str) -> None:
    findings = everything(variables(**changes))
    assert wrong(findings) == [(check, level)]
    finding = next(one for one in findings if one.check == check)
    assert finding.fix is not None and fix in finding.fix
    assert finding.why


def test_rows_that_are_deleted_at_once_must_be_whole_in_the_binlog() -> None:
    seen = variables(binlog_row_image="NOBLOB")
    (found,) = [one for one in server_checks.binlog(seen, None, transient=True) if one.level != "ok"]
    assert (found.check, found.level) == ("binlog-row-image", "error")
    assert "reconnect" in (found.fix or "")


def test_only_a_read_only_server_heals() -> None:
    assert server_checks.read_only(variables(super_read_only="ON")).heals


def test_half_way_to_gtids_is_told_step_by_step() -> None:
    finding = next(one for one in everything(variables(gtid_mode="OFF_PERMISSIVE")) if one.check == "gtid-mode")
    assert finding.fix is not None
    assert finding.fix.endswith("gtid_mode = 'ON_PERMISSIVE'; SET PERSIST gtid_mode = 'ON';")


def test_lossless_semi_sync_is_no_trouble_for_claim_row() -> None:
    assert wrong(everything(variables(rpl_semi_sync_source_enabled="ON"), claim="row")) == []


def test_semi_sync_after_commit_shows_only_what_is_committed() -> None:
    seen = variables(rpl_semi_sync_source_enabled="ON", rpl_semi_sync_source_wait_point="AFTER_COMMIT")
    assert wrong(everything(seen)) == []


@pytest.mark.parametrize("changes", [{"binlog_expire_logs_seconds": "0"}, {"binlog_expire_logs_auto_purge": "OFF"}])
def test_a_binlog_that_is_never_purged_is_kept_long_enough(changes: dict[str, str]) -> None:
    assert wrong(everything(variables(**{"binlog_expire_logs_seconds": "60", **changes}))) == []


def test_our_server_id_must_not_be_the_servers() -> None:
    assert wrong(everything(variables(server_id="7"), server_id=7)) == [("server-id", "error")]
    findings = server_checks.binlog(variables(server_id="7"), 7, "binlog.source")
    (finding,) = [one for one in findings if one.check == "server-id"]
    assert finding.found.startswith("binlog.source.server_id = 7 ")
    assert finding.fix is not None and finding.fix.startswith("binlog.source: {server_id: null}")


@pytest.mark.parametrize(
    ("greeting", "sessions", "level"),
    [
        (5, [("a", 5), ("a", 5)], "ok"),
        (5, [("a", 2**32 + 5)], "ok"),
        (5, [("a", 6)], "error"),
        (5, [("a", 5), ("a", 6)], "error"),
        (5, [("a", 5), ("b", 5)], "error"),
    ],
)
def test_a_pooling_proxy_shows_by_its_connection_ids(
    greeting: int, sessions: list[tuple[str, int]], level: str
) -> None:
    assert server_checks.proxy(greeting, sessions).level == level


def test_two_connections_must_reach_one_server() -> None:
    assert server_checks.one_server(["a", "a"]) is None
    finding = server_checks.one_server(["a", "b"])
    assert finding is not None and finding.level == "error"


@pytest.mark.parametrize(
    ("do", "ignore", "hidden"),
    [
        ("", "", False),
        ("shop,other", "", False),
        ("other", "", True),
        ("", "test,shop", True),
        ("", "test", False),
    ],
)
def test_a_filtered_database_never_reaches_the_binlog(do: str, ignore: str, hidden: bool) -> None:
    finding = server_checks.binlog_filter(do, ignore, ["shop"])
    assert (finding is not None) is hidden


def test_summer_time_is_told_by_the_offsets() -> None:
    assert server_checks.time_zone("+08:00", [14400] * 12).level == "ok"
    assert server_checks.time_zone("Europe/Berlin", [39600] * 5 + [36000] * 7).level == "warning"


@pytest.mark.parametrize("version", ["10.6.1-MariaDB", "10.11.6-MariaDB-log", "5.5.5-11.4.2-MariaDB"])
def test_mariadb_is_read_by_file_and_offset(version: str) -> None:
    finding = server_checks.server_kind(variables(version=version.removeprefix("5.5.5-")), version)
    assert finding.level == "ok" and "MariaDB" in finding.found
    gtids = next(one for one in everything(variables(version=version, gtid_mode=None)) if one.check == "gtid-mode")
    assert gtids.level == "ok" and "file and offset" in gtids.found
