"""Each mutant must turn its test red: a test that cannot fail guards nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_outbox.testing.services.providers import KAFKA_VARIABLE, MYSQL_VARIABLE
from tests.mutants.mutants import MUTANTS, Mutant
from tests.mutants.rules import COVERED, RULES, UNTRIED

if TYPE_CHECKING:
    from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint

REPOSITORY = Path(__file__).parents[2]
COPIED = ("cdc_outbox", "tests", "schema", "config", "scripts", "pyproject.toml")


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, id=one.name, marks=[pytest.mark.long] if one.long else []) for one in [*MUTANTS, *RULES]],
)
def test_the_test_goes_red(
    mutant: Mutant, mysql_server: MySQLEndpoint, kafka_broker: KafkaEndpoint, tmp_path: Path
) -> None:
    for name in COPIED:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    target = tmp_path / mutant.file
    text = target.read_text()
    assert text.count(mutant.before) == 1, f"{mutant.file} has changed: what the mutant replaces is not there once"
    target.write_text(text.replace(mutant.before, mutant.after))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutant.test],
        cwd=tmp_path,
        env={
            **os.environ,
            MYSQL_VARIABLE: mysql_server.url,
            KAFKA_VARIABLE: kafka_broker.bootstrap,
            "PYTHONPATH": str(tmp_path),
            "TEST_DEADLINE": "15",
            "TEST_MUTANT": mutant.name,
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, f"{mutant.promise} is broken and {mutant.test} did not notice:\n{done.stdout[-3000:]}"
    assert "1 failed" in done.stdout, done.stdout[-3000:]
    assert mutant.test.split("::")[-1] in done.stdout


def test_every_promise_has_two_and_one_for_every_day() -> None:
    promises = [f"P{number}" for number in range(1, 9)]
    for promise in promises:
        mutants = [one for one in MUTANTS if one.promise == promise]
        assert len(mutants) >= 2, promise
        assert any(not one.long for one in mutants), promise


def test_every_rule_has_one_or_a_reason() -> None:
    headings = re.findall(r"^\*\*(R\d+) ", (REPOSITORY / "docs/architecture.md").read_text("utf-8"), flags=re.M)
    tried = [*COVERED, *UNTRIED, *(one.promise for one in RULES)]
    assert sorted(tried) == sorted(headings)
    assert set(COVERED.values()) <= {mutant.name for mutant in MUTANTS}
