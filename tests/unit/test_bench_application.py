"""scripts/bench application without a server: its tables, its page, its arguments."""

from __future__ import annotations

from datetime import date

import pytest

from bench.__main__ import main
from bench.application import add_table, ids_table, page
from bench.event_ids import Inserted
from bench.outbox_add import BARE, BY_HAND, MANY, OUTBOX, Added

ADDED = [Added(BARE, 95.0, 231), Added(BY_HAND, 120.0, 250), Added(OUTBOX, 138.04, 260), Added(MANY, 30.0, 60)]
INSERTED = [
    Inserted("uuid7", 1_000_000, 20.0, 2.0, 9000, 60_000_000),
    Inserted("business", 1_000_000, 40.0, 8.0, 18_000, 110_000_000),
]


def cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]


def test_what_add_costs_is_told_beyond_both_inserts() -> None:
    assert [row[1:] for row in cells(add_table(ADDED))] == [
        ["95.0", "231", "", ""],
        ["120.0", "250", "+25.0", ""],
        ["138.0", "260", "+43.0", "+18.0"],
        ["30.0", "60", "-65.0", ""],
    ]


def test_ids_are_compared_with_the_first_kind() -> None:
    assert cells(ids_table(INSERTED)) == [
        ["UUIDv7", "50,000", "50,000", "1.00", "9,000", "60"],
        ["business key", "25,000", "12,500", "0.50", "18,000", "110"],
    ]
    assert ids_table([]) == add_table([]) == ""


def test_the_page_names_machine_date_and_command() -> None:
    text = page(ADDED, INSERTED, machine=[("CPU", "a model")], command="scripts/bench x", made=date(2026, 1, 31))
    for part in ("2026-01-31", "`scripts/bench x`", "a model", "1,000,000 rows", "at most 20 µs"):
        assert part in text
    assert all(len(line) <= 120 or line.startswith("|") for line in text.splitlines())


@pytest.mark.parametrize("arguments", [["--rows", "7"], ["--rows", "-10000"], ["--rows", "0", "--write"]])
def test_what_cannot_be_measured_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["application", *arguments])
    assert ended.value.code == 2
    assert "--rows" in capsys.readouterr().err or "--write" in capsys.readouterr().err


def test_without_servers_there_are_no_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CDC_OUTBOX_TEST_MYSQL_URL", raising=False)
    assert main(["application"]) == 2
    assert "scripts/bench sees to it" in capsys.readouterr().err
