"""P1 to P8 for the real relay under anything that may happen, in any order.

After every act and every step of a thread the judge looks; at the end of a history everything is put right, and what
was committed must be sent or dead. A failure prints the shortest history found: `Plan(...)`, to be given to `History`.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.property.history import Broken, History, Plan, shortened, what_breaks

SECONDS = float(os.environ.get("PROPERTY_SECONDS", "300"))
"""How long the long form goes on."""


def check(plan: Plan) -> int:
    """Steps taken. Raises Broken with the shortest history that breaks the same or another promise."""
    try:
        return History(plan).run()
    except Broken as broken:
        if "TEST_MUTANT" in os.environ:
            raise  # the answer is wanted, not the shortest history
        short = shortened(plan)
        raise Broken(f"{what_breaks(short)}\n{short}\nfirst seen with seed {plan.seed}: {broken}") from None


@pytest.mark.parametrize("part", range(4))
def test_the_promises_hold_whatever_happens(part: int) -> None:
    """The short form: the same histories each time."""
    steps = sum(check(Plan.made_of(seed, 30)) for seed in range(part * 50, part * 50 + 50))
    assert steps > 10_000


@pytest.mark.long
def test_the_promises_hold_whatever_happens_for_long() -> None:
    """Other histories each time."""
    first = time.time_ns() % 1_000_000_000
    until, steps, seed = time.monotonic() + SECONDS, 0, first
    while time.monotonic() < until:
        steps += check(Plan.made_of(seed, 80))
        seed += 1
    print(f"{seed - first} histories from seed {first}, {steps} steps")
    assert steps > 10_000


def test_a_broken_history_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a breakage of the simulation's own: the binlog shows rows that nobody may read."""
    monkeypatch.setattr("tests.property.simulation._Reader.run", lambda reader: None)
    monkeypatch.setattr("tests.property.history.SETTLES_WITHIN", 5.0)
    monkeypatch.setattr("cdc_outbox.relay.poller.Poller._sweep", lambda poller: False)
    plan = Plan.made_of(1, 12)
    assert what_breaks(plan) is not None
    short = shortened(plan)
    assert len(short.acts) <= 3
    assert "P1" in str(what_breaks(short))
