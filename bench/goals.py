"""What the figures are held against. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.figures import (
    DEBEZIUM_LATENCY,
    DEBEZIUM_THROUGHPUT,
    DEFAULT_SIDE,
    MB,
    NOBODY,
    POLLING,
    PURE_SIDE,
    Drain,
    Idle,
    Latency,
    Results,
    Writers,
    grouped,
    growth,
    ratios,
    skipped,
)

LINEAR_FROM = 1024
"""Rows of the transactions that larger ones are compared with."""


@dataclass(frozen=True)
class Goal:
    """One figure against what must be, and what we are after (aim; empty where that is the same)."""

    what: str
    must: str
    aim: str
    measured: str
    met: bool
    aimed: bool

    @property
    def verdict(self) -> str:
        return "not reached" if not self.met else "reached, the aim too" if self.aimed and self.aim else "reached"


def goals(results: Results) -> list[Goal]:
    """As far as the results can show them: a smaller run than what was asked for shows nothing."""
    return [
        *_drain(results.drain),
        *_million(results.million),
        *_latency(results.latency),
        *_inserts(results.writers),
        *_idle(results.idle),
        *_further(results),
    ]


def _least(what: str, must: float, aim: float, value: float, form: str) -> Goal:
    asked = [f"≥ {form.format(bound)}" for bound in (must, aim)]
    return Goal(what, asked[0], asked[1], form.format(value), value >= must, value >= aim)


def _most(what: str, must: float, aim: float | None, value: float, form: str) -> Goal:
    asked = [f"≤ {form.format(must)}", "" if aim is None else f"≤ {form.format(aim)}"]
    return Goal(what, asked[0], asked[1], form.format(value), value <= must, aim is not None and value <= aim)


def _drain(drains: Sequence[Drain]) -> list[Goal]:
    if not drains or min(one.events for one in drains) < 200_000:
        return []
    found = []
    tuned = ratios(drains, DEBEZIUM_THROUGHPUT, lambda one: one.rate)
    for side, what, must, aim in (
        (DEFAULT_SIDE, "as shipped", 1.7, 2.2),
        (PURE_SIDE, "without accelerator", 1.5, 1.8),
        ("kafka-python", "with kafka-python", 0.85, 1),
        ("row", "`claim: row`", 1.2, 1.6),
    ):
        if side in tuned:
            found.append(_least(f"drain, {what}, × tuned Debezium", must, aim, tuned[side].median, "{:.2f} ×"))
    polling = ratios(drains, POLLING, lambda one: one.rate)
    if DEFAULT_SIDE in polling:
        found.append(_least("drain, × polling relay", 3, 5, polling[DEFAULT_SIDE].median, "{:.1f} ×"))
    rounds = grouped(drains, lambda one: one.side)
    for side, what, must, aim in ((DEFAULT_SIDE, "as shipped", 18, 12), (PURE_SIDE, "without accelerator", 27, 20)):
        if side in rounds:
            cpu = statistics.median(one.cpu for one in rounds[side])
            found.append(_most(f"CPU of the relay per event, {what}", must, aim, cpu, "{:.1f} µs"))
    return found


def _million(drains: Sequence[Drain]) -> list[Goal]:
    ours = [one for one in drains if one.side == DEFAULT_SIDE and one.events >= 1_000_000]
    if not ours:
        return []
    found = []
    compared = ratios(drains, DEBEZIUM_THROUGHPUT, lambda one: one.rate, lambda one: one.second_rate)
    if compared:
        what = "drain of a million, × tuned Debezium's second half"
        found.append(_least(what, 1.2, 1.5, compared[DEFAULT_SIDE].median, "{:.2f} ×"))
    rss = max(one.peak_rss for one in ours) / MB
    return [*found, _most("peak RSS, a million events behind", 150, None, rss, "{:.0f} MB")]


def _latency(latencies: Sequence[Latency]) -> list[Goal]:
    found = []
    for rate, must, aim in ((200, 7, 5), (1000, 10, 7)):
        p99 = {
            side: statistics.median(one.p99 for one in rounds)
            for side, rounds in grouped((one for one in latencies if one.rate == rate), lambda one: one.side).items()
        }
        if DEFAULT_SIDE not in p99:
            continue
        ours = p99[DEFAULT_SIDE]
        found.append(_most(f"p99, commit to consumer, {rate:,}/s", must, aim, ours, "{:.1f} ms"))
        if DEBEZIUM_LATENCY in p99:
            theirs = p99[DEBEZIUM_LATENCY]
            found.append(_most("the same, not above Debezium tuned for latency", theirs, None, ours, "{:.1f} ms"))
    return found


def _inserts(writers: Sequence[Writers]) -> list[Goal]:
    kept = ratios(writers, NOBODY, lambda one: 100 * one.rate, lambda one: one.rate)
    ours = [one for one in writers if one.side == DEFAULT_SIDE]
    if not ours or not kept:
        return []
    errors = sum(one.deadlocks + one.timeouts for one in ours)
    return [
        _least("writers' inserts kept beside the relay", 60, 70, kept[DEFAULT_SIDE].median, "{:.0f} %"),
        _most("errors 1213 and 1205 that it gave to writers", 0, None, errors, "{:.0f}"),
    ]


def _idle(figures: Sequence[Idle]) -> list[Goal]:
    found: list[Goal] = []
    for one in figures:
        if one.side == DEFAULT_SIDE:
            found.append(_most("queries when idle", 2, None, one.queries / one.seconds, "{:.1f}/s"))
            percent = one.cpu_percent
            found.append(Goal("CPU when idle", "< 1 %", "", f"{percent:.1f} %", percent < 1, aimed=False))
    return found


def _further(results: Results) -> list[Goal]:
    found = []
    costs = skipped(results.noise)
    if costs and results.noise[0].events >= 10_000:
        cost = statistics.median(seconds for seconds, _ in costs)
        found.append(_most("skipping a row of another table", 3, None, cost, "{:.1f} µs"))
    grown = growth(results.transactions, LINEAR_FROM)
    largest = max((one.rows for one in results.transactions), default=0)
    if grown is not None and results.transactions[0].events >= 2 * largest:
        what = f"CPU per event, transactions of {largest:,} rows, × those of {LINEAR_FROM:,}"
        found.append(_most(what, 1.25, None, grown, "{:.2f} ×"))
    return found


# -- the short form ------------------------------------------------------------------------------------------------


QUICK_DRAIN = 1.2
"""The least that the default side's drain must be, as a multiple of the polling relay's, on any machine."""
QUICK_SKIP = 0.4
"""The most CPU that skipping another table's row may take, as a share of what an event takes."""
QUICK_GROWTH = 1.5
"""The most that CPU per event may grow with the transaction."""


def below_floor(results: Results, least_rows: int) -> list[str]:
    """What is wrong with a quick run, a line each. Ratios only, of the best round: a disturbed one is no regression."""
    wrong = []
    drained = ratios(results.drain, POLLING, lambda one: one.rate).get(DEFAULT_SIDE)
    if drained is not None and drained.high < QUICK_DRAIN:
        wrong.append(f"drained {drained.high:.2f} × as fast as {POLLING}; at least {QUICK_DRAIN:g} × is asked")
    costs = skipped(results.noise)
    if costs:
        quiet = min(one.cpu for one in results.noise if not one.noise)
        share = min(cpu for _, cpu in costs) / quiet
        if share > QUICK_SKIP:
            asked = f"at most {QUICK_SKIP:g} × is asked"
            wrong.append(f"skipping another table's row takes {share:.2f} × the CPU of an event; {asked}")
    grown = growth(results.transactions, least_rows)
    if grown is not None and grown > QUICK_GROWTH:
        wrong.append(f"CPU per event grows {grown:.2f} × with the transaction; at most {QUICK_GROWTH:g} × is asked")
    return wrong
