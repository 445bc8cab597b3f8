"""What findings mean for a start: refuse, wait, or go."""

from __future__ import annotations

from cdc_outbox.errors import Hold, Refused
from cdc_outbox.mysql.findings import Finding, refusal

OK = Finding("log-bin", "ok", "log_bin = ON")
WARNING = Finding("gtid-mode", "warning", "gtid_mode = ON_PERMISSIVE", "half a change", "SET …")
LASTING = Finding("binlog-format", "error", "binlog_format = MIXED", "no values", "SET PERSIST …;")
TABLE = Finding("outbox-table", "error", "there is no table shop.outbox_event", "", "cdc-outbox init")
CHECKPOINT = Finding("checkpoint-table", "error", "there is no table x", "", "cdc-outbox init")
MYSQL_AWAY = Finding("mysql-reachable", "error", "no answer", "start waits", heals=True)
KAFKA_AWAY = Finding("kafka-reachable", "error", "no answer", "start waits", heals=True)


def test_nothing_wrong_means_go() -> None:
    assert refusal([OK, WARNING]) is None


def test_one_error_is_one_line_with_its_fix() -> None:
    refused = refusal([OK, WARNING, LASTING])
    assert isinstance(refused, Refused)
    assert (refused.message, refused.hint) == ("binlog_format = MIXED: no values", "SET PERSIST …;")


def test_several_errors_are_listed_and_a_shared_fix_is_said_once() -> None:
    refused = refusal([LASTING, TABLE, CHECKPOINT])
    assert refused is not None
    assert refused.message.startswith("3 things")
    assert refused.hint == "SET PERSIST …;\ncdc-outbox init"


def test_what_heals_is_waited_for() -> None:
    for finding, reason in ((MYSQL_AWAY, "mysql"), (KAFKA_AWAY, "kafka")):
        held = refusal([OK, finding])
        assert isinstance(held, Hold)
        assert held.reason == reason


def test_waiting_does_not_help_where_something_lasts() -> None:
    refused = refusal([KAFKA_AWAY, LASTING])
    assert isinstance(refused, Refused)
    assert "no answer" not in refused.message
