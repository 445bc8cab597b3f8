"""Whose fault an unlisted error is."""

from __future__ import annotations

from cdc_outbox.model import TableName
from cdc_outbox.relay.suspects import TRIES, Suspects

KEY = (TableName("shop", "outbox_event"), 1, "e1")
OTHER = (TableName("shop", "outbox_event"), 2, "e2")
HERE, THERE = ("orders", 0), ("orders", 1)


def accused_alone(suspects: Suspects, times: int) -> list[bool]:
    return [suspects.accuse(KEY, HERE, alone=True) for _ in range(times)]


def test_alone_so_many_times_while_others_succeed() -> None:
    suspects = Suspects()
    assert not suspects.accuse(KEY, HERE, alone=False)
    suspects.acknowledged(OTHER, HERE)
    assert accused_alone(suspects, TRIES) == [False] * (TRIES - 1) + [True]
    assert KEY not in suspects


def test_success_elsewhere_proves_nothing() -> None:
    suspects = Suspects()
    suspects.accuse(KEY, HERE, alone=False)
    suspects.acknowledged(OTHER, THERE)
    assert not any(accused_alone(suspects, 2 * TRIES))


def test_one_success_clears() -> None:
    suspects = Suspects()
    suspects.accuse(KEY, HERE, alone=False)
    suspects.acknowledged(KEY, HERE)
    assert not suspects
