"""The command behind scripts/bench: what to measure, in which order, and what the exit code says."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pymysql
from confluent_kafka import KafkaException

from bench import application, operate
from bench.decode import QUICK_FLOOR, measure_decoding, ratio
from bench.drain import drain_backlog
from bench.failure import BenchFailed
from bench.figures import DEFAULT_SIDE, POLLING, QUICK_FLOORS, Drain, Latency, Results, below_floor, goals
from bench.idle import measure_idle
from bench.latency import WARM_UP, measure_latency
from bench.machine import describe
from bench.page import grid, page, tables
from bench.profile import decode_table, profile_page
from bench.servers import Servers
from bench.sides import SIDES
from cdc_outbox.testing.services.child import end_all, interrupted_by_signals
from cdc_outbox.testing.services.words import Unavailable

PARTS = ("drain", "latency", "idle", "memory", "decode")
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
PROFILE = PAGE.with_name("profile.md")
EXIT_BELOW_FLOOR = 1
EXIT_FAILED = 2
EXIT_INTERRUPTED = 130

_DRAINED, _DRAINED_QUICKLY, _MEMORY_BACKLOG, _WARMING = 200_000, 20_000, 1_000_000, 10_000
_DECODED, _DECODED_QUICKLY = 20_000, 3000


def main(arguments: Sequence[str]) -> int:
    own = {application.NAME: application.main, operate.NAME: operate.main}.get(next(iter(arguments), ""))
    if own is not None:
        run = partial(own, arguments[1:])
    else:
        run = partial(_bench, _options(arguments), shlex.join(["scripts/bench", *arguments]))
    try:
        with interrupted_by_signals():
            return run()
    except (BenchFailed, Unavailable, pymysql.MySQLError, KafkaException) as error:
        _say(f"\nNo figures: {error}")
        return EXIT_FAILED
    except KeyboardInterrupt:
        _say("\nInterrupted; nothing is left running.")
        return EXIT_INTERRUPTED


def _bench(options: argparse.Namespace, command: str) -> int:
    servers = Servers.from_environment()
    machine = describe(servers)
    print(grid(["", ""], machine), end="\n\n", flush=True)
    slow = _decode(servers, options, machine, command) if "decode" in options.parts else []
    if options.parts == ["decode"]:
        return EXIT_BELOW_FLOOR if slow else 0
    results = _measure(servers, options)
    asked = [] if options.quick else goals(results)
    print(tables(results, asked), flush=True)
    if options.write:
        made = datetime.now(UTC).date()
        PAGE.write_text(page(results, asked, machine=machine, command=command, made=made, warm_up=WARM_UP))
        _say(f"\nWritten to {PAGE.relative_to(PAGE.parents[1])}")
    wrong = below_floor(results.drains, QUICK_FLOORS) if options.quick else []
    for line in wrong:
        _say(f"\nToo slow: {line}")
    return EXIT_BELOW_FLOOR if wrong or slow else 0


def _decode(
    servers: Servers, options: argparse.Namespace, machine: Sequence[tuple[str, str]], command: str
) -> list[str]:
    """Measure and show what reading the binlog costs; gives what is below its floor."""
    events = options.events or (_DECODED_QUICKLY if options.quick else _DECODED)
    sides = measure_decoding(servers, events, _say)
    print(f"Reading the binlog\n\n{decode_table(sides)}", end="\n\n", flush=True)
    if options.write:
        made = datetime.now(UTC).date()
        PROFILE.write_text(profile_page(sides, machine=machine, command=command, made=made))
        _say(f"\nWritten to {PROFILE.relative_to(PROFILE.parents[1])}")
    times = ratio(sides)
    if options.quick and times is not None and times < QUICK_FLOOR:
        wrong = f"the pure decoder takes {times:.2f} × the CPU of the compiled one; at least {QUICK_FLOOR} × is asked"
        _say(f"\nToo slow: {wrong}")
        return [wrong]
    return []


def _measure(servers: Servers, options: argparse.Namespace) -> Results:
    quick, default = options.quick, SIDES[DEFAULT_SIDE]
    drains: list[Drain] = []
    latencies: list[Latency] = []
    idle = memory = None
    _say("Warming up: servers that have just started are slow")
    for side in (default, SIDES[POLLING]):
        drain_backlog(servers, side, _WARMING, lambda text: None)
    if "drain" in options.parts:
        events = options.events or (_DRAINED_QUICKLY if quick else _DRAINED)
        for number in range(1, options.rounds + 1):
            _say(f"Round {number} of {'at most ' if quick else ''}{options.rounds}")
            drains += [drain_backlog(servers, SIDES[name], events, _say) for name in options.sides]
            if quick and not below_floor(drains, QUICK_FLOORS):
                break
    if "latency" in options.parts:
        compared = [default] if quick else [default, SIDES[POLLING]]
        latencies = [measure_latency(servers, side, options.rate, options.seconds, _say) for side in compared]
    if "idle" in options.parts:
        idle = measure_idle(servers, default, options.idle_seconds, _say)
    if "memory" in options.parts:
        memory = drain_backlog(servers, default, options.events or _MEMORY_BACKLOG, _say)
    return Results(drains, latencies, idle, memory)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure the relay, with its settings at their defaults, beside a plain polling relay.",
        epilog="Exit: 0 measured · 1 with --quick: below a floor · 2 no figures. The MySQL and Kafka that are used must"
        " have nothing else to do; while a backlog is written, MySQL's commits do not wait for the disk."
        f" `scripts/bench {application.NAME}` measures Outbox.add and event ids,"
        f" `scripts/bench {operate.NAME}` commands on a table of 10 million rows.",
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} (default: all of them)")
    parser.add_argument(
        "--events", type=_positive, metavar="N", help="backlog (default: 200000; memory: 1000000; decode: 20000)"
    )
    parser.add_argument("--sides", metavar="A,B", help=f"what to drain with: {','.join(SIDES)} (default: all)")
    parser.add_argument("--rounds", type=_positive, metavar="N", help="drain so often (default: 1)")
    parser.add_argument("--rate", type=_positive, default=500, metavar="N", help="events/s for latency (default: 500)")
    parser.add_argument("--seconds", type=_positive, metavar="N", help="of latency (default: 20)")
    parser.add_argument("--idle-seconds", type=_positive, metavar="N", help="of idleness (default: 30)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a minute, for CI: 20000 events, up to 3 rounds until the ratio is above its floor; 3 s; no memory",
    )
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md and docs/profile.md as well")
    options = parser.parse_args(arguments)
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"no part is called {unknown[0]}: {', '.join(PARTS)}")
    options.sides = options.sides.split(",") if options.sides else list(SIDES)
    unknown = [side for side in options.sides if side not in SIDES]
    if unknown:
        parser.error(f"no side is called {unknown[0]}: {', '.join(SIDES)}")
    if options.quick and not {DEFAULT_SIDE, POLLING} <= set(options.sides):
        parser.error(f"--quick compares {DEFAULT_SIDE} with {POLLING}: --sides must have both")
    if options.quick and options.write:
        parser.error("--quick gives no figures worth writing down")
    options.parts = options.parts or [part for part in PARTS if not (options.quick and part == "memory")]
    options.rounds = options.rounds or (3 if options.quick else 1)
    options.seconds = options.seconds or (3 if options.quick else 20)
    options.idle_seconds = options.idle_seconds or (3 if options.quick else 30)
    return options


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
