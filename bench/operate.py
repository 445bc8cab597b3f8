"""`scripts/bench operate`: `status` and `events` on a large table, `archive` beside writers, and restarts."""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

import yaml

from bench.archive_cost import cost_table, measure_cost
from bench.backlog import INSERT, values
from bench.failure import BenchFailed
from bench.figures import percentile
from bench.machine import describe
from bench.operate_page import (
    ASKED_RATE,
    LOOKS,
    OPEN,
    ROUNDS,
    Looked,
    Pace,
    Round,
    archive_needs,
    archive_table,
    looks_table,
    page,
    restart_table,
)
from bench.restart import measure_restarts
from bench.servers import Servers
from bench.tables import grid
from cdc_outbox.config import Settings, load_settings
from cdc_outbox.model import State, TableName
from cdc_outbox.mysql import schema
from cdc_outbox.mysql.event_rows import Filter
from cdc_outbox.ops import events
from cdc_outbox.ops.status import read_status

NAME = "operate"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks-operate.md"

ARCHIVE = "outbox_event_archive"
_CHUNK = 250_000
_FILLING = 2
"""Sessions that fill the table at once."""
_STATES = {
    "pending": "0, 0, NULL",
    "parked": "0, 0, NOW()",
    "failed": "3, 1, NOW() + INTERVAL 1 HOUR",
    "dead": "3, 3, NULL",
}
_WAYS = {
    "to the archive": (),
    "`--delete`": ("--delete",),
    f"to the archive, `--rate {ASKED_RATE:.0f}`": ("--rate", f"{ASKED_RATE:.0f}"),
    "to the archive, `--pause 0s`": ("--pause", "0s"),
}
"""Title -> options of `archive`."""
_ALONE = 0.5
"""Seconds of the writer alone for each with the archive beside it."""
_NUMBERS = itertools.count()
"""Of the events that the writer inserts beside the archive; the table's own rows have other names."""


def main(arguments: Sequence[str]) -> int:
    """Raises BenchFailed, pymysql.MySQLError, KafkaException."""
    parser = argparse.ArgumentParser(prog=f"scripts/bench {NAME}", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, metavar="N", help="sent rows (default: 10000000)")
    parser.add_argument("--seconds", type=float, default=10, metavar="N", help="of archiving, a round (default: 10)")
    parser.add_argument(
        "--pool", type=int, metavar="GIB", help="of InnoDB's buffer pool meanwhile (default: as the server has it)"
    )
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name} as well")
    options = parser.parse_args(arguments)
    servers = Servers.from_environment()
    with nullcontext() if options.pool is None else servers.pool_of(options.pool << 30):
        _measure(servers, options, shlex.join(["scripts/bench", NAME, *arguments]))
    return 0


def _measure(servers: Servers, options: argparse.Namespace, command: str) -> None:
    machine = describe(servers)
    print(grid(["", ""], machine), end="\n\n", flush=True)
    with _place(servers) as (settings, file):
        _fill(servers, settings, options.rows)
        looks = measure_looks(settings)
        print(looks_table(options.rows, looks), end="\n\n", flush=True)
        rounds = {}
        for way, words in _WAYS.items():
            _say(f"archive {way}")
            rounds[way] = measure_archive(servers, settings, file, words, options.seconds)
        cost = measure_cost(servers, settings, TableName(settings.mysql.database, ARCHIVE))
        needs = archive_needs(list(rounds.values())[-1], os.cpu_count() or 1)
        print(archive_table(rounds), needs, cost_table(cost), sep="\n\n", end="\n\n", flush=True)
    restarts = measure_restarts(servers, _say)
    print(restart_table(restarts), flush=True)
    if options.write:
        given = [("date", datetime.now(UTC).date().isoformat()), ("command", f"`{command}`"), *machine]
        states = len(_STATES)
        text = page(
            options.rows,
            looks,
            rounds,
            restarts,
            machine=given,
            seconds=options.seconds,
            states=states,
            needs=needs,
            cost=cost,
        )
        PAGE.write_text(text)
        _say(f"\nWritten to {PAGE.relative_to(PAGE.parents[1])}")


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
            cursor.execute(schema.ddl("archive", TableName(name, ARCHIVE)))
            yield settings, file
        finally:
            cursor.execute(f"DROP DATABASE {name}")


def _fill(servers: Servers, settings: Settings, rows: int) -> None:
    """Not through the binlog: no relay is to read these, and it would take twice as long."""
    chunks = [(done, min(_CHUNK, rows - done)) for done in range(0, rows, _CHUNK)]
    with servers.filled_quickly(), ThreadPoolExecutor(_FILLING) as fillers:
        list(fillers.map(lambda chunk: _fill_chunk(servers, settings, chunk, rows), chunks))
        with servers.connect(settings.mysql.database) as session, session.cursor() as cursor:
            cursor.execute(f"SET SESSION cte_max_recursion_depth = {_CHUNK}")
            for state in _STATES.values():
                cursor.execute(_rows(OPEN, state))
            cursor.execute("ANALYZE TABLE outbox_event")


def _fill_chunk(servers: Servers, settings: Settings, chunk: tuple[int, int], rows: int) -> None:
    done, count = chunk
    with servers.connect(settings.mysql.database) as session, session.cursor() as cursor:
        cursor.execute(f"SET SESSION sql_log_bin = 0, cte_max_recursion_depth = {_CHUNK}")
        cursor.execute(_rows(count, "2, 0, NULL"))
    _say(f"{done + count:,} of {rows:,} rows")


def _rows(count: int, state: str) -> str:
    return (
        "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, status, retry_count,"
        " next_retry_at, created_at)"
        f" WITH RECURSIVE one (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM one WHERE n < {count})"
        f" SELECT UUID(), 'order', CONCAT('A-', n % 5000), 'OrderPaid', JSON_OBJECT('n', n, 'pad', REPEAT('x', 300)),"
        f" {state}, NOW() - INTERVAL 8 DAY FROM one"
    )


def measure_looks(settings: Settings) -> list[Looked]:
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
        for _ in range(LOOKS):
            begin = time.perf_counter()
            look()
            times.append(time.perf_counter() - begin)
        found.append(Looked(what, times[0], min(times)))
    return found


def measure_archive(
    servers: Servers, settings: Settings, file: Path, words: Sequence[str], seconds: float
) -> list[Round]:
    """Archive again and again for so long, beside a writer, and compare the writer with itself just before and after.

    Raises BenchFailed where the rows run out.
    """
    rounds = []
    servers.come_to_rest()
    alone = _write(servers, settings, seconds * _ALONE)
    for _ in range(ROUNDS):
        before, used, purging = _deleted(servers), servers.mysqld_cpu(), servers.purge_cpu()
        beside, rate = _beside(servers, settings, file, words, seconds)
        servers.come_to_rest()
        rows, purged, between = _deleted(servers) - before, servers.purge_cpu() - purging, servers.mysqld_cpu()
        after = _write(servers, settings, seconds * _ALONE)
        used_after = servers.mysqld_cpu()
        cpu = commit = None
        if used is not None and between is not None and used_after is not None:
            commit = (used_after - between) / after.commits * 1e6
            cpu = max(0.0, (between - used) * 1e6 - commit * beside.commits) / rows
        rounds.append(Round(rate, cpu, purged / rows * 1e6, commit, _mean(alone, after), beside))
        alone = after
    return rounds


def _mean(one: Pace, other: Pace) -> Pace:
    return Pace(
        (one.rate + other.rate) / 2,
        (one.p50 + other.p50) / 2,
        (one.p99 + other.p99) / 2,
        one.commits + other.commits,
        (one.client + other.client) / 2,
    )


def _beside(
    servers: Servers, settings: Settings, file: Path, words: Sequence[str], seconds: float
) -> tuple[Pace, float]:
    """The writer's pace, and rows archived a second."""
    command = [sys.executable, "-m", "cdc_outbox", "--config", str(file), "archive", "--older-than", "1d", *words]
    started = _deleted(servers)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as archiving:
        try:
            while _deleted(servers) < started + 5000:
                if archiving.poll() is not None:
                    raise BenchFailed(f"archive has ended at once, exit code {archiving.returncode}")
                time.sleep(0.05)
            before, begun = _deleted(servers), time.monotonic()
            pace = _write(servers, settings, seconds)
            rate = (_deleted(servers) - before) / (time.monotonic() - begun)
            if archiving.poll() is not None:
                raise BenchFailed("archive came to its end while it was measured: give more --rows, or less --seconds")
        finally:
            archiving.terminate()
    return pace, rate


def _deleted(servers: Servers) -> int:
    """Rows deleted since the server was started: nobody but `archive` deletes any."""
    return _number(
        servers,
        "SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Innodb_rows_deleted'",
    )


def _number(servers: Servers, query: str) -> int:
    with servers.connect() as session, session.cursor() as cursor:
        cursor.execute(query)
        row = cursor.fetchone()
    return int(row[0]) if row else 0


def _write(servers: Servers, settings: Settings, seconds: float) -> Pace:
    took: list[float] = []
    with servers.connect(settings.mysql.database) as session, session.cursor() as cursor:
        used = time.process_time()
        begun = now = time.perf_counter()
        while now < begun + seconds:
            cursor.execute(INSERT + values(next(_NUMBERS), session.escape))
            then, now = now, time.perf_counter()
            took.append(now - then)
        own = (time.process_time() - used) / len(took) * 1e6
    took.sort()
    p50, p99 = (percentile(took, part) * 1000 for part in (0.5, 0.99))
    return Pace(len(took) / (now - begun), p50, p99, len(took), own)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
