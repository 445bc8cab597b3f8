"""Test events, put into an outbox table as an application would."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cdc_outbox.errors import Refused
from cdc_outbox.model import Event, TableName
from cdc_outbox.mysql.outbox_table import OutboxTable
from cdc_outbox.ops.command_session import command_session

if TYPE_CHECKING:
    from cdc_outbox.config import Settings


def emit(
    settings: Settings,
    table: TableName,
    *,
    aggregate_type: str,
    aggregate_id: str,
    event_type: str,
    payload: str,
    count: int,
) -> Iterator[Event]:
    """Insert `count` events, each in a transaction of its own, and give each once it is committed.

    payload: JSON text. Raises Refused for anything else and for values that the table does not take.
    """
    try:
        json.loads(payload)
    except ValueError as error:
        raise Refused(f"the payload is not JSON: {error}") from None
    outbox = OutboxTable(table)
    with command_session(settings) as session:
        if settings.outbox.transient:
            session.log_whole_rows()
        for _ in range(count):
            event = Event(table, 0, str(uuid.uuid4()), aggregate_type, aggregate_id, event_type, payload.encode())
            with session.transaction():
                outbox.insert(session, event)
                if settings.outbox.transient:
                    outbox.delete_inserted(session, event.event_id)
            yield event
