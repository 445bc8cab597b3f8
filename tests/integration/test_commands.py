"""init, emit and checkpoint as commands, against a real MySQL."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pymysql
import pytest

from cdc_outbox.cli import main
from cdc_outbox.config import Settings, load_settings
from cdc_outbox.mysql.leadership import lock_name
from cdc_outbox.testing.services.endpoint import MySQLEndpoint

REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"


class Relay:
    """A relay's settings, its commands, and a connection of the test's own."""

    def __init__(self, file: Path, capsys: pytest.CaptureFixture[str], connection: pymysql.Connection[Any]) -> None:
        self._file = file
        self._capsys = capsys
        self.connection = connection
        self.settings: Settings = load_settings(file, {})

    def __call__(self, *arguments: str) -> tuple[int, str]:
        """(exit code, everything said)"""
        with pytest.raises(SystemExit) as ended:
            main(["--config", str(self._file), *arguments])
        said = self._capsys.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())


@pytest.fixture
def relay(
    mysql_server: MySQLEndpoint,
    database: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    for name in [one for one in os.environ if one.startswith("CDC_OUTBOX_")]:
        monkeypatch.delenv(name)
    file = tmp_path / "relay.yaml"
    file.write_text(
        f"name: {database}\n"
        f"mysql: {{host: {mysql_server.host}, port: {mysql_server.port}, user: {mysql_server.user},"
        f" password: '{mysql_server.password}', database: {database}}}\n"
        "kafka: {bootstrap_servers: 'localhost:1'}\n"
    )
    connection = pymysql.connect(
        host=mysql_server.host,
        port=mysql_server.port,
        user=mysql_server.user,
        password=mysql_server.password,
        database=database,
        autocommit=True,
        read_timeout=30,
    )
    with connection:
        yield Relay(file, capsys, connection)


def test_init_creates_once(relay: Relay) -> None:
    code, said = relay("init")
    assert code == 0
    assert "outbox_event" in said
    assert "GRANT " in said
    code, said = relay("init", "--comments", "en")
    assert code == 0
    assert "nothing to do" in said


def test_emit(relay: Relay) -> None:
    code, said = relay("emit")
    assert code == 2, "the table is not there yet"
    assert "init" in said
    relay("init")
    code, said = relay("emit", "--count", "3", "--aggregate-id", "订单-7", "--payload", '{"n": 1}')
    assert code == 0
    rows = relay.query("SELECT event_id, aggregate_id, CAST(payload AS CHAR), status FROM outbox_event ORDER BY id")
    assert [row[0] for row in rows] == said.split()
    assert {row[1:] for row in rows} == {("订单-7", '{"n": 1}', 0)}
    code, said = relay("emit", "--aggregate-id", "x" * 65)
    assert code == 2
    assert "Data too long for column 'aggregate_id'" in said
    assert len(relay.query("SELECT id FROM outbox_event")) == 3


def test_status_has_the_documented_keys(relay: Relay) -> None:
    relay("init")
    relay("emit", "--count", "2")
    code, said = relay("status", "--json")
    assert code == 0, said
    status = json.loads(said)
    page = REFERENCE.read_text("utf-8").split("\n## status --json\n")[1].split("\n## ")[0]
    documented = set(re.findall(r'"([a-z_]+)":', page)) - {"sent_is_lower_bound"}
    inner = [status["position"], status["lag"], status["counts"]]
    assert set(status).union(*inner) == documented
    assert (status["state"], status["leader"], status["counts"]["pending"]) == ("stopped", None, 2)
    code, said = relay("status", "--full")
    assert code == 0
    assert "2 pending" in said


def test_checkpoint_before_the_first_start(relay: Relay) -> None:
    assert relay("checkpoint", "show")[0] == 2, "the table is not there yet"
    relay("init")
    code, said = relay("checkpoint", "show")
    assert code == 0
    assert "has never been started" in said


def test_checkpoint_is_moved_and_reset(relay: Relay) -> None:
    relay("init")
    file = relay.query("SHOW BINARY LOGS")[0][0]
    assert relay("checkpoint", "set", f"{file}:4", "--yes")[0] == 0
    assert f"position   {file}:4" in relay("checkpoint", "show")[1]
    for to in ("now", "earliest"):
        code, said = relay("checkpoint", "reset", "--to", to, "--yes")
        assert code == 0, said
        position = said.split("read on from ")[1].strip()
        assert f"position   {position}" in relay("checkpoint", "show")[1]


@pytest.mark.parametrize("target", ["no-such-file.000001:4", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"])
def test_checkpoint_is_not_set_to_where_the_server_cannot_be_read(relay: Relay, target: str) -> None:
    relay("init")
    code, said = relay("checkpoint", "set", target, "--yes")
    assert code == 2
    assert "nothing was changed" in said
    assert relay.query("SELECT * FROM cdc_outbox_checkpoint") == []


def test_checkpoint_is_refused_while_a_relay_leads(relay: Relay) -> None:
    relay("init")
    lock = lock_name(relay.settings.mysql.database, relay.settings.name)
    assert relay.query(f"SELECT GET_LOCK('{lock}', 0)") == [(1,)]
    connection = relay.query("SELECT CONNECTION_ID()")[0][0]
    for arguments in (["set", "binlog.000001:4", "--yes"], ["reset", "--yes"], ["reset"]):
        code, said = relay("checkpoint", *arguments)
        assert code == 2
        assert f"MySQL connection {connection}" in said
    assert f"MySQL connection {connection}" in relay("checkpoint", "show")[1]
    assert relay.query("SELECT * FROM cdc_outbox_checkpoint") == []
    relay.query(f"SELECT RELEASE_LOCK('{lock}')")
    assert relay("checkpoint", "reset", "--yes")[0] == 0


def test_a_wrong_password_is_refused_without_showing_it(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_OUTBOX_MYSQL__PASSWORD", "wr0ng-s3cr3t")
    code, said = relay("init")
    assert code == 2
    assert "mysql.password" in said
    assert "wr0ng-s3cr3t" not in said


@pytest.mark.parametrize(
    "words",
    [
        ["retry"],
        ["retry", "some-event", "--state", "dead"],
        ["retry", "--state", "sent"],
        ["skip", "--state", "pending"],
        ["purge", "--state", "failed"],
        ["list", "--older-than", "yesterday"],
        ["list", "--table", "other"],
        ["list", "--error", "x"],
        ["show", "nobody"],
    ],
    ids=" ".join,
)
def test_events_must_be_asked_for_sensibly(relay: Relay, words: list[str]) -> None:
    relay("init")
    code, said = relay("events", *words)
    assert code == 2
    assert "Traceback" not in said


LOOKS = [["status"], ["events", "list"], ["events", "retry", "--state", "dead"], ["archive", "--older-than", "1d"]]


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_what_is_not_there_yet_is_no_refusal_of_the_account(
    relay: Relay, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = relay(*words)
    assert code == 2
    assert f"there is no table {relay.settings.mysql.database}." in said
    assert "cdc-outbox init creates it" in said
    monkeypatch.setenv("CDC_OUTBOX_MYSQL__DATABASE", "not_there_yet")
    code, said = relay(*words)
    assert code == 2
    assert "there is no database not_there_yet" in said
    assert "CREATE DATABASE `not_there_yet`; then cdc-outbox init" in said


def test_a_row_that_does_not_say_why_it_failed_says_where_to_look(relay: Relay) -> None:
    relay("init")
    event_id = relay("emit")[1].strip()
    assert "event_failed" not in relay("events", "list")[1]
    relay.query("UPDATE outbox_event SET status = 3, retry_count = max_retries")
    assert "why it failed is in the relay's log (event_failed, event_dead)" in relay("events", "list")[1]
    assert "reason          why it failed is in the relay's log" in relay("events", "show", event_id)[1]
    relay.query("ALTER TABLE outbox_event ADD COLUMN last_error VARCHAR(512) DEFAULT 'too large'")
    assert "event_failed" not in relay("events", "list")[1] + relay("events", "show", event_id)[1]


def test_events_are_listed_and_shown(relay: Relay) -> None:
    relay("init")
    event_id = relay("emit", "--payload", '{"secret": "s3cr3t"}', "--aggregate-id", "订单-7")[1].strip()
    code, said = relay("events", "list")
    assert code == 0
    assert re.search(rf"^pending +1 +{event_id} +test/订单-7 +TestEvent +0/3 ", said, flags=re.M)
    code, said = relay("events", "list", "--state", "dead")
    assert (code, said) == (0, "no such event\n")
    code, said = relay("events", "show", event_id)
    assert "committed and not published yet" in said
    assert "s3cr3t" not in said
    told = json.loads(relay("events", "show", event_id, "--payload", "--json")[1])
    assert told["payload"] == '{"secret": "s3cr3t"}'
    assert (told["state"], told["aggregate_id"], told["last_error"]) == ("pending", "订单-7", None)


def test_what_a_row_holds_cannot_steer_the_terminal(relay: Relay) -> None:
    relay("init")
    relay("emit", "--aggregate-id", "a\x1b[2J\nb")
    code, said = relay("events", "list")
    assert code == 0
    assert "test/a\\x1b[2J\\nb" in said


def test_an_older_checkpoint_table_is_upgraded_once(relay: Relay) -> None:
    relay("init")
    relay.query("ALTER TABLE cdc_outbox_checkpoint DROP COLUMN paused, DROP COLUMN schema_version")
    relay.query("INSERT INTO cdc_outbox_checkpoint (name, epoch, owner, gtid_set) VALUES ('orders', 7, 'x', 'kept')")
    code, said = relay("init", "--upgrade")
    assert code == 0
    assert ".cdc_outbox_checkpoint.paused" in said
    assert ".cdc_outbox_checkpoint.schema_version" in said
    rows = "SELECT name, epoch, gtid_set, paused, schema_version FROM cdc_outbox_checkpoint"
    assert relay.query(rows) == [("orders", 7, "kept", 0, 1)]
    relay.query("UPDATE cdc_outbox_checkpoint SET schema_version = 0")
    assert "brought 1 checkpoints to schema version 1" in relay("init", "--upgrade")[1]
    assert "nothing to upgrade" in relay("init", "--upgrade")[1]
    assert relay.query(rows) == [("orders", 7, "kept", 0, 1)]


def test_a_newer_checkpoint_table_is_left_alone(relay: Relay) -> None:
    relay("init")
    relay.query("INSERT INTO cdc_outbox_checkpoint (name, schema_version) VALUES ('orders', 99)")
    code, said = relay("init", "--upgrade")
    assert code == 2
    assert "schema version 99" in said
    assert "nothing was changed" in said
