"""How many events may go out."""

from __future__ import annotations

from cdc_outbox.relay.brake import UNLIMITED, Brake


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_without_a_rate_only_a_pause_stops() -> None:
    brake = Brake(None)
    brake.spend(1_000_000)
    assert brake.room == UNLIMITED
    brake.paused = True
    assert brake.room == 0


def test_a_rate_is_kept_whatever_the_pauses_between() -> None:
    clock = Clock()
    brake = Brake(100.0, clock)
    gone = 0
    for step in range(1000):
        clock.now += 0.001 if step % 3 else 0.04
        gone += brake.room
        brake.spend(brake.room)
    assert gone <= 10 + 100 * clock.now


def test_a_quiet_time_saves_up_no_more_than_a_burst() -> None:
    clock = Clock()
    brake = Brake(100.0, clock)
    clock.now = 3600.0
    assert brake.room == 10


def test_what_was_spent_beyond_the_room_is_waited_for() -> None:
    clock = Clock()
    brake = Brake(100.0, clock)
    brake.spend(110)
    clock.now = 0.9
    assert brake.room == 0
    clock.now = 1.05
    assert brake.room == 5


def test_a_rate_below_one_a_second_lets_one_go_now_and_then() -> None:
    clock = Clock()
    brake = Brake(0.5, clock)
    assert brake.room == 1
    brake.spend(1)
    assert brake.room == 0
    clock.now = 2.0
    assert brake.room == 1
