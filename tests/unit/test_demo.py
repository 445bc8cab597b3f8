"""The demo's board and screens: what they know of an event, and how they say it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from cdc_outbox.testing.demo import relay, supervised
from cdc_outbox.testing.demo.board import Board
from cdc_outbox.testing.demo.orders import Written
from cdc_outbox.testing.demo.screen import PlainScreen, Scene, TerminalScreen, summary

FIRST = Written("e-1", "A-1", "OrderPlaced", at=100.0)
SECOND = Written("e-2", "A-1", "OrderPaid", at=101.0)
SCENE = Scene(mysql="127.0.0.1:3306", kafka="127.0.0.1:9092", relay="pid 7 (start 1)", advice=[("kill -9 7", "ouch")])


@pytest.fixture
def board() -> Board:
    board = Board()
    board.add(FIRST)
    board.add(SECOND)
    return board


def test_an_event_is_seen_from_three_sides(board: Board) -> None:
    board.see("e-1", "order", 2, at=100.25)
    board.set_states([("e-1", 2, False), ("e-2", 1, False)])
    first, second = board.latest(10)
    assert (first.topic, first.partition, first.latency, first.state) == ("order", 2, 0.25, "sent")
    assert (second.copies, second.state) == (0, "sending")
    assert board.unsettled() == ["e-2"]
    assert board.totals().missing == 1


def test_an_event_may_reach_kafka_before_its_commit_returns() -> None:
    board = Board()
    board.see("e-1", "order", 0, at=100.125)
    assert board.totals().written == 0
    board.add(FIRST)
    assert board.latest(1)[0].latency == 0.125


def test_a_duplicate_is_counted_and_keeps_the_first_latency(board: Board) -> None:
    board.see("e-1", "order", 0, at=100.5)
    board.see("e-1", "order", 0, at=160.0)
    totals = board.totals()
    assert (totals.in_kafka, totals.duplicates, totals.latencies) == (1, 1, [0.5])


def test_a_dead_event_is_settled(board: Board) -> None:
    board.set_states([("e-1", 3, True), ("e-2", 3, False)])
    assert [line.state for line in board.latest(2)] == ["dead", "failed"]
    assert board.unsettled() == ["e-2"]


def test_the_plain_screen_says_each_event_once(board: Board) -> None:
    out = io.StringIO()
    with PlainScreen(Console(file=out, width=200), board) as screen:
        screen.show(SCENE)
        board.see("e-1", "order", 2, at=100.25)
        screen.show(SCENE)
        board.set_states([("e-1", 2, False)])
        screen.show(SCENE)
        screen.show(SCENE)
    assert out.getvalue().splitlines() == [
        "relay pid 7 (start 1)",
        "OrderPlaced   order A-1  row 2 sent  order[2]  250.0 ms",
    ]


def test_the_terminal_shows_row_topic_partition_latency_and_what_to_try(board: Board) -> None:
    board.see("e-1", "shop.order", 2, at=100.25)
    board.set_states([("e-1", 2, False)])
    out = io.StringIO()
    with TerminalScreen(Console(file=out, width=120, height=40, force_terminal=True), board) as screen:
        screen.show(SCENE)
    for word in ("2 sent", "0 pending", "shop.order", "250.0 ms", "kill -9 7", "pid 7"):
        assert word in out.getvalue()


def test_the_summary_says_what_is_missing(board: Board) -> None:
    board.see("e-1", "order", 0, at=100.5)
    assert summary(board.totals()).startswith("2 events written, 1 read from Kafka, 1 not yet, 0 seen twice")


def test_a_relay_that_never_runs_for_long_is_given_up_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "command", lambda: ["bash", "-c", "echo it is broken; exit 1", "cdc-outbox"])
    monkeypatch.setattr(supervised, "RESTART_AFTER", 0.0)
    broken = relay.DemoRelay(tmp_path / "demo.yaml", "127.0.0.1:1")
    broken.start()
    with pytest.raises(supervised.Broken, match="it is broken"):
        while True:
            broken.keep_running()
    assert broken.starts == supervised.SHORT_LIVES
    assert not broken.ready()
