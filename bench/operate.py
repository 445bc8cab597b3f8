"""`scripts/bench operate`: how long `status` and `events` take on a large table, and what `archive` does to writers."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.backlog import INSERT, values
from bench.machine import describe
from bench.servers import Servers
from bench.tables import grid
from cdc_outbox.config import Settings, load_settings
from cdc_outbox.model import State, TableName
from cdc_outbox.mysql import schema
from cdc_outbox.mysql.event_rows import Filter
from cdc_outbox.ops import events
from cdc_outbox.ops.status import read_status

NAME = "operate"
ASKED_SECONDS = 0.5
"""In which a look at the table must be answered."""
ASKED_RATE = 20_000.0
"""Rows a second that `archive` is to move."""
ASKED_WRITERS = 0.9
"""Part of their speed that writers are to keep meanwhile."""

_ROUNDS = 5
_CHUNK = 250_000
_OPEN = 2000
"""Rows of each state besides sent."""
_STATES = {
    "pending": "0, 0, NULL",
    "parked": "0, 0, NOW()",
    "failed": "3, 1, NOW() + INTERVAL 1 HOUR",
    "dead": "3, 3, NULL",
}


@dataclass(frozen=True)
class Archived:
    """rate: rows a second. writers: commits a second of one writer that never waits, without and beside it."""

    rate: float
    alone: float
    beside: float


def main(arguments: Sequence[str]) -> int:
    """Raises BenchFailed, pymysql.MySQLError."""
    parser = argparse.ArgumentParser(prog=f"scripts/bench {NAME}", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, metavar="N", help="sent rows (default: 10000000)")
    parser.add_argument("--seconds", type=float, default=20, metavar="N", help="of archiving (default: 20)")
    options = parser.parse_args(arguments)
    servers = Servers.from_environment()
    print(grid(["", ""], describe(servers)), end="\n\n", flush=True)
    with _place(servers) as (settings, file):
        _fill(servers, settings, options.rows)
        looks = measure_looks(settings)
        print(looks_table(options.rows, looks), flush=True)
        print("\n" + archive_table(measure_archive(servers, settings, file, options.seconds)), flush=True)
    return 0


@contextmanager
def _place(servers: Servers) -> Iterator[tuple[Settings, Path]]:
    """A database with its tables and an archive, and settings that name it; gone afterwards."""
    name = f"bench_operate_{uuid.uuid4().hex[:8]}"
    mysql = servers.mysql
    written = {
        "name": name,
        "mysql": {
            "host": mysql.host,
            "port": mysql.port,
            "user": mysql.user,
            "password": mysql.password,
            "database": name,
        },
        "kafka": {"bootstrap_servers": servers.kafka.bootstrap},
        "http": None,
    }
    with servers.connect() as session, session.cursor() as cursor, tempfile.TemporaryDirectory() as folder:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        try:
            file = Path(folder) / "relay.yaml"
            file.write_text(yaml.safe_dump(written))
            settings = load_settings(file, {})
            for statement in schema.statements(settings):
                cursor.execute(statement.sql)
            cursor.execute(schema.ddl("archive", TableName(name, "outbox_event_archive")))
            yield settings, file
        finally:
            cursor.execute(f"DROP DATABASE {name}")


def _fill(servers: Servers, settings: Settings, rows: int) -> None:
    with servers.connect(settings.mysql.database) as session, session.cursor() as cursor:
        cursor.execute(f"SET SESSION cte_max_recursion_depth = {_CHUNK}")
        for done in range(0, rows, _CHUNK):
            _say(f"{done:,} of {rows:,} rows")
            cursor.execute(_rows(min(_CHUNK, rows - done), "2, 0, NULL"))
        for state in _STATES.values():
            cursor.execute(_rows(_OPEN, state))
        cursor.execute("ANALYZE TABLE outbox_event")


def _rows(count: int, state: str) -> str:
    return (
        "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, status, retry_count,"
        " next_retry_at, created_at)"
        f" WITH RECURSIVE one (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM one WHERE n < {count})"
        f" SELECT UUID(), 'order', CONCAT('A-', n % 5000), 'OrderPaid', JSON_OBJECT('n', n, 'pad', REPEAT('x', 300)),"
        f" {state}, NOW() - INTERVAL 8 DAY FROM one"
    )


def measure_looks(settings: Settings) -> list[tuple[str, float, float]]:
    """(what, first time, best time) in seconds, a connection of its own included."""
    tables = settings.table_names

    def find(*states: State, **chosen: str) -> Callable[[], object]:
        return lambda: events.find(settings, tables, states, Filter(**chosen), limit=50)  # type: ignore[arg-type]

    name = events.find(settings, tables, [State.sent], Filter(), limit=1).events[0].event_id
    looks: list[tuple[str, Callable[[], object]]] = [
        ("status", lambda: read_status(settings, full=False)),
        ("events list", find(State.failed, State.dead, State.parked, State.sending, State.pending)),
        ("events list --state sent", find(State.sent)),
        ("events list --state sent --aggregate, none there", find(State.sent, aggregate="nobody")),
        ("events list --state dead --type, none there", find(State.dead, event_type="nothing")),
        ("events show", lambda: events.named(settings, tables, [name], ids=False)),
    ]
    found = []
    for what, look in looks:
        times = []
        for _ in range(_ROUNDS):
            begin = time.perf_counter()
            look()
            times.append(time.perf_counter() - begin)
        found.append((what, times[0], min(times)))
    return found


def measure_archive(servers: Servers, settings: Settings, file: Path, seconds: float) -> Archived:
    """Archive for so long, beside a writer that commits one event after the other, and compare it with itself."""
    alone = _written(servers, settings, seconds / 2)
    words = [sys.executable, "-m", "cdc_outbox", "--config", str(file), "archive", "--older-than", "1d"]
    with subprocess.Popen(words) as archiving:
        try:
            _wait_for_the_first(servers, settings)
            before, begin = _archived(servers, settings), time.monotonic()
            beside = _written(servers, settings, seconds)
            rate = (_archived(servers, settings) - before) / (time.monotonic() - begin)
        finally:
            archiving.terminate()
    alone = (alone + _written(servers, settings, seconds / 2)) / 2
    return Archived(rate, alone, beside)


def _wait_for_the_first(servers: Servers, settings: Settings) -> None:
    while not _archived(servers, settings):
        time.sleep(0.05)


def _archived(servers: Servers, settings: Settings) -> int:
    """Rows in the archive, by the ids that came in order: counting them would be work for the server."""
    with servers.connect(settings.mysql.database) as session, session.cursor() as cursor:
        cursor.execute("SELECT COALESCE(MAX(id), 0) FROM outbox_event_archive")
        row = cursor.fetchone()
    return int(row[0]) if row else 0


def _written(servers: Servers, settings: Settings, seconds: float) -> float:
    """Commits a second."""
    over, count = threading.Event(), 0
    timer = threading.Timer(seconds, over.set)
    with servers.connect(settings.mysql.database) as session, session.cursor() as cursor:
        timer.start()
        while not over.is_set():
            cursor.execute(INSERT + values(uuid.uuid4().int % 10**9, session.escape))
            count += 1
    return count / seconds


def looks_table(rows: int, looks: Sequence[tuple[str, float, float]]) -> str:
    cells = [[f"`{what}`", f"{first:.3f}", f"{best:.3f}", _met(best <= ASKED_SECONDS)] for what, first, best in looks]
    return grid([f"{rows:,} sent rows", "first, s", f"best of {_ROUNDS}, s", f"≤ {ASKED_SECONDS} s"], cells)


def archive_table(one: Archived) -> str:
    kept = one.beside / one.alone
    cells = [
        ["rows/s", f"{one.rate:,.0f}", _met(one.rate >= ASKED_RATE)],
        ["a writer's commits/s without it", f"{one.alone:,.0f}", ""],
        ["a writer's commits/s beside it", f"{one.beside:,.0f} ({kept:.2f} of it)", _met(kept >= ASKED_WRITERS)],
    ]
    return grid(["`archive`", "", f"≥ {ASKED_RATE:,.0f} rows/s, ≥ {ASKED_WRITERS} of the writer"], cells)


def _met(yes: bool) -> str:
    return "yes" if yes else "no"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
