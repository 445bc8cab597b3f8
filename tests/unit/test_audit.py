"""What a report of pip-audit means for CI."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "scripts" / "audit.py"


def judge(report: dict[str, Any]) -> tuple[int, list[str]]:
    spec = importlib.util.spec_from_file_location("audit", FILE)
    assert spec is not None and spec.loader is not None
    audit = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(audit)
    code, lines = audit.judge(report)
    return code, lines


SOUND = {"name": "pymysql", "version": "1.2", "vulns": []}
FLAWED = {"name": "pyyaml", "version": "5.3", "vulns": [{"id": "PYSEC-1", "fix_versions": ["5.4"]}]}
UNKNOWN = {"name": "rich", "skip_reason": "not found on PyPI"}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([SOUND, UNKNOWN], 0, "1 of 2 packages audited, no known flaw"),
        ([SOUND, FLAWED, UNKNOWN], 1, "pyyaml 5.3: PYSEC-1, mended in 5.4"),
        ([UNKNOWN, UNKNOWN], 75, "None of 2 packages could be audited"),
    ],
)
def test_a_flaw_fails_and_an_audit_that_could_not_be_made_says_so(
    packages: list[dict[str, Any]], code: int, said: str
) -> None:
    found, lines = judge({"dependencies": packages})
    assert found == code
    assert said in "\n".join(lines)
