"""What the poller decides without asking a server."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_outbox.errors import Hold
from cdc_outbox.gtid import GtidSet
from cdc_outbox.kafka.murmur2 import partition_of
from cdc_outbox.kafka.publisher import Record
from cdc_outbox.model import Aggregate, Event, Position, Status, TableName, Transaction
from cdc_outbox.mysql.outbox_table import Candidate, Row, RowStatus
from cdc_outbox.ops.log import Alerts
from cdc_outbox.relay.brake import Brake
from cdc_outbox.relay.budget import Budget
from cdc_outbox.relay.in_flight import InFlight
from cdc_outbox.relay.partition_holds import HeldPartitions
from cdc_outbox.relay.pipeline import Freed, Queued
from cdc_outbox.relay.poller import HELD_PAGE, PAGE, RESERVE, Poller
from cdc_outbox.relay.topic_holds import TopicHolds
from tests.unit.relay.test_pipeline import TABLE, event

EVENTS, BYTES = 1000, 1 << 20


@pytest.fixture
def ledger() -> InFlight:
    return InFlight(Position())


@pytest.fixture
def budget() -> Budget:
    return Budget(EVENTS, BYTES)


@pytest.fixture
def brake() -> Brake:
    return Brake(None)


@pytest.fixture
def topic_holds() -> TopicHolds:
    return TopicHolds()


@pytest.fixture
def partitions() -> SimpleNamespace:
    return SimpleNamespace(held=HeldPartitions())


@pytest.fixture
def submitted() -> list[Queued | Freed]:
    return []


@pytest.fixture
def poller(
    *,
    ledger: InFlight,
    budget: Budget,
    brake: Brake,
    topic_holds: TopicHolds,
    partitions: SimpleNamespace,
    submitted: list[Queued | Freed],
) -> Poller:
    nothing: dict[str, object] = dict.fromkeys(
        ("session", "fence", "lease", "metrics", "alerts", "on_swept", "on_failure")
    )
    return Poller(
        **nothing,  # type: ignore[arg-type]
        binlog_session=nullcontext,
        dumped=lambda: UUID,
        tables={},
        ledger=ledger,
        budget=budget,
        brake=brake,
        topic_holds=topic_holds,
        partitions=partitions,  # type: ignore[arg-type]
        submit=submitted.append,
        waits=(10.0,),
        batch=EVENTS,
        poll_interval=1.0,
        sending_timeout=300.0,
        ping_every=3.0,
        watermark=Position(),
        bootstrap=False,
    )


def test_a_tail_that_fills_the_budget_leaves_the_poller_its_share(
    poller: Poller, ledger: InFlight, budget: Budget
) -> None:
    budget.add(EVENTS, BYTES)
    assert poller._room() == (EVENTS // RESERVE, BYTES // RESERVE)
    ledger.queue([event(1)], lambda _: True)
    assert poller._room() is None  # its share is in use


def test_with_room_for_all_it_takes_a_batch(poller: Poller) -> None:
    assert poller._room() == (EVENTS, BYTES)


def test_while_paused_it_takes_nothing(poller: Poller, brake: Brake) -> None:
    brake.paused = True
    assert poller._room() is None


def test_what_waits_for_its_topic_is_not_freed(
    poller: Poller, ledger: InFlight, topic_holds: TopicHolds, submitted: list[Queued | Freed]
) -> None:
    """The topic may be there before the poller takes the parked rows: new events must not overtake them."""
    waiting, free = (TABLE, "order", "a"), (TABLE, "payment", "b")
    ledger.block([waiting, free])
    topic_holds.add("order", Record("outbox.event.order", b"a", b"{}", [], 1, None), 0.0)
    number, quiet = ledger.begin_pass()
    poller._free(number, quiet, set())
    assert submitted == [Freed(number, [free])]


def test_what_waits_for_its_partition_is_not_freed_either(
    poller: Poller, ledger: InFlight, partitions: SimpleNamespace, submitted: list[Queued | Freed]
) -> None:
    waiting, free = (TABLE, "order", "a"), (TABLE, "order", "b")
    ledger.block([waiting, free])
    number = partition_of(b"a", 3)
    assert partition_of(b"b", 3) != number
    partitions.held = HeldPartitions(frozenset({("orders", number)}), {"order": "orders"}, {"orders": 3})
    number, quiet = ledger.begin_pass()
    poller._free(number, quiet, set())
    assert submitted == [Freed(number, [free])]


UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_many_aggregates_that_wait_for_a_partition_are_hashed_once(
    poller: Poller,
    ledger: InFlight,
    partitions: SimpleNamespace,
    submitted: list[Queued | Freed],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[bytes] = []

    def counting(key: bytes, partitions: int) -> int:
        hashed.append(key)
        return 1 if key.startswith(b"held") else 0

    monkeypatch.setattr("cdc_outbox.relay.partition_holds._number", lambda key, count: counting(key.encode(), count))
    free = (TABLE, "order", "free")
    ledger.block([*((TABLE, "order", f"held{n}") for n in range(100)), free])
    partitions.held = HeldPartitions(frozenset({("orders", 1)}), {"order": "orders"}, {"orders": 2})
    for _ in range(3):
        number, quiet = ledger.begin_pass()
        poller._free(number, quiet, set())
        assert submitted[-1] == Freed(number, [free])
    assert len(hashed) == 101
    partitions.held = HeldPartitions()
    number, quiet = ledger.begin_pass()
    poller._free(number, quiet, set())
    assert isinstance(submitted[-1], Freed)
    assert len(submitted[-1].aggregates) == 101


def test_a_table_with_rows_of_a_held_partition_keeps_no_other_table_waiting(
    poller: Poller, partitions: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each look at the first table its rows are left alone for a while, and only its."""
    monkeypatch.setattr("cdc_outbox.relay.poller.HELD_REST", 1e9)
    make_takeable(poller)
    partitions.held = HeldPartitions(frozenset({("orders", 0)}), {"order": "orders"}, {"orders": 1})
    first, second = Table("first", [event(1)]), Table("second", [event(2)])
    for table in (first, second, first):
        poller._take_due(table)  # type: ignore[arg-type]
    assert (first.pages, second.pages) == (2, 2)  # the second page of each was empty


def test_rows_of_a_held_partition_are_passed_over_in_large_pages_whatever_their_size(
    poller: Poller, partitions: SimpleNamespace, submitted: list[Queued | Freed]
) -> None:
    make_takeable(poller)
    partitions.held = HeldPartitions(frozenset({("orders", 0)}), {"order": "orders"}, {"orders": 1})
    many = [event(n, f"a{n}") for n in range(HELD_PAGE - 1)]
    table = Table("outbox_event", [*many, Event(TABLE, HELD_PAGE, "e", "other", "b", "x", None)], size=BYTES)
    assert poller._take_due(table)  # type: ignore[arg-type]
    assert table.pages == 1
    (queued,) = submitted
    assert isinstance(queued, Queued)
    assert [one.event.id for one in queued.envelopes] == [HELD_PAGE]


def test_what_has_no_room_beside_what_may_not_go_is_not_passed_over(
    poller: Poller, ledger: InFlight, submitted: list[Queued | Freed]
) -> None:
    make_takeable(poller)
    table = Table("outbox_event", [event(1, "a"), event(2, "b")], size=BYTES)  # each fills the window
    table.open = [((TABLE, "order", "a"), (0, "e0"))]
    assert poller._take_due(table)  # type: ignore[arg-type]
    (queued,) = submitted
    assert isinstance(queued, Queued)
    assert [one.event.id for one in queued.envelopes] == [2]


def test_another_workers_row_is_found_behind_any_number_of_ours(poller: Poller, ledger: InFlight) -> None:
    """What waits for a held partition leaves its room to others: more may be at 1 than limits.max_in_flight."""
    ours, above_them = 2 * (EVENTS + PAGE), 10**6
    ledger.admit([Transaction([event(n) for n in range(1, ours + 1)], ("binlog.000001", 100))])
    rows = [(event(n).aggregate, (n, f"e{n}"), 0) for n in range(1, ours + 1)]
    rows.append((event(above_them, "theirs").aggregate, (above_them, "theirs"), 0))
    table = SimpleNamespace(
        name=TABLE,
        sending=lambda _, above, limit: [one for one in rows if one[1][0] > above][:limit],
        statuses=lambda _, ids: {one: RowStatus("theirs", Status.SENDING, False) for one in ids},
    )
    poller._look_at_sending(table)  # type: ignore[arg-type]
    assert ledger.blocked_aggregates() == [(TABLE, "order", "theirs")]


class Table:
    """Rows that are due."""

    def __init__(self, name: str, events: list[Event], *, size: int = 2) -> None:
        self.name = TableName("shop", name)
        self.pages = 0
        self.open: list[tuple[Aggregate, Row]] = []
        self._events = events
        self._size = size

    def due(self, session: object, limit: int, above: int, *rest: object, **options: object) -> list[Candidate]:
        self.pages += 1
        return [Candidate(one, self._size) for one in self._events if one.id > above][:limit]

    def open_before(self, *asked: object, pending: bool = True) -> list[tuple[Aggregate, Row]]:
        return self.open

    def claim_due(self, session: object, rows: Sequence[Row]) -> int:
        return len(rows)

    def fetch(self, session: object, ids: Sequence[int]) -> dict[int, Event]:
        return {one.id: one for one in self._events if one.id in ids}


def make_takeable(poller: Poller) -> None:
    """Nothing fences it, and its transactions are none."""
    poller._lease = SimpleNamespace(check=lambda: None)  # type: ignore[assignment]
    poller._fence = SimpleNamespace(check=lambda session: None)  # type: ignore[assignment]
    poller._session = SimpleNamespace(transaction=nullcontext)  # type: ignore[assignment]


class Server:
    """What a server says of its GTIDs."""

    def __init__(self, executed: str, *, owned: str = "", purged: str = "", uuid: str = "") -> None:
        self.uuid = uuid or UUID
        self.executed = executed
        self.owned = owned
        self.purged = purged

    def query(self, sql: str, args: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        if "server_uuid" in sql:
            return [(self.uuid,)]
        if "gtid_purged" in sql:
            return [("gtid_purged", self.purged)]
        if "gtid_mode" in sql:
            return [("gtid_mode", "ON")]
        return [(self.owned, self.executed) if "gtid_owned" in sql else (self.executed,)]

    def row(self, sql: str, args: Sequence[object] = ()) -> tuple[Any, ...]:
        return self.query(sql, args)[0]


def gtids(text: str) -> Position:
    return Position(gtid_set=GtidSet.parse(f"{UUID}:{text}"))


@pytest.fixture
def alerts() -> list[str]:
    return []


@pytest.fixture
def by_gtid(poller: Poller, alerts: list[str]) -> Poller:
    """Its reader has passed 1 to 10, its primary has 1 to 40 and is at work on 41."""
    poller._gtids = True
    poller._alerts = Alerts(alerts.append)
    poller._session = Server(f"{UUID}:1-40", owned=f"{UUID}:41#7")  # type: ignore[assignment]
    poller._ledger = InFlight(gtids("1-10"))
    return poller


def test_a_reader_far_behind_is_waited_for_and_nothing_newer_is_asked_of_it(by_gtid: Poller) -> None:
    by_gtid._look_at_watermark(gtids("1-30"))
    assert by_gtid._watermark == gtids("1-30")


def test_a_gtid_that_was_given_back_is_not_waited_for(by_gtid: Poller) -> None:
    by_gtid._look_at_watermark(gtids("1-30:41:45"))
    assert by_gtid._watermark == gtids("1-30:41")


def of_replica(server: Server) -> AbstractContextManager[Any]:
    return nullcontext(server)


def test_what_the_primary_purged_may_still_come_from_the_replica(by_gtid: Poller, alerts: list[str]) -> None:
    """Else rows that the replica has not delivered yet would count as missed, and be sent twice."""
    by_gtid._session.purged = f"{UUID}:1-30"  # type: ignore[attr-defined]
    by_gtid._binlog_session = lambda session: of_replica(Server(f"{UUID}:1-25", purged=f"{UUID}:1-12"))
    by_gtid._look_at_watermark(gtids("1-30"))
    assert by_gtid._ledger.streamed_past(gtids("1-12"))
    assert not by_gtid._ledger.streamed_past(gtids("1-13"))
    assert alerts == ["source_behind"]


def test_of_another_replica_behind_the_same_name_nothing_is_concluded(by_gtid: Poller, alerts: list[str]) -> None:
    """A new one has purged all: what the one that is read has yet to bring would be swept, and sent twice."""
    other = Server(f"{UUID}:1-25", purged=f"{UUID}:1-25", uuid="bbbbbbbb-0000-0000-0000-000000000002")
    by_gtid._binlog_session = lambda session: of_replica(other)
    by_gtid._look_at_watermark(gtids("1-30"))
    assert not by_gtid._ledger.streamed_past(gtids("1-11"))
    assert not alerts


def test_a_replica_that_has_it_is_not_behind(by_gtid: Poller, alerts: list[str]) -> None:
    by_gtid._binlog_session = lambda session: of_replica(Server(f"{UUID}:1-30"))
    by_gtid._look_at_watermark(gtids("1-30"))
    assert not alerts


def test_while_the_replica_is_away_nothing_is_known_of_it(by_gtid: Poller) -> None:
    def away(session: object) -> AbstractContextManager[Any]:
        raise Hold("away", reason="source")

    by_gtid._binlog_session = away
    by_gtid._look_at_watermark(gtids("1-30"))
    assert by_gtid._watermark == gtids("1-30")
    assert not by_gtid._ledger.streamed_past(gtids("1-11"))


def test_copies_wait_until_what_comes_before_them_has_been_read_again(
    poller: Poller, ledger: InFlight, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `rows: transient` what precedes a copy in its aggregate may have no row that would hold it back."""
    taken: list[object] = []
    monkeypatch.setattr(poller, "_take_due", lambda table: bool(taken.append(table)))
    table = SimpleNamespace(due_or_stuck=lambda *_: (True, False, False, False), failed_aggregates=lambda _: [])
    poller._transient, poller._counted_at = True, time.monotonic()
    poller._tables, poller._fence = {TABLE: table}, SimpleNamespace(name="orders")  # type: ignore[dict-item, assignment]
    poller._watermark = Position("binlog.000001", 500)
    poller._pass()
    assert taken == []
    ledger.admit([Transaction([], ("binlog.000001", 500))])
    poller._pass()
    assert taken == [table]
