"""What a service's INSERTs lose while a relay works beside them."""

from __future__ import annotations

import json
import time

from bench.drain import GRACE, Say
from bench.figures import NOBODY, Writers, percentile
from bench.servers import Servers
from bench.sides import Side
from bench.site import Site, site

THREADS = 4


def measure_inserts(servers: Servers, side: Side | None, seconds: float, say: Say) -> Writers:
    """side None: nobody relays. Nobody else may use the server meanwhile: lock waits are global. Raises BenchFailed."""
    say(f"{side.name if side else NOBODY}: inserts from {THREADS} connections for {seconds:g} s")
    if side is None:
        with site(servers, "inserts") as place:
            return _insert(place, None, seconds)
    with side.site(servers, "inserts") as place:
        relay = side.contender(place)
        try:
            relay.start()
            side.relay_one(place, relay)
            return _insert(place, side, seconds)
        finally:
            relay.stop()


def _insert(place: Site, side: Side | None, seconds: float) -> Writers:
    notes = place.folder / "notes"
    service = place.own_process("inserter", threads=THREADS, seconds=seconds, notes=str(notes))
    waits = place.servers.row_lock_waits()
    try:
        service.start()
        time.sleep(seconds)
        service.wait_for_end(seconds=GRACE)
    finally:
        service.stop()
    waits = place.servers.row_lock_waits() - waits
    behind = side.left(place) if side else 0
    took, (deadlocks, timeouts) = json.loads(notes.read_text())
    return Writers(
        side=side.name if side else NOBODY,
        threads=THREADS,
        seconds=seconds,
        inserts=len(took),
        p99=percentile(took, 0.99) * 1000,
        lock_waits=waits,
        deadlocks=deadlocks,
        timeouts=timeouts,
        behind=behind,
    )
