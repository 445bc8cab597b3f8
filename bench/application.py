"""`scripts/bench application`: the application's half. Its command, its tables, docs/benchmarks-application.md."""

from __future__ import annotations

import argparse
import shlex
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path

from bench.event_ids import KINDS, ORDERS, ROWS_PER_INSERT, Inserted, measure_ids
from bench.figures import MB
from bench.machine import describe
from bench.outbox_add import BARE, BY_HAND, EVENTS, MANY, OUTBOX, ROUNDS, Added, measure_add, payload_bytes
from bench.servers import Servers
from bench.tables import grid
from cdc_outbox.model import TableName
from cdc_outbox.mysql import schema

NAME = "application"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks-application.md"
OVERHEAD_ASKED = 20.0
"""Microseconds of CPU that Outbox.add may cost beyond the INSERT by hand."""

_TITLES = {
    BARE: "INSERT alone: id and JSON text made before",
    BY_HAND: "by hand: `uuid.uuid4()`, `json.dumps`, INSERT",
    OUTBOX: "`Outbox.add`",
    MANY: "`Outbox.add_many`, 100 at a time",
}

_HEAD = """\
# Benchmarks of the application's half

Made by `scripts/bench application --write`. Do not edit the figures: run it again.
MySQL and the application share one machine, so read the ratios first.
"""

_ADD = """\
## Writing an event

One event with a payload of {bytes} bytes, PyMySQL, in a transaction that is rolled back; the best of {rounds} rounds of
{events:,} events. CPU is that of the application's process; the rest until the answer is the server's. What
`Outbox.add` does beyond the INSERT by hand, checks and all, was to cost at most {asked:g} µs.
"""

_IDS = """\
## Event ids in InnoDB

{rows:,} rows into an empty outbox table, {chunk:,} rows an INSERT and a commit each, one connection, durability
relaxed; time in the server only. *Page splits* are those of the whole table (`index_page_splits`): with ids that rise,
pages split at the end of the index and stay full; with others they split in the middle and stay half empty. The
business keys are of {orders:,} orders at random. What else the machine does shows in the rates, not in
splits and sizes.
"""


def main(arguments: Sequence[str]) -> int:
    """Raises BenchFailed, pymysql.MySQLError."""
    options = _options(arguments)
    servers = Servers.from_environment()
    machine = describe(servers)
    with _database(servers) as database:
        added = measure_add(servers, database, _say)
        with servers.filled_quickly():
            inserted = measure_ids(servers, database, options.rows, _say) if options.rows else []
    print(tables(added, inserted), flush=True)
    if options.write:
        command = shlex.join(["scripts/bench", NAME, *arguments])
        made = datetime.now(UTC).date()
        PAGE.write_text(page(added, inserted, machine=machine, command=command, made=made))
        _say(f"\nWritten to {PAGE.relative_to(PAGE.parents[1])}")
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=f"scripts/bench {NAME}", description="Measure Outbox.add, and what kinds of event ids do to InnoDB."
    )
    parser.add_argument("--rows", type=int, default=1_000_000, metavar="N", help="for each kind of id; 0: none")
    parser.add_argument("--write", action="store_true", help=f"write docs/{PAGE.name} as well")
    options = parser.parse_args(arguments)
    if options.rows < 0 or options.rows % (10 * ROWS_PER_INSERT):
        parser.error(f"--rows must be a multiple of {10 * ROWS_PER_INSERT}")
    if options.write and not options.rows:
        parser.error("--write needs both measurements")
    return options


@contextmanager
def _database(servers: Servers) -> Iterator[str]:
    name = f"bench_application_{uuid.uuid4().hex[:8]}"
    with servers.connect() as session, session.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        try:
            cursor.execute(schema.ddl("outbox_event", TableName(name, "outbox_event")))
            yield name
        finally:
            cursor.execute(f"DROP DATABASE {name}")


def tables(added: Sequence[Added], inserted: Sequence[Inserted]) -> str:
    """The results for a terminal."""
    sections = [("Writing an event", add_table(added)), ("Event ids in InnoDB", ids_table(inserted))]
    return "\n\n".join(f"{title}\n\n{table}" for title, table in sections if table)


def page(
    added: Sequence[Added],
    inserted: Sequence[Inserted],
    *,
    machine: Sequence[tuple[str, str]],
    command: str,
    made: date,
) -> str:
    parts = [
        _HEAD,
        grid(["", ""], [["date", made.isoformat()], ["command", f"`{command}`"], *map(list, machine)]),
        _ADD.format(bytes=payload_bytes(), rounds=ROUNDS, events=EVENTS, asked=OVERHEAD_ASKED),
        add_table(added),
        _IDS.format(rows=inserted[0].rows, chunk=ROWS_PER_INSERT, orders=ORDERS),
        ids_table(inserted),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def add_table(added: Sequence[Added]) -> str:
    """One row a side."""
    by_side = {one.side: one for one in added}
    rows = [
        [
            _TITLES[one.side],
            f"{one.cpu:.1f}",
            f"{one.elapsed:.0f}",
            "" if one.side == BARE else f"{one.cpu - by_side[BARE].cpu:+.1f}",
            f"{one.cpu - by_side[BY_HAND].cpu:+.1f}" if one.side == OUTBOX else "",
        ]
        for one in added
    ]
    return (
        grid(["", "CPU, µs", "until the answer, µs", "CPU beyond INSERT alone, µs", "CPU beyond by hand, µs"], rows)
        if rows
        else ""
    )


def ids_table(inserted: Sequence[Inserted]) -> str:
    rows = [
        [
            KINDS[one.kind],
            f"{one.rate:,.0f}",
            f"{one.late_rate:,.0f}",
            f"{one.rate / inserted[0].rate:.2f}",
            f"{one.splits:,}",
            f"{one.index_bytes / MB:.0f}",
        ]
        for one in inserted
    ]
    heads = ["", "rows/s", "rows/s, last tenth", "× UUIDv7", "page splits", "unique index, MB"]
    return grid(heads, rows) if rows else ""


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
