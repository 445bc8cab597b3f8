"""The simulated table against a real MySQL: the same random operations on both give the same answers and the same rows.

What the property test concludes is worth what this says: table.py is a second account of queries.sql.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pymysql
import pytest

from cdc_outbox.config import load_settings
from cdc_outbox.errors import Fenced
from cdc_outbox.model import Position, TableName
from cdc_outbox.mysql.checkpoint import RESET, Checkpoint, Fence, raise_epoch, read_checkpoint, set_paused, set_position
from cdc_outbox.mysql.outbox_table import OutboxTable
from cdc_outbox.mysql.session import LOCK_WAIT_TIMEOUT, Session, error_code
from tests.harness.world import World
from tests.property.database import KIND, Database, Row
from tests.property.scheduler import Scheduler
from tests.property.table import MemoryTable

ROWS = 12
OPERATIONS = 150
UNORDERED = ("failed_aggregates", "blocked_aggregates", "open_before")


class Both:
    """One table twice. Each statement runs on both, at the same frozen time."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.settings = load_settings(world.config(name="orders"), {})
        self.real = Session(self.settings.mysql, lifetime=60)
        name = TableName(world.database, "outbox_event")
        self.real_table = OutboxTable(name)
        self.scheduler = Scheduler()
        self.database = Database(self.scheduler, gtids=True)
        self.simulated = self.database.connect(None, 1e9)
        self.simulated_table = MemoryTable(name)
        self.name = name

    def advance(self, seconds: float) -> None:
        self.scheduler.now += seconds
        self.real.execute(f"SET SESSION timestamp = {self.scheduler.now}")

    def insert(self, rows: list[Row], connection: Any = None) -> None:
        """Into both; through `connection` into the real one, which need not commit."""
        values = ", ".join(
            f"({r.id}, '{r.event_id}', '{KIND}', '{r.aggregate_id}', 'x', '{{}}', {r.status}, {r.retry_count},"
            f" {r.max_retries}, {_time(r.next_retry_at)}, {_time(self.database.now)})"
            for r in rows
        )
        sql = (
            "INSERT INTO outbox_event (id, event_id, aggregate_type, aggregate_id, event_type, payload, status,"
            f" retry_count, max_retries, next_retry_at, updated_at) VALUES {values}"
        )
        if connection is None:
            self.real.execute(sql)
        else:
            connection.cursor().execute(sql)
        self.database.insert(rows, visible=connection is None)

    def call(self, method: str, *args: object) -> None:
        """The same statement, in a transaction of its own, on both; the answers must be the same."""
        found = []
        for session, table in ((self.real, self.real_table), (self.simulated, self.simulated_table)):
            try:
                with session.transaction():
                    answer = _ask(table, session, method, args)
                    found.append(_plain(sorted(answer) if method in UNORDERED else answer))
            except pymysql.err.OperationalError as error:
                found.append(error_code(error))
        assert found[0] == found[1], f"{method}{args}: the server says {found[0]}, the simulation {found[1]}"

    def compare(self) -> None:
        found = self.real.query(
            "SELECT id, event_id, aggregate_id, status, retry_count, max_retries,"
            " CAST(UNIX_TIMESTAMP(next_retry_at) AS SIGNED), CAST(UNIX_TIMESTAMP(updated_at) AS SIGNED)"
            " FROM outbox_event ORDER BY id"
        )
        assert [Row(*one) for one in found] == sorted(self.database.rows.values(), key=lambda row: row.id)


def _ask(table: Any, session: Any, method: str, args: tuple[Any, ...]) -> Any:
    if method == "due":
        limit, above, without, ordered, held = args
        return table.due(session, limit, above, without, ordered=ordered, held=held, waits=(1.0, 3.0))
    return getattr(table, method)(session, *args)


def _time(seconds: int | None) -> str:
    return "NULL" if seconds is None else f"FROM_UNIXTIME({seconds})"


def _plain(answer: Any) -> Any:
    """Without what is told apart by identity, by clock or by order only."""
    if isinstance(answer, dict):
        return {key: _plain(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [_plain(one) for one in answer]
    if hasattr(answer, "event"):  # a Candidate
        return _plain(answer.event), answer.payload_size
    if hasattr(answer, "aggregate_id"):
        return answer.key, answer.status, answer.retry_count, answer.max_retries, answer.parked, answer.payload
    if isinstance(answer, tuple) and len(answer) == 3 and not isinstance(answer[0], bool | int):
        return answer[:2]  # a row at 1 with its updated_at: a datetime there, seconds here
    return answer


@pytest.fixture
def both(world: World) -> Iterator[Both]:
    found = Both(world)
    found.advance(0.4)
    yield found
    found.real.close()


@pytest.mark.parametrize("seed", range(3))
def test_the_same_operations_do_the_same(both: Both, seed: int) -> None:
    chance = random.Random(seed)
    both.insert([Row(id, f"e{id}", chance.choice(("a", "A", "b"))) for id in range(1, ROWS + 1)])
    for _ in range(OPERATIONS):
        both.advance(chance.choice((0.0, 0.3, 1.0, 2.5)))
        _operate(both, chance)
        both.compare()


def _operate(both: Both, chance: random.Random) -> None:
    ids = sorted(chance.sample(range(1, ROWS + 3), chance.randint(1, 5)))
    names = [(id, f"e{id}" if chance.random() < 0.95 else "another") for id in ids]
    aggregates = [(both.name, KIND, one) for one in chance.sample(("a", "A", "b"), chance.randint(0, 2))]
    number = chance.randint(0, ROWS + 1)
    operations: list[tuple[object, ...]] = [
        *((change, names) for change in ("mark_sent", "mark_sending", "park", "put_back", "claim_due")),
        ("mark_failed", names, chance.randint(0, 4), "too large"),
        ("mark_dead", names, "too large"),
        ("release_abandoned", names, chance.randint(0, 4)),
        ("release_sending",),
        *((read, ids) for read in ("statuses", "fetch", "pending_rows")),
        ("statuses", ids, "FOR UPDATE SKIP LOCKED"),
        ("all_pending", names),
        ("due", chance.randint(1, 5), number, aggregates, chance.random() < 0.5, chance.choice(((), (KIND,)))),
        ("open_before", number, aggregates),
        ("stuck", aggregates),
        ("sending", 1, 3),
        ("pending_page", number // 2, number, 3),
        ("due_or_stuck", "orders"),
        *((read,) for read in ("failed_aggregates", "blocked_aggregates", "highest_id", "waiting")),
    ]
    method, *args = chance.choice(operations)
    both.call(str(method), *args)
    if chance.random() < 0.1:
        _revive(both, chance)


def _sides(both: Both) -> list[tuple[Any, Any]]:
    return [(both.real, both.real_table), (both.simulated, both.simulated_table)]


def _revive(both: Both, chance: random.Random) -> None:
    """Nothing leads back from sent and dead: a row is put back by hand, on both."""
    row = chance.choice(list(both.database.rows.values()))
    both.real.execute(
        f"UPDATE outbox_event SET status = 0, retry_count = 0, next_retry_at = NULL,"
        f" updated_at = {_time(both.database.now)} WHERE id = {row.id}"
    )
    both.database.rows[row.id] = replace(row, status=0, retry_count=0, next_retry_at=None, updated_at=both.database.now)


def test_rows_that_others_have_locked(both: Both) -> None:
    """SKIP LOCKED passes them over; everything else that locks waits and gets 1205."""
    both.insert([Row(id, f"e{id}", "a") for id in range(1, 4)])
    with both.world.connect(autocommit=False) as other, other.cursor() as cursor:
        cursor.execute("SELECT id FROM outbox_event WHERE id = 2 FOR UPDATE")
        both.database.locked.add(2)
        _judge_locks(both)


def test_rows_that_are_not_committed_yet(both: Both) -> None:
    """No read shows them; a read that locks waits for them."""
    both.insert([Row(id, f"e{id}", "a") for id in (1, 3)])
    with both.world.connect(autocommit=False) as other:
        both.insert([Row(2, "e2", "a")], connection=other)
        both.call("highest_id")
        both.call("all_pending", [(1, "e1"), (2, "e2")])
        _judge_locks(both)


def _judge_locks(both: Both) -> None:
    both.real.execute("SET SESSION innodb_lock_wait_timeout = 1")
    both.call("statuses", [1, 2, 3])
    both.call("statuses", [1, 2, 3], "FOR UPDATE SKIP LOCKED")
    both.call("pending_rows", [1, 2, 3])
    both.call("mark_sending", [(1, "e1"), (3, "e3")])
    both.compare()
    for method, args in (("mark_sent", [(2, "e2")]), ("wait_for_commits", None), ("release_sending", None)):
        both.call(method, *([args] if args else []))
    with pytest.raises(pymysql.err.OperationalError) as caught, both.simulated.transaction():
        both.simulated_table.statuses(both.simulated, [2], "LOCK IN SHARE MODE")
    assert error_code(caught.value) == LOCK_WAIT_TIMEOUT
    both.call("statuses", [2], "LOCK IN SHARE MODE")
    both.compare()


def test_the_checkpoint_row(both: Both) -> None:
    """Epochs, the fence and the position, by the relay's own statements on both."""
    found: list[list[object]] = []
    for session, _ in _sides(both):
        said: list[object] = []
        for owner in ("first", "second"):
            raise_epoch(session, "orders", owner)
        for fence in (Fence("orders", 1, "first"), Fence("orders", 2, "first"), Fence("orders", 2, "second")):
            for act in (fence.check, lambda one, f=fence: f.advance(one, Position("binlog.000009", 400))):
                try:
                    with session.transaction():
                        act(session)
                    said.append("written")
                except Fenced:
                    said.append("fenced")
            fence.report(session, f"state of {fence.owner}", "an error")
            said.append(_columns(read_checkpoint(session, "orders")))
        set_paused(session, "orders", True)
        set_position(session, both.settings, Position("binlog.000001", 4), state=RESET)
        raise_epoch(session, "orders", "third")
        said.append(_columns(read_checkpoint(session, "orders")))
        found.append(said)
    assert found[0] == found[1]
    assert found[0].count("fenced") == 4


def _columns(checkpoint: Checkpoint | None) -> Checkpoint:
    assert checkpoint is not None
    return replace(checkpoint, server_uuid="", updated_at=None)  # type: ignore[arg-type]
