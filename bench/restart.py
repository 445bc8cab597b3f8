"""How long events wait when a relay is restarted, alone and with a standby: a writer at a fixed rate beside it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.contender import Contender
from bench.drain import GRACE, Say
from bench.failure import BenchFailed
from bench.servers import Servers
from bench.site import Site, site

RATE = 100.0
"""Events a second."""
RESTARTS = 5
EVERY = 6.0
"""Seconds between two restarts, and before the first."""


@dataclass(frozen=True)
class Restarted:
    """ms from COMMIT to the consumer. waits: of the event that waited longest, for each restart; usual: the median."""

    standby: bool
    waits: Sequence[float]
    usual: float
    duplicates: int


def measure_restarts(servers: Servers, say: Say) -> list[Restarted]:
    """Raises BenchFailed, also when an event did not arrive."""
    return [_measure(servers, standby, say) for standby in (False, True)]


def _measure(servers: Servers, standby: bool, say: Say) -> Restarted:
    say(f"{RESTARTS} restarts {'with' if standby else 'without'} a standby")
    events = int(RATE * EVERY * (RESTARTS + 2))
    with site(servers, "restart") as place:
        committed, consumed = place.folder / "committed", place.folder / "consumed"
        consumer = place.own_process("consumer", events=events, notes=str(consumed))
        writer = place.own_process("writer", events=events, rate=RATE, notes=str(committed))
        relays = [place.relay()]
        try:
            consumer.start()
            relays[0].start()
            writer.start()
            begun = time.monotonic()
            stopped = [_restart(place, relays, standby, begun + number * EVERY) for number in range(1, RESTARTS + 1)]
            writer.wait_for_end(seconds=EVERY + GRACE)
            leader = relays[-1]
            leader.wait_until(lambda: not _unsent(place), "every row sent", seconds=GRACE, pause=0.1)
            records = place.records()
            if records < events:
                raise BenchFailed(f"every row says sent, but only {records:,} of {events:,} are in Kafka")
            consumer.wait_for_end(seconds=GRACE)
        finally:
            for one in (writer, consumer, *relays):
                one.stop()
        commits = dict(json.loads(committed.read_text())[1])
        arrived = dict(json.loads(consumed.read_text()))
        took = {at: (arrived[number] - at) / 1e6 for number, at in commits.items()}
    return Restarted(standby, longest(took, stopped), sorted(took.values())[len(took) // 2], records - events)


def _restart(place: Site, relays: list[Contender], standby: bool, due: float) -> int:
    """Stop the leader and have another; gives when, CLOCK_MONOTONIC in ns. The last of `relays` leads afterwards."""
    if standby:
        relays.append(place.relay(ready=" standby: "))
        relays[-1].start()
    time.sleep(max(0.0, due - time.monotonic()))
    began = time.monotonic_ns()
    relays[-2 if standby else -1].stop()
    if standby:
        relays[-1].wait_for(" leader: ")
    else:
        relays.append(place.relay())
        relays[-1].start()
    return began


def longest(took: Mapping[int, float], stopped: Sequence[int]) -> list[float]:
    """For each stop the longest wait of an event that was committed from a second before it until the next.

    took: ns of its commit -> ms that it waited; stopped: ns. Raises BenchFailed where none was.
    """
    ends = [*stopped[1:], max(took, default=0) + 2 * 10**9]
    windows = [
        [wait for at, wait in took.items() if began - 10**9 <= at < end - 10**9]
        for began, end in zip(stopped, ends, strict=True)
    ]
    if not all(windows):
        raise BenchFailed("the relay was restarted so late that nothing was written any more: this machine is too busy")
    return [max(waits) for waits in windows]


def _unsent(place: Site) -> bool:
    return bool(place.rows("SELECT 1 FROM outbox_event WHERE status <> 2 LIMIT 1"))
