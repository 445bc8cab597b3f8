"""How events are shown: as lines of text, as JSON, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cdc_outbox.cli.arguments import ago, aligned

if TYPE_CHECKING:
    from cdc_outbox.mysql.event_rows import EventRow


def as_json(event: EventRow) -> dict[str, Any]:
    """The fields of an event as `events list --json` and `show --json` give them."""
    return {
        "table": str(event.table),
        "id": event.id,
        "event_id": event.event_id,
        "aggregate_type": event.aggregate_type,
        "aggregate_id": event.aggregate_id,
        "event_type": event.event_type,
        "state": str(event.state),
        "status": event.status,
        "retry_count": event.retry_count,
        "max_retries": event.max_retries,
        "next_retry_at": None if event.next_retry_at is None else str(event.next_retry_at),
        "due_in_seconds": event.due_in,
        "created_at": str(event.created_at),
        "age_seconds": event.age,
        "updated_at": str(event.updated_at),
        "last_error": event.last_error,
    }


REASON = (
    "why it failed is in the relay's log (event_failed, event_dead) and, once it is dead, in its dead letter:"
    " `cdc-outbox tail --since 1d`; rows say it as well where they have the column last_error (docs/how-to.md)"
)
"""For failed and dead events whose rows do not tell."""


def untold(event: EventRow) -> bool:
    """It was refused, and its row does not say why."""
    return event.state in {type(event.state).failed, type(event.state).dead} and not event.last_error


def meaning(event: EventRow) -> str:
    """What the event's state says to somebody who does not know the states."""
    states = type(event.state)
    if event.state is states.failed and event.retry_count > event.max_retries:
        return "a person gave it up; the relay sends its dead letter next"
    return {
        states.pending: "committed and not published yet",
        states.sending: "handed to Kafka, or claimed; its outcome is not written yet",
        states.parked: "waits behind an earlier event of its aggregate, for its topic or for its time",
        states.failed: f"was refused; {_due(event)} retry {event.retry_count} of {event.max_retries} comes",
        states.dead: "its retries are used up, its dead letter is in Kafka; `events retry` tries it again",
        states.sent: "acknowledged by all in-sync replicas",
    }[event.state]


def _due(event: EventRow) -> str:
    return "due now," if event.due_in is None or event.due_in <= 0 else f"in {ago(event.due_in)}"


def lines(found: Sequence[EventRow], *, tables: bool) -> list[str]:
    """Events as a table of text. tables: say of which outbox table each is."""
    if not found:
        return []
    heads = ["STATE", "ID", "EVENT ID", "AGGREGATE", "TYPE", "RETRIES", "AGE", "DUE IN", "ERROR"]
    cells = [
        [
            str(event.state),
            str(event.id),
            event.event_id,
            f"{event.aggregate_type}/{event.aggregate_id}",
            event.event_type,
            f"{event.retry_count}/{event.max_retries}",
            ago(event.age),
            "-" if event.due_in is None else ago(max(0, event.due_in)),
            event.last_error or "",
        ]
        for event in found
    ]
    if tables:
        heads.insert(1, "TABLE")
        for event, line in zip(found, cells, strict=True):
            line.insert(1, str(event.table))
    return aligned([heads, *cells])
