"""The parts of the benchmark that need no server: its statistics, its verdicts, its tables, its reading of /proc."""

from __future__ import annotations

import json
import os
import re
import socket
from datetime import date
from pathlib import Path
from typing import cast
from xml.etree import ElementTree

import pytest

from bench import debezium, record
from bench.__main__ import main
from bench.backlog import Backlog, _statements, _together, payload
from bench.decode import Decode, ratio
from bench.failure import BenchFailed
from bench.figures import (
    NOBODY,
    Drain,
    Idle,
    Latency,
    Results,
    Spread,
    Writers,
    growth,
    percentile,
    ratios,
    skipped,
    spread,
)
from bench.goals import below_floor, goals
from bench.idle import statements_between
from bench.latency import WARM_UP, compare
from bench.machine import cpu_model
from bench.page import page, plots
from bench.parts import PARTS, Extent
from bench.processes import cpu_seconds, listener, listening_sockets, peak_of, peak_rss
from bench.profile import decode_table, profile_page
from bench.record import Part
from bench.servers import Servers, version_of_jars
from bench.sides import SIDES, Side
from bench.tables import (
    drain_table,
    goal_table,
    grid,
    idle_table,
    latency_table,
    million_table,
    noise_table,
    number,
    payload_table,
    tables,
    transaction_table,
    writers_table,
)
from cdc_outbox.binlog.accelerator import decoder

DOCS = Path(__file__).parents[2] / "docs"


def drain(
    side: str,
    rate: float,
    events: int = 200_000,
    *,
    cpu: float = 30,
    rows: int = 1,
    payload: int | None = None,
    noise: int = 0,
    peak_rss: int = 100_000_000,
    second_half: float | None = None,
) -> Drain:
    """cpu: µs of the side an event."""
    seconds = events / rate
    half = seconds / 2 if second_half is None else second_half
    used, mysqld = events * cpu * 1e-6, events * 20e-6
    return Drain(side, events, rows, payload, noise, seconds, half, used, mysqld, 16 * events, peak_rss, 0)


def latency(side: str, rate: float, p99: float) -> Latency:
    return Latency(side, rate, rate, p99 / 4, p99 / 2, p99, 2 * p99, 1000, 0, 0, 12.4)


def inserts(side: str, count: int, *, deadlocks: int = 0, timeouts: int = 0) -> Writers:
    return Writers(side, 4, 10, count, 4.7, 12, deadlocks, timeouts, 0)


def idle(cpu: float = 0.3) -> Idle:
    return Idle("confluent", 30.0, cpu, 60, {"select": 60}, 0, checkpoint_moved=False)


class StubServers:
    """Nothing is measured on it."""

    @classmethod
    def from_environment(cls) -> StubServers:
        return cls()


def rate(one: Drain) -> float:
    return one.rate


def cells(table: str) -> list[list[str]]:
    """Of the rows, without the heads."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:] if line[:1] == "|"]


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
    assert ratios(drains, "polling", rate) == {"confluent": Spread(2.0, 2.5, 3.0)}


def test_no_ratios_without_the_side_that_is_compared_with() -> None:
    assert ratios([drain("confluent", 20)], "polling", rate) == {}


def test_a_reference_may_be_compared_with_by_another_figure_of_it() -> None:
    drains = [drain("confluent", 20), drain("debezium-throughput", 10, second_half=200_000 / 2 / 40)]
    assert ratios(drains, "debezium-throughput", rate, lambda one: one.second_rate) == {
        "confluent": Spread(0.5, 0.5, 0.5)
    }


def test_what_a_skipped_row_costs() -> None:
    quiet, loud = drain("confluent", 10_000, 10_000, cpu=30), drain("confluent", 5000, 10_000, cpu=57, noise=9)
    ((seconds, cpu),) = skipped([quiet, loud])
    assert seconds == pytest.approx(1e6 / 90_000)
    assert cpu == pytest.approx(3.0)


def test_growth_compares_the_largest_transactions_with_those_of_a_size() -> None:
    drains = [drain("confluent", 1, cpu=cpu, rows=rows) for rows, cpu in ((1, 50), (1024, 10), (16_384, 12))]
    assert growth(drains, 1024) == pytest.approx(1.2)
    assert growth(drains[:2], 1024) is None


# -- verdicts -----------------------------------------------------------------------------------------------------


def test_a_ratio_below_its_floor_is_told() -> None:
    wrong = below_floor(Results(drain=[drain("confluent", 11), drain("polling", 10)]), 256)
    assert wrong == ["drained 1.10 × as fast as polling; at least 1.2 × is asked"]


def test_the_best_round_counts_for_the_floor() -> None:
    rounds = [drain("confluent", 9), drain("polling", 10), drain("confluent", 13), drain("polling", 10)]
    assert below_floor(Results(drain=rounds), 256) == []


def test_no_floor_for_absolute_figures() -> None:
    assert below_floor(Results(drain=[drain("confluent", 0.12), drain("polling", 0.1)]), 256) == []


def test_noise_and_growth_have_floors_too() -> None:
    noise = [drain("confluent", 10, cpu=30), drain("confluent", 10, cpu=30 + 9 * 15, noise=9)]
    grown = [drain("confluent", 10, cpu=10, rows=256), drain("confluent", 10, cpu=16, rows=4096)]
    assert below_floor(Results(noise=noise, transactions=grown), 256) == [
        "skipping another table's row takes 0.50 × the CPU of an event; at most 0.4 × is asked",
        "CPU per event grows 1.60 × with the transaction; at most 1.5 × is asked",
    ]


ALL = Results(
    drain=[
        drain("confluent", 38_000, cpu=11),
        drain("debezium-throughput", 20_000),
        drain("pure", 34_000, cpu=28),
        drain("polling", 10_000),
    ],
    million=[
        drain("confluent", 45_000, events=1_000_000, peak_rss=151_000_000),
        drain("debezium-throughput", 25_000, events=1_000_000, second_half=500_000 / 30_000),
    ],
    latency=[latency("confluent", 200, 6), latency("debezium-latency", 200, 5.9), latency("confluent", 1000, 7)],
    idle=[idle(0.3)],
    writers=[inserts(NOBODY, 1000), inserts("confluent", 650, timeouts=1), inserts("polling", 500, deadlocks=9)],
    noise=[drain("confluent", 10_000, 10_000), drain("confluent", 5000, 10_000, noise=9)],
    payloads=[drain("confluent", 100, 1000, payload=65_536)],
    transactions=[drain("confluent", 1, cpu=10, rows=1024), drain("confluent", 1, cpu=13, rows=16_384)],
)


def test_goals() -> None:
    assert [(goal.must, goal.aim, goal.measured, goal.verdict) for goal in goals(ALL)] == [
        ("≥ 1.70 ×", "≥ 2.20 ×", "1.90 ×", "reached"),
        ("≥ 1.50 ×", "≥ 1.80 ×", "1.70 ×", "reached"),
        ("≥ 3.0 ×", "≥ 5.0 ×", "3.8 ×", "reached"),
        ("≤ 18.0 µs", "≤ 12.0 µs", "11.0 µs", "reached, the aim too"),
        ("≤ 27.0 µs", "≤ 20.0 µs", "28.0 µs", "not reached"),
        ("≥ 1.20 ×", "≥ 1.50 ×", "1.50 ×", "reached, the aim too"),
        ("≤ 150 MB", "", "151 MB", "not reached"),
        ("≤ 7.0 ms", "≤ 5.0 ms", "6.0 ms", "reached"),
        ("≤ 5.9 ms", "", "6.0 ms", "not reached"),
        ("≤ 10.0 ms", "≤ 7.0 ms", "7.0 ms", "reached, the aim too"),
        ("≥ 60 %", "≥ 70 %", "65 %", "reached"),
        ("≤ 0", "", "1", "not reached"),
        ("≤ 2.0/s", "", "2.0/s", "reached"),
        ("< 1 %", "", "1.0 %", "not reached"),
        ("≤ 3.0 µs", "", "11.1 µs", "not reached"),
        ("≤ 1.25 ×", "", "1.30 ×", "not reached"),
    ]


def test_no_goal_is_judged_by_a_run_that_is_smaller_than_it() -> None:
    results = Results(
        drain=[drain("confluent", 30_000, events=20_000), drain("polling", 10_000, events=20_000)],
        million=[drain("confluent", 20_000, events=20_000)],
        latency=[latency("confluent", 100, 1)],
        noise=[drain("confluent", 10_000, 1000), drain("confluent", 5000, 1000, noise=9)],
        transactions=[drain("confluent", 1, events=4096, rows=rows) for rows in (1024, 4096)],
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


@pytest.mark.parametrize("size", [4096, 65_536, 1_000_000])
def test_larger_payloads_have_more_lines(size: int) -> None:
    text = payload(7, size)
    assert len(text.encode()) == size
    assert len(json.loads(text)["lines"]) > size / 100


def test_the_statements_of_a_backlog() -> None:
    statements = list(_statements(Backlog(5, rows=3), range(2), repr))
    assert [statement.split(" ", 1)[0] for statement in statements] == ["BEGIN", "INSERT", "COMMIT"] * 2
    assert [statement.count("'OrderPlaced'") for statement in statements] == [0, 3, 0, 0, 2, 0]
    noisy = list(_statements(Backlog(1, noise=2), range(1), repr))
    assert [statement.split(" ")[2] for statement in noisy] == ["outbox_event", "noise", "noise"]
    assert [one.count("INSERT") for one in _together(iter(["INSERT"] * 501))] == [500, 1]


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
    assert cells(drain_table(rounds)) == [
        ["cdc-outbox, confluent-kafka", "25,000 (20,000–30,000)", "2.50 (2.00–3.00)", "30.0", "20.0", "16", "100", "0"],
        ["polling relay, confluent-kafka", "10,000", "1.00", "30.0", "20.0", "16", "100", "0"],
    ]


def test_drain_table_compares_with_debezium_too() -> None:
    heads, _, ours, *_ = drain_table(list(ALL.drain)).splitlines()
    assert "| × tuned Debezium | × polling |" in heads
    assert "|             1.90 |      3.80 |" in ours


def test_what_cannot_be_seen_is_not_made_up() -> None:
    alone = Drain("row", 10, 1, None, 0, 1.0, 0.5, 0.1, None, 0, 1_000_000, 2)
    assert cells(drain_table([alone]))[0][1:] == ["10", "10000.0", "–", "0", "1", "2"]


def test_tables_of_the_other_parts() -> None:
    assert cells(million_table(ALL.million))[0][1:3] == ["45,000", "1.50"]
    assert cells(latency_table(ALL.latency))[1][:5] == [
        "200/s: Debezium, tuned for latency", "200", "1.5", "3.0", "5.9",
    ]  # fmt: skip
    assert cells(idle_table(ALL.idle))[0][1:] == ["1.00 %", "2.0/s", "0 bytes", "did not move", "select 2.00/s"]
    assert [row[:3] for row in cells(writers_table(ALL.writers))] == [
        ["nobody relays", "100", "100"],
        ["cdc-outbox, confluent-kafka", "65", "65"],
        ["polling relay, confluent-kafka", "50", "50"],
    ]
    assert "costs 11.1 µs, 0.0 µs of them CPU of the relay." in noise_table(ALL.noise)
    assert cells(payload_table(ALL.payloads))[0][:4] == ["65,536 bytes", "1,000", "100", "6.6"]
    assert [row[0] for row in cells(transaction_table(ALL.transactions))] == ["1,024 rows", "16,384 rows"]


def test_what_was_not_measured_is_not_shown() -> None:
    assert tables(Results(), []) == ""
    for table in (drain_table, million_table, latency_table, idle_table, writers_table, noise_table, payload_table):
        assert table([]) == ""
    assert goal_table([]) == ""


# -- the page and its record ----------------------------------------------------------------------------------------


def parts(results: Results, *, command: str = "scripts/bench --write") -> dict[str, Part]:
    return {
        name: Part(date(2026, 1, 31), command, (("CPU", "a model"),), figures)
        for name, figures in vars(results).items()
        if figures
    }


def test_the_page_names_machine_date_and_command() -> None:
    text = page(parts(Results(drain=ALL.drain, idle=ALL.idle)))
    for part in ("2026-01-31", "`scripts/bench --write`", "a model", "200,000 events", "select 2.00/s", "did not move"):
        assert part in text
    assert "From COMMIT" not in text
    assert text.endswith("\n") and not text.endswith("\n\n")
    assert all(len(line) <= 120 or line.startswith("|") for line in page(parts(ALL)).splitlines())


def test_parts_of_several_runs_each_name_their_own() -> None:
    several = {**parts(ALL), **parts(Results(idle=ALL.idle), command="scripts/bench idle --write")}
    text = page(several)
    assert "| parts   | drain, million, latency, writers, noise, payloads, transactions |" in text
    assert "| parts   | idle                         |" in text
    assert "`scripts/bench idle --write`" in text


def test_what_is_recorded_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.json"
    assert record.load(path) == {}
    record.save(path, parts(ALL))
    assert record.load(path) == parts(ALL)
    assert [one.name for one in tmp_path.iterdir()] == ["benchmarks.json"]


def test_the_page_and_its_plots_are_what_is_recorded() -> None:
    recorded = record.load(DOCS / "benchmarks.json")
    assert (DOCS / "benchmarks.md").read_text() == page(recorded), "scripts/bench page renders it anew"
    for name, drawing in plots(recorded).items():
        assert (DOCS / name).read_text() == drawing, "scripts/bench page renders it anew"


def test_plots_are_xml_with_a_bar_for_each_side() -> None:
    drawn = plots(parts(ALL))
    drains = ElementTree.fromstring(drawn["benchmarks-drain.svg"])
    names = [text.text for text in drains.iter("{http://www.w3.org/2000/svg}text")]
    assert names.index("cdc-outbox, confluent-kafka") < names.index("polling relay, confluent-kafka")
    widths = [float(bar.attrib["width"]) for bar in drains.iter("{http://www.w3.org/2000/svg}rect")]
    assert widths == sorted(widths, reverse=True) and len(widths) == 4
    assert widths[3] / widths[0] == pytest.approx(10 / 38, abs=0.01)
    delays = ElementTree.fromstring(drawn["benchmarks-latency.svg"])
    assert len(list(delays.iter("{http://www.w3.org/2000/svg}rect"))) == 3
    assert plots({}) == {}


def test_debezium_s_settings_are_files() -> None:
    assert debezium.read("debezium-latency.properties")["poll.interval.ms"] == "1"
    for side in SIDES.values():
        if side.tuning:
            assert (debezium.SETTINGS / f"debezium-{side.tuning}.properties").is_file()
    linked = re.findall(r"\(\.\./(bench/settings/[^)]+)\)", page(parts(ALL)))
    assert sorted(Path(one).name for one in linked) == sorted(
        one.name for one in debezium.SETTINGS.iterdir() if "log" not in one.name
    )
    used = {side.tuning: debezium.jvm_options(side.tuning).name for side in SIDES.values() if side.kind == "debezium"}
    assert used == {
        "": "debezium-connect.options",
        "throughput": "debezium-throughput.options",
        "latency": "debezium-connect.options",
    }


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
        (["--rates", "200,x"], "--rates must be whole numbers"),
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


def test_a_part_that_fails_does_not_take_the_others_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """And what was measured is written down at once; the exit code says that something is missing."""

    def fails(*_: object) -> list[Idle]:
        raise BenchFailed("it died")

    (tmp_path / "docs").mkdir()
    monkeypatch.setattr("bench.__main__.DOCS", tmp_path / "docs")
    monkeypatch.setattr("bench.__main__.Servers", StubServers)
    monkeypatch.setattr("bench.__main__.describe", lambda _: [("CPU", "a model")])
    monkeypatch.setattr("bench.__main__.decoder", lambda: decoder()._replace(kind="compiled"))
    monkeypatch.setattr("bench.__main__.drain_backlog", lambda *_: None)
    monkeypatch.setitem(PARTS, "idle", fails)
    monkeypatch.setitem(PARTS, "writers", lambda *_: ALL.writers)
    assert main(["idle", "writers", "--write"]) == 2
    told = capsys.readouterr()
    assert "No figures of idle: it died" in told.err
    assert "nobody relays" in told.out
    assert list(record.load(tmp_path / "docs" / "benchmarks.json")) == ["writers"]
    assert "What a service's inserts lose" in (tmp_path / "docs" / "benchmarks.md").read_text()
    monkeypatch.setitem(PARTS, "idle", lambda *_: ALL.idle)
    assert main(["idle", "--write"]) == 0
    assert list(record.load(tmp_path / "docs" / "benchmarks.json")) == ["idle", "writers"]
    assert main(["page"]) == 0


def test_figures_without_the_accelerator_are_not_written_down(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.__main__.Servers", StubServers)
    monkeypatch.setattr("bench.__main__.decoder", lambda: decoder()._replace(kind="pure", why="there is no compiler"))
    assert main(["idle", "--write"]) == 2
    assert "there is no compiler" in capsys.readouterr().err


@pytest.mark.parametrize(("cost", "code"), [(10.0, 0), (40.0, 1)])
def test_quick_says_what_is_too_slow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], cost: float, code: int
) -> None:
    """After three rounds: what disturbs a machine may pass."""
    rounds: list[int] = []

    def noise(*_: object) -> list[Drain]:
        rounds.append(1)
        return [drain("confluent", 10, cpu=30), drain("confluent", 10, cpu=30 + 9 * cost, noise=9)]

    monkeypatch.setattr("bench.__main__.Servers", StubServers)
    monkeypatch.setattr("bench.__main__.describe", lambda _: [("CPU", "a model")])
    monkeypatch.setattr("bench.__main__.drain_backlog", lambda *_: None)
    monkeypatch.setitem(PARTS, "noise", noise)
    assert main(["noise", "--quick"]) == code
    assert len(rounds) == (3 if code else 1)
    assert ("Too slow: skipping" in capsys.readouterr().err) == bool(code)


def test_sides_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes on the machine meanwhile meets all of them."""
    ran: list[tuple[str, int]] = []

    def measured(servers: Servers, side: Side, backlog: Backlog, say: object) -> Drain:
        ran.append((side.name, backlog.noise))
        return drain(side.name, 1)

    monkeypatch.setattr("bench.parts.drain_backlog", measured)
    servers = cast("Servers", None)
    assert len(PARTS["drain"](servers, Extent(rounds=2, sides=("confluent", "polling")), print)) == 4
    assert ran == [("confluent", 0), ("polling", 0)] * 2
    ran.clear()
    PARTS["noise"](servers, Extent(), print)
    assert ran == [("confluent", 0), ("confluent", 9)] * 3


# -- decode -------------------------------------------------------------------------------------------------------


def decoded(kind: str, json: float, whole: float) -> Decode:
    return Decode(kind, 1000, 950.0, 460.0, socket=5.0, cut=1.5, rows=3.0, json=json, whole=whole, another=1.0)


def test_both_decoders_side_by_side() -> None:
    sides = [decoded("pure", 12.0, 22.0), decoded("compiled", 2.0, 11.0)]
    assert [side.rest for side in sides] == [5.5, 4.5]
    assert ratio(sides) == 2.0
    table = decode_table(sides)
    assert "| pure        |    5.0 | 1.5 |  3.0 | 12.0 |      5.5 |               22.0 |             1.0 |" in table
    assert "2.00 × the CPU" in table


def test_without_the_compiled_decoder_there_is_no_ratio() -> None:
    sides = [decoded("pure", 12.0, 22.0)]
    assert ratio(sides) is None
    assert "×" not in decode_table(sides)
    text = profile_page(sides, machine=[("CPU", "x")], command="scripts/bench decode", made=date(2026, 11, 30))
    assert "1,000 transactions" in text and "`scripts/bench decode`" in text
