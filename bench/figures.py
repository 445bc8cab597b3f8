"""What was measured, as numbers. Pure: nothing here touches a server or a process."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar


class _Sided(Protocol):
    @property
    def side(self) -> str: ...


T = TypeVar("T")
SidedT = TypeVar("SidedT", bound=_Sided)
Key = TypeVar("Key", bound=Hashable)

DEFAULT_SIDE = "confluent"
"""The relay as it is shipped, with its `fast` extra."""
PURE_SIDE = "pure"
POLLING = "polling"
HANDWRITTEN = "handwritten"
DEBEZIUM = "debezium"
DEBEZIUM_THROUGHPUT = "debezium-throughput"
DEBEZIUM_LATENCY = "debezium-latency"
NOBODY = "nobody"
"""The side that relays nothing: writers alone."""

MB = 1_000_000


@dataclass(frozen=True)
class Drain:
    """One backlog emptied, see backlog.Backlog. Times and CPU in seconds, binlog (of the whole server, meanwhile) and
    peak RSS in bytes; mysqld_cpu None: its process is not on this machine."""

    side: str
    events: int
    rows: int
    payload: int | None
    noise: int
    seconds: float
    second_half: float
    relay_cpu: float
    mysqld_cpu: float | None
    binlog_bytes: int
    peak_rss: int
    duplicates: int

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds

    @property
    def second_rate(self) -> float:
        """The same over the second half of the events: a virtual machine is warm by then."""
        return (self.events // 2) / self.second_half

    @property
    def cpu(self) -> float:
        """CPU of the side in µs an event."""
        return self.relay_cpu / self.events * 1e6

    @property
    def mysqld(self) -> float | None:
        """CPU of mysqld in µs an event."""
        return None if self.mysqld_cpu is None else self.mysqld_cpu / self.events * 1e6


@dataclass(frozen=True)
class Latency:
    """From the return of COMMIT to the consumer, in ms, at a fixed rate.

    written: events a second that were reached; deadlocks: INSERTs that MySQL rolled back, and that were tried again;
    cpu: of the side, in % of a core.
    """

    side: str
    rate: float
    written: float
    p50: float
    p95: float
    p99: float
    longest: float
    events: int
    duplicates: int
    deadlocks: int
    cpu: float


@dataclass(frozen=True)
class Idle:
    """A side with nothing to do. statements: kind -> how many were sent; binlog_bytes: what the server's binlog grew;
    checkpoint_moved None: it has none in the database."""

    side: str
    seconds: float
    relay_cpu: float
    queries: int
    statements: Mapping[str, int]
    binlog_bytes: int
    checkpoint_moved: bool | None

    @property
    def cpu_percent(self) -> float:
        return 100 * self.relay_cpu / self.seconds


@dataclass(frozen=True)
class Writers:
    """INSERTs as fast as `threads` connections can. p99 in ms; deadlocks, timeouts: INSERTs that failed with 1213 and
    1205; behind: rows not yet sent at the end."""

    side: str
    threads: int
    seconds: float
    inserts: int
    p99: float
    lock_waits: int
    deadlocks: int
    timeouts: int
    behind: int

    @property
    def rate(self) -> float:
        return self.inserts / self.seconds


@dataclass(frozen=True)
class Results:
    """All that is known: every round of every side, part by part."""

    drain: Sequence[Drain] = ()
    million: Sequence[Drain] = ()
    latency: Sequence[Latency] = ()
    idle: Sequence[Idle] = ()
    writers: Sequence[Writers] = ()
    noise: Sequence[Drain] = ()
    payloads: Sequence[Drain] = ()
    transactions: Sequence[Drain] = ()


FIGURES = {
    "drain": Drain,
    "million": Drain,
    "latency": Latency,
    "idle": Idle,
    "writers": Writers,
    "noise": Drain,
    "payloads": Drain,
    "transactions": Drain,
}
"""Part -> what its figures are."""


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


def grouped(figures: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    """Key -> its rounds, keys and rounds in the order in which they ran."""
    rounds: dict[Key, list[T]] = {}
    for figure in figures:
        rounds.setdefault(key(figure), []).append(figure)
    return rounds


def ratios(
    figures: Iterable[SidedT],
    reference: str,
    value: Callable[[SidedT], float],
    against: Callable[[SidedT], float] | None = None,
) -> dict[str, Spread]:
    """Side -> its value as a multiple of the reference side's in the same round; empty where that did not run.

    against: the reference's value, where it is another one.
    """
    rounds = grouped(figures, lambda figure: figure.side)
    theirs = [(against or value)(one) for one in rounds.get(reference, [])]
    if not theirs:
        return {}
    return {
        side: spread(value(one) / other for one, other in zip(ours, theirs, strict=True))
        for side, ours in rounds.items()
        if side != reference
    }


def skipped(noise: Sequence[Drain]) -> list[tuple[float, float]]:
    """What a row of another table costs, in µs of time and of CPU, round by round: with noise, less without."""
    quiet = [one for one in noise if not one.noise]
    loud = [one for one in noise if one.noise]
    return [
        (
            (with_it.seconds - without.seconds) / (with_it.noise * with_it.events) * 1e6,
            (with_it.relay_cpu - without.relay_cpu) / (with_it.noise * with_it.events) * 1e6,
        )
        for without, with_it in zip(quiet, loud, strict=True)
    ]


def growth(transactions: Sequence[Drain], least: int) -> float | None:
    """CPU an event in the largest transactions, as a multiple of that in those of `least` rows; 1 is linear."""
    by_rows = grouped(transactions, lambda one: one.rows)
    if least not in by_rows or max(by_rows) <= least:
        return None
    small, large = (min(one.cpu for one in by_rows[rows]) for rows in (least, max(by_rows)))
    return large / small
