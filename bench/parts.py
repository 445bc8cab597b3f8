"""The parts of the benchmark: which sides each measures, on what, and how often."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from bench.backlog import Backlog
from bench.drain import Say, drain_backlog
from bench.figures import (
    DEBEZIUM,
    DEBEZIUM_LATENCY,
    DEBEZIUM_THROUGHPUT,
    DEFAULT_SIDE,
    POLLING,
    Drain,
    Idle,
    Latency,
    Writers,
)
from bench.idle import measure_idle
from bench.inserts import measure_inserts
from bench.latency import measure_latency
from bench.servers import Servers
from bench.sides import SIDES

T = TypeVar("T")
Case = TypeVar("Case")

NOISE = 9
"""Rows of another table for each event: 90 % of the traffic."""


@dataclass(frozen=True)
class Extent:
    """How much is measured. rounds None: as each part needs; sides: what the drain compares; payloads: bytes -> events;
    transactions: rows of each."""

    rounds: int | None = None
    sides: Sequence[str] = tuple(name for name in SIDES if name != DEBEZIUM_LATENCY)
    drained: int = 200_000
    million: int = 1_000_000
    rates: Sequence[float] = (200, 1000, 2500)
    seconds: float = 12
    idle_seconds: float = 20
    insert_seconds: float = 10
    noisy: int = 20_000
    payloads: Mapping[int | None, int] = field(
        default_factory=lambda: {None: 50_000, 4096: 20_000, 65_536: 2000, 1_000_000: 150}
    )
    transactions: Sequence[int] = (1, 10, 100, 1000, 1024, 4096, 16_384)
    grouped: int = 65_536


def drain(servers: Servers, extent: Extent, say: Say) -> list[Drain]:
    backlog = Backlog(extent.drained)
    return list(_rounds(extent, lambda name: drain_backlog(servers, SIDES[name], backlog, say), extent.sides, say))


def million(servers: Servers, extent: Extent, say: Say) -> list[Drain]:
    compared, backlog = (DEFAULT_SIDE, DEBEZIUM_THROUGHPUT), Backlog(extent.million)
    return list(_rounds(extent, lambda name: drain_backlog(servers, SIDES[name], backlog, say), compared, say))


def latency(servers: Servers, extent: Extent, say: Say) -> list[Latency]:
    compared = [
        (name, rate) for rate in extent.rates for name in (DEFAULT_SIDE, "row", DEBEZIUM_LATENCY, DEBEZIUM, POLLING)
    ]

    def one(case: tuple[str, float]) -> Latency:
        return measure_latency(servers, SIDES[case[0]], case[1], extent.seconds, say)

    return list(_rounds(extent, one, compared, say))


def idle(servers: Servers, extent: Extent, say: Say) -> list[Idle]:
    compared = (DEFAULT_SIDE, DEBEZIUM_LATENCY, DEBEZIUM, POLLING)
    return [measure_idle(servers, SIDES[name], extent.idle_seconds, say) for name in compared]


def writers(servers: Servers, extent: Extent, say: Say) -> list[Writers]:
    compared = (None, DEFAULT_SIDE, "row", DEBEZIUM_THROUGHPUT, POLLING)

    def one(name: str | None) -> Writers:
        return measure_inserts(servers, SIDES[name] if name else None, extent.insert_seconds, say)

    return list(_rounds(extent, one, compared, say))


def noise(servers: Servers, extent: Extent, say: Say) -> list[Drain]:
    backlogs = [Backlog(extent.noisy, noise=times) for times in (0, NOISE)]
    return _ours(servers, extent, backlogs, say, usual=3)  # a difference between two short drains


def payloads(servers: Servers, extent: Extent, say: Say) -> list[Drain]:
    return _ours(servers, extent, [Backlog(events, payload=size) for size, events in extent.payloads.items()], say)


def transactions(servers: Servers, extent: Extent, say: Say) -> list[Drain]:
    return _ours(servers, extent, [Backlog(extent.grouped, rows=rows) for rows in extent.transactions], say)


PARTS = {part.__name__: part for part in (drain, million, latency, idle, writers, noise, payloads, transactions)}


def _ours(servers: Servers, extent: Extent, backlogs: Sequence[Backlog], say: Say, *, usual: int = 1) -> list[Drain]:
    side = SIDES[DEFAULT_SIDE]
    return list(_rounds(extent, lambda one: drain_backlog(servers, side, one, say), backlogs, say, usual=usual))


def _rounds(
    extent: Extent, measure: Callable[[Case], T], cases: Sequence[Case], say: Say, *, usual: int = 1
) -> Iterator[T]:
    """Case after case, and all of them again: what changes on the machine meanwhile meets all of them."""
    rounds = extent.rounds or usual
    for number in range(1, rounds + 1):
        if rounds > 1:
            say(f"Round {number} of {rounds}")
        yield from (measure(case) for case in cases)
