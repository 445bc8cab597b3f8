"""What `scripts/bench operate` found, as tables and as docs/benchmarks-operate.md. Pure: figures in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.archive_cost import BATCH, BATCHES, cost_table
from bench.figures import spread
from bench.restart import RATE, RESTARTS, Restarted
from bench.tables import grid, number

LOOKS = 5
ROUNDS = 3
OPEN = 2000
"""Rows of each state besides sent."""

ASKED_SECONDS = 0.5
"""In which a look at the table must be answered."""
ASKED_RATE = 20_000.0
"""Rows a second that `archive` is to move."""
ASKED_WRITERS = 0.9
"""Part of their speed that writers are to keep meanwhile."""

_HEAD = """\
# Benchmarks of the commands

Made by `scripts/bench operate --write`, all in one run. Do not edit the figures: run it again.
MySQL, Kafka, commands and writers share one machine, so read the ratios first.
"""

_LOOKED = """\
## Looking at a large table

{rows:,} sent rows, and {open:,} in each of {states} other states. A connection of its own is part of each time.
"""

_ARCHIVED = """\
## Archiving beside a writer

The writer commits one event after the other and never pauses, as durably as the settings above say. In each of {rounds}
rounds it writes alone, then {seconds:g} s beside `archive --older-than 1d`, then alone again, once InnoDB has taken out
what was deleted and has written what was changed, for which it is given 15 s at most. CPU is that of the server, purge
behind the deletions included, the writer's left out. Median (range).
"""

_NEEDED = """\
{rate:,.0f} rows/s beside {part:g} of the writer's commits need {total:.2f} of this machine's {cores} cores, by the CPU
time that was used with `--pause 0s`: {rows:.2f} for the rows, at {cpu:.0f} µs each, {purge:.0f} of them for purge;
{server:.2f} for the commits in the server, at {commit:.0f} µs each; {client:.2f} in the writer, at {own:.0f} µs.
`archive` itself and what the disk does come on top. Where no core or no disk is free the writer waits,
several times in each commit.
"""

_COST = """\
Where that goes: CPU time of the session's own thread, the least of {batches} batches of {batch:,} rows, and of purge.
What background threads write, and waits for the disk, are in the first table only.
"""

_RESTARTED = """\
## Restarting the relay

{restarts} restarts by SIGTERM while {rate:g} events/s are written: the time from COMMIT until a consumer has the event,
of the one that waited longest. Median (range).
"""


@dataclass(frozen=True)
class Looked:
    """first, best: seconds, a connection of its own included."""

    what: str
    first: float
    best: float


@dataclass(frozen=True)
class Pace:
    """A writer that commits one event after the other, without a pause. rate: commits a second; p50, p99: ms.

    client: microseconds of the writer's own CPU a commit.
    """

    rate: float
    p50: float
    p99: float
    commits: int
    client: float


@dataclass(frozen=True)
class Round:
    """rate: rows a second. cpu: microseconds of mysqld a row, the writer's left out; None where it cannot be seen.

    purge: of these in InnoDB's purge threads. commit: microseconds of mysqld a commit of the writer alone.
    """

    rate: float
    cpu: float | None
    purge: float
    commit: float | None
    alone: Pace
    beside: Pace


def looks_table(rows: int, looks: Sequence[Looked]) -> str:
    cells = [[f"`{one.what}`", f"{one.first:.3f}", f"{one.best:.3f}", _met(one.best <= ASKED_SECONDS)] for one in looks]
    return grid([f"{rows:,} sent rows", "first, s", f"best of {LOOKS}, s", f"≤ {ASKED_SECONDS} s"], cells)


def archive_table(rounds: Mapping[str, Sequence[Round]]) -> str:
    """A line a way: the medians of its rounds, and the range where it says most."""
    cells = []
    for way, found in rounds.items():
        rate, kept = spread(one.rate for one in found), spread(one.beside.rate / one.alone.rate for one in found)
        cpu = [one.cpu for one in found if one.cpu is not None]
        middle = sorted(found, key=lambda one: one.beside.rate / one.alone.rate)[len(found) // 2]
        cells.append(
            [
                way,
                number(rate, "{:,.0f}"),
                number(spread(cpu), "{:.0f}") if cpu else "–",
                f"{spread(one.purge for one in found).median:.0f}" if cpu else "–",
                f"{middle.alone.rate:,.0f}",
                number(kept, "{:.2f}"),
                f"{middle.alone.p50:.1f} → {middle.beside.p50:.1f}",
                f"{middle.alone.p99:.1f} → {middle.beside.p99:.1f}",
                _met(rate.median >= ASKED_RATE and kept.median >= ASKED_WRITERS),
            ]
        )
    heads = [
        "`archive`",
        "rows/s",
        "mysqld CPU, µs/row",
        "of it purge",
        "writer's commits/s alone",
        "kept beside it",
        "p50, ms",
    ]
    return grid([*heads, "p99, ms", f"≥ {ASKED_RATE:,.0f} rows/s and ≥ {ASKED_WRITERS} kept"], cells)


def archive_needs(found: Sequence[Round], cores: int) -> str:
    """What was asked for, in cores, from the rounds of one way; empty where the server's CPU cannot be seen."""
    seen = [(one.cpu, one.commit) for one in found if one.cpu is not None and one.commit is not None]
    if not seen:
        return ""
    cpu, commit = (spread(values).median for values in zip(*seen, strict=True))
    own = spread(one.alone.client for one in found).median
    commits = ASKED_WRITERS * spread(one.alone.rate for one in found).median
    rows, server, client = ASKED_RATE * cpu / 1e6, commits * commit / 1e6, commits * own / 1e6
    return _NEEDED.format(
        rate=ASKED_RATE,
        part=ASKED_WRITERS,
        cores=cores,
        total=rows + server + client,
        rows=rows,
        cpu=cpu,
        purge=spread(one.purge for one in found).median,
        server=server,
        commit=commit,
        client=client,
        own=own,
    )


def restart_table(restarts: Sequence[Restarted]) -> str:
    cells = [
        [
            "with a standby" if one.standby else "alone: stopped, then started again",
            number(spread(one.waits), "{:,.0f}"),
            f"{one.usual:.0f}",
            str(one.duplicates),
        ]
        for one in restarts
    ]
    return grid(["restart", "longest wait of an event, ms", "usual, ms", "duplicates"], cells)


def page(
    rows: int,
    looks: Sequence[Looked],
    rounds: Mapping[str, Sequence[Round]],
    restarts: Sequence[Restarted],
    *,
    machine: Sequence[tuple[str, str]],
    seconds: float,
    states: int,
    needs: str,
    cost: Mapping[str, float],
) -> str:
    """The text of docs/benchmarks-operate.md. seconds: of archiving in a round; states: other than sent."""
    parts = [
        _HEAD,
        grid(["", ""], [list(one) for one in machine]),
        _LOOKED.format(rows=rows, open=OPEN, states=states),
        looks_table(rows, looks),
        _ARCHIVED.format(rounds=ROUNDS, seconds=seconds),
        archive_table(rounds),
        *([needs] if needs else []),
        *([_COST.format(batches=BATCHES, batch=BATCH), cost_table(cost)] if cost else []),
        _RESTARTED.format(restarts=RESTARTS, rate=RATE),
        restart_table(restarts),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _met(yes: bool) -> str:
    return "yes" if yes else "no"
