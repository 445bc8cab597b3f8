"""The results as tables, and docs/benchmarks.md around them. Pure: text in, text out."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import date

from bench.figures import (
    MB,
    POLLING,
    Drain,
    Goal,
    Idle,
    Latency,
    Results,
    Spread,
    by_side,
    percentile,
    ratios,
    spread,
)
from bench.sides import SIDES

_NOT_SEEN = "–"

_HEAD = """\
# Benchmarks

Made by `scripts/bench --write`, all in one run. Do not edit the figures: run it again.
MySQL, Kafka, relay, writers and consumers share one machine, so read the ratios first: they carry over to another
machine better than the figures do.
"""

_DRAIN = """\
## Emptying a backlog

{events:,} events, each in a transaction of its own, about 400 bytes of nested JSON, 5,000 aggregates; written while the
side was away, the same events for each, in a database and a topic of its own. Measured from the moment that it is ready
until the last row says *sent*: reading, publishing with acks from all replicas, writing the outcome back.

- cdc-outbox has stopped before and reads the backlog from the binlog, from its checkpoint on. It looks up each row's
  status first, as it does after every start.
- The polling relay is the one that is usually written first ([bench/polling_relay.py](../bench/polling_relay.py)):
  `SELECT … FOR UPDATE SKIP LOCKED LIMIT 500`, produce, flush, `UPDATE … status = 2`, COMMIT. It has no retries, no dead
  letters, and keeps no order across a failure.
- CPU is user and system time, peak RSS is VmHWM.
"""

_LATENCY = """\
## From COMMIT to the consumer

Single-row transactions at a fixed rate from 8 connections, however long the answers take. Measured from the return of
COMMIT until a consumer in another process has the record; the first {warm_up:g} s are left out. No event was lost.
The polling relay pauses 100 ms when it has found nothing. *Deadlocks* are INSERTs of the service that MySQL rolled back
(error 1213); the service tried them again.
"""

_IDLE = """\
## With nothing to do

Counters of the relay's process and of the server over {seconds:.0f} s, with no other client.
"""

_MEMORY = """\
## Memory with a large backlog

The default relay empties {events:,} events as above.
"""

_TAIL = """\
## Run it yourself

    scripts/bench --help
    scripts/bench                            # everything; takes minutes and wants a quiet machine
    scripts/bench drain --events 50000       # one part
    scripts/bench --quick                    # small; fails when the ratio to the polling relay is below its floor

MySQL and Kafka are found or started as for `scripts/test`. While a backlog is written, `sync_binlog` and
`innodb_flush_log_at_trx_commit` of the server are relaxed; before anything is measured they are set back.
"""


def tables(results: Results, asked: Sequence[Goal]) -> str:
    """All results for a terminal."""
    sections = [
        ("Drain", drain_table(results.drains)),
        ("Commit to consumer", latency_table(results.latencies)),
        ("Idle", idle_table(results.idle)),
        ("Memory", memory_table(results.memory)),
        ("Goals", goal_table(asked)),
    ]
    return "\n\n".join(f"{title}\n\n{table}" for title, table in sections if table)


def page(
    results: Results,
    asked: Sequence[Goal],
    *,
    machine: Sequence[tuple[str, str]],
    command: str,
    made: date,
    warm_up: float,
) -> str:
    """The text of docs/benchmarks.md. command: how it was made; warm_up: seconds that latency leaves out."""
    parts = [_HEAD, grid(["", ""], [["date", made.isoformat()], ["command", f"`{command}`"], *map(list, machine)])]
    if asked:
        parts += ["## What this version was to reach", goal_table(asked)]
    if results.drains:
        parts += [_DRAIN.format(events=results.drains[0].events), drain_table(results.drains)]
    if results.latencies:
        parts += [_LATENCY.format(warm_up=warm_up), latency_table(results.latencies)]
    if results.idle is not None:
        parts += [_IDLE.format(seconds=results.idle.seconds), idle_table(results.idle)]
    if results.memory is not None:
        parts += [_MEMORY.format(events=results.memory.events), memory_table(results.memory)]
    return "\n\n".join(part.strip("\n") for part in [*parts, _TAIL]) + "\n"


def drain_table(drains: Sequence[Drain]) -> str:
    """One row a side; with several rounds the median and, in brackets, the range."""
    compared = ratios(drains)
    rows = []
    for side, rounds in by_side(drains).items():
        compared_with = "1" if side == POLLING else number(compared[side], "{:.1f}") if compared else _NOT_SEEN
        mysqld = [one.mysqld_cpu / one.events * 1e6 for one in rounds if one.mysqld_cpu is not None]
        rows.append(
            [
                SIDES[side].title,
                number(spread(one.rate for one in rounds), "{:,.0f}"),
                compared_with,
                number(spread(one.relay_cpu / one.events * 1e6 for one in rounds), "{:.0f}"),
                number(spread(mysqld), "{:.0f}") if mysqld else _NOT_SEEN,
                number(spread(one.peak_rss / MB for one in rounds), "{:.0f}"),
                str(sum(one.duplicates for one in rounds)),
            ]
        )
    heads = ["", "events/s", "× polling", "relay CPU, µs/event", "mysqld CPU, µs/event", "peak RSS, MB", "duplicates"]
    return grid(heads, rows) if rows else ""


def latency_table(latencies: Sequence[Latency]) -> str:
    rows = [
        [
            SIDES[one.side].title,
            f"{one.written:.0f} of {one.rate:g}",
            *(f"{percentile(one.samples, share):.1f}" for share in (0.5, 0.95, 0.99, 1)),
            f"{len(one.samples):,}",
            str(one.duplicates),
            str(one.deadlocks),
        ]
        for one in latencies
    ]
    heads = ["", "events/s written", "p50, ms", "p95, ms", "p99, ms", "max, ms", "events", "duplicates", "deadlocks"]
    return grid(heads, rows) if rows else ""


def idle_table(idle: Idle | None) -> str:
    if idle is None:
        return ""
    kinds = sorted(idle.statements.items(), key=lambda kind: (-kind[1], kind[0]))
    rows = [
        ["CPU of the relay", f"{idle.cpu_percent:.2f} %"],
        ["statements", f"{idle.queries / idle.seconds:.1f}/s"],
        ["of which", ", ".join(f"{name} {count / idle.seconds:.2f}/s" for name, count in kinds) or "none"],
        ["written to the binlog", f"{idle.binlog_bytes:,} bytes"],
        ["its checkpoint", "moved" if idle.checkpoint_moved else "did not move"],
    ]
    return grid(["", ""], rows)


def memory_table(memory: Drain | None) -> str:
    if memory is None:
        return ""
    rows = [["peak RSS of the relay", f"{memory.peak_rss / MB:.0f} MB"], ["events/s", f"{memory.rate:,.0f}"]]
    return grid(["", ""], rows)


def goal_table(found: Sequence[Goal]) -> str:
    rows = [[goal.what, goal.asked, goal.measured, "reached" if goal.met else "missed"] for goal in found]
    return grid(["", "asked", "measured", ""], rows) if rows else ""


def number(spread: Spread, form: str) -> str:
    """`median`, or `median (low–high)` where the rounds differ in what is shown."""
    low, median, high = (form.format(value) for value in (spread.low, spread.median, spread.high))
    return median if low == high else f"{median} ({low}–{high})"


def grid(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that reads well as plain text: the first column to the left, numbers to the right."""
    lines = [list(heads), *map(list, rows)]
    widths = [max(3, *(_width(line[column]) for line in lines)) for column in range(len(heads))]
    flush = ["<" if column == 0 or not any(heads) else ">" for column in range(len(heads))]
    marks = ["-" * width if side == "<" else "-" * (width - 1) + ":" for width, side in zip(widths, flush, strict=True)]
    return "\n".join(_line(line, widths, flush) for line in [lines[0], marks, *lines[1:]])


def _line(cells: Sequence[str], widths: Sequence[int], flush: Sequence[str]) -> str:
    padded = []
    for cell, width, side in zip(cells, widths, flush, strict=True):
        gap = " " * (width - _width(cell))
        padded.append(cell + gap if side == "<" else gap + cell)
    return f"| {' | '.join(padded)} |"


def _width(text: str) -> int:
    """Columns on a terminal."""
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)
