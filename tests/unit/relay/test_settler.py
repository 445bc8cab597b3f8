"""What the settler writes, with stubs in the place of the session and the table."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from cdc_outbox.model import Position, Transaction
from cdc_outbox.mysql.leadership import Lease
from cdc_outbox.mysql.outbox_table import Row
from cdc_outbox.ops.log import Alerts
from cdc_outbox.ops.metrics import Metrics
from cdc_outbox.relay.budget import Budget
from cdc_outbox.relay.in_flight import InFlight
from cdc_outbox.relay.settler import SLOW, Settler
from tests.unit.relay.test_pipeline import TABLE, event


class StubSession:
    def close(self) -> None: ...

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        yield


class StubFence:
    def check(self, session: StubSession) -> None: ...


class StubTable:
    """Every row is as the statement expects it; remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[int]]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        """What other threads do while rows are marked 1 or 2."""

    def _asked(self, statement: str, rows: Sequence[Row]) -> int:
        self.asked.append((statement, [id for id, _ in rows]))
        return len(rows)

    def mark_sending(self, session: StubSession, rows: Sequence[Row]) -> int:
        self.meanwhile()
        return self._asked("mark_sending", rows)

    def mark_sent(self, session: StubSession, rows: Sequence[Row]) -> int:
        self.meanwhile()
        return self._asked("mark_sent", rows)

    def park(self, session: StubSession, rows: Sequence[Row]) -> int:
        return self._asked("park", rows)

    def put_back(self, session: StubSession, rows: Sequence[Row]) -> int:
        return self._asked("put_back", rows)


@pytest.fixture
def ledger() -> InFlight:
    return InFlight(Position())


@pytest.fixture
def table() -> StubTable:
    return StubTable()


@pytest.fixture
def settler(ledger: InFlight, table: StubTable) -> Settler:
    lease, metrics = Lease(lambda: 0.0), Metrics("test")
    lease.renew(0.0, 100.0)
    return Settler(
        session=StubSession(),  # type: ignore[arg-type]
        fence=StubFence(),  # type: ignore[arg-type]
        tables={TABLE: table},  # type: ignore[dict-item]
        ledger=ledger,
        budget=Budget(100, 1 << 20),
        lease=lease,
        metrics=metrics,
        alerts=Alerts(metrics.alert),
        batch=10,
        ping_every=3.0,
        on_failure=lambda error: None,
    )


def test_what_is_held_back_while_it_is_marked_as_slow_is_put_back(
    settler: Settler, ledger: InFlight, table: StubTable
) -> None:
    """Parking expects a row at 0: it would miss one at 1, and leave it there until it counts as abandoned."""
    (envelope,) = ledger.admit([Transaction([event(1)], ("binlog.000001", 100))])
    ledger.hand([envelope], -SLOW)

    def refused() -> None:
        ledger.take_back([envelope])
        ledger.hold_back(envelope)

    table.meanwhile = refused
    settler.settle_once()
    settler.settle_once()
    assert table.asked == [("mark_sending", [1]), ("put_back", [1])]


def test_what_is_acknowledged_while_the_last_batch_is_written_is_written_as_well(
    settler: Settler, ledger: InFlight, table: StubTable
) -> None:
    """Else it would be sent again after a stop, or by the next incarnation."""
    first, second = ledger.admit([Transaction([event(1), event(2)], ("binlog.000001", 100))])
    ledger.hand([first, second], time.monotonic())
    ledger.acknowledge([first])

    def stopped() -> None:
        table.meanwhile = lambda: None
        ledger.acknowledge([second])
        settler.request_stop()

    table.meanwhile = stopped
    ledger.on_outcome = settler.wake
    settler.wake()
    settler.start()
    assert settler.join(10)
    assert table.asked == [("mark_sent", [1]), ("mark_sent", [2])]
