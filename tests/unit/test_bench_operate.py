"""scripts/bench operate without a server: its tables and its arguments."""

from __future__ import annotations

import pytest

from bench.__main__ import main
from bench.operate import Archived, archive_table, looks_table


def test_what_was_asked_for_is_judged() -> None:
    table = looks_table(10_000_000, [("status", 0.7, 0.4), ("events list", 0.9, 0.6)])
    assert "10,000,000 sent rows" in table
    first, second = (line for line in table.splitlines() if "`" in line)
    assert ("0.400" in first, "yes" in first) == (True, True)
    assert ("0.600" in second, "no" in second) == (True, True)
    archived = archive_table(Archived(rate=25_000.0, alone=1000.0, beside=850.0))
    assert "25,000" in archived
    assert "850 (0.85 of it)" in archived
    assert (archived.count("yes"), archived.count(" no ")) == (1, 1)


def test_its_arguments(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["operate", "--rows", "many"])
    assert ended.value.code == 2
    assert "--rows" in capsys.readouterr().err
    monkeypatch.delenv("CDC_OUTBOX_TEST_MYSQL_URL", raising=False)
    assert main(["operate"]) == 2
    assert "scripts/bench sees to it" in capsys.readouterr().err
