"""From the return of COMMIT to the consumer: a writer at a fixed rate, a relay and a consumer, a process each."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from bench.drain import GRACE, Say
from bench.failure import BenchFailed
from bench.figures import Latency, percentile
from bench.servers import Servers
from bench.sides import Side

WARM_UP = 4.0
"""Seconds at the beginning that do not count: first look-ups, first batches, code that is compiled as it runs."""


def measure_latency(servers: Servers, side: Side, rate: float, seconds: float, say: Say) -> Latency:
    """Raises BenchFailed, also when an event did not arrive."""
    say(f"{side.name}: {rate:g} events/s for {seconds:g} s")
    events = int(rate * (WARM_UP + seconds))
    with side.site(servers, "latency") as place:
        committed, consumed = place.folder / "committed", place.folder / "consumed"
        consumer = place.own_process("consumer", events=events, notes=str(consumed))
        relay = side.contender(place)
        writer = place.own_process("writer", events=events, rate=rate, notes=str(committed))
        servers.come_to_rest()
        try:
            consumer.start()
            relay.start()
            side.relay_one(place, relay)
            writer.start()
            begin, cpu = time.monotonic(), relay.cpu
            writer.wait_for_end(seconds=WARM_UP + 3 * seconds + GRACE)
            cpu, elapsed = relay.cpu - cpu, time.monotonic() - begin
            relay.wait_until(lambda: side.left(place) <= 0, "every event sent", seconds=GRACE, pause=0.1)
            records = place.records() - 1
            if records < events:
                raise BenchFailed(f"{side.name}: every row says sent, but only {records:,} of {events:,} are in Kafka")
            consumer.wait_for_end(seconds=GRACE)
        finally:
            for one in (writer, relay, consumer):
                one.stop()
        deadlocks, commits = json.loads(committed.read_text())
        written, samples = compare(rate, dict(commits), dict(json.loads(consumed.read_text())))
        return Latency(
            side=side.name,
            rate=rate,
            written=written,
            p50=percentile(samples, 0.5),
            p95=percentile(samples, 0.95),
            p99=percentile(samples, 0.99),
            longest=max(samples),
            events=len(samples),
            duplicates=records - events,
            deadlocks=deadlocks,
            cpu=100 * cpu / elapsed,
        )


def compare(rate: float, committed: Mapping[int, int], consumed: Mapping[int, int]) -> tuple[float, tuple[float, ...]]:
    """Events a second that were written, and the ms that each took. What was due during the warm-up is left out.

    committed, consumed: event number -> ns, of the same events.
    """
    counted = {number: at for number, at in committed.items() if number >= WARM_UP * rate}
    took = (max(counted.values()) - min(counted.values())) / 1e9
    written = (len(counted) - 1) / took if took else 0.0
    return written, tuple((consumed[number] - at) / 1e6 for number, at in counted.items())
