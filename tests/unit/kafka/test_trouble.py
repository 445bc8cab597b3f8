"""Trouble: the two signs, and what ends them."""

from __future__ import annotations

from cdc_outbox.kafka.trouble import STALL, Trouble


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_no_trouble_while_nothing_is_owed() -> None:
    clock = Clock()
    trouble = Trouble(0.0, clock)
    clock.now += 1000
    assert trouble.line() is None
    trouble.records_sent(1)
    trouble.records_settled(1)
    clock.now += 1000
    assert trouble.line() is None


def test_silence_is_counted_from_the_first_record_owed() -> None:
    clock = Clock()
    trouble = Trouble(0.0, clock)
    clock.now += 1000
    trouble.records_sent(1)
    clock.now += STALL - 0.1
    trouble.records_sent(1)
    assert trouble.line() is None
    clock.now += 0.2
    assert "none of 2 records" in str(trouble.line())


def test_each_acknowledgement_ends_the_silence() -> None:
    clock = Clock()
    trouble = Trouble(0.0, clock)
    trouble.records_sent(1)
    trouble.records_sent(1)
    clock.now += STALL - 0.1
    trouble.records_settled(1)
    clock.now += STALL - 0.1
    assert trouble.line() is None


def test_a_complaint_shows_at_once_and_explains_a_silence() -> None:
    clock = Clock()
    trouble = Trouble(0.0, clock)
    trouble.complaint = "broker 1 is away"
    assert trouble.line() == "broker 1 is away"
    trouble.records_sent(1)
    clock.now += 10
    assert trouble.line() == "Kafka has acknowledged none of 1 records for 10 s: broker 1 is away"
    trouble.complaint = None
    trouble.records_settled(1)
    assert trouble.line() is None


def test_what_is_fatal_stays() -> None:
    trouble = Trouble(0.0)
    trouble.fatal = "it is over"
    trouble.complaint = None
    assert trouble.line() == "it is over"


def test_lingering_is_no_silence() -> None:
    clock = Clock()
    trouble = Trouble(10.0, clock)
    trouble.records_sent(1)
    clock.now += STALL + 9
    assert trouble.line() is None
    clock.now += 2
    assert trouble.line() is not None
