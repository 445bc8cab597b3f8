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


KEPT = {
    "a-row-before-its-gtid": Plan(
        5067,
        [
            ("commit_still_owned", 634124028),
            ("commit_still_owned", 1282927603),
            ("the_next_commit_fails", 4188520680),
            ("all_run", 3024902892),
            ("commit_still_owned", 738920853),
            ("all_work", 68047236),
            ("all_run", 2033274512),
            ("threads_run", 1105454377),
            ("mysql_restarts", 2321692456),
            ("all_run", 4019267064),
            ("threads_run", 1893917648),
        ],
        {"gtids": True},
    ),
    "a-replica-without-the-outcomes": Plan(
        5230,
        [
            ("all_work", 547906426),
            ("commit", 3786918850),
            ("mysql_fails_over", 1473945581),
            ("all_run", 1787716988),
            ("mysql_fails_over", 2681578964),
            ("all_work", 2295706614),
            ("all_work", 1289941273),
        ],
        {"position_in_file": True, "gtids": True, "ordering": "aggregate", "max_in_flight": 40, "max_rate": None},
    ),
}
"""Short histories under which a broken rule shows that it is broken, found by chance; mutants are tried with them."""


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


def test_the_promises_hold_with_a_replica_that_is_behind() -> None:
    """It is read in the server's place, and gets on as it likes."""
    steps = sum(check(Plan.made_of(seed, 30, source=True)) for seed in range(50))
    assert steps > 10_000


@pytest.mark.parametrize("plan", [pytest.param(plan, id=name) for name, plan in KEPT.items()])
def test_a_history_that_was_kept(plan: Plan) -> None:
    History(plan).run()


def test_the_promises_hold_where_rows_are_deleted_at_once() -> None:
    """But for P5: with `rows: transient`."""
    steps = sum(check(Plan.made_of(seed, 30, transient=True)) for seed in range(60))
    assert steps > 3_000


@pytest.mark.long
def test_the_promises_hold_whatever_happens_for_long() -> None:
    """Other histories each time."""
    first = time.time_ns() % 1_000_000_000
    until, steps, seed = time.monotonic() + SECONDS, 0, first
    while time.monotonic() < until:
        steps += check(Plan.made_of(seed, 80, source=seed % 4 == 0, transient=seed % 4 == 1))
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
