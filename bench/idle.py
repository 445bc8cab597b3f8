"""What a side does when there is nothing to do: CPU, statements, writes of its own."""

from __future__ import annotations

import time
from typing import Any

from bench.drain import Say
from bench.figures import Idle
from bench.servers import Servers
from bench.sides import Side

SETTLE = 5.0
"""Seconds after the start until a side is called idle."""


def measure_idle(servers: Servers, side: Side, seconds: float, say: Say) -> Idle:
    """Nobody else may use the server meanwhile: its counters are global. Raises BenchFailed."""
    say(f"{side.name}: idle for {seconds:g} s")
    with side.site(servers, "idle") as place, servers.connect() as session, session.cursor() as cursor:
        contender = side.contender(place)
        try:
            contender.start()
            side.relay_one(place, contender)
            time.sleep(SETTLE)
            position, binlog = place.checkpoint(), servers.binlog_size()
            before, cpu, begin = _counters(cursor), contender.cpu, time.monotonic()
            time.sleep(seconds)
            elapsed, cpu = time.monotonic() - begin, contender.cpu - cpu
            sent = statements_between(before, _counters(cursor))
            return Idle(
                side=side.name,
                seconds=elapsed,
                relay_cpu=cpu,
                queries=sent.pop("Questions", 0),
                statements=sent,
                binlog_bytes=servers.binlog_size() - binlog,
                checkpoint_moved=place.checkpoint() != position if side.kind == "relay" else None,
            )
        finally:
            contender.stop()


def statements_between(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """Counter -> by how much it rose, without our own two readings of them; those that did not rise are left out."""
    ours = {"Questions": 1, "show_status": 1}
    risen = {name: after[name] - before[name] - ours.get(name, 0) for name in after}
    return {name: rise for name, rise in risen.items() if rise}


def _counters(cursor: Any) -> dict[str, int]:
    """Questions (what clients have sent), and Com_… of each kind; a ping is in admin_commands and in no Question."""
    cursor.execute(
        r"SHOW GLOBAL STATUS WHERE Variable_name = 'Questions'"
        r" OR Variable_name LIKE 'Com\_%' AND Variable_name NOT LIKE 'Com\_stmt\_%'"
    )
    return {name.removeprefix("Com_"): int(count) for name, count in cursor.fetchall()}
