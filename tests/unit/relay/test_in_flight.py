"""The ledger without a server: positions, blocks, outcomes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_outbox.errors import RecordRefused
from cdc_outbox.gtid import GtidRange, GtidSet
from cdc_outbox.model import Event, Position, TableName, Transaction
from cdc_outbox.relay.in_flight import InFlight, Stage

TABLE = TableName("shop", "outbox_event")
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
REFUSED = RecordRefused("MESSAGE_TOO_LARGE")


def event(id: int, aggregate: str = "a", **columns: object) -> Event:
    return Event(TABLE, id, f"e{id}", "order", aggregate, "OrderPlaced", b"{}", **columns)  # type: ignore[arg-type]


def transaction(number: int, *events: Event, end: bool = True) -> Transaction:
    return Transaction(
        list(events), ("binlog.000001", number * 100) if end else None, [GtidRange(UUID, number, number)]
    )


def ledger() -> InFlight:
    return InFlight(Position("binlog.000001", 4, GtidSet()))


def settle(book: InFlight, batch: list) -> Position:  # type: ignore[type-arg]
    progress = book.propose(batch)
    book.settle(batch, progress)
    return progress.position


def test_position_is_the_settled_prefix() -> None:
    book = ledger()
    one, two, three = book.admit([transaction(n, event(n)) for n in (1, 2, 3)])
    book.hand([one, two, three], now=0)
    book.acknowledge([three, one])
    assert settle(book, book.take_outcomes(10)).offset == 100
    book.acknowledge([two])
    position = settle(book, book.take_outcomes(10))
    assert position.offset == 300
    assert str(position) == f"{UUID}:1-3"


def test_position_stands_only_at_transaction_ends() -> None:
    book = ledger()
    first, second = book.admit([transaction(1, event(1), end=False), transaction(1, event(2))])
    book.hand([first, second], now=0)
    book.acknowledge([first])
    assert settle(book, book.take_outcomes(10)).offset == 4, "a chunk's end is no place to resume"
    book.acknowledge([second])
    assert settle(book, book.take_outcomes(10)).offset == 100


def test_other_traffic_moves_the_position_only_behind_what_is_settled() -> None:
    book = ledger()
    (one,) = book.admit([transaction(1, event(1)), transaction(2)])
    assert book.propose([]).position.offset == 4
    book.hand([one], now=0)
    book.acknowledge([one])
    assert settle(book, book.take_outcomes(10)).offset == 200


def test_retract_gives_a_failed_write_back() -> None:
    book = ledger()
    (one,) = book.admit([transaction(1, event(1))])
    book.hand([one], now=0)
    book.acknowledge([one])
    batch = book.take_outcomes(10)
    assert book.propose(batch).position.offset == 100
    book.retract(batch)
    assert book.propose([]).position.offset == 4
    assert book.holds(one.event.key)


def test_a_refusal_blocks_its_aggregate_and_no_other() -> None:
    book = ledger()
    (one,) = book.admit([transaction(1, event(1))])
    book.refuse(one, REFUSED, retry_in=10)
    assert book.blocks(event(2)) is not None
    assert book.blocks(event(3, "b")) is None


def test_aggregates_are_compared_as_they_are() -> None:
    book = ledger()
    (one,) = book.admit([transaction(1, event(1, "A1"))])
    book.refuse(one, REFUSED, retry_in=10)
    assert book.blocks(event(2, "a1")) is None
    assert book.blocks(event(3, "A1")) is not None


def test_a_pass_frees_only_what_nothing_touched_since() -> None:
    book = ledger()
    (one,) = book.admit([transaction(1, event(1))])
    book.refuse(one, REFUSED, retry_in=10)
    assert book.begin_pass()[1] == [], "the refusal is not written yet"
    settle(book, book.take_outcomes(10))
    number, (aggregate,) = book.begin_pass()
    (two,) = book.admit([transaction(2, event(2))])
    block = book.blocks(two.event)
    assert block is not None
    assert book.wait_or_park(two, block) is Stage.PARKING
    settle(book, book.take_outcomes(10))
    later, _ = book.begin_pass()
    book.release(aggregate, number)
    assert book.blocks(event(3)) is not None, "one was parked since that pass began: it would be overtaken"
    book.release(aggregate, later)
    assert book.blocks(event(3)) is None


def test_draining_keeps_new_events_in_memory_and_a_refusal_parks_them() -> None:
    book = ledger()
    aggregate = event(1).aggregate
    book.block([aggregate])
    number, _ = book.begin_pass()
    book.drain({aggregate})
    two, three = book.admit([transaction(2, event(2)), transaction(3, event(3))])
    block = book.blocks(two.event)
    assert block is not None
    assert book.wait_or_park(two, block) is Stage.WAITING
    assert book.release(aggregate, number) == [two]
    book.block([aggregate])
    block = book.blocks(three.event)
    assert block is not None
    book.drain({aggregate})
    book.wait_or_park(three, block)
    (queued,) = book.queue([event(1)], lambda _: True)
    book.refuse(queued, REFUSED, retry_in=1)
    assert three.stage is Stage.PARKING


def test_a_queued_row_is_overtaken_by_a_refusal() -> None:
    book = ledger()
    first, second = book.queue([event(1), event(2)], lambda _: True)
    assert not book.overtaken(second)
    book.refuse(first, REFUSED, retry_in=1)
    assert book.overtaken(second)


def test_a_row_refused_before_lets_nobody_pass_until_acknowledged() -> None:
    book = ledger()
    (retry,) = book.queue([event(1, retry_count=1)], lambda _: True)
    book.hand([retry], now=0)
    assert not book.handed_over(retry.event.key)
    book.acknowledge([retry])
    assert book.handed_over(retry.event.key)


def test_slow_gives_what_is_still_out_and_not_marked() -> None:
    book = ledger()
    one, two = book.admit([transaction(1, event(1)), transaction(2, event(2))])
    book.hand([one, two], now=10.0)
    book.acknowledge([one])
    assert book.slow(handed_before=9.0) == []
    assert book.slow(handed_before=10.5) == [two]
    assert book.slow(handed_before=10.5) == [two], "it may not have been written"
    two.sending = True
    assert book.slow(handed_before=10.5) == []
    (three,) = book.admit([transaction(3, event(3))])
    book.hand([three], now=11.0)
    assert book.slow(handed_before=10.5) == []
    assert book.slow(handed_before=11.0) == [three]


def test_an_event_is_held_once() -> None:
    book = ledger()
    (queued,) = book.queue([event(1)], lambda _: True)
    assert book.admit([transaction(1, event(1))]) == []
    assert book.holds(queued.event.key)


def test_a_claim_rolled_back_leaves_nothing_behind() -> None:
    book = ledger()
    queued = book.queue([event(1)], lambda _: True)
    book.forget(queued)
    assert not book.holds(queued[0].event.key)
    assert book.held_by_poller == 0
    assert book.begin_pass()[1] == [event(1).aggregate], "it is blocked, and a pass may free it"


def test_a_row_that_waits_in_memory_is_parked_for_one_in_the_table() -> None:
    book = ledger()
    book.block([event(1).aggregate])
    book.drain({event(1).aggregate})
    (one,) = book.admit([transaction(1, event(1))])
    block = book.blocks(one.event)
    assert block is not None
    assert book.wait_or_park(one, block) is Stage.WAITING
    book.park_if_waiting(one.event.key)
    assert one.stage is Stage.PARKING


def test_the_position_alone_is_written_only_when_it_moves() -> None:
    book = ledger()
    assert book.position_worth_writing == "no", "a sweep is not over"
    book.reading = True
    assert book.position_worth_writing == "now", "the start point"
    settle(book, [])
    assert book.position_worth_writing == "no"
    (one,) = book.admit([transaction(1, event(1))])
    rotated = transaction(2)
    rotated.rotated = True
    book.admit([rotated])
    assert book.position_worth_writing == "no", "nothing moves behind an event that is out"
    book.hand([one], now=0)
    book.acknowledge([one])
    settle(book, book.take_outcomes(10))
    busy = transaction(3)
    busy.traffic = 1000
    book.admit([busy])
    assert book.position_worth_writing == "in time"


def test_what_comes_while_a_position_is_written_is_in_the_next_one() -> None:
    book = ledger()
    book.reading = True
    (one,) = book.admit([transaction(1, event(1))])
    book.hand([one], now=0)
    book.acknowledge([one])
    batch = book.take_outcomes(10)
    progress = book.propose(batch)
    meanwhile = transaction(2)
    meanwhile.traffic, meanwhile.rotated = 1000, True
    book.admit([meanwhile])
    book.settle(batch, progress)
    assert str(book.resumable) == f"{UUID}:1"
    assert book.position_worth_writing == "now"
    assert book.traffic == 1000
    assert str(settle(book, [])) == f"{UUID}:1-2"
    assert book.position_worth_writing == "no"
    assert book.traffic == 0


def test_without_ordering_nothing_is_blocked() -> None:
    book = InFlight(Position("binlog.000001", 4), ordered=False)
    (one,) = book.admit([transaction(1, event(1))])
    book.refuse(one, REFUSED, retry_in=10)
    assert book.blocks(event(2)) is None


def test_without_ordering_too_what_waits_in_memory_is_found_again() -> None:
    book = InFlight(Position(), ordered=False)
    (envelope,) = book.admit([transaction(1, event(1))])
    book.wait(envelope)
    number, quiet = book.begin_pass()
    assert quiet == [envelope.event.aggregate]
    assert book.release(envelope.event.aggregate, number) == [envelope]


def test_what_is_settled_behind_an_event_in_flight_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdc_outbox.relay.in_flight.COMPACT", 10)
    book = ledger()
    book._compact_at = 10
    (first,) = book.admit([transaction(1, event(1))])
    for number in range(2, 100):
        (one,) = book.admit([transaction(number, event(number))])
        book.hand([one], now=0)
        book.acknowledge([one])
        assert settle(book, book.take_outcomes(10)).offset == 4
        assert len(book._transactions) <= 10
    book.hand([first], now=0)
    book.acknowledge([first])
    position = settle(book, book.take_outcomes(10))
    assert str(position) == f"{UUID}:1-99"
    assert position.offset == 9900


def test_other_traffic_behind_an_event_in_flight_takes_no_room() -> None:
    book = ledger()
    (one,) = book.admit([transaction(1, event(1))])
    for number in range(2, 1000):
        book.admit([transaction(number)])
    assert len(book._transactions) == 2
    book.hand([one], now=0)
    book.acknowledge([one])
    position = settle(book, book.take_outcomes(10))
    assert (position.offset, str(position)) == (99900, f"{UUID}:1-999")


STEPS = st.lists(st.integers(min_value=0, max_value=10_000), min_size=1, max_size=120)


@given(sizes=st.lists(st.integers(min_value=0, max_value=4), min_size=1, max_size=20), steps=STEPS)
@settings(max_examples=200)
def test_position_never_passes_an_unsettled_event(sizes: list[int], steps: list[int]) -> None:
    """Whatever the order of acknowledgements and batches: everything before the position is settled, and in the end
    the position is the end of the stream."""
    book = ledger()
    ends: dict[int, int] = {}
    transactions = []
    number = 0
    for at, size in enumerate(sizes, start=1):
        events = []
        for _ in range(size):
            number += 1
            ends[number] = at * 100
            events.append(event(number, f"a{number % 3}"))
        transactions.append(transaction(at, *events))
    out = book.admit(transactions)
    book.hand(list(out), now=0)
    unsettled = {envelope.event.id for envelope in out}
    out = list(out)
    for step in steps:
        if out and step % 2:
            book.acknowledge([out.pop(step % len(out))])
        batch = book.take_outcomes(step % 4)
        progress = book.propose(batch)
        if step % 5 == 0:
            book.retract(batch)
            progress = book.propose(batch)
        book.settle(batch, progress)
        unsettled -= {envelope.event.id for envelope in batch}
        assert all(ends[id] > book.resumable.offset for id in unsettled)
    book.acknowledge(out)
    batch = book.take_outcomes(1000)
    book.settle(batch, book.propose(batch))
    assert book.resumable.offset == len(sizes) * 100
    assert book.idle()
