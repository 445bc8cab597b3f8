"""What follows a failed attempt, without a clock or a server."""

from __future__ import annotations

import pytest

from cdc_outbox import IdempotentConsumer
from cdc_outbox.app.consumer_retry import Failure, Outcome, RetryPolicy

ERROR = ValueError("no stock")


def failure(attempts: int) -> Failure:
    return Failure("e1", ERROR, attempts)


def test_only_what_is_done_with_is_acknowledged() -> None:
    assert {one for one in Outcome if one.acknowledged} == {Outcome.DONE, Outcome.DUPLICATE, Outcome.DEAD}


def test_without_limits_it_is_tried_for_ever_and_nobody_counts() -> None:
    policy = RetryPolicy(waits=(1.0, 5.0))
    assert not policy.counts
    assert [policy.after(failure(n)) for n in (0, 1, 2, 3, 1000)] == [1.0, 1.0, 5.0, 5.0, 5.0]
    assert not policy.used_up(1000)


def test_the_last_attempt_is_followed_by_the_dead_letter() -> None:
    policy = RetryPolicy(max_attempts=3, waits=(1.0,))
    assert policy.counts
    assert [policy.after(failure(n)) for n in (1, 2, 3, 4)] == [1.0, 1.0, None, None]
    assert [policy.used_up(n) for n in (3, 4)] == [False, True]


def test_the_hook_decides_but_not_beyond_the_limit() -> None:
    policy = RetryPolicy(max_attempts=3, hook=lambda one: None if one.attempts == 1 else 7.0)
    assert [policy.after(failure(n)) for n in (1, 2, 3)] == [None, 7.0, None]
    assert RetryPolicy(hook=lambda _: 0.0).counts


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"group": ""}, "group"),
        ({"group": "g" * 129}, "group"),
        ({"mode": "both"}, "mode"),
        ({"lease": 0}, "lease"),
        ({"max_attempts": 0, "dead_letter": print}, "max_attempts"),
        ({"max_attempts": 3}, "dead_letter"),
        ({"retry": print}, "dead_letter"),
        ({"retry_waits": []}, "retry_waits"),
        ({"retry_waits": [1, -1]}, "retry_waits"),
        ({"keep_progress": True, "mode": "record_first"}, "keep_progress"),
    ],
)
def test_what_cannot_work_is_refused_by_name(options: dict[str, object], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        IdempotentConsumer(**{"group": "g", "connect": print, **options})  # type: ignore[arg-type]


def test_a_connection_is_no_way_to_connect() -> None:
    with pytest.raises(TypeError, match="connect must be a function"):
        IdempotentConsumer("g", object())
