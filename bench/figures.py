"""What was measured, as numbers, and what they are held against. Pure: nothing here touches a server or a process."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

POLLING = "polling"
"""The side that all others are compared with."""

DEFAULT_SIDE = "confluent"
"""The relay as it is shipped, with its `fast` extra."""

QUICK_FLOORS = {DEFAULT_SIDE: 1.2}
"""Side -> the least that its drain must be, as a multiple of the polling relay's, in a quick run on any machine."""

MB = 1_000_000


@dataclass(frozen=True)
class Drain:
    """One backlog emptied. Times and CPU in seconds, peak_rss in bytes; None: the process is not on this machine."""

    side: str
    events: int
    seconds: float
    relay_cpu: float
    mysqld_cpu: float | None
    peak_rss: int
    duplicates: int

    @property
    def rate(self) -> float:
        return self.events / self.seconds


@dataclass(frozen=True)
class Latency:
    """From the return of COMMIT to the consumer, in ms, at a fixed rate.

    written: events a second that were reached; deadlocks: INSERTs that MySQL rolled back, and that were tried again.
    """

    side: str
    rate: float
    written: float
    samples: tuple[float, ...]
    duplicates: int
    deadlocks: int


@dataclass(frozen=True)
class Idle:
    """A relay with nothing to do. statements: kind -> how many it sent; binlog_bytes: what the server's binlog grew."""

    seconds: float
    relay_cpu: float
    queries: int
    statements: Mapping[str, int]
    binlog_bytes: int
    checkpoint_moved: bool

    @property
    def cpu_percent(self) -> float:
        return 100 * self.relay_cpu / self.seconds


@dataclass(frozen=True)
class Results:
    """All that one run has measured. drains: every round of every side."""

    drains: Sequence[Drain] = ()
    latencies: Sequence[Latency] = ()
    idle: Idle | None = None
    memory: Drain | None = None


@dataclass(frozen=True)
class Goal:
    """One figure against what is asked of it."""

    what: str
    asked: str
    measured: str
    met: bool


@dataclass(frozen=True)
class Spread:
    """One figure over several rounds."""

    low: float
    median: float
    high: float


def percentile(samples: Sequence[float], share: float) -> float:
    """The smallest sample that at least `share` (0 < share <= 1) of all do not exceed (nearest rank)."""
    if not samples:
        raise ValueError("a percentile of nothing")
    return sorted(samples)[math.ceil(share * len(samples)) - 1]


def spread(values: Iterable[float]) -> Spread:
    rounds = list(values)
    return Spread(min(rounds), statistics.median(rounds), max(rounds))


def by_side(drains: Iterable[Drain]) -> dict[str, list[Drain]]:
    """Side -> its rounds, sides and rounds in the order in which they ran."""
    rounds: dict[str, list[Drain]] = {}
    for drain in drains:
        rounds.setdefault(drain.side, []).append(drain)
    return rounds


def ratios(drains: Iterable[Drain]) -> dict[str, Spread]:
    """Side -> its rate as a multiple of the polling relay's in the same round; empty when polling did not run."""
    rounds = by_side(drains)
    polling = rounds.pop(POLLING, [])
    if not polling:
        return {}
    return {
        side: spread(one.rate / other.rate for one, other in zip(ours, polling, strict=True))
        for side, ours in rounds.items()
    }


def goals(results: Results) -> list[Goal]:
    """The figures that were promised for this version, as far as the run was one that can show them."""
    found: list[Goal] = []
    compared = ratios(results.drains)
    if DEFAULT_SIDE in compared and min(drain.events for drain in results.drains) >= 200_000:
        ratio = compared[DEFAULT_SIDE].median
        found.append(Goal("drain against the polling relay", "≥ 2 ×", f"{ratio:.1f} ×", ratio >= 2))
    for latency in results.latencies:
        if latency.side == DEFAULT_SIDE and latency.rate == 500:
            p99 = percentile(latency.samples, 0.99)
            found.append(Goal("p99, commit to consumer, at 500/s", "< 15 ms", f"{p99:.1f} ms", p99 < 15))
    if results.memory is not None and results.memory.events >= 1_000_000:
        rss = results.memory.peak_rss / MB
        found.append(Goal("peak RSS, a million events behind", "< 200 MB", f"{rss:.0f} MB", rss < 200))
    if results.idle is not None:
        percent = results.idle.cpu_percent
        found.append(Goal("CPU of an idle relay", "< 2 %", f"{percent:.1f} %", percent < 2))
    return found


def below_floor(drains: Iterable[Drain], floors: Mapping[str, float]) -> list[str]:
    """What is wrong, a line each; empty when every ratio reaches its floor. A floor without its ratio is ignored."""
    return [
        f"{side} drained {compared.high:.2f} × as fast as {POLLING}; at least {floors[side]:g} × is asked"
        for side, compared in ratios(drains).items()
        if side in floors and compared.high < floors[side]  # the best round: a disturbed one is no regression
    ]
