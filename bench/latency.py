"""From the return of COMMIT to the consumer: a writer at a fixed rate, a relay and a consumer, a process each."""

from __future__ import annotations

import json
from collections.abc import Mapping

from bench.drain import GRACE, Say
from bench.failure import BenchFailed
from bench.figures import Latency
from bench.servers import Servers
from bench.sides import Side
from bench.site import Site, site

WARM_UP = 2.0
"""Seconds at the beginning that do not count: first look-ups, first batches."""


def measure_latency(servers: Servers, side: Side, rate: float, seconds: float, say: Say) -> Latency:
    """Raises BenchFailed, also when an event did not arrive."""
    say(f"{side.name}: {rate:g} events/s for {seconds:g} s")
    events = int(rate * (WARM_UP + seconds))
    with site(servers, f"latency-{side.name}", side.settings) as place:
        committed, consumed = place.folder / "committed", place.folder / "consumed"
        consumer = place.own_process("consumer", events=events, notes=str(consumed))
        relay = side.contender(place)
        writer = place.own_process("writer", events=events, rate=rate, notes=str(committed))
        try:
            consumer.start()
            relay.start()
            writer.start()
            writer.wait_for_end(seconds=WARM_UP + 2 * seconds + GRACE)
            relay.wait_until(lambda: _all_sent(place), "every row sent", seconds=GRACE, pause=0.1)
            records = place.records()
            if records < events:
                raise BenchFailed(f"{side.name}: every row says sent, but only {records:,} of {events:,} are in Kafka")
            consumer.wait_for_end(seconds=GRACE)
        finally:
            for one in (writer, relay, consumer):
                one.stop()
        deadlocks, commits = json.loads(committed.read_text())
        written, samples = compare(rate, dict(commits), dict(json.loads(consumed.read_text())))
        return Latency(side.name, rate, written, samples, duplicates=records - events, deadlocks=deadlocks)


def compare(rate: float, committed: Mapping[int, int], consumed: Mapping[int, int]) -> tuple[float, tuple[float, ...]]:
    """Events a second that were written, and the ms that each took. What was due during the warm-up is left out.

    committed, consumed: event number -> ns, of the same events.
    """
    counted = {number: at for number, at in committed.items() if number >= WARM_UP * rate}
    took = (max(counted.values()) - min(counted.values())) / 1e9
    written = (len(counted) - 1) / took if took else 0.0
    return written, tuple((consumed[number] - at) / 1e6 for number, at in counted.items())


def _all_sent(place: Site) -> bool:
    return not place.rows("SELECT 1 FROM outbox_event WHERE status <> 2 LIMIT 1")
