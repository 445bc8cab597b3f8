"""What each kind of event id does to the unique index on event_id: insert rate, page splits, size."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.drain import Say
from bench.servers import Servers
from cdc_outbox import NewEvent, SnowflakeIds, Uuid7Ids, business_key

ROWS_PER_INSERT = 1000
ORDERS = 100_000
"""Aggregates that the events belong to, at random: where a business key falls in the index."""

KINDS = {
    "uuid7": "UUIDv7",
    "snowflake": "Snowflake",
    "business": "business key",
    "uuid4": "UUIDv4, for comparison",
}
_WARMING = 20_000
_METRIC = "index_page_splits"


@dataclass(frozen=True)
class Inserted:
    """One kind. seconds: in the server, ids and statements made before; late: of the last tenth of the rows.

    splits: of all pages of the table; index_bytes: of the unique index on event_id.
    """

    kind: str
    rows: int
    seconds: float
    late: float
    splits: int
    index_bytes: int

    @property
    def rate(self) -> float:
        return self.rows / self.seconds

    @property
    def late_rate(self) -> float:
        return self.rows / 10 / self.late


def measure_ids(servers: Servers, database: str, rows: int, say: Say) -> list[Inserted]:
    """Each kind into an empty table. Nobody else may write meanwhile: the server counts splits of all tables."""
    with servers.connect(database) as session, session.cursor() as cursor:
        cursor.execute("SET GLOBAL innodb_monitor_enable = %s", (_METRIC,))
        try:
            _measure(cursor, "uuid4", _WARMING, lambda text: None)  # a server that has just started is slow
            return [_measure(cursor, kind, rows, say) for kind in KINDS]
        finally:
            cursor.execute("SET GLOBAL innodb_monitor_disable = %s", (_METRIC,))


def _measure(cursor: Any, kind: str, rows: int, say: Say) -> Inserted:
    cursor.execute("TRUNCATE outbox_event")
    make, chance = _maker(kind), random.Random(1)
    statements = rows // ROWS_PER_INSERT
    before, seconds, late = _splits(cursor), 0.0, 0.0
    for number in range(statements):
        if number % max(1, statements // 10) == 0:
            say(f"{KINDS[kind]}: {number * ROWS_PER_INSERT:,} of {rows:,} rows")
        statement = _statement(make, chance, number * ROWS_PER_INSERT)
        begin = time.perf_counter()
        cursor.execute(statement)
        elapsed = time.perf_counter() - begin
        seconds += elapsed
        late += elapsed if number >= statements - statements // 10 else 0
    splits = _splits(cursor) - before
    cursor.execute("ANALYZE TABLE outbox_event")
    cursor.execute(
        "SELECT stat_value * @@innodb_page_size FROM mysql.innodb_index_stats WHERE database_name = DATABASE()"
        " AND table_name = 'outbox_event' AND index_name = 'uk_event_id' AND stat_name = 'size'"
    )
    (size,) = cursor.fetchone()
    return Inserted(kind, statements * ROWS_PER_INSERT, seconds, late, splits, int(size))


def _statement(make: Callable[[NewEvent], str], chance: random.Random, first: int) -> str:
    start = datetime(2026, 1, 31, tzinfo=UTC)
    values = []
    for number in range(first, first + ROWS_PER_INSERT):
        order = f"A-{chance.randrange(ORDERS):06}"
        event = NewEvent(
            aggregate_type="order",
            aggregate_id=order,
            event_type="OrderPaid",
            payload=None,
            occurred_at=start + timedelta(milliseconds=number),
        )
        values.append(f"('{make(event)}','order','{order}','OrderPaid','{{\"cents\": {number}}}')")
    return "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES " + ",".join(
        values
    )


def _maker(kind: str) -> Callable[[NewEvent], str]:
    makers: dict[str, Callable[[NewEvent], str]] = {
        "uuid7": Uuid7Ids(),
        "snowflake": SnowflakeIds(1),
        "business": business_key,
        "uuid4": lambda event: str(uuid.uuid4()),
    }
    return makers[kind]


def _splits(cursor: Any) -> int:
    cursor.execute("SELECT COUNT FROM information_schema.innodb_metrics WHERE name = %s", (_METRIC,))
    return int(cursor.fetchone()[0])
