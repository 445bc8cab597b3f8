"""What `status` says and how little it reads for it, on a real MySQL."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from typing import Any

import pytest

from cdc_outbox.config import Settings, load_settings
from cdc_outbox.model import State
from cdc_outbox.mysql import event_rows
from cdc_outbox.mysql.session import Session
from cdc_outbox.ops import status
from cdc_outbox.ops.scrape import ask_leader
from tests.harness.crowd import fill, rows_read
from tests.harness.process import COMMAND, environment
from tests.harness.world import World, wait_until

STATES = ("pending", "parked", "sending", "sent", "failed", "dead")


def test_every_state_is_counted(world: World, session: Session, settings: Settings) -> None:
    with world.sql() as cursor:
        for number, state in enumerate(STATES, start=1):
            fill(cursor, number, state)
    world.execute("UPDATE outbox_event SET created_at = NOW() - INTERVAL 90 SECOND WHERE status = 1 LIMIT 1")
    found = status.status_of(session, settings, full=False)
    assert found["counts"] == {state: number for number, state in enumerate(STATES, start=1)}
    assert found["lag"]["events"] == 1 + 3
    assert 89 <= found["lag"]["seconds"] <= 95, "what is at 1 is not settled"
    assert found["blocked_aggregates"] == 5
    assert found["state"] == "stopped"


def test_counting_stops_and_says_so(
    world: World, session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "SENT_LIMIT", 20)
    monkeypatch.setattr(status, "COUNT_LIMIT", 30)
    monkeypatch.setattr(status, "BLOCKED_LIMIT", 10)
    with world.sql() as cursor:
        for state in ("sent", "failed", "pending"):
            fill(cursor, 40, state)
    found = status.status_of(session, settings, full=False)
    assert found["counts"]["sent"] == 20
    assert found["counts"]["sent_is_lower_bound"] is True
    assert found["counts"]["lower_bounds"] == ["failed", "pending"]
    assert (found["blocked_aggregates"], found["blocked_aggregates_is_lower_bound"]) == (10, True)
    whole = status.status_of(session, settings, full=True)
    assert whole["counts"] == {**dict.fromkeys(STATES, 0), "sent": 40, "failed": 40, "pending": 40}
    assert whole["blocked_aggregates"] == 40
    assert "blocked_aggregates_is_lower_bound" not in whole


def test_it_reads_no_more_than_its_limits(
    world: World,
    session: Session,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """By the server's own counters: what is counted is read in the index and once more as counted, and little else.
    Rows that block are read themselves: entry, place (MRR, in a large table), row, and twice as looked at."""
    count = 1_000_000 if request.config.getoption("--long") else 100_000
    with world.sql() as cursor:
        fill(cursor, count, "sent")
        for state in ("failed", "parked", "dead"):
            fill(cursor, 3000, state)
        cursor.execute("ANALYZE TABLE outbox_event")
    monkeypatch.setattr(status, "SENT_LIMIT", 1000)
    read = rows_read(session.query, lambda: status.status_of(session, settings, full=False))
    looked_at = status.BLOCKED_LIMIT
    assert looked_at > 3000
    assert read < 2 * (1000 + 3 * 3000) + 5 * 2 * 3000 + 1000


def test_counts_need_the_index_alone(
    world: World, session: Session, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with world.sql() as cursor:
        for state in STATES:
            fill(cursor, 300, state)
        cursor.execute("ANALYZE TABLE outbox_event")
    asked: list[str] = []
    ask = session.row
    monkeypatch.setattr(session, "row", lambda sql, args=(): asked.append(sql) or ask(sql, args))
    for state in State:
        event_rows.count(session, settings.table_names[0], state, 100)
        event_rows.count(session, settings.table_names[0], state, None)
    for sql in asked:
        plan: list[tuple[Any, ...]] = world.execute(f"EXPLAIN FORMAT=TRADITIONAL {sql}")
        on_table = [line for line in plan if line[2] == "outbox_event"]
        assert [line[6] for line in on_table] == ["idx_status_next_retry"], sql
        assert "Using index" in on_table[0][-1], sql


def test_the_leader_itself_is_asked_where_it_can_be(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = world.config(http={"listen": f"127.0.0.1:{port}"})
    settings = load_settings(config, {})
    assert ask_leader(settings) is None
    world.start(config, environ={"CDC_OUTBOX_PURE": "1"})
    live = wait_until(lambda: ask_leader(settings), "the leader's own figures")
    assert live is not None
    assert (live.in_flight, live.blocked_aggregates, live.holds) == (0, 0, [])
    wait_until(lambda: status.read_status(settings, full=False)["state"] == "leader", "its word in the checkpoint")
    found = status.read_status(settings, full=False)
    assert (found["holds"], found["in_flight"], live.decoder) == ([], 0, "pure")
    other = settings.model_copy(update={"name": "another-relay"})
    assert ask_leader(other) is None


def test_watch_looks_again_until_it_is_interrupted(world: World) -> None:
    with subprocess.Popen(
        [*COMMAND, "--config", str(world.config()), "status", "--watch", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        first = json.loads(watching.stdout.readline())
        world.insert("a1")
        second = json.loads(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        assert watching.wait(30) == 0
        assert watching.stderr.read() == ""
    assert (first["counts"]["pending"], second["counts"]["pending"]) == (0, 1)
