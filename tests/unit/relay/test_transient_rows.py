"""`rows: transient` without a server: what is written of what failed, and what is read first after a start."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_outbox.errors import BinlogUnreadable, RecordRefused
from cdc_outbox.model import Position, Transaction
from cdc_outbox.mysql.event_copies import Copy
from cdc_outbox.mysql.outbox_table import RowStatus
from cdc_outbox.relay import transient_rows
from cdc_outbox.relay.in_flight import Envelope, InFlight, Stage
from cdc_outbox.relay.transient_rows import TransientIntake, write_copies
from tests.unit.relay.test_pipeline import TABLE, event

END = Position("binlog.000001", 1000)
REFUSED = RecordRefused("MESSAGE_TOO_LARGE", "MESSAGE_TOO_LARGE: too large")


class Copies:
    """Stands for EventCopies: the rows that there are, and what was written."""

    def __init__(self) -> None:
        self.rows: dict[str, RowStatus] = {}
        self.written: list[Copy] = []
        self.asked: list[str] = []

    def __call__(self, table: object) -> Copies:
        return self

    def statuses(self, session: object, event_ids: Sequence[str]) -> dict[str, RowStatus]:
        self.asked += event_ids
        return {one: self.rows[one] for one in event_ids if one in self.rows}

    def insert(self, session: object, copies: Sequence[Copy]) -> None:
        self.written += copies


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Copies:
    found = Copies()
    monkeypatch.setattr(transient_rows, "EventCopies", found)
    return found


@pytest.fixture
def ledger() -> InFlight:
    return InFlight(Position("binlog.000001", 4))


@pytest.fixture
def intake(ledger: InFlight, copies: Copies) -> TransientIntake:
    unused: Any = None
    return TransientIntake(
        lambda: unused,
        unused,
        {TABLE: unused},
        ledger,
        lease=unused,
        claim_rows=False,
        check_until=END,
        session_lifetime=10.0,
    )


def read(ledger: InFlight, offset: int, *events: Any) -> list[Envelope]:
    return ledger.admit([Transaction(list(events), ("binlog.000001", offset))])


def tail(stage: Stage, number: int = 1, **columns: Any) -> Envelope:
    return Envelope(event(number, **columns), Transaction([], None), stage)


def test_nothing_is_written_of_what_was_sent_and_a_copy_of_what_was_not(copies: Copies) -> None:
    refused, dead, parked = tail(Stage.REFUSED, 2), tail(Stage.DEAD, 3, max_retries=0), tail(Stage.PARKING, 4)
    refused.error, refused.retry_in, dead.error = REFUSED, 60, REFUSED
    of_the_poller = Envelope(event(5), None, Stage.ACKED)
    tables: Any = {TABLE: None}
    left = write_copies(SimpleNamespace(), tables, [tail(Stage.ACKED), refused, dead, parked, of_the_poller])  # type: ignore[arg-type]
    assert left == [of_the_poller]
    assert copies.written == [
        Copy(refused.event, 1, 60, str(REFUSED)),
        Copy(dead.event, 0, None, str(REFUSED)),
        Copy(parked.event, 0, 0),
    ]


def test_after_a_start_what_has_a_copy_is_left_to_it(intake: TransientIntake, ledger: InFlight, copies: Copies) -> None:
    copies.rows = {
        "e1": RowStatus("e1", 3, True),  # waits for its retry
        "e2": RowStatus("e2", 3, False),  # dead
        "e3": RowStatus("e3", 2, False),  # of the time when rows were kept
        "e4": RowStatus("e4", 0, False),  # not deleted by the application
    }
    envelopes = read(ledger, 100, *(event(n, f"a{n}") for n in range(1, 6)))
    go, dropped = intake.sift(envelopes)
    assert [one.event.id for one in go] == [4, 5]
    assert [one.event.id for one in dropped] == [1, 2, 3]
    assert ledger.blocked_aggregates() == [(TABLE, "order", "a1")]


def test_behind_the_boundary_nothing_is_read(intake: TransientIntake, ledger: InFlight, copies: Copies) -> None:
    read(ledger, 1000)
    go, _ = intake.sift(read(ledger, 1100, event(1)))
    copies.asked.clear()
    go, _ = intake.sift(read(ledger, 1200, event(2)))
    assert [one.event.id for one in go] == [2]
    assert copies.asked == []


def test_a_copy_of_ours_in_the_binlog_is_no_event_and_blocks(intake: TransientIntake, ledger: InFlight) -> None:
    envelopes = read(ledger, 1200, event(1, status=3, parked=True, incomplete=True), event(2, "b", status=3))
    assert intake.sift(envelopes) == ([], envelopes)
    assert ledger.blocked_aggregates() == [(TABLE, "order", "a")]


def test_what_is_not_whole_stops_the_relay(intake: TransientIntake, ledger: InFlight) -> None:
    with pytest.raises(BinlogUnreadable, match="is not whole in the binlog"):
        intake.sift(read(ledger, 1200, event(1, incomplete=True)))


def test_a_delayed_row_that_is_there_is_the_pollers(intake: TransientIntake, ledger: InFlight, copies: Copies) -> None:
    read(ledger, 1000)
    intake.sift(read(ledger, 1100, event(9, "z")))
    copies.rows = {"e1": RowStatus("e1", 0, True)}
    go, dropped = intake.sift(read(ledger, 1200, event(1, parked=True), event(2, "b", parked=True)))
    assert [one.event.id for one in go] == [2]
    assert [one.event.id for one in dropped] == [1]


def test_what_the_tail_has_in_hand_stands_for_its_row(ledger: InFlight) -> None:
    first, other, _ = read(ledger, 100, event(1), event(2, "b"), event(3))
    wanted = {first.event.aggregate}
    assert ledger.tail_rows(wanted) == [(first.event.aggregate, (1, "e1")), (first.event.aggregate, (3, "e3"))]
    ledger.hand([first, other], 0.0)
    ledger.acknowledge([first])
    ledger.settle_rows(ledger.take_outcomes(1))
    assert ledger.tail_rows(wanted) == [(first.event.aggregate, (3, "e3"))]
