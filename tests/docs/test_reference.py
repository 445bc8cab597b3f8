"""docs/reference.md against the code: nothing undocumented, nothing documented that is not there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
import yaml

import cdc_outbox
from cdc_outbox import errors
from cdc_outbox.cli import EXIT_INTERRUPTED, app
from cdc_outbox.config import Settings
from cdc_outbox.config_source import dotted, setting_kinds
from cdc_outbox.ops.health import application
from cdc_outbox.ops.metrics import ALERT_KINDS, Metrics

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text("utf-8")


def section(title: str) -> str:
    """The text below a `## title` heading."""
    return re.split(r"^## ", REFERENCE.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


def rows(text: str) -> Iterator[list[str]]:
    """Cells of every table row in `text`, headings left out."""
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def documented_keys() -> dict[str, str]:
    """Key -> default as it stands in the page, "" where there is none."""
    return {cells[0].strip("`"): cells[2].strip("`") for cells in rows(section("Settings")) if cells[0] != "key"}


def test_every_key_is_documented_and_no_other() -> None:
    leaves = {dotted(path) for path, kind in setting_kinds(Settings).items() if kind != "section"}
    assert set(documented_keys()) == leaves


def test_documented_defaults_are_the_defaults() -> None:
    required: dict[str, Any] = {
        "name": "x",
        "mysql": {"user": "u", "password": "p", "database": "d"},
        "kafka": {"bootstrap_servers": "b:1", "create_topics": {"partitions": 1, "replication_factor": 1}},
        "binlog": {"source": {"host": "replica"}},
    }
    by_default = Settings.model_validate(required)
    written: dict[str, Any] = yaml.safe_load(yaml.safe_dump(required))
    for key, default in documented_keys().items():
        if default:
            *sections, name = key.split(".")
            place = written
            for one in sections:
                place = place.setdefault(one, {})
            # A template's braces would be a mapping to YAML.
            place[name] = default if key == "kafka.topic" else yaml.safe_load(default)
    assert Settings.model_validate(written) == by_default
    undocumented = {key for key, default in documented_keys().items() if not default}
    assert undocumented == {
        "name",
        "mysql.user",
        "mysql.password",
        "mysql.database",
        "kafka.bootstrap_servers",
        "kafka.create_topics.partitions",
        "kafka.create_topics.replication_factor",
        "binlog.source.host",
        *(f"binlog.source.tls.{key}" for key in ("mode", "ca", "cert", "key")),
    }


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        if getattr(inner, "commands", None):
            yield from commands(inner, (*words, name))
        else:
            yield " ".join((*words, name)), inner


def options(command: Any) -> set[str]:
    return {name for param in command.params for name in param.opts if name.startswith("--")} - {"--help"}


def documented_options(text: str) -> set[str]:
    cells = (row[0] for row in rows(text))
    return {name for cell in cells for name in re.findall(r"--[a-z-]+", cell)} - {"--help"}


def test_every_command_and_option_is_documented_and_no_other() -> None:
    root = typer.main.get_command(app)
    pages = dict(re.findall(r"^### cdc-outbox ([a-z ]+)\n(.*?)(?=^##|\Z)", REFERENCE, flags=re.M | re.S))
    there = dict(commands(root))
    assert set(pages) == set(there)
    for name, command in there.items():
        assert documented_options(pages[name]) == options(command), name
    head = section("Command line").split("\n### ")[0]
    assert documented_options(head) == options(root)


def test_every_exit_code_is_documented_and_no_other() -> None:
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")} | {EXIT_INTERRUPTED}
    documented = {int(cells[0]) for cells in rows(section("Exit codes")) if cells[0] != "code"}
    assert documented == codes


def test_every_metric_is_documented_and_no_other() -> None:
    there = {}
    for family in Metrics("x").registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        there[family.name + suffix] = family.type
    documented = {cells[0].strip("`"): cells[1] for cells in rows(section("Metrics")) if cells[0] != "metric"}
    assert documented == there


def test_every_path_is_documented_and_no_other() -> None:
    there = {route.path for route in application(Metrics("x"), lambda: (True, "")).routes}  # type: ignore[attr-defined]
    documented = {cells[0].strip("`") for cells in rows(section("HTTP")) if cells[0] != "path"}
    assert documented == there


def alert_kinds() -> set[str]:
    """The kinds that the code raises alerts with, read from its calls of `….alert("kind", …)`."""
    kinds = set()
    for file in Path(cdc_outbox.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "alert":
                kinds |= {str(one.value) for one in node.args[:1] if isinstance(one, ast.Constant)}
    return kinds


def test_every_alert_is_documented_and_no_other() -> None:
    alerts = section("Log").split("| event | level |")[0]
    documented = {cells[0].strip("`") for cells in rows(alerts) if cells[0] != "alert"}
    assert documented == alert_kinds() == set(ALERT_KINDS)


def log_events() -> set[str]:
    """The names that the code gives log lines: to `log_event`, in a loop over pairs of name and line, as an extra."""
    found: list[ast.expr] = []
    package = Path(cdc_outbox.__file__).parent
    for file in sorted(set(package.rglob("*.py")) - set((package / "testing").rglob("*.py"))):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "log_event":
                found.append(node.args[2])
            elif isinstance(node, ast.For) and ast.unparse(node.target) == "(event, line)":
                found += [pair.elts[0] for pair in ast.walk(node.iter) if isinstance(pair, ast.Tuple)]
            elif isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                found += [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "event"]
    return {one.value for one in found if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def test_every_log_line_is_documented_and_no_other() -> None:
    heading = "| event | level |"
    lines = rows(heading + section("Log").split(heading)[1])
    assert {cells[0].strip("`") for cells in lines} - {"event"} == log_events() | {"log"}


def check_ids() -> set[str]:
    """The ids of all checks: what `Finding` and `_denied` are made with, and what shared builders are told."""
    found = set()
    package = Path(cdc_outbox.__file__).parent
    for file in [*(package / "mysql").glob("*.py"), package / "ops" / "doctor.py"]:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value} if re.fullmatch(CHECK, node.value) else set()
    return found


CHECK = re.compile(
    r"(?:mysql|source|kafka|grant|binlog|outbox|checkpoint|server|gtid|log|semi|read|time)(?:-[a-z]+)+|proxy|cluster|clock|decoder|durability"
)
CHECKS_PAGE = (Path(__file__).parents[2] / "docs" / "checks.md").read_text("utf-8")


def test_every_check_has_its_place_in_the_page_and_no_other() -> None:
    sections = dict(re.findall(r"^### (\S+)\n+(.*?)(?=^##|\Z)", CHECKS_PAGE, flags=re.MULTILINE | re.DOTALL))
    assert set(sections) == check_ids()
    assert all(text.strip() for text in sections.values())


NEVER_WRONG = {"binlog-compression", "decoder"}


def test_every_check_is_seen_to_fail_on_a_real_server() -> None:
    tests = "\n".join(file.read_text("utf-8") for file in (Path(__file__).parents[1] / "integration").glob("test_*.py"))
    assert {check for check in check_ids() if f'"{check}"' not in tests} == NEVER_WRONG
