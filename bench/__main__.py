"""The command behind scripts/bench: what to measure, in which order, and what the exit code says."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pymysql
from confluent_kafka import KafkaException

from bench import application, operate, record
from bench.backlog import Backlog
from bench.decode import QUICK_FLOOR, measure_decoding, ratio
from bench.drain import drain_backlog
from bench.failure import BenchFailed
from bench.figures import DEFAULT_SIDE, POLLING, Results
from bench.goals import below_floor, goals
from bench.machine import describe
from bench.page import page, plots
from bench.parts import PARTS, Extent
from bench.profile import decode_table, profile_page
from bench.record import Part
from bench.servers import Servers
from bench.sides import SIDES
from bench.tables import grid, tables
from cdc_outbox.binlog.accelerator import decoder
from cdc_outbox.testing.services.child import end_all, interrupted_by_signals
from cdc_outbox.testing.services.words import Unavailable

DECODE = "decode"
"""The part that has a page of its own, docs/profile.md."""
QUICK_PARTS = (DECODE, "drain", "noise", "transactions")
AGAIN = "page"
DOCS = Path(__file__).parents[1] / "docs"
EXIT_BELOW_FLOOR = 1
EXIT_FAILED = 2
EXIT_INTERRUPTED = 130
NO_FIGURES = (BenchFailed, Unavailable, pymysql.MySQLError, KafkaException)

_WARMING = 10_000
_DECODED, _DECODED_QUICKLY = 20_000, 3000
_QUICK_ROWS = (256, 4096)
_QUICK = Extent(  # a large backlog is what slows a polling relay down
    sides=(DEFAULT_SIDE, POLLING), drained=80_000, noisy=8000, transactions=_QUICK_ROWS, grouped=16_384, rounds=1
)
_QUICK_ROUNDS = 3


def main(arguments: Sequence[str]) -> int:
    own = {application.NAME: application.main, operate.NAME: operate.main}.get(next(iter(arguments), ""))
    if own is not None:
        run = partial(own, arguments[1:])
    elif list(arguments) == [AGAIN]:
        run = partial(_render, DOCS)
    else:
        run = partial(_bench, _options(arguments), shlex.join(["scripts/bench", *arguments]))
    try:
        with interrupted_by_signals():
            return run()
    except NO_FIGURES as error:
        _say(f"\nNo figures: {error}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        _say("\nInterrupted; nothing is left running.")
        return EXIT_INTERRUPTED


def _bench(options: argparse.Namespace, command: str) -> int:
    servers = Servers.from_environment()
    if options.write and decoder().kind != "compiled":
        raise BenchFailed(f"figures worth writing down need the accelerator, and it does not run: {decoder().why}")
    machine = describe(servers)
    print(grid(["", ""], machine), end="\n\n", flush=True)
    wrong: list[str] = []
    measured: dict[str, list[Any]] = {}
    failed: list[str] = []
    if DECODE in options.parts:
        with _noted(failed, DECODE):
            wrong += _decode(servers, options, machine, command)
    if options.parts != [DECODE]:
        _say("Warming up: servers that have just started are slow")
        for side in (SIDES[DEFAULT_SIDE], SIDES[POLLING]):
            drain_backlog(servers, side, Backlog(min(_WARMING, options.extent.drained)), lambda text: None)
    for name in (name for name in PARTS if name in options.parts):
        with _noted(failed, name):
            measured[name] = _measure(servers, options, name)
            if options.write:  # each part at once: what comes after it may fail
                part = Part(datetime.now(UTC).date(), command, tuple(machine), measured[name])
                record.save(_record(DOCS), {**record.load(_record(DOCS)), name: part})
                _render(DOCS)
    found = Results(**measured)
    if options.quick:
        wrong += below_floor(found, _QUICK_ROWS[0])
    else:
        print(tables(Results(), goals(found)), flush=True)
    for line in wrong:
        _say(f"\nToo slow: {line}")
    if failed:
        raise BenchFailed("\n".join(failed))
    return EXIT_BELOW_FLOOR if wrong else 0


@contextmanager
def _noted(failed: list[str], part: str) -> Iterator[None]:
    """The other parts are worth having when the block has no figures."""
    try:
        yield
    except NO_FIGURES as error:
        failed.append(f"{part}: {error}")
        _say(f"\nNo figures of {failed[-1]}")


def _measure(servers: Servers, options: argparse.Namespace, name: str) -> list[Any]:
    """Measure and show one part; a quick one again while it is below its floor: what disturbs the machine may pass."""
    begin = time.monotonic()
    measured: list[Any] = list(PARTS[name](servers, options.extent, _say))
    for _ in range(1, _QUICK_ROUNDS if options.quick else 1):
        if below_floor(Results(**{name: measured}), _QUICK_ROWS[0]):
            measured += PARTS[name](servers, options.extent, _say)
    _say(f"{name}: took {time.monotonic() - begin:.0f} s\n")
    print(tables(Results(**{name: measured}), []), end="\n\n", flush=True)
    return measured


def _record(docs: Path) -> Path:
    return docs / "benchmarks.json"


def _render(docs: Path) -> int:
    """Write the page and its plots from what is recorded."""
    parts = record.load(_record(docs))
    if not parts:
        raise BenchFailed(f"{_record(docs).name} has nothing: `scripts/bench --write` measures")
    (docs / "benchmarks.md").write_text(page(parts))
    for name, drawing in plots(parts).items():
        (docs / name).write_text(drawing)
    _say(f"Written: {docs.name}/benchmarks.md and its plots")
    return 0


def _decode(
    servers: Servers, options: argparse.Namespace, machine: Sequence[tuple[str, str]], command: str
) -> list[str]:
    """Measure and show what reading the binlog costs; gives what is below its floor."""
    events = options.events or (_DECODED_QUICKLY if options.quick else _DECODED)
    sides = measure_decoding(servers, events, _say)
    print(f"Reading the binlog\n\n{decode_table(sides)}", end="\n\n", flush=True)
    if options.write:
        made = datetime.now(UTC).date()
        (DOCS / "profile.md").write_text(profile_page(sides, machine=machine, command=command, made=made))
        _say(f"Written: {DOCS.name}/profile.md")
    times = ratio(sides)
    if options.quick and times is not None and times < QUICK_FLOOR:
        return [f"the pure decoder takes {times:.2f} × the CPU of the compiled one; at least {QUICK_FLOOR} × is asked"]
    return []


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    every = (*PARTS, DECODE)
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure the relay, with its settings at their defaults, beside Debezium, a plain polling relay and"
        " a loop on mysql-replication.",
        epilog="Exit: 0 measured · 1 with --quick: below a floor · 2 no figures. The MySQL and Kafka that are used must"
        " have nothing else to do; while a backlog is written, MySQL's commits do not wait for the disk."
        f" `scripts/bench {AGAIN}` renders docs/benchmarks.md from docs/benchmarks.json without measuring,"
        f" `scripts/bench {application.NAME}` measures Outbox.add and event ids,"
        f" `scripts/bench {operate.NAME}` commands on a table of 10 million rows.",
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(every)} (default: all of them)")
    parser.add_argument(
        "--events", type=_positive, metavar="N", help="backlog of every part that has one; for trying out"
    )
    parser.add_argument("--sides", metavar="A,B", help=f"what to drain with: {','.join(Extent().sides)} (default: all)")
    parser.add_argument(
        "--rounds", type=_positive, metavar="N", help="measure each side so often (default: 1; noise: 3)"
    )
    parser.add_argument("--rates", metavar="N,N", help="events/s for latency (default: 200,1000,2500)")
    parser.add_argument(
        "--seconds", type=_positive, metavar="N", help="of latency, writers, idle (default: 12, 10, 20)"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two minutes, for CI: small backlogs, ratios only, up to 3 rounds until each is above its floor",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="write docs/benchmarks.md, where other parts stay, and docs/profile.md",
    )
    options = parser.parse_args(arguments)
    unknown = [part for part in options.parts if part not in every]
    if unknown:
        parser.error(f"no part is called {unknown[0]}: {', '.join(every)}")
    if options.quick and options.write:
        parser.error("--quick gives no figures worth writing down")
    options.parts = options.parts or list(QUICK_PARTS if options.quick else every)
    options.extent = _extent(options, parser)
    return options


def _extent(options: argparse.Namespace, parser: argparse.ArgumentParser) -> Extent:
    extent = _QUICK if options.quick else Extent()
    if options.events:
        fewer = {size: min(events, options.events) for size, events in extent.payloads.items()}
        extent = replace(extent, **dict.fromkeys(("drained", "million", "noisy", "grouped"), options.events))
        extent = replace(extent, payloads=fewer)
    if options.sides:
        sides = options.sides.split(",")
        unknown = [side for side in sides if side not in SIDES]
        if unknown:
            parser.error(f"no side is called {unknown[0]}: {', '.join(SIDES)}")
        if options.quick and not {DEFAULT_SIDE, POLLING} <= set(sides):
            parser.error(f"--quick compares {DEFAULT_SIDE} with {POLLING}: --sides must have both")
        extent = replace(extent, sides=sides)
    if options.rates:
        try:
            rates = [float(_positive(rate)) for rate in options.rates.split(",")]
        except ValueError:
            parser.error(f"--rates must be whole numbers above 0, with commas between: {options.rates}")
        extent = replace(extent, rates=rates)
    if options.rounds:
        extent = replace(extent, rounds=options.rounds)
    if options.seconds:
        extent = replace(extent, **dict.fromkeys(("seconds", "idle_seconds", "insert_seconds"), options.seconds))
    return extent


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise ValueError
    return value


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[1])  # the processes that are started import from here
    outcome = main(sys.argv[1:])
    end_all()
    raise SystemExit(outcome)
