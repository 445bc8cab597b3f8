"""Snowflake ids without a server: their bits, clocks that go back, spans that end, forks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from cdc_outbox import SnowflakeIds, WorkerLease
from cdc_outbox.app import ids_worker
from cdc_outbox.app.ids_worker import Span
from cdc_outbox.errors import NoWorkerId
from tests.unit.app.test_ids import Clock

START = 1_769_860_800_123
EPOCH_MS = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)


def parts(number: int) -> tuple[int, int, int]:
    """(ms since 1970, worker, sequence)"""
    return (number >> 22) + EPOCH_MS, number >> 12 & 1023, number & 4095


@dataclass
class StubLease:
    """Gives what the test has prepared, or what it was asked to keep."""

    spans: list[Span | Exception] = field(default_factory=list)
    asked: list[tuple[Span | None, int]] = field(default_factory=list)

    def extend(self, span: Span | None, moment: int) -> Span:
        self.asked.append((span, moment))
        given = self.spans.pop(0)
        if isinstance(given, Exception):
            raise given
        return given


def span(worker: int, floor: int, ceiling: int, owner: str = "me") -> Span:
    return Span(worker, owner, floor, ceiling, renew_at=float("inf"), over_at=float("inf"))


def leased(clock: Clock, *spans: Span | Exception) -> tuple[SnowflakeIds, StubLease]:
    lease = StubLease(list(spans))
    return SnowflakeIds(lease, clock=clock), lease  # type: ignore[arg-type]


def test_the_bits() -> None:
    clock = Clock(START)
    ids = SnowflakeIds(1023, clock=clock)
    assert [parts(ids.next()) for _ in range(2)] == [(START, 1023, 0), (START, 1023, 1)]
    clock.milliseconds += 1
    assert parts(int(ids())) == (START + 1, 1023, 0)


def test_the_epoch_may_be_another() -> None:
    ids = SnowflakeIds(1, epoch=datetime(2026, 1, 1, tzinfo=UTC), clock=Clock(START))
    assert ids.next() >> 22 == START - int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    with pytest.raises(ValueError, match="no time zone"):
        SnowflakeIds(1, epoch=datetime(2026, 1, 1))


@pytest.mark.parametrize("worker", [-1, 1024])
def test_a_worker_has_ten_bits(worker: int) -> None:
    with pytest.raises(ValueError, match="from 0 to 1023"):
        SnowflakeIds(worker)


@pytest.mark.parametrize("year", [2023, 2094])
def test_a_clock_that_41_bits_cannot_hold(year: int) -> None:
    ids = SnowflakeIds(1, clock=Clock(int(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1000)))
    with pytest.raises(NoWorkerId, match="Snowflake epoch"):
        ids.next()


def test_ids_rise_when_the_clock_goes_back() -> None:
    clock = Clock(START)
    ids = SnowflakeIds(5, clock=clock)
    made = []
    for step in (0, 1, -3_600_000, 0, 3_000_000, 600_000, 10):
        clock.milliseconds += step
        made += [ids.next() for _ in range(6000)]
    assert all(one < other for one, other in pairwise(made))
    assert parts(made[-1])[0] == clock.milliseconds + 1  # it has caught up


def test_a_full_sequence_goes_on_in_the_next_millisecond() -> None:
    ids = SnowflakeIds(5, clock=Clock(START))
    made = [parts(ids.next()) for _ in range(4098)]
    assert made[4095:] == [(START, 5, 4095), (START + 1, 5, 0), (START + 1, 5, 1)]


# -- with a lease -------------------------------------------------------------------------------------------------


def test_a_span_is_had_before_the_first_id() -> None:
    ids, lease = leased(Clock(START), span(7, 0, START + 1000))
    assert lease.asked == []
    assert parts(ids.next()) == (START, 7, 0)
    assert lease.asked == [(None, START)]


def test_ids_begin_behind_what_the_last_holder_may_have_given() -> None:
    """Its clock was ahead of ours by an hour."""
    floor = START + 3_600_000
    ids, _ = leased(Clock(START), span(7, floor, floor + 1000))
    assert [parts(ids.next()) for _ in range(2)] == [(floor + 1, 7, 0), (floor + 1, 7, 1)]


def test_no_id_has_a_time_past_its_span() -> None:
    clock = Clock(START)
    ids, lease = leased(
        clock, span(7, 0, START + 10), span(7, 0, START + 20), NoWorkerId("away"), span(7, 0, START + 40)
    )
    ids.next()
    clock.milliseconds = START + 11
    assert parts(ids.next())[0] == START + 11
    clock.milliseconds = START + 21
    with pytest.raises(NoWorkerId):
        ids.next()
    assert parts(ids.next()) == (START + 21, 7, 0)
    assert [moment for _, moment in lease.asked] == [START, START + 11, START + 21, START + 21]
    assert lease.asked[-1][0] is not None  # it asks to keep the one that it has


def test_a_sequence_that_runs_ahead_stays_in_its_span_too() -> None:
    ids, lease = leased(Clock(START), span(7, 0, START + 1), span(8, 0, START + 9, owner="me again"))
    made = [ids.next() for _ in range(2 * 4096 + 1)]
    assert all(one < other for one, other in pairwise(made))
    assert parts(made[-1]) == (START + 2, 8, 4095)
    assert len(lease.asked) == 2


def test_ids_rise_when_the_worker_is_another_one_now() -> None:
    """The lease was lost, and the new worker's number is lower."""
    clock = Clock(START)
    ids, _ = leased(clock, span(9, 0, START + 5), span(3, 0, START + 90, owner="other"))
    first = [ids.next() for _ in range(3)]
    clock.milliseconds = START - 50
    lease_over = ids._span
    assert lease_over is not None
    lease_over.renew_at = 0
    second = [ids.next() for _ in range(3)]
    assert first + second == sorted({*first, *second})
    assert parts(second[0])[1] == 3


@pytest.mark.parametrize("lease", [True, False], ids=["lease", "number"])
def test_a_forked_process_never_goes_on_with_its_parents_worker(lease: bool) -> None:
    clock = Clock(START)
    ids, _ = leased(clock, span(1, 0, START + 9), span(2, 0, START + 9, owner="child"))
    ids = ids if lease else SnowflakeIds(1, clock=clock)
    ids.next()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = str(parts(ids.next())[1])
        except NoWorkerId as error:
            answer = str(error)
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    answer = os.read(read, 1000).decode()
    os.close(read)
    os.waitpid(child, 0)
    assert answer == "2" if lease else "was forked from one that makes ids as worker 1" in answer
    assert parts(ids.next())[1] == 1


# -- the lease without its database -------------------------------------------------------------------------------


class Away(Exception):
    """What a driver raises."""


def no_connection() -> Any:
    raise Away(2003, "Can't connect")


def test_while_the_lease_lasts_a_database_that_is_away_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(ids_worker, "_clock", lambda: now)
    lease = WorkerLease(no_connection, seconds=60)
    held = Span(3, "me", 0, START + 60_000, renew_at=100.0, over_at=139.0)
    assert not held.covers(START)
    assert lease.extend(held, START) is held
    assert held.covers(START)
    now = 100.9
    assert held.covers(START)
    now = 101.0
    assert not held.covers(START)
    with pytest.raises(NoWorkerId, match="Can't connect"):
        lease.extend(held, START + 60_001)
    now = 139.0
    with pytest.raises(NoWorkerId, match="cdc_outbox_worker"):
        lease.extend(held, START)


def test_a_first_lease_needs_the_database() -> None:
    with pytest.raises(NoWorkerId, match="Can't connect"):
        SnowflakeIds(WorkerLease(no_connection)).next()
    with pytest.raises(ValueError, match="3 s at least"):
        WorkerLease(no_connection, seconds=2)
