"""The retry policy and the budget."""

from __future__ import annotations

import threading

import pytest

from cdc_outbox.errors import Stopped
from cdc_outbox.relay.budget import Budget
from cdc_outbox.relay.retry import RetryPolicy

WAITS = (10.0, 60.0, 600.0, 3600.0)


def middle() -> float:
    return 0.5


@pytest.mark.parametrize(("retry_count", "expected"), [(0, 10), (1, 60), (2, 600), (3, 3600), (4, 3600), (9, 3600)])
def test_waits_follow_the_list_and_its_last_value_repeats(retry_count: int, expected: int) -> None:
    assert RetryPolicy(WAITS).wait(retry_count, 20, middle) == expected


def test_the_row_says_how_many_retries() -> None:
    policy = RetryPolicy(WAITS)
    assert policy.wait(2, 3, middle) == 600
    assert policy.wait(3, 3, middle) is None, "first attempt and 3 retries are used up"
    assert policy.wait(0, 0, middle) is None


def test_jitter_stays_within_its_share() -> None:
    policy = RetryPolicy(WAITS, jitter=0.1)
    assert policy.wait(1, 3, lambda: 0.0) == 54
    assert policy.wait(1, 3, lambda: 0.999999) == 66


def test_budget_lets_one_large_event_travel_alone() -> None:
    budget = Budget(10, 100)
    budget.take(1, 5000)
    assert budget.free() == (9, 0)
    budget.give_back(1, 5000)
    assert budget.free() == (10, 100)


def test_budget_waits_for_room_and_a_close_ends_the_wait() -> None:
    budget = Budget(1, 100)
    budget.take(1, 10)
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(Stopped):
            budget.take(1, 10)
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    budget.close()
    assert ended.wait(10)
    thread.join(10)
