"""`rows: transient`: the insert in the binlog is the event, and only what failed has a row: the copy written of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cdc_outbox.errors import BinlogUnreadable
from cdc_outbox.model import Status, TableName
from cdc_outbox.mysql.event_copies import Copy, EventCopies
from cdc_outbox.mysql.outbox_table import OutboxTable, RowStatus
from cdc_outbox.relay.in_flight import Envelope, Stage
from cdc_outbox.relay.intake import Intake

if TYPE_CHECKING:
    from cdc_outbox.mysql.session import Session


class TransientIntake(Intake):
    """An Intake that reads the table for copies only: after a start, which may have written some."""

    def sift(self, envelopes: list[Envelope]) -> tuple[list[Envelope], list[Envelope]]:
        looked_up = [envelope for envelope in envelopes if self._may_have_a_row(envelope)]
        rows = self._rows(looked_up)
        go: list[Envelope] = []
        dropped: list[Envelope] = []
        for envelope in envelopes:
            event = envelope.event
            row = rows.get((event.table, event.event_id))
            if event.status != Status.PENDING:  # a copy of ours, or a row put in by hand
                self._drop(envelope, event.status, event.parked, dropped)
            elif event.incomplete:
                raise BinlogUnreadable(
                    f"event {event.event_id or '(no event_id)'} of {event.table}, id {event.id}, is not whole in the"
                    " binlog, and outbox.rows is transient: there is no row to read it from",
                    hint="SET PERSIST binlog_row_image = 'FULL', also in the sessions of the applications; then"
                    " `cdc-outbox checkpoint set` with a position behind it, which gives this event up",
                )
            elif row is None or (row.status == Status.PENDING and not row.parked):
                go.append(envelope)
            else:
                self._drop(envelope, row.status, row.parked, dropped)
        return go, dropped

    def _may_have_a_row(self, envelope: Envelope) -> bool:
        """Read again after a start, or delayed: where such a row was not deleted the poller finds it in time."""
        return envelope.event.status == Status.PENDING and (self.catching_up or envelope.event.parked)

    def _rows(self, envelopes: Sequence[Envelope]) -> dict[tuple[TableName, str], RowStatus]:
        if self._check_until is not None and self._ledger.streamed_past(self._check_until):
            self._check_until = None
        event_ids: dict[TableName, list[str]] = defaultdict(list)
        for envelope in envelopes:
            event_ids[envelope.event.table].append(envelope.event.event_id)
        return {
            (name, event_id): row
            for name, part in event_ids.items()
            for event_id, row in EventCopies(self._tables[name]).statuses(self._session, part).items()
        }


def write_copies(
    session: Session, tables: Mapping[TableName, OutboxTable], batch: Sequence[Envelope]
) -> list[Envelope]:
    """Of what the tail brought, write the failed and the parked; gives the others, which have rows: the poller's.

    What was sent has nothing to be written. The statuses that rows already have are the poller's or a person's.
    """
    copies: dict[TableName, list[Copy]] = defaultdict(list)
    for envelope in batch:
        if envelope.transaction is not None and envelope.stage in _COPIED:
            copies[envelope.event.table].append(_copy(envelope))
    for name, part in copies.items():
        EventCopies(tables[name]).insert(session, part)
    return [envelope for envelope in batch if envelope.transaction is None]


_COPIED = {Stage.REFUSED, Stage.DEAD, Stage.PARKING, Stage.PUT_BACK}


def _copy(envelope: Envelope) -> Copy:
    event, error = envelope.event, str(envelope.error or "")
    if envelope.stage is Stage.REFUSED:
        return Copy(event, event.retry_count + 1, envelope.retry_in, error)
    if envelope.stage is Stage.DEAD:
        return Copy(event, event.max_retries, None, error)
    return Copy(event, event.retry_count, 0)
