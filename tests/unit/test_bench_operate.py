"""scripts/bench operate without a server: its tables and its arguments."""

from __future__ import annotations

import pytest

from bench.__main__ import main
from bench.operate_page import Looked, Pace, Round, archive_needs, archive_table, looks_table, page
from bench.restart import Restarted, longest


def around(rate: float, kept: float) -> list[Round]:
    alone, beside = Pace(1000, 1.0, 3.0, 9, 100.0), Pace(1000 * kept, 1.1, 4.0, 9, 110.0)
    return [Round(rate * part, 40.0, 15.0, 300.0, alone, beside) for part in (0.9, 1, 1.2)]


def test_what_was_asked_for_is_judged() -> None:
    table = looks_table(10_000_000, [Looked("status", 0.7, 0.4), Looked("events list", 0.9, 0.6)])
    assert "10,000,000 sent rows" in table
    first, second = (line for line in table.splitlines() if "`" in line)
    assert ("0.400" in first, "yes" in first) == (True, True)
    assert ("0.600" in second, "no" in second) == (True, True)
    archived = archive_table({"quick": around(25_000, 0.95), "rough": around(25_000, 0.7), "slow": around(15_000, 1.0)})
    verdicts = [line.split("|")[-2].strip() for line in archived.splitlines()[2:]]
    assert verdicts == ["yes", "no", "no"]
    assert "25,000 (22,500–30,000)" in archived
    assert "1.0 → 1.1" in archived


def test_each_restart_has_the_longest_wait_of_its_own_time() -> None:
    second = 10**9
    took = {1 * second: 5.0, 10 * second: 800.0, 12 * second: 7.0, 20 * second: 300.0, 21 * second: 400.0}
    assert longest(took, [10 * second, 20 * second]) == [800.0, 400.0]


def test_the_page_has_every_part() -> None:
    text = page(
        10_000_000,
        [Looked("status", 0.7, 0.4)],
        {"to the archive": around(25_000, 0.95)},
        [Restarted(True, [900.0, 1100.0, 1000.0], 6.0, 0)],
        machine=[("CPU", "two")],
        seconds=10,
        states=4,
        needs=archive_needs(around(25_000, 0.95), 2),
        cost={"copy them": 12.04, "delete them": 9.0},
    )
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# Benchmarks of the commands",
        "## Looking at a large table",
        "## Archiving beside a writer",
        "## Restarting the relay",
    ]
    assert "1,000 (900–1,100)" in text
    assert "20,000 rows/s beside 0.9 of the writer's commits need 1.16 of this machine's 2 cores" in text
    assert "| copy them               |           12.0 |" in text
    assert "| together                |           21.0 |" in text
    assert "0.80 for the rows, at 40 µs each, 15 of them for purge" in text


def test_where_the_cpu_cannot_be_seen_nothing_is_said_of_it() -> None:
    pace = Pace(1000, 1.0, 3.0, 9, 100.0)
    unseen = [Round(20_000, None, 0.0, None, pace, pace)]
    assert archive_needs(unseen, 2) == ""
    assert "–" in archive_table({"far away": unseen})


def test_its_arguments(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["operate", "--rows", "many"])
    assert ended.value.code == 2
    assert "--rows" in capsys.readouterr().err
    monkeypatch.delenv("CDC_OUTBOX_TEST_MYSQL_URL", raising=False)
    assert main(["operate"]) == 2
    assert "scripts/bench sees to it" in capsys.readouterr().err
