"""The parts of the benchmark that need no server: its statistics, its verdicts, its tables, its reading of /proc."""

from __future__ import annotations

import json
import os
import socket
from datetime import date

import pytest

from bench.__main__ import main
from bench.backlog import payload
from bench.decode import Decode, ratio
from bench.figures import (
    Drain,
    Idle,
    Latency,
    Results,
    Spread,
    below_floor,
    goals,
    percentile,
    ratios,
    spread,
)
from bench.idle import statements_between
from bench.latency import WARM_UP, compare
from bench.machine import cpu_model
from bench.page import drain_table, goal_table, grid, idle_table, latency_table, number, page, tables
from bench.processes import cpu_seconds, listener, listening_sockets, peak_of, peak_rss
from bench.profile import decode_table, profile_page
from bench.servers import version_of_jars


def drain(side: str, rate: float, events: int = 200_000, peak_rss: int = 100_000_000) -> Drain:
    return Drain(side, events, events / rate, events * 30e-6, events * 20e-6, peak_rss, 0)


def latency(*samples: float, side: str = "confluent", rate: float = 500) -> Latency:
    return Latency(side, rate, rate, samples, 0, 0)


# -- statistics ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.95, 95), (0.99, 99), (0.991, 100), (1, 100), (0.001, 1)])
def test_percentile_is_the_nearest_rank(share: float, expected: float) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_percentile_of_one_and_of_nothing() -> None:
    assert percentile([7.0], 0.99) == 7.0
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)


def test_spread() -> None:
    assert spread(iter([3.0, 1.0, 2.0, 10.0])) == Spread(1.0, 2.5, 10.0)


def test_ratios_compare_within_a_round() -> None:
    drains = [drain("confluent", 20), drain("polling", 10), drain("confluent", 60), drain("polling", 20)]
    assert ratios(drains) == {"confluent": Spread(2.0, 2.5, 3.0)}


def test_no_ratios_without_the_polling_relay() -> None:
    assert ratios([drain("confluent", 20)]) == {}


# -- verdicts -----------------------------------------------------------------------------------------------------


def test_a_ratio_below_its_floor_is_told() -> None:
    wrong = below_floor([drain("confluent", 11), drain("row", 1), drain("polling", 10)], {"confluent": 1.2})
    assert wrong == ["confluent drained 1.10 × as fast as polling; at least 1.2 × is asked"]


def test_the_best_round_counts_for_the_floor() -> None:
    rounds = [drain("confluent", 9), drain("polling", 10), drain("confluent", 13), drain("polling", 10)]
    assert below_floor(rounds, {"confluent": 1.2}) == []


def test_no_floor_for_absolute_figures() -> None:
    assert below_floor([drain("confluent", 0.12), drain("polling", 0.1)], {"confluent": 1.2}) == []


def test_goals() -> None:
    results = Results(
        drains=[drain("confluent", 19_000), drain("polling", 10_000)],
        latencies=[latency(*range(1, 101)), latency(1.0, side="polling")],
        idle=Idle(30.0, 0.3, 60, {}, 0, checkpoint_moved=False),
        memory=drain("confluent", 20_000, events=1_000_000, peak_rss=150_000_000),
    )
    assert [(goal.measured, goal.met) for goal in goals(results)] == [
        ("1.9 ×", False),
        ("99.0 ms", False),
        ("150 MB", True),
        ("1.0 %", True),
    ]


def test_no_goal_is_judged_by_a_run_that_is_smaller_than_it() -> None:
    results = Results(
        drains=[drain("confluent", 30_000, events=20_000), drain("polling", 10_000, events=20_000)],
        latencies=[latency(1.0, rate=100)],
        memory=drain("confluent", 20_000, events=20_000),
    )
    assert goals(results) == []


# -- what was seen, as figures --------------------------------------------------------------------------------------


def test_latency_leaves_the_warm_up_out() -> None:
    rate = 10.0
    first = int(WARM_UP * rate)
    committed = {number: number * 100_000_000 for number in range(first + 11)}
    consumed = {number: at + 2_000_000 for number, at in committed.items()}
    written, samples = compare(rate, committed, consumed)
    assert samples == (2.0,) * 11
    assert written == pytest.approx(10.0)


def test_our_own_readings_are_no_statements_of_the_relay() -> None:
    before = {"Questions": 100, "select": 10, "show_status": 5, "update": 3}
    after = {"Questions": 131, "select": 40, "show_status": 6, "update": 3}
    assert statements_between(before, after) == {"Questions": 30, "select": 30}


def test_the_events_are_nested_json_of_some_400_bytes() -> None:
    for event in (0, 199_999):
        text = payload(event)
        assert 350 <= len(text.encode()) <= 450
        assert [line["qty"] for line in json.loads(text)["lines"]] == [1, 2, 3]


# -- tables -------------------------------------------------------------------------------------------------------


def test_grid_pads_and_keeps_numbers_to_the_right() -> None:
    assert grid(["", "µs"], [["one", "1"], ["three", "1,000"]]).splitlines() == [
        "|       |    µs |",
        "| ----- | ----: |",
        "| one   |     1 |",
        "| three | 1,000 |",
    ]


def test_number_shows_a_range_only_where_there_is_one() -> None:
    assert number(Spread(1.04, 1.0, 0.96), "{:.1f}") == "1.0"
    assert number(Spread(1000, 2000, 3000), "{:,.0f}") == "2,000 (1,000–3,000)"


def test_drain_table_has_a_row_a_side() -> None:
    rounds = [
        drain("confluent", 20_000),
        drain("polling", 10_000),
        drain("confluent", 30_000),
        drain("polling", 10_000),
    ]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in drain_table(rounds).splitlines()[2:]]
    assert rows == [
        ["cdc-outbox, confluent-kafka", "25,000 (20,000–30,000)", "2.5 (2.0–3.0)", "30", "20", "100", "0"],
        ["polling relay, confluent-kafka", "10,000", "1", "30", "20", "100", "0"],
    ]


def test_drain_table_without_what_cannot_be_seen() -> None:
    alone = Drain("row", 10, 1.0, 0.1, None, 1_000_000, 2)
    assert [cell.strip() for cell in drain_table([alone]).splitlines()[2].split("|")[3:-1]] == [
        "–", "10000", "–", "1", "2",
    ]  # fmt: skip


def test_what_was_not_measured_is_not_shown() -> None:
    assert tables(Results(), []) == ""
    assert drain_table([]) == latency_table([]) == idle_table(None) == goal_table([]) == ""


def test_the_page_names_machine_date_and_command() -> None:
    idle = Idle(30.0, 0.03, 60, {"select": 60}, 0, checkpoint_moved=False)
    results = Results(drains=[drain("confluent", 30_000), drain("polling", 10_000)], idle=idle)
    text = page(
        results,
        goals(results),
        machine=[("CPU", "a model")],
        command="scripts/bench --write",
        made=date(2026, 1, 31),
        warm_up=2.0,
    )
    for part in ("2026-01-31", "`scripts/bench --write`", "a model", "200,000 events", "select 2.00/s", "did not move"):
        assert part in text
    assert "From COMMIT" not in text
    assert text.endswith("\n") and not text.endswith("\n\n")
    assert all(len(line) <= 120 or line.startswith("|") for line in text.splitlines())


# -- the machine --------------------------------------------------------------------------------------------------


def test_version_of_a_broker_by_its_jars() -> None:
    names = ["socket:[1]", "/opt/libs/slf4j-api-2.0.1.jar", "/opt/libs/kafka-clients-4.1.0.jar"]
    assert version_of_jars(names) == "4.1.0"
    assert version_of_jars(["/opt/libs/slf4j-api-2.0.1.jar"]) == "unknown"


def test_listening_sockets_of_a_port() -> None:
    lines = [
        "   0: 0100007F:0CEA 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1",
        "   1: 0100007F:0CEA 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4343 1",
        "   2: 0100007F:0CEB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4444 1",
    ]
    assert listening_sockets(lines, 3306) == {"socket:[4242]"}


def test_proc_of_this_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert listener(server.getsockname()[1]) == os.getpid()
    assert cpu_seconds(os.getpid()) > 0
    assert peak_rss(os.getpid()) > 1_000_000
    assert peak_of("Name:\tx\nVmHWM:\t     123 kB\n") == 123 * 1024


def test_cpu_model() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n") == "Some CPU @ 3 GHz"
    assert cpu_model("") != ""


# -- the command line ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["drian"], "no part is called drian"),
        (["--sides", "confluent,java"], "no side is called java"),
        (["--quick", "--write"], "no figures worth writing down"),
        (["--quick", "--sides", "confluent"], "--sides must have both"),
        (["--events", "0"], "--events"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_without_servers_there_are_no_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CDC_OUTBOX_TEST_MYSQL_URL", raising=False)
    monkeypatch.delenv("CDC_OUTBOX_TEST_KAFKA", raising=False)
    assert main(["idle"]) == 2
    assert "scripts/bench sees to it" in capsys.readouterr().err


# -- decode -------------------------------------------------------------------------------------------------------


def decoded(kind: str, json: float, whole: float) -> Decode:
    return Decode(kind, 1000, 950.0, 460.0, socket=5.0, checksums=1.5, rows=3.0, json=json, whole=whole)


def test_both_decoders_side_by_side() -> None:
    sides = [decoded("pure", 12.0, 22.0), decoded("compiled", 2.0, 11.0)]
    assert [side.rest for side in sides] == [5.5, 4.5]
    assert ratio(sides) == 2.0
    table = decode_table(sides)
    assert "| pure        |    5.0 |       1.5 |  3.0 | 12.0 |      5.5 |               22.0 |" in table
    assert "2.00 × the CPU" in table


def test_without_the_compiled_decoder_there_is_no_ratio() -> None:
    sides = [decoded("pure", 12.0, 22.0)]
    assert ratio(sides) is None
    assert "×" not in decode_table(sides)
    text = profile_page(sides, machine=[("CPU", "x")], command="scripts/bench decode", made=date(2026, 11, 30))
    assert "1,000 transactions" in text and "`scripts/bench decode`" in text
