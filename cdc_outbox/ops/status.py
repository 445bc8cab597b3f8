"""How a relay and its tables are: from the database, and from the leader itself where it runs on this host.

Every statement reads index entries, up to a limit, and single rows: a large table must not make it slow.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from cdc_outbox.errors import Hold
from cdc_outbox.model import State
from cdc_outbox.mysql.checkpoint import Checkpoint, read_checkpoint, retention_left, stored_position
from cdc_outbox.mysql.event_rows import blocked_aggregates, count, oldest_unsettled
from cdc_outbox.mysql.leadership import lock_owner
from cdc_outbox.mysql.source import SOURCE, binlog_session, is_of_source
from cdc_outbox.ops.command_session import command_session
from cdc_outbox.ops.scrape import Live, ask_leader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cdc_outbox.config import Settings
    from cdc_outbox.model import Position, TableName
    from cdc_outbox.mysql.session import Session

SENT_LIMIT = 100_000
"""Sent rows counted of each table, unless all are."""

COUNT_LIMIT = 200_000
"""Rows of any other state counted of each table, unless all are."""

BLOCKED_LIMIT = 10_000
"""Rows looked at for each state that blocks an aggregate: these must be read themselves."""


def read_status(settings: Settings, *, full: bool) -> dict[str, Any]:
    """The fields of `status --json`. full: count everything. Raises Refused or Hold."""
    with command_session(settings) as session:
        return status_of(session, settings, full=full)


def status_of(session: Session, settings: Settings, *, full: bool) -> dict[str, Any]:
    """`read_status` on a session that is open."""
    checkpoint = read_checkpoint(session, settings.name)
    owner = lock_owner(session, settings)
    live = ask_leader(settings) if owner is not None else None
    tables = settings.table_names
    counts = _counts(session, tables, full=full)
    ages = [age for table in tables if (age := oldest_unsettled(session, table)) is not None]
    lag = max(ages, default=0) if live is None else max(live.lag, *ages, 0)
    return {
        "relay": settings.name,
        "state": _state(checkpoint, owner),
        "paused": checkpoint is not None and bool(checkpoint.paused),
        "leader": checkpoint.owner if checkpoint is not None and owner is not None else None,
        "server_id": settings.binlog_server.server_id,
        "position": _position(stored_position(settings, checkpoint)),
        "source": _source(settings),
        "lag": {"seconds": lag, "events": counts["pending"] + counts["sending"]},
        "counts": counts,
        **_blocked(session, tables, counts, live, full=full),
        "in_flight": counts["sending"] if live is None else live.in_flight,
        "holds": _holds(checkpoint, owner, live),
        "binlog_retention_left_seconds": _retention_left(session, settings, lag),
        "decoder": None if live is None else live.decoder,
        "last_error": checkpoint.last_error if checkpoint is not None else None,
    }


def _state(checkpoint: Checkpoint | None, owner: int | None) -> str:
    if owner is None:
        return "stopped"
    if checkpoint is not None and checkpoint.paused:
        return "paused"
    state = checkpoint.state if checkpoint is not None else None
    return state if state in {"leader", "holding", "paused"} else "recovering"


def _holds(checkpoint: Checkpoint | None, owner: int | None, live: Live | None) -> list[str]:
    if live is not None:
        return live.holds
    if checkpoint is None or owner is None or checkpoint.state != "holding":
        return []
    return [SOURCE if is_of_source(checkpoint.last_error) else "kafka"]


def _source(settings: Settings) -> str | None:
    server = settings.binlog_server
    return None if settings.binlog.source is None else f"{server.host}:{server.port}"


def _retention_left(session: Session, settings: Settings, lag: float) -> int | None:
    """Of the server whose binlog is read; None also while that is away."""
    with contextlib.suppress(Hold), binlog_session(settings, session) as server:
        return retention_left(server, lag)
    return None


def _position(position: Position | None) -> dict[str, object]:
    if position is None:
        return {"file": None, "pos": None, "gtid_set": None}
    gtids = None if position.gtid_set is None else str(position.gtid_set)
    return {"file": position.file or None, "pos": position.offset or None, "gtid_set": gtids}


def _counts(session: Session, tables: Iterable[TableName], *, full: bool) -> dict[str, Any]:
    """Rows by state, of all tables together; where counting stopped, that is said."""
    total: dict[str, Any] = dict.fromkeys(("pending", "sending", "sent", "failed", "dead", "parked"), 0)
    stopped: set[State] = set()
    for table in tables:
        for state in State:
            most = None if full else SENT_LIMIT if state is State.sent else COUNT_LIMIT
            rows = count(session, table, state, most)
            total[state] += rows
            if rows == most:
                stopped.add(state)
    if State.sent in stopped:
        total["sent_is_lower_bound"] = True
    if stopped - {State.sent}:
        total["lower_bounds"] = sorted(stopped - {State.sent})
    return total


def _blocked(
    session: Session, tables: Iterable[TableName], counts: dict[str, Any], live: Live | None, *, full: bool
) -> dict[str, object]:
    if live is not None:
        return {"blocked_aggregates": live.blocked_aggregates}
    most = 2**62 if full else BLOCKED_LIMIT
    found: dict[str, object] = {"blocked_aggregates": sum(blocked_aggregates(session, one, most) for one in tables)}
    if max(counts["failed"], counts["parked"], counts["sending"]) > most:
        found["blocked_aggregates_is_lower_bound"] = True
    return found
