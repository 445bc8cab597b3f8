"""Every command on a large table, by the server's own account: how many rows it reads, by which index. No clocks.

With --long a million sent rows, else 20,000.
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
from tests.harness.world import World

if TYPE_CHECKING:
    from tests.conftest import MakeMySQL

OPEN = 2000
"""Rows of each state besides sent."""
YOUNG = 20_000
"""Sent rows behind the old ones."""
SCAN = 100_000
"""Rows of a state that a filter looks at."""


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
    "archive": Case(("archive", "--older-than", "1d"), 500 + 6 * OPEN + YOUNG, sent=4.1),
    "checkpoint show": Case(("checkpoint", "show"), 100),
    "pause": Case(("pause",), 100),
    "resume": Case(("resume",), 100),
    "emit": Case(("emit",), 100),
    "doctor": Case(("doctor",), 2000),
    "init": Case(("init",), 500),
}


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> int:
    return 1_000_000 if request.config.getoption("--long") else 20_000


class Account:
    """What the server says that the statements of this world's database read."""

    def __init__(self, world: World) -> None:
        self._world = world

    def _read(self) -> dict[str, tuple[int, str]]:
        asked = (
            "SELECT digest, sum_rows_examined, query_sample_text"
            " FROM performance_schema.events_statements_summary_by_digest WHERE schema_name = %s"
        )
        found = self._world.execute(asked, self._world.database)
        return {digest: (int(read), str(text)) for digest, read, text in found if "performance_schema" not in str(text)}

    def of(self, act: Callable[[], object]) -> list[tuple[str, int]]:
        """(statement, rows read by all of its kind) while `act` runs."""
        self._world.execute("TRUNCATE TABLE performance_schema.events_statements_summary_by_digest")
        act()
        return [(text, read) for read, text in self._read().values()]


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


def test_no_command_reads_more_than_it_must(make_mysql: MakeMySQL, make_world: Callable[..., World], rows: int) -> None:
    world = make_world(mysql=make_mysql(performance_schema_max_sql_text_length=4096).endpoint)
    world.execute(schema.ddl("archive", TableName(world.database, "outbox_event_archive")))
    with world.sql() as cursor:
        fill(cursor, rows, "sent", days=2)
        for state in ("pending", "parked", "failed", "dead"):
            fill(cursor, OPEN, state, days=2)
        fill(cursor, YOUNG, "sent")
        cursor.execute("ANALYZE TABLE outbox_event")
    config = world.config()
    account = Account(world)
    told, judged = [], 0
    for name, case in CASES.items():
        world.execute("DELETE FROM outbox_event WHERE event_id = 'one'")
        world.insert("a1", event_id="one", status=3, next_retry_at="2099-01-01")
        if "purge" in case.words:
            with world.sql() as cursor:
                fill(cursor, OPEN, "dead", days=2)  # the others were given their retries back
        statements = account.of(partial(succeed, config, case.words))
        read = sum(count for _, count in statements)
        most = case.most + case.sent * rows + case.scan * min(SCAN, rows + YOUNG)
        told.append(f"{name:45} {read:>10,} of at most {most:>10,.0f} rows")
        assert read <= most, (told[-1], sorted(statements, key=lambda one: -one[1])[:5])
        for statement, _ in statements:
            for line in plan(world, statement):
                judged += 1
                assert line[4] != "ALL", (name, statement, line)
                assert line[4] != "index" or line[6] == "PRIMARY", (name, statement, line)
    print("\n".join(told))
    assert judged > len(CASES), "the server told of hardly any statement"


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
