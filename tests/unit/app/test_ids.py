"""UUIDv7 and business keys."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_outbox import NewEvent, Uuid7Ids, business_key
from cdc_outbox.errors import EventRefused

MS = 1_000_000


class Clock:
    """Nanoseconds, as the test says."""

    def __init__(self, milliseconds: int) -> None:
        self.milliseconds = milliseconds

    def __call__(self) -> int:
        return self.milliseconds * MS


def test_a_uuid7_is_one() -> None:
    clock = Clock(1_769_860_800_123)
    made = Uuid7Ids(clock).next()
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert made.int >> 80 == clock.milliseconds
    assert len(Uuid7Ids()()) == 36


def test_uuid7s_rise_whatever_the_clock_does() -> None:
    clock = Clock(1_769_860_800_123)
    ids = Uuid7Ids(clock)
    made = []
    for step in (0, 0, 1, 0, -5000, 0, 4000, 2000):
        clock.milliseconds += step
        made += [ids() for _ in range(100)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_a_counter_that_is_used_up_borrows_the_next_millisecond() -> None:
    ids = Uuid7Ids(Clock(1_769_860_800_123))
    ids.next()
    ids._counter = (1 << 42) - 2
    made = [ids.next() for _ in range(3)]
    assert made == sorted(made)
    assert [one.int >> 80 for one in made] == [1_769_860_800_123, 1_769_860_800_124, 1_769_860_800_124]


def test_threads_get_no_uuid7_twice() -> None:
    ids, made = Uuid7Ids(), []

    def work() -> None:
        mine = [ids() for _ in range(5000)]
        assert mine == sorted(mine)
        made.extend(mine)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == len(made) == 20_000


def test_a_forked_process_begins_anew() -> None:
    """With the lock held by another thread at the fork, it would wait for ever."""
    ids = Uuid7Ids()
    ids.next()
    ids._lock.acquire()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, ids().encode())
        os._exit(0)
    ids._lock.release()
    os.close(write)
    made = os.read(read, 100).decode()
    os.close(read)
    os.waitpid(child, 0)
    assert UUID(made).version == 7


# -- business keys ------------------------------------------------------------------------------------------------

AT = datetime(2026, 1, 31, 12, 0, 0, 123456, tzinfo=UTC)


def event(**changed: Any) -> NewEvent:
    told = {"aggregate_type": "order", "aggregate_id": "A-1001", "event_type": "OrderPaid", "occurred_at": AT}
    return NewEvent(**{**told, "payload": {}, **changed})


def test_a_business_key_is_what_it_was_and_stays_so() -> None:
    """It must never change: consumers know events by it."""
    assert business_key(event()) == "A-1001.OrderPaid.1769860800123456.2e7f8631d16e5835"


def test_the_same_event_has_the_same_key() -> None:
    elsewhere = AT.astimezone(timezone(timedelta(hours=8)))
    assert business_key(event(occurred_at=elsewhere, payload={"x": 1}, headers={"h": 1})) == business_key(event())
    assert business_key(event(aggregate_id=17)) == business_key(event(aggregate_id="17"))


@pytest.mark.parametrize(
    "other",
    [
        {"aggregate_id": "a-1001"},  # the same to a case-insensitive collation
        {"aggregate_type": "invoice"},
        {"aggregate_id": "A-1001.Order", "event_type": "Paid"},
        {"event_type": "orderpaid"},
        {"occurred_at": AT + timedelta(microseconds=1)},
    ],
)
def test_what_differs_has_another_key_to_any_collation(other: dict[str, Any]) -> None:
    assert business_key(event(**other)).casefold() != business_key(event()).casefold()


@settings(max_examples=40)
@given(st.text(min_size=1, max_size=64), st.text(min_size=1, max_size=128), st.datetimes(timezones=st.just(UTC)))
def test_a_business_key_always_fits(aggregate_id: str, event_type: str, at: datetime) -> None:
    key = business_key(event(aggregate_id=aggregate_id, event_type=event_type, occurred_at=at))
    assert len(key) <= 64
    assert key == business_key(event(aggregate_id=aggregate_id, event_type=event_type, occurred_at=at))


def test_long_texts_are_cut_and_kept_apart() -> None:
    one, other = (business_key(event(aggregate_id="i" * 63 + last, event_type="T" * 128)) for last in "ab")
    assert one != other
    assert one[:30] == other[:30]
    assert len(one) == 64


def test_a_business_key_needs_to_know_when() -> None:
    with pytest.raises(EventRefused, match="needs occurred_at"):
        business_key(event(occurred_at=None))
    with pytest.raises(EventRefused, match="no time zone"):
        business_key(event(occurred_at=AT.replace(tzinfo=None)))
