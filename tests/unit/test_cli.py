"""The command line without servers: usage, refusals, exit codes, confirmation; and what each command hands on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cdc_outbox import __version__
from cdc_outbox.cli import main
from cdc_outbox.cli.arguments import counted, table_of
from cdc_outbox.config import load_settings
from cdc_outbox.errors import BinlogLost, BinlogUnreadable, CdcOutboxError, Hold, Refused
from cdc_outbox.gtid import GtidSet
from cdc_outbox.model import Position
from cdc_outbox.mysql.findings import Finding
from cdc_outbox.ops import reposition

ROOT = Path(__file__).parents[2]
SECRET = "hunter2-s3cr3t"
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

SETTINGS = f"""\
name: orders
mysql: {{user: relay, password: {SECRET}, database: shop, port: 1}}
outbox: {{tables: [outbox_event, stock.outbox]}}
kafka: {{bootstrap_servers: 'localhost:9092'}}
"""


@dataclass
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str


@dataclass
class Cli:
    """Runs commands in this process, with a settings file unless `config` is None."""

    capsys: pytest.CaptureFixture[str]
    config: Path | None
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def __call__(self, *arguments: str) -> Ran:
        head = [] if self.config is None else ["--config", str(self.config)]
        with pytest.raises(SystemExit) as ended:
            main([*head, *arguments])
        out, err = self.capsys.readouterr()
        assert SECRET not in out + err
        assert "Traceback" not in err
        return Ran(int(ended.value.code or 0), out, err)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    for name in [one for one in os.environ if one.startswith("CDC_OUTBOX_")]:
        monkeypatch.delenv(name)
    config = tmp_path / "relay.yaml"
    config.write_text(SETTINGS)
    return Cli(capsys, config)


def module(monkeypatch: pytest.MonkeyPatch, name: str, **content: object) -> None:
    """Put a module in the place of one that would talk to servers."""
    stub = ModuleType(name)
    vars(stub).update(content)
    monkeypatch.setitem(sys.modules, name, stub)


# --- usage --------------------------------------------------------------------------------------------------


def test_version_and_help(cli: Cli) -> None:
    assert cli("--version").out == f"cdc-outbox {__version__}\n"
    shown = cli("--help")
    assert shown.code == 0
    for command in ("init", "doctor", "start", "status", "events", "checkpoint", "emit"):
        assert command in shown.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["events"],
        ["events", "retry"],
        ["events", "skip", "x", "--state", "failed"],
        ["archive"],
        ["archive", "--older-than", "soon"],
        ["archive", "--older-than", "1d", "--batch", "1001"],
        ["archive", "--older-than", "1d", "--into", "old", "--delete"],
        ["archive", "--older-than", "1d", "--into", "old"],
        ["tail", "--count", "0"],
        ["tail", "--since", "yesterday"],
        ["pause", "now"],
        ["console"],
        ["init", "--comments", "fr"],
        ["checkpoint"],
        ["checkpoint", "set"],
        ["checkpoint", "reset", "--to", "yesterday"],
        ["emit", "--count", "0"],
        ["emit", "--count", "many"],
        ["start", "extra"],
        [],
    ],
)
def test_usage_errors_exit_2(cli: Cli, arguments: list[str]) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert "Usage" in ran.out + ran.err


@pytest.mark.parametrize(("typed", "offered"), [("cdc-outbox ev", "events"), ("cdc-outbox events re", "replay retry")])
def test_the_shell_is_told_what_may_follow(typed: str, offered: str) -> None:
    asked = {"_CDC_OUTBOX_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" "))}
    ran = subprocess.run(
        [sys.executable, "-m", "cdc_outbox"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **asked},
        check=True,
    )
    assert sorted(ran.stdout.split()) == offered.split()


def test_help_needs_no_client_library() -> None:
    heavy = ("kafka", "pymysql", "pydantic", "uvicorn")
    script = f"import sys, cdc_outbox.cli; print([one for one in {heavy} if one in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert ran.stdout == "[]\n"


# --- settings -----------------------------------------------------------------------------------------------


def test_no_settings(cli: Cli) -> None:
    cli.config = None
    ran = cli("status")
    assert (ran.code, ran.out) == (2, "")
    assert "There are no settings" in ran.err
    assert "CDC_OUTBOX_CONFIG" in ran.err


def test_the_file_may_be_named_by_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_OUTBOX_CONFIG", str(cli.config))
    cli.config = None
    assert "CREATE TABLE" in cli("init", "--print").out


@pytest.mark.parametrize("command", ["init", "doctor", "start", "status", "emit"])
def test_wrong_settings_are_refused_by_every_command(cli: Cli, command: str) -> None:
    assert cli.config is not None
    cli.config.write_text(SETTINGS + "limit: {}\n")
    ran = cli(command)
    assert (ran.code, ran.out) == (2, "")
    assert "relay.yaml:5: limit: no such setting; did you mean limits?" in ran.err


@pytest.mark.parametrize(
    ("arguments"),
    [
        ["init"],
        ["emit"],
        ["checkpoint", "show"],
        ["checkpoint", "reset", "--yes"],
        ["checkpoint", "set", "b.1:4", "--yes"],
    ],
)
def test_an_unreachable_server_is_a_message_and_exit_2(cli: Cli, arguments: list[str]) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert "MySQL at 127.0.0.1:1" in ran.err
    assert "Hint: see that it runs and that the settings have its address; `cdc-outbox doctor`" in ran.err


def test_one_is_not_many() -> None:
    assert counted(1, "event", "is") == "1 event is"
    assert counted(2000, "event", "is") == "2,000 events are"
    assert counted(0, "row") == "0 rows"


# --- init ---------------------------------------------------------------------------------------------------


def test_init_makes_the_table_of_worker_ids_on_request(cli: Cli) -> None:
    assert "cdc_outbox_worker" in cli("init", "--print", "--workers").out
    assert "cdc_outbox_worker" not in cli("init", "--print").out


def test_init_print_is_sql_only(cli: Cli) -> None:
    ran = cli("init", "--print")
    assert ran.code == 0
    assert ran.err == ""
    assert "事件唯一ID" in ran.out
    assert "GRANT " in ran.out
    assert "事件唯一ID" not in cli("init", "--print", "--comments", "en").out


def test_a_terminal_without_chinese_is_survived(cli: Cli) -> None:
    assert cli.config is not None
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "from cdc_outbox.cli import main; main()",
            "--config",
            str(cli.config),
            "init",
            "--print",
        ],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_reader_that_goes_away_is_no_traceback(cli: Cli) -> None:
    command = f"{sys.executable} -c 'from cdc_outbox.cli import main; main()' --config {cli.config} init --print | true"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.stderr == ""


# --- doctor -------------------------------------------------------------------------------------------------


def test_doctor(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    good = Finding("binlog-format", "ok", "binlog_format is ROW")
    bad = Finding("log-bin", "error", "log_bin is OFF", "nothing to read", "[mysqld]\nlog_bin")
    module(monkeypatch, "cdc_outbox.ops.doctor", examine=lambda settings: [good])
    assert cli("doctor").code == 0
    module(monkeypatch, "cdc_outbox.ops.doctor", examine=lambda settings: [good, bad])
    ran = cli("doctor")
    assert ran.code == 2
    assert "log-bin: log_bin is OFF" in ran.out
    assert "fix: [mysqld]" in ran.out
    assert ran.out.count("see: ") == 1 and "see: docs/checks.md#log-bin" in ran.out
    as_json = cli("doctor", "--json")
    assert as_json.code == 2
    report = json.loads(as_json.out)
    assert report["ok"] is False
    assert [one["check"] for one in report["findings"]] == ["binlog-format", "log-bin"]
    assert report["findings"][1]["docs"] == "docs/checks.md#log-bin"


# --- start --------------------------------------------------------------------------------------------------


def supervisor(monkeypatch: pytest.MonkeyPatch, outcome: int | BaseException) -> None:
    class StubSupervisor:
        def __init__(self, settings: object, *, begin_anew: bool) -> None:
            pass

        def run(self) -> int:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

    module(monkeypatch, "cdc_outbox.relay.supervisor", Supervisor=StubSupervisor)
    monkeypatch.setattr("cdc_outbox.ops.log.configure_logging", lambda settings: None)


@pytest.mark.parametrize(
    ("outcome", "code", "said"),
    [
        (0, 0, ""),
        (4, 4, ""),
        (Refused("log_bin is OFF", hint="SET …"), 2, "Error: log_bin is OFF\nHint: SET …\n"),
        (BinlogLost(), 3, "Error: The binlog that follows"),
        (BinlogUnreadable("at binlog.1:4"), 5, "Error: at binlog.1:4\n"),
        (CdcOutboxError("three times"), 1, "Error: three times\n"),
        (Hold("MySQL is away", reason="mysql"), 2, "Error: MySQL is away\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_start_ends_with_the_code_of_what_happened(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, outcome: int | BaseException, code: int, said: str
) -> None:
    supervisor(monkeypatch, outcome)
    ran = cli("start", "--yes")
    assert ran.code == code
    assert ran.err.startswith(said)


def test_a_json_log_has_the_last_word_too(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor(monkeypatch, BinlogUnreadable("at binlog.1:4"))
    monkeypatch.setenv("CDC_OUTBOX_LOG__FORMAT", "json")
    assert cli("start").code == 5
    (record,) = caplog.records
    assert (vars(record)["event"], record.getMessage()) == ("ended", "at binlog.1:4")


# --- status -------------------------------------------------------------------------------------------------


STATUS: dict[str, Any] = {
    "relay": "orders",
    "state": "leader",
    "paused": True,
    "leader": "host/1/abc",
    "server_id": 7,
    "position": {"file": "binlog.000001", "pos": 4, "gtid_set": None},
    "source": "replica:3306",
    "lag": {"seconds": 1.5, "events": 3},
    "counts": {
        "pending": 1,
        "sending": 2,
        "sent": 100000,
        "failed": 3,
        "dead": 4,
        "parked": 5,
        "sent_is_lower_bound": True,
    },
    "blocked_aggregates": 6,
    "in_flight": None,
    "holds": ["kafka"],
    "binlog_retention_left_seconds": 7200,
    "decoder": "pure",
    "last_error": "订单",
}


def test_status(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []

    def read_status(settings: object, full: bool) -> dict[str, Any]:
        asked.append(full)
        return STATUS

    module(monkeypatch, "cdc_outbox.ops.status", read_status=read_status)
    assert json.loads(cli("status", "--json", "--full").out) == STATUS
    text = cli("status").out
    assert asked == [True, False]
    for part in (
        "binlog.000001:4",
        "100,000+ sent",
        "5 parked",
        "kafka",
        "2h00m",
        "until `cdc-outbox resume`",
        "read from replica:3306",
        "pure",
        "订单",
    ):
        assert part in text


# --- checkpoint ---------------------------------------------------------------------------------------------


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The checkpoint as a stub: nobody leads, changes are noted."""
    changes: list[object] = []

    def reset(settings: object, to: str) -> Position:
        changes.append(to)
        return Position("binlog.000009", 4)

    monkeypatch.setattr(reposition, "refuse_while_led", lambda settings: None)
    monkeypatch.setattr(reposition, "move", lambda settings, position: changes.append(position))
    monkeypatch.setattr(reposition, "reset", reset)
    return changes


def test_checkpoint_is_moved_with_yes(cli: Cli, moved: list[object]) -> None:
    assert cli("checkpoint", "set", "binlog.000042:1337", "--yes").code == 0
    assert cli("checkpoint", "set", f"{UUID}:1-5", "--yes").code == 0
    assert "binlog.000009:4" in cli("checkpoint", "reset", "--yes").out
    assert cli("checkpoint", "reset", "--to", "earliest", "--yes").code == 0
    assert moved == [
        Position("binlog.000042", 1337),
        Position(gtid_set=GtidSet.parse(f"{UUID}:1-5")),
        "now",
        "earliest",
    ]


@pytest.mark.parametrize("arguments", [["set", "binlog.000042:1337"], ["reset"]])
def test_nothing_is_changed_where_nobody_can_be_asked(cli: Cli, moved: list[object], arguments: list[str]) -> None:
    ran = cli("checkpoint", *arguments)
    assert ran.code == 2
    assert "nothing was changed" in ran.err
    assert "--yes" in ran.err
    assert moved == []


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("YES\n", 0), ("n\n", 2), ("\n", 2), ("", 2)])
def test_a_person_is_asked(
    cli: Cli, moved: list[object], monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr("cdc_outbox.cli.invocation._somebody_is_there", lambda: True)
    monkeypatch.setattr("sys.stdin.readline", lambda: answer)
    ran = cli("checkpoint", "reset")
    assert ran.code == code
    assert "Reset the checkpoint of relay 'orders' to now?" in ran.err
    assert bool(moved) == (code == 0)


def test_nobody_is_asked_while_a_relay_leads(cli: Cli, moved: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    def led(settings: object) -> None:
        raise Refused("relay 'orders' is running")

    monkeypatch.setattr(reposition, "refuse_while_led", led)
    for arguments in (["set", "binlog.1:4", "--yes"], ["reset", "--yes"]):
        ran = cli("checkpoint", *arguments)
        assert (ran.code, ran.err) == (2, "Error: relay 'orders' is running\n")
    assert moved == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "binlog.000042",
        "binlog.000042:",
        ":4",
        "binlog.000042:3",
        "binlog.1:-4",
        f"{UUID}:0",
        f"{UUID}:5-1",
        f"{UUID}:",
    ],
)
def test_what_is_no_position(text: str) -> None:
    with pytest.raises(Refused):
        reposition.parse_position(text)


def test_the_script_is_the_command() -> None:
    ran = subprocess.run(
        [sys.executable, "scripts/reset_checkpoint.py", "--to", "earliest"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith("CDC_OUTBOX_")},
        check=False,
    )
    assert ran.returncode == 2
    assert "There are no settings" in ran.stderr


# --- emit ---------------------------------------------------------------------------------------------------


def test_emit_refuses_what_is_no_json_and_other_tables(cli: Cli) -> None:
    assert "the payload is not JSON" in cli("emit", "--payload", "{").err
    ran = cli("emit", "--table", "orders")
    assert ran.code == 2
    assert "outbox.tables has shop.outbox_event, stock.outbox" in ran.err


def test_emit_chooses_the_table(cli: Cli) -> None:
    settings = load_settings(cli.config, {})
    assert str(table_of(settings, None)) == "shop.outbox_event"
    assert str(table_of(settings, "outbox")) == "stock.outbox"
    assert str(table_of(settings, "stock.outbox")) == "stock.outbox"
