"""The pages against the repository: links, files, tests, mutants, commands and settings that they name are there."""

from __future__ import annotations

import ast
import configparser
import importlib
import inspect
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from cdc_outbox import Outbox
from cdc_outbox.cli import app
from cdc_outbox.config import load_settings
from tests.docs.blocks import PAGES, ROOT, TRANSLATED, Block, blocks
from tests.mutants.mutants import MUTANTS

ARCHITECTURE = ROOT / "docs" / "architecture.md"

MINIMAL = {
    "name": "orders",
    "mysql": {"user": "relay", "password": "p", "database": "shop"},
    "kafka": {"bootstrap_servers": "127.0.0.1:9092"},
}
ENVIRONMENT = {"RELAY_PASSWORD": "p", "KAFKA_PASSWORD": "p"}
FOLDER = "/etc/relay/"
"""Where the pages keep certificates and passwords; a test puts files there that exist."""

by_name = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def code(text: str) -> Iterator[str]:
    """Everything that is set as code: fenced blocks, indented blocks line by line, spans."""
    for block in re.findall(r"^ *```[^\n]*\n(.*?)^ *```", text, flags=re.M | re.S):
        yield from block.splitlines()
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.M | re.S)
    yield from re.findall(r"^ {4,}(.*)", prose, flags=re.M)
    yield from re.findall(r"`([^`\n]+)`", prose)


# -- links ------------------------------------------------------------------------------------------------------------


@cache
def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.M | re.S)
    found = set()
    for title in re.findall(r"^#+ +(.*)", prose, flags=re.M):
        kept = re.sub(r"[^\w\- ]", "", title.replace("`", "").lower())
        found.add(kept.strip().replace(" ", "-"))
    return found


@by_name
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name} links to {target}, which is not there"
        if anchor:
            assert anchor in anchors(there), f"{page.name} links to {target}: {there.name} has no such heading"


def section_marks(page: Path) -> list[list[str]]:
    """For each section: its blocks without their comments, its links, and how many steps, items and rows it has."""
    prose = page.read_text("utf-8")
    found = []
    for section in re.split(r"^## ", prose, flags=re.M):
        code = [re.sub(r"#.*", "", one) for one in re.findall(r"^ *```.*?^ *```", section, flags=re.M | re.S)]
        marks = [str(len(re.findall(mark, section, flags=re.M))) for mark in (r"^- ", r"^\d\. ", r"^\| ", "<!--")]
        found.append(code + marks)
    return found


@pytest.mark.parametrize("translated", TRANSLATED)
def test_a_translation_says_the_same(translated: str) -> None:
    """Same commands, settings and SQL in each section; same number of sections, list items and table rows."""
    assert section_marks(ROOT / translated) == section_marks(ROOT / TRANSLATED[translated])


# -- blocks of code ---------------------------------------------------------------------------------------------------


EVERY_BLOCK = [pytest.param(one, id=f"{one.page.name}-{one.line}") for page in PAGES for one in blocks(page)]


@pytest.mark.parametrize("block", EVERY_BLOCK)
def test_every_block_is_run_read_or_marked_and_parses(block: Block) -> None:
    where = f"{block.page.name}:{block.line}"
    assert block.status, f"{where}: nobody runs this {block.kind}, and it is not marked `not run here`"
    if block.kind == "sh":
        done = subprocess.run(["bash", "-n", "-c", block.text], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{where}: {done.stderr}"
    elif block.kind == "python":
        ast.parse(block.text)
    elif block.kind == "sql":
        assert block.text.rstrip().endswith(";"), f"{where}: SQL without its semicolon"
    elif block.kind == "ini":
        configparser.ConfigParser(allow_no_value=True).read_string(block.text)


# -- files, tests, mutants --------------------------------------------------------------------------------------------

_FOLDERS = ("cdc_outbox", "tests", "docs", "scripts", "schema", "config")
_PATH = re.compile(rf"(?:{'|'.join(_FOLDERS)})/[\w./@-]*")
_TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")


@cache
def functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@by_name
def test_files_that_are_named_exist(page: Path) -> None:
    for line in code(page.read_text("utf-8")):
        for name in _PATH.findall(line):
            assert (ROOT / name.rstrip(".")).exists(), f"{page.name} names {name}, which is not there"


@by_name
def test_tests_that_are_named_exist(page: Path) -> None:
    for file, name in _TEST.findall(page.read_text("utf-8")):
        assert name in functions(ROOT / file), f"{page.name} names {file}::{name}, which is not there"


def test_mutants_are_named_and_exist() -> None:
    named = set(re.findall(r"`(p\d-[a-z-]+)`", ARCHITECTURE.read_text("utf-8")))
    assert named == {mutant.name for mutant in MUTANTS}


def test_every_rule_names_its_test_or_says_that_there_is_none() -> None:
    text = ARCHITECTURE.read_text("utf-8").split("\n## Rules\n")[1].split("\n## ")[0]
    rules = dict(re.findall(r"^\*\*(R\d+) (.*?)(?=^\*\*R\d+ |^### |\Z)", text, flags=re.M | re.S))
    assert list(rules) == [f"R{number}" for number in range(1, len(rules) + 1)]
    for name, rule in rules.items():
        said = rule.partition("*Test:")[2]
        assert "tests/" in said or "none yet" in said, f"{name} says nothing of its test"


def test_every_module_is_in_the_module_map() -> None:
    section = ARCHITECTURE.read_text("utf-8").split("\n## Modules\n")[1].split("\n## ")[0]
    section = "\n".join(re.findall(r"^ {4}.*", section, flags=re.M))
    package = ROOT / "cdc_outbox"
    modules = [path for path in package.rglob("*.py") if "testing" not in path.parts and not path.name.startswith("__")]
    missing = sorted(str(path.relative_to(ROOT)) for path in modules if not re.search(rf"\b{path.name}\b", section))
    assert not missing, f"docs/architecture.md, Modules: no line for {', '.join(missing)}"
    named = set(re.findall(r"\b\w+\.py\b", section))
    gone = sorted(named - {path.name for path in modules})
    assert not gone, f"docs/architecture.md, Modules: {', '.join(gone)} is gone"


# -- commands ---------------------------------------------------------------------------------------------------------


def command_lines(page: Path) -> Iterator[list[str]]:
    """The words behind `cdc-outbox` wherever a page shows a command."""
    for line in code(page.read_text("utf-8")):
        bare = re.sub(r"\d?>>? \S+", "", line)
        for found in re.findall(r"(?:^|[|\s])cdc-outbox((?: [^|&;#─]*)?)(?=[|&;#─]|$)", bare):
            words = shlex.split(found.replace("…", ""))
            if words and re.fullmatch(r"(?:--?)?[a-z][a-z-]*", words[0]):
                yield words


def check_command(words: list[str]) -> None:
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while rest:
        word = rest.pop(0)
        options = {name: param for param in command.params for name in param.opts} | {"--help": None, "-h": None}
        if word.startswith("-"):
            assert word in options, f"{word} is no option of {command.name}"
            param = options[word]
            if param is not None and not getattr(param, "is_flag", False):
                rest = rest[1:]
        elif word in getattr(command, "commands", {}):
            command = command.commands[word]
        else:
            assert any(param.param_type_name == "argument" for param in command.params), f"{word} is no command"


@by_name
def test_commands_that_are_shown_exist(page: Path) -> None:
    for words in command_lines(page):
        if words != ["COMMAND"]:
            check_command(words)


def test_a_command_that_is_not_there_would_be_found() -> None:
    with pytest.raises(AssertionError, match="no command"):
        check_command(["--config", "orders.yaml", "console"])
    with pytest.raises(AssertionError, match="no option"):
        check_command(["start", "--fast"])


# -- Python -----------------------------------------------------------------------------------------------------------


def python_blocks() -> Iterator[Any]:
    for page in PAGES:
        found = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), flags=re.M | re.S)
        for number, block in enumerate(found, start=1):
            yield pytest.param(block, id=f"{page.name}-{number}")


@pytest.mark.parametrize("block", list(python_blocks()))
def test_python_that_is_shown_imports_what_there_is(block: str) -> None:
    tree = ast.parse(block)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cdc_outbox"):
            module = importlib.import_module(node.module or "")
            missing = [name.name for name in node.names if not hasattr(module, name.name)]
            assert not missing, f"{node.module} has no {missing}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add":
            inspect.signature(Outbox.add).bind(None, *node.args, **{one.arg or "": one for one in node.keywords})


# -- settings ---------------------------------------------------------------------------------------------------------


def yaml_blocks() -> Iterator[Any]:
    for page in PAGES:
        found = re.findall(r"^( *)```yaml( fragment)?\n(.*?)^ *```", page.read_text("utf-8"), flags=re.M | re.S)
        for number, (indent, fragment, block) in enumerate(found, start=1):
            text = re.sub(rf"^{indent}", "", block, flags=re.M)
            yield pytest.param(text, bool(fragment), id=f"{page.name}-{number}")


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = dict(base)
    for key, value in over.items():
        before = both.get(key)
        both[key] = merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return both


@pytest.mark.parametrize(("text", "fragment"), list(yaml_blocks()))
def test_yaml_is_accepted(text: str, fragment: bool, tmp_path: Path) -> None:
    """Whole files as they are; fragments over the least that must be given."""
    for name in re.findall(re.escape(FOLDER) + r"([\w.-]+)", text):
        (tmp_path / name).write_text("secret\n")
    text = text.replace(FOLDER, f"{tmp_path}/")
    if fragment:
        text = yaml.safe_dump(merged(MINIMAL, yaml.safe_load(text)))
    file = tmp_path / "orders.yaml"
    file.write_text(text)
    load_settings(file, ENVIRONMENT)


# -- what must not be in them -----------------------------------------------------------------------------------------


@by_name
def test_pages_are_about_the_product(page: Path) -> None:
    """No machine's own paths, and no figures of speed but in the pages that scripts/bench writes."""
    text = page.read_text("utf-8")
    found = re.findall(r"/(?:home|work|root|tmp)/\S*", text)
    if not page.name.startswith("benchmarks"):
        found += re.findall(r"\b\d[\d,.]* ?(?:events/s|rows/s|TPS)\b", text)
    assert not found, f"{page.name}: {found}"
