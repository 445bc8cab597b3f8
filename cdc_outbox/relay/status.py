"""How a relay and its tables are, as the database tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cdc_outbox.binlog.accelerator import decoder
from cdc_outbox.mysql.checkpoint import Checkpoint, read_checkpoint, retention_left
from cdc_outbox.mysql.leadership import lock_owner
from cdc_outbox.mysql.outbox_table import Counts, OutboxTable
from cdc_outbox.ops.command_session import command_session

if TYPE_CHECKING:
    from cdc_outbox.config import Settings


def read_status(settings: Settings, *, full: bool) -> dict[str, Any]:
    """The fields of `status --json`. full: count all sent rows. Raises Refused or Hold."""
    with command_session(settings) as session:
        checkpoint = read_checkpoint(session, settings.name)
        owner = lock_owner(session, settings)
        tables = [OutboxTable(name) for name in settings.table_names]
        counts = [table.counts(session, full=full) for table in tables]
        ages = [age for table in tables if (age := table.oldest_pending(session)) is not None]
        lag = max(ages, default=0)
        return {
            "relay": settings.name,
            "state": _state(checkpoint, owner),
            "leader": checkpoint.owner if checkpoint is not None and owner is not None else None,
            "server_id": settings.mysql.server_id,
            "position": _position(checkpoint),
            "lag": {"seconds": lag, "events": sum(c.pending + c.sending for c in counts)},
            "counts": _sum(counts),
            "blocked_aggregates": sum(len(table.blocked_aggregates(session)) for table in tables),
            "in_flight": sum(c.sending for c in counts),
            "holds": ["kafka"]
            if checkpoint is not None and owner is not None and checkpoint.state == "holding"
            else [],
            "binlog_retention_left_seconds": retention_left(session, lag),
            "decoder": decoder().kind,
            "last_error": checkpoint.last_error if checkpoint is not None else None,
        }


def _state(checkpoint: Checkpoint | None, owner: int | None) -> str:
    if owner is None:
        return "stopped"
    if checkpoint is not None and checkpoint.paused:
        return "paused"
    state = checkpoint.state if checkpoint is not None else None
    return state if state in {"leader", "holding", "paused"} else "recovering"


def _position(checkpoint: Checkpoint | None) -> dict[str, object]:
    position = checkpoint.position if checkpoint is not None else None
    if position is None:
        return {"file": None, "pos": None, "gtid_set": None}
    gtids = None if position.gtid_set is None else str(position.gtid_set)
    return {"file": position.file or None, "pos": position.offset or None, "gtid_set": gtids}


def _sum(counts: list[Counts]) -> dict[str, object]:
    names = ("pending", "sending", "sent", "failed", "dead", "parked")
    total: dict[str, object] = {name: sum(getattr(c, name) for c in counts) for name in names}
    if any(c.sent_is_lower_bound for c in counts):
        total["sent_is_lower_bound"] = True
    return total
