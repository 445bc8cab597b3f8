"""How fast a backlog is emptied, and what that costs: from a side's readiness until the last event is sent."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.backlog import Backlog, fill
from bench.contender import Contender
from bench.failure import BenchFailed
from bench.figures import Drain
from bench.servers import Servers
from bench.sides import Side
from bench.site import Site

SLOWEST = 1000
"""Events a second; a side that is slower is given up."""
GRACE = 90.0
_GLANCE = 0.02
"""Seconds between two looks; each is one read by primary key, or of the topic's end offsets."""

Say = Callable[[str], None]


def drain_backlog(servers: Servers, side: Side, backlog: Backlog, say: Say) -> Drain:
    """Write the backlog while `side` is away, then let it send the events. Raises BenchFailed."""
    with side.site(servers, "drain") as place:
        side.take_position(place)
        say(f"{side.name}: writing {_described(backlog)}")
        last = fill(place, backlog)
        say(f"{side.name}: draining")
        contender = side.contender(place)
        try:
            drain = _start_and_watch(place, side, contender, backlog, last)
        finally:
            contender.stop()
        side.check(contender)
        say(f"{side.name}: {drain.rate:,.0f} events/s, {drain.cpu:.1f} µs of CPU an event")
        return drain


def _described(backlog: Backlog) -> str:
    parts = [f"{backlog.events:,} events"]
    if backlog.rows > 1:
        parts.append(f"in transactions of {backlog.rows:,}")
    if backlog.payload is not None:
        parts.append(f"of {backlog.payload:,} bytes")
    if backlog.noise:
        parts.append(f"and {backlog.noise * backlog.events:,} rows of another table")
    return " ".join(parts)


def _start_and_watch(place: Site, side: Side, contender: Contender, backlog: Backlog, last: int) -> Drain:
    """last: the last row's id."""
    servers, events = place.servers, backlog.events
    limit = GRACE + events * (1 + backlog.noise) / SLOWEST
    with servers.connect(place.database) as session, session.cursor() as cursor:
        rows = int(place.rows("SELECT COUNT(*) FROM outbox_event")[0][0])

        def sent_but(count: int) -> bool:
            if not side.writes_back:
                return place.records() >= rows - count
            return bool(cursor.execute(f"SELECT 1 FROM outbox_event WHERE id = {last - count} AND status = 2"))

        def wait(count: int) -> None:
            what = f"all but {count:,} of {events:,} events sent"
            contender.wait_until(lambda: sent_but(count), what, seconds=limit, pause=_GLANCE)

        binlog = servers.binlog_size()
        sent_but(0), servers.mysqld_cpu()  # connects to Kafka, finds the process: not to be waited for later
        contender.start()
        begin, relay, mysqld = time.monotonic(), contender.cpu, servers.mysqld_cpu()
        wait(events // 2)
        half = time.monotonic()
        while True:
            wait(0)
            end, relay_end, mysqld_end = time.monotonic(), contender.cpu, servers.mysqld_cpu()
            if not (side.writes_back and cursor.execute("SELECT 1 FROM outbox_event WHERE status <> 2 LIMIT 1")):
                break
            if end > begin + limit:
                raise BenchFailed(f"{side.name} sent the last row, and others not within {limit:.0f} s")
            time.sleep(_GLANCE)
    records = place.records()
    if records < rows:
        raise BenchFailed(f"{side.name}: every row says sent, but only {records:,} of {rows:,} are in Kafka")
    return Drain(
        side=side.name,
        events=events,
        rows=backlog.rows,
        payload=backlog.payload,
        noise=backlog.noise,
        seconds=end - begin,
        second_half=end - half,
        relay_cpu=relay_end - relay,
        mysqld_cpu=None if mysqld is None or mysqld_end is None else mysqld_end - mysqld,
        binlog_bytes=servers.binlog_size() - binlog,
        peak_rss=contender.peak_rss,
        duplicates=records - rows,
    )
