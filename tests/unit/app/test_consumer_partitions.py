"""The ledger of a consumer loop: order, holds, rebalance, and what may be committed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdc_outbox.app.consumer_partitions import Partitions, Place, Received

ONE, TWO = Place("orders", 0), Place("orders", 1)


def records(place: Place, *offsets: int) -> list[Received]:
    return [Received(*place, offset, None, None, {}, None) for offset in offsets]


def taking(*places: Place) -> Partitions:
    partitions = Partitions()
    partitions.assign(places)
    return partitions


def ready(partitions: Partitions, now: float = 0.0) -> list[tuple[int, int]]:
    """Everything that is ready, each done at once: (partition, offset)."""
    found = []
    for record in partitions.ready(now):
        found.append((record.partition, record.offset))
        partitions.done(record)
    return found


def test_each_partition_in_order_and_none_is_starved() -> None:
    partitions = taking(ONE, TWO)
    partitions.add([*records(ONE, 1, 2, 3), *records(TWO, 7, 8)])
    assert ready(partitions) == [(0, 1), (1, 7), (0, 2), (1, 8), (0, 3)]
    assert partitions.owed() == {ONE: 4, TWO: 9}


def test_a_held_record_holds_its_partition_until_it_is_due() -> None:
    partitions = taking(ONE, TWO)
    partitions.add([*records(ONE, 1, 2), *records(TWO, 7)])
    first = next(partitions.ready(0.0))
    partitions.hold(first, until=3.0)
    partitions.hold(first, until=5.0, failed=True)
    assert ready(partitions, 4.9) == [(1, 7)]
    assert partitions.owed() == {TWO: 8}
    assert (partitions.failures(first), partitions.next_due()) == (1, 5.0)
    assert ready(partitions, 5.0) == [(0, 1), (0, 2)]
    assert partitions.owed() == {ONE: 3, TWO: 8}


def test_what_is_held_is_paused_and_resumed_when_nothing_waits() -> None:
    partitions = taking(ONE, TWO)
    partitions.add(records(ONE, 1))
    assert partitions.to_pause(0.0) == []
    partitions.hold(next(partitions.ready(0.0)), until=5.0)
    assert (partitions.to_pause(0.0), partitions.to_pause(0.0)) == ([ONE], [])
    assert partitions.to_resume() == []
    assert ready(partitions, 5.0) == [(0, 1)]
    assert (partitions.to_resume(), partitions.to_resume()) == ([ONE], [])


def test_nothing_of_a_revoked_partition_is_processed_or_committed() -> None:
    partitions = taking(ONE, TWO)
    partitions.add([*records(ONE, 1, 2), *records(TWO, 7)])
    found = partitions.ready(0.0)
    first = next(found)
    assert partitions.not_done([ONE, Place("other", 0)]) == {ONE: 1}
    partitions.revoke([ONE])
    assert not partitions.empty
    partitions.done(first)
    partitions.hold(first, 9.0)
    assert [record.partition for record in [next(found)]] == [1]
    partitions.add(records(ONE, 3))
    assert partitions.owed() == {}
    assert partitions.owed([ONE]) == {}


def test_a_partition_that_comes_back_begins_anew() -> None:
    partitions = taking(ONE)
    partitions.add(records(ONE, 1, 2))
    stale = next(partitions.ready(0.0))
    partitions.revoke([ONE])
    partitions.assign([ONE])
    partitions.add(records(ONE, 1))
    partitions.done(stale)  # from before: not the record that waits now
    assert partitions.owed() == {}
    assert ready(partitions) == [(0, 1)]


def test_a_partition_assigned_twice_keeps_what_waits() -> None:
    """A cooperative rebalance may name it again; nothing of it is fetched again."""
    partitions = taking(ONE)
    partitions.add(records(ONE, 1))
    partitions.assign([ONE, TWO])
    assert ready(partitions) == [(0, 1)]


def test_until_it_is_known_where_it_stands_nothing_is_processed() -> None:
    partitions = Partitions()
    partitions.assign([ONE, TWO], placed=False)
    partitions.add([*records(ONE, 1), *records(TWO, 7)])
    assert (ready(partitions), partitions.next_due()) == ([], None)
    assert partitions.to_pause(0.0) == partitions.unplaced() == [ONE, TWO]
    partitions.place(ONE, moved=False)
    partitions.place(TWO, moved=True)
    assert ready(partitions) == [(0, 1)]
    assert partitions.to_resume() == [ONE]  # to seek resumes


def test_what_was_committed_is_no_longer_owed_but_what_came_since_is() -> None:
    partitions = taking(ONE)
    partitions.add(records(ONE, 1))
    ready(partitions)
    owed = partitions.owed()
    partitions.add(records(ONE, 2))
    ready(partitions)
    partitions.committed(owed)
    assert partitions.owed() == {ONE: 3}
    partitions.committed({ONE: 3})
    assert partitions.owed() == {}


@given(st.lists(st.sampled_from(["done", "hold", "revoke", "assign", "commit", "add"]), max_size=60))
def test_an_offset_is_never_committed_before_everything_below_it_is_done(steps: list[str]) -> None:
    """One partition; what the ledger owes never passes the first record that is not done."""
    partitions, fetched, done, now = taking(ONE), 0, 0, 0.0
    for step in steps:
        now += 1.0
        if step == "add":
            partitions.add(records(ONE, fetched))
            fetched += 1
        elif step in {"done", "hold"}:
            record = next(partitions.ready(now), None)
            if record is not None and step == "done":
                assert record.offset == done
                partitions.done(record)
                done += 1
            elif record is not None:
                partitions.hold(record, now + 2)
        elif step == "revoke":
            partitions.revoke([ONE])
        elif step == "assign":
            partitions.revoke([ONE])
            partitions.assign([ONE])
            fetched = done
        else:
            partitions.committed(partitions.owed())
        assert partitions.owed().get(ONE, done) == done
