"""How fast a backlog is emptied, and what that costs: from a relay's readiness until the last row says sent."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.backlog import fill
from bench.contender import READY_DEADLINE, Contender
from bench.failure import BenchFailed
from bench.figures import POLLING, Drain
from bench.servers import Servers
from bench.sides import Side
from bench.site import Site, site

SLOWEST = 500
"""Events a second; a side that is slower is given up."""
GRACE = 60.0
_GLANCE = 0.02
"""Seconds between two looks at the last row; each is one read by primary key."""

Say = Callable[[str], None]


def drain_backlog(servers: Servers, side: Side, events: int, say: Say) -> Drain:
    """Write `events` events while `side` is away, then let it send them. Raises BenchFailed."""
    with site(servers, f"drain-{side.name}", side.settings) as place:
        if side.name != POLLING:
            _take_a_checkpoint(place)
        say(f"{side.name}: writing {events:,} events")
        last = fill(place, events)
        say(f"{side.name}: draining")
        contender = side.contender(place)
        try:
            contender.start()
            drain = _watch(place, side, contender, events, last)
        finally:
            contender.stop()
        if "sweep_done" in contender.log:
            raise BenchFailed(f"{side.name} has swept the backlog by SQL instead of reading it from the binlog")
        say(f"{side.name}: {drain.rate:,.0f} events/s")
        return drain


def _take_a_checkpoint(place: Site) -> None:
    """Let the relay lead once, so that the binlog is what it reads the backlog from."""
    relay = place.relay()
    try:
        relay.start()
        relay.wait_until(place.checkpoint, "a position in its checkpoint", seconds=READY_DEADLINE, pause=0.1)
    finally:
        relay.stop()


def _watch(place: Site, side: Side, contender: Contender, events: int, last: int) -> Drain:
    begin, relay, mysqld = time.monotonic(), contender.cpu, place.servers.mysqld_cpu()
    limit = GRACE + events / SLOWEST
    with place.servers.connect(place.database) as session, session.cursor() as cursor:

        def finds(query: str) -> bool:
            return bool(cursor.execute(query))

        while True:
            contender.wait_until(
                lambda: finds(f"SELECT 1 FROM outbox_event WHERE id = {last} AND status = 2"),
                f"the last of {events:,} rows sent",
                seconds=limit,
                pause=_GLANCE,
            )
            end, relay_end, mysqld_end = time.monotonic(), contender.cpu, place.servers.mysqld_cpu()
            if not finds("SELECT 1 FROM outbox_event WHERE status <> 2 LIMIT 1"):
                break
            if end > begin + limit:
                raise BenchFailed(f"{side.name} sent the last row, and others not within {limit:.0f} s")
            time.sleep(_GLANCE)
    records = place.records()
    if records < events:
        raise BenchFailed(f"{side.name}: every row says sent, but only {records:,} of {events:,} are in Kafka")
    return Drain(
        side=side.name,
        events=events,
        seconds=end - begin,
        relay_cpu=relay_end - relay,
        mysqld_cpu=None if mysqld is None or mysqld_end is None else mysqld_end - mysqld,
        peak_rss=contender.peak_rss,
        duplicates=records - events,
    )
