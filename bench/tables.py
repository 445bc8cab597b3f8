"""The results as tables. Pure: figures in, text out."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from bench.figures import (
    DEBEZIUM_THROUGHPUT,
    MB,
    NOBODY,
    POLLING,
    Drain,
    Idle,
    Latency,
    Results,
    Spread,
    Writers,
    grouped,
    ratios,
    skipped,
    spread,
)
from bench.goals import Goal
from bench.sides import SIDES

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)
_NOT_SEEN = "–"
_REFERENCES = ((DEBEZIUM_THROUGHPUT, "× tuned Debezium"), (POLLING, "× polling"))
_PAYLOAD = 400
"""Bytes, about, of an event whose size nobody asked for."""

Column = tuple[str, Callable[[T], float | None], str]
"""Head, what a round says (None: not seen), its form."""


def tables(results: Results, asked: Sequence[Goal]) -> str:
    """All results for a terminal."""
    sections = [
        ("Drain", drain_table(results.drain)),
        ("A million", million_table(results.million)),
        ("Commit to consumer", latency_table(results.latency)),
        ("Idle", idle_table(results.idle)),
        ("Writers", writers_table(results.writers)),
        ("Noise", noise_table(results.noise)),
        ("Payloads", payload_table(results.payloads)),
        ("Transactions", transaction_table(results.transactions)),
        ("Goals", goal_table(asked)),
    ]
    return "\n\n".join(f"{title}\n\n{table}" for title, table in sections if table)


def drain_table(drains: Sequence[Drain]) -> str:
    """One row a side; with several rounds the median and, in brackets, the range."""
    columns: list[Column[Drain]] = [
        ("events/s", lambda one: one.rate, "{:,.0f}"),
        ("CPU, µs/event", lambda one: one.cpu, "{:.1f}"),
        ("mysqld CPU, µs/event", lambda one: one.mysqld, "{:.1f}"),
        ("binlog, bytes/event", lambda one: one.binlog_bytes / one.events, "{:,.0f}"),
        ("peak RSS, MB", lambda one: one.peak_rss / MB, "{:,.0f}"),
        ("duplicates", lambda one: one.duplicates, "{:.0f}"),
    ]
    against = [(head, ratios(drains, side, lambda one: one.rate), side) for side, head in _REFERENCES]
    relative = [(head, {**found, side: Spread(1, 1, 1)}) for head, found, side in against if found]
    return _table(drains, lambda one: one.side, title, columns, relative)


def million_table(drains: Sequence[Drain]) -> str:
    columns: list[Column[Drain]] = [
        ("events/s", lambda one: one.rate, "{:,.0f}"),
        ("its second half", lambda one: one.second_rate, "{:,.0f}"),
        ("CPU, µs/event", lambda one: one.cpu, "{:.1f}"),
        ("peak RSS, MB", lambda one: one.peak_rss / MB, "{:,.0f}"),
    ]
    found = ratios(drains, DEBEZIUM_THROUGHPUT, lambda one: one.rate, lambda one: one.second_rate)
    return _table(drains, lambda one: one.side, title, columns, [("× Debezium's second half", found)] if found else [])


def latency_table(latencies: Sequence[Latency]) -> str:
    columns: list[Column[Latency]] = [
        ("written/s", lambda one: one.written, "{:,.0f}"),
        ("p50, ms", lambda one: one.p50, "{:.1f}"),
        ("p95, ms", lambda one: one.p95, "{:.1f}"),
        ("p99, ms", lambda one: one.p99, "{:.1f}"),
        ("max, ms", lambda one: one.longest, "{:.1f}"),
        ("CPU, % of a core", lambda one: one.cpu, "{:.0f}"),
        ("duplicates", lambda one: one.duplicates, "{:.0f}"),
        ("deadlocks", lambda one: one.deadlocks, "{:.0f}"),
    ]
    return _table(latencies, lambda one: (one.rate, one.side), lambda key: f"{key[0]:,.0f}/s: {title(key[1])}", columns)


def idle_table(idle: Sequence[Idle]) -> str:
    rows = []
    for one in idle:
        kinds = sorted(one.statements.items(), key=lambda kind: (-kind[1], kind[0]))
        moved = {None: _NOT_SEEN, True: "moved", False: "did not move"}[one.checkpoint_moved]
        rows.append(
            [
                title(one.side),
                f"{one.cpu_percent:.2f} %",
                f"{one.queries / one.seconds:.1f}/s",
                f"{one.binlog_bytes:,} bytes",
                moved,
                ", ".join(f"{name} {count / one.seconds:.2f}/s" for name, count in kinds) or "none",
            ]
        )
    heads = ["", "CPU", "statements", "binlog", "checkpoint", "which statements"]
    return grid(heads, rows) if rows else ""


def writers_table(writers: Sequence[Writers]) -> str:
    columns: list[Column[Writers]] = [
        ("inserts/s", lambda one: one.rate, "{:,.0f}"),
        ("p99, ms", lambda one: one.p99, "{:.1f}"),
        ("lock waits", lambda one: one.lock_waits, "{:,.0f}"),
        ("errors 1213", lambda one: one.deadlocks, "{:,.0f}"),
        ("errors 1205", lambda one: one.timeouts, "{:,.0f}"),
        ("behind at the end", lambda one: one.behind, "{:,.0f}"),
    ]
    kept = ratios(writers, NOBODY, lambda one: 100 * one.rate, lambda one: one.rate)
    relative = [("kept, %", {**kept, NOBODY: Spread(100, 100, 100)})] if kept else []
    return _table(writers, lambda one: one.side, title, columns, relative, form="{:.0f}")


def noise_table(noise: Sequence[Drain]) -> str:
    costs = skipped(noise)
    if not costs:
        return ""
    columns: list[Column[Drain]] = [
        ("s", lambda one: one.seconds, "{:.2f}"),
        ("CPU of the relay, s", lambda one: one.relay_cpu, "{:.2f}"),
    ]
    table = _table(
        noise, lambda one: one.noise, lambda times: "and the noise" if times else "the events alone", columns
    )
    seconds, cpu = (number(spread(values), "{:.1f}") for values in zip(*costs, strict=True))
    return f"{table}\n\nA row of another table costs {seconds} µs, {cpu} µs of them CPU of the relay."


def payload_table(drains: Sequence[Drain]) -> str:
    def megabytes(one: Drain) -> float:
        return one.events * (one.payload or _PAYLOAD) / MB

    columns: list[Column[Drain]] = [
        ("events", lambda one: one.events, "{:,.0f}"),
        ("events/s", lambda one: one.rate, "{:,.0f}"),
        ("MB/s", lambda one: megabytes(one) / one.seconds, "{:.1f}"),
        ("CPU, µs/event", lambda one: one.cpu, "{:,.0f}"),
        ("CPU, ms/MB", lambda one: 1000 * one.relay_cpu / megabytes(one), "{:.1f}"),
        ("peak RSS, MB", lambda one: one.peak_rss / MB, "{:,.0f}"),
    ]
    return _table(drains, lambda one: one.payload or _PAYLOAD, lambda size: f"{size:,} bytes", columns)


def transaction_table(drains: Sequence[Drain]) -> str:
    columns: list[Column[Drain]] = [
        ("events/s", lambda one: one.rate, "{:,.0f}"),
        ("CPU, µs/event", lambda one: one.cpu, "{:.1f}"),
        ("mysqld CPU, µs/event", lambda one: one.mysqld, "{:.1f}"),
        ("peak RSS, MB", lambda one: one.peak_rss / MB, "{:,.0f}"),
    ]
    return _table(drains, lambda one: one.rows, lambda rows: f"{rows:,} rows" if rows > 1 else "1 row", columns)


def goal_table(found: Sequence[Goal]) -> str:
    rows = [[goal.what, goal.must, goal.aim, goal.measured, goal.verdict] for goal in found]
    return grid(["", "must", "aim", "measured", ""], rows) if rows else ""


def title(side: str) -> str:
    return "nobody relays" if side == NOBODY else SIDES[side].title


def _table(
    figures: Iterable[T],
    key: Callable[[T], Key],
    name: Callable[[Key], str],
    columns: Sequence[Column[T]],
    relative: Sequence[tuple[str, Mapping[Key, Spread]]] = (),
    *,
    form: str = "{:.2f}",
) -> str:
    """A row for each key, over its rounds. relative: columns after the first, of which the rounds know nothing."""
    rows = []
    for one, rounds in grouped(figures, key).items():
        cells = [_cell([value(each) for each in rounds], shape) for _, value, shape in columns]
        cells[1:1] = [number(found[one], form) if one in found else _NOT_SEEN for _, found in relative]
        rows.append([name(one), *cells])
    heads = [head for head, _, _ in columns]
    heads[1:1] = [head for head, _ in relative]
    return grid(["", *heads], rows) if rows else ""


def _cell(values: Sequence[float | None], form: str) -> str:
    seen = [value for value in values if value is not None]
    return number(spread(seen), form) if seen else _NOT_SEEN


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
