"""Every command on a large table, by the server's own account: how many rows it reads, by which index. No clocks.

With --long a million sent rows, else 20,000. The commands come first, then the relay itself from its first start on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cdc_outbox.model import TableName
from cdc_outbox.mysql import schema
from tests.harness.crowd import fill
from tests.harness.process import run_command
from tests.harness.world import World, wait_until

if TYPE_CHECKING:
    from tests.conftest import MakeMySQL

OPEN = 2000
"""Rows of each state besides sent."""
YOUNG = 20_000
"""Sent rows behind the old ones."""
SCAN = 100_000
"""Rows of a state that a filter looks at."""
EACH = 60
"""Most that a relay reads for a row that it publishes, be it blocked, parked and looked at again in between."""
OURS = "/* the test's own */"


@dataclass(frozen=True)
class Case:
    """Words of a command, and the most rows that it may read.

    sent: and so many for each row that is sent; scan: and so many for each of the first SCAN of them.
    """

    words: tuple[str, ...]
    most: int
    sent: float = 0
    scan: float = 0


CASES = {
    "status": Case(("status",), 7 * OPEN, scan=1),
    "events list": Case(("events", "list"), 1000),
    "events list, sent": Case(("events", "list", "--state", "sent"), 300),
    "events list, dead": Case(("events", "list", "--state", "dead", "--limit", "500"), 1200),
    "events list, a filter that nothing meets": Case(
        ("events", "list", "--state", "sent", "--aggregate", "nobody"), 200, scan=3
    ),
    "events show, by event id": Case(("events", "show", "one"), 100),
    "events show, by id": Case(("events", "show", "--id", "5"), 100),
    "events retry, one": Case(("events", "retry", "one", "--yes"), 150),
    "events retry, all dead": Case(("events", "retry", "--state", "dead", "--yes"), 4 * OPEN),
    "events skip, all failed": Case(("events", "skip", "--state", "failed", "--yes"), 7 * OPEN),
    "events purge": Case(("events", "purge", "--state", "dead", "--yes"), 4 * OPEN),
    "archive, to look": Case(("archive", "--older-than", "1d", "--dry-run"), 500 + 6 * OPEN + YOUNG, sent=1),
    "archive": Case(("archive", "--older-than", "1d", "--pause", "0s"), 500 + 6 * OPEN + YOUNG, sent=4.1),
    "checkpoint show": Case(("checkpoint", "show"), 100),
    "checkpoint set": Case(("checkpoint", "set", "{position}", "--yes"), 100),
    "checkpoint reset": Case(("checkpoint", "reset", "--yes"), 100),
    "checkpoint reset, to the first": Case(("checkpoint", "reset", "--to", "earliest", "--yes"), 100),
    "pause": Case(("pause",), 100),
    "resume": Case(("resume",), 100),
    "emit": Case(("emit",), 100),
    "doctor": Case(("doctor",), 2000),
    "init": Case(("init",), 500),
    "init --upgrade": Case(("init", "--upgrade"), 500),
}


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> int:
    return 1_000_000 if request.config.getoption("--long") else 20_000


class Account:
    """What the server says that the statements of this world's database read, the test's own left out."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _read(self) -> list[tuple[str, int, int]]:
        asked = (
            "SELECT query_sample_text, sum_rows_examined, count_star"
            " FROM performance_schema.events_statements_summary_by_digest WHERE schema_name = %s"
        )
        found = self._world.execute(asked, self._world.database)
        return [
            (str(text), int(read), int(count))
            for text, read, count in found
            if "performance_schema" not in str(text) and OURS not in str(text)
        ]

    def of(self, act: Callable[[], object]) -> list[tuple[str, int]]:
        """(statement, rows read by all of its kind) while `act` runs."""
        self._world.execute("TRUNCATE TABLE performance_schema.events_statements_summary_by_digest")
        act()
        return [(text, read) for text, read, _ in self._read()]

    def times(self, part: str) -> int:
        """How often a statement with this in it was run since `of` began."""
        return sum(count for text, _, count in self._read() if part in text)


class Judged:
    """Compares what was read with what may be, and looks at the plans. told: a line for each."""

    def __init__(self, world: World) -> None:
        self.account = Account(world)
        self.told: list[str] = []
        self.plans = 0
        self._world = world

    def check(self, name: str, most: float, act: Callable[[], object]) -> None:
        statements = self.account.of(act)
        read = sum(count for _, count in statements)
        self.told.append(f"{name:45} {read:>10,} of at most {most:>10,.0f} rows")
        assert read <= most, (self.told[-1], sorted(statements, key=lambda one: -one[1])[:5])
        for statement, _ in statements:
            for line in plan(self._world, statement):
                self.plans += 1
                assert line[4] != "ALL", (name, statement, line)
                assert line[4] != "index" or line[6] == "PRIMARY", (name, statement, line)


def plan(world: World, statement: str) -> list[tuple[Any, ...]]:
    """Lines of the plan that read the outbox itself; none for what cannot be explained, or was cut short."""
    if statement.endswith("...") or not statement.startswith(("SELECT", "UPDATE", "DELETE", "INSERT", "WITH")):
        return []
    if "outbox_event" not in statement:
        return []
    lines = world.execute(f"EXPLAIN FORMAT=TRADITIONAL {statement.replace('%', '%%')}")
    return [line for line in lines if line[2] in {"outbox_event", "sent", "dead"} and line[1] != "INSERT"]


def succeed(config: Path, words: tuple[str, ...]) -> None:
    done = run_command(config, *words, timeout=600)
    assert done.returncode == 0, (words, done.stdout, done.stderr)


def make_rows(world: World, rows: int) -> None:
    world.execute(schema.ddl("archive", TableName(world.database, "outbox_event_archive")))
    with world.sql() as cursor:
        fill(cursor, rows, "sent", days=2)
        for state in ("pending", "parked", "failed", "dead"):
            fill(cursor, OPEN, state, days=2)
        fill(cursor, YOUNG, "sent")
        cursor.execute("ANALYZE TABLE outbox_event")


def test_no_command_reads_more_than_it_must(make_mysql: MakeMySQL, make_world: Callable[..., World], rows: int) -> None:
    world = make_world(mysql=make_mysql(performance_schema_max_sql_text_length=4096).endpoint)
    make_rows(world, rows)
    config = world.config()
    judged = Judged(world)
    for name, case in CASES.items():
        world.execute("DELETE FROM outbox_event WHERE event_id = 'one'")
        world.insert("a1", event_id="one", status=3, next_retry_at="2099-01-01")
        if "purge" in case.words:
            with world.sql() as cursor:
                fill(cursor, OPEN, "dead", days=2)  # the others were given their retries back
        most = case.most + case.sent * rows + case.scan * min(SCAN, rows + YOUNG)
        words = tuple(word.format(position=_position(world)) for word in case.words)
        judged.check(name, most, partial(succeed, config, words))
    print("\n".join(judged.told))
    assert judged.plans > len(CASES), "the server told of hardly any statement"


def _position(world: World) -> str:
    return str(world.execute("SELECT @@global.gtid_executed")[0][0]).replace("\n", "")


def test_no_relay_reads_more_than_it_must(make_mysql: MakeMySQL, make_world: Callable[..., World], rows: int) -> None:
    """From its first start on; and the commands that look at the events that it published."""
    # Its statements name a batch of rows, and are to be kept whole.
    server = make_mysql(performance_schema_max_sql_text_length=65_536, performance_schema_digests_size=500)
    world = make_world(mysql=server.endpoint)
    make_rows(world, rows)
    config = world.config(limits={"batch": 500})
    judged = Judged(world)

    judged.check("start, the first", 2 * OPEN * EACH, lambda: start_and_settle(world, config))
    judged.check("10 polls beside rows not yet due", 10 * (2 * OPEN + 20), lambda: wait_polls(judged.account))
    judged.check("events skip, and its dead letters", OPEN * EACH, lambda: skip_all(world, config))
    judged.check("10 polls at rest, and a last batch", 10 * 20 + 1000, lambda: wait_polls(judged.account))
    world.stop()
    succeed(config, ("events", "purge", "--state", "dead", "--yes"))
    judged.check("events replay", 10 * OPEN, lambda: succeed(config, ("events", "replay", "--since", "1h", "--yes")))
    assert len(world.execute("SELECT 1 FROM outbox_event WHERE status = 0")) == OPEN
    judged.check("tail", 0, lambda: succeed(config, ("tail", "--since", "1h", "--count", "100")))
    with world.sql() as cursor:
        fill(cursor, OPEN, "sending", days=2)
        fill(cursor, OPEN, "pending")
    judged.check("start, after a crash", 3 * OPEN * EACH, lambda: start_and_settle(world, config))
    print("\n".join(judged.told))


def start_and_settle(world: World, config: Path) -> None:
    """Until all is sent but what waits for a retry that is not due yet."""
    world.start(config)
    for state in ("status = 0", "status = 1", "status = 3 AND next_retry_at <= NOW()"):
        wait_until(partial(_none, world, state), "all are sent")


def wait_polls(account: Account) -> None:
    wait_until(lambda: account.times("EXISTS") >= 10, "ten polls")


def skip_all(world: World, config: Path) -> None:
    succeed(config, ("events", "skip", "--state", "failed", "--yes"))
    wait_until(partial(_none, world, "status = 3 AND next_retry_at IS NOT NULL"), "all are dead")


def _none(world: World, state: str) -> bool:
    return not world.execute(f"SELECT 1 {OURS} FROM outbox_event WHERE {state} LIMIT 1")


def test_the_server_tells_of_a_statement_that_reads_all(
    make_mysql: MakeMySQL, make_world: Callable[..., World]
) -> None:
    """Else the test above would find nothing wrong whatever was done."""
    world = make_world(mysql=make_mysql().endpoint)
    with world.sql() as cursor:
        fill(cursor, 3000, "sent")
    bad = "SELECT COUNT(*) FROM outbox_event WHERE aggregate_id = 'a1'"
    (found,) = [one for one in Account(world).of(lambda: world.execute(bad)) if "aggregate_id" in one[0]]
    assert found[1] >= 3000
    assert plan(world, found[0])[0][4] == "ALL"
