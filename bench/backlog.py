"""The events that every side gets: the same ones, byte by byte, written while the side is away."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.site import Site

AGGREGATES = 5000
INSERT = "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES "
NOISE = "noise"
"""A table like the outbox, which nobody relays."""
_THREADS = 2
_STATEMENTS, _BYTES, _ROWS = 500, 8_000_000, 500
"""What travels together at most, and how many rows a statement has."""


@dataclass(frozen=True)
class Backlog:
    """rows: of one transaction; payload: bytes of each, None: about 400; noise: rows of another table for each event,
    each in a transaction of its own."""

    events: int
    rows: int = 1
    payload: int | None = None
    noise: int = 0


def payload(number: int, size: int | None = None) -> str:
    """An order as a service would write it: nested, some of it not ASCII. size: bytes, reached by more lines."""
    lines = 3 if size is None else max(3, (size - 400) // 60)
    text = json.dumps(
        {
            "order_id": number,
            "customer": {
                "id": number * 7,
                "name": f"Zoë {number}",
                "email": f"c{number}@example.com",
                "vip": bool(number % 2),
            },
            "lines": [{"sku": f"SKU-{number + k:05d}", "qty": k + 1, "price": 12.5 * (k + 1)} for k in range(lines)],
            "currency": "EUR",
            "total": 99.25,
            "note": None,
            "pad": "x" * 110,
        },
        ensure_ascii=False,
    )
    missing = 0 if size is None else size - len(text.encode())
    return f"{text[:-2]}{'x' * missing}{text[-2:]}"  # into the pad


def event_id(number: int) -> str:
    return f"evt-{number:09d}"


def number_of(event_id: str) -> int:
    return int(event_id.rpartition("-")[2])


def values(number: int, escape: Any, size: int | None = None) -> str:
    """`(…)` for INSERT. escape: the connection's; size: of the payload."""
    aggregate = f"agg-{number % AGGREGATES:06d}"
    return f"('{event_id(number)}', 'order', '{aggregate}', 'OrderPlaced', {escape(payload(number, size))})"


def fill(site: Site, backlog: Backlog) -> int:
    """Commit all of it; gives the last row's id."""
    over = threading.Event()
    transactions = -(-backlog.events // backlog.rows)
    shares = [
        range(transactions * share // _THREADS, transactions * (share + 1) // _THREADS) for share in range(_THREADS)
    ]
    if backlog.noise:
        site.rows(f"CREATE TABLE {NOISE} LIKE outbox_event")
    with site.servers.filled_quickly(), ThreadPoolExecutor(_THREADS) as writers:
        try:
            list(writers.map(lambda share: _write(site, backlog, share, over), shares))
        finally:
            over.set()  # Ctrl-C need not wait for a million rows
    return int(site.rows("SELECT MAX(id) FROM outbox_event")[0][0])


def _write(site: Site, backlog: Backlog, transactions: range, over: threading.Event) -> None:
    with site.servers.connect(site.database) as session, session.cursor() as cursor:
        for together in _together(_statements(backlog, transactions, session.escape)):
            if over.is_set():
                return
            cursor.execute(together)
            while cursor.nextset():
                pass


def _statements(backlog: Backlog, transactions: range, escape: Any) -> Iterator[str]:
    for transaction in transactions:
        first = transaction * backlog.rows
        numbers = range(first, min(first + backlog.rows, backlog.events))
        if backlog.rows == 1:
            yield INSERT + values(first, escape, backlog.payload)
        else:
            yield "BEGIN"
            for begin in range(0, len(numbers), _ROWS):
                some = numbers[begin : begin + _ROWS]
                yield INSERT + ", ".join(values(number, escape, backlog.payload) for number in some)
            yield "COMMIT"
        for number in numbers:
            for copy in range(backlog.noise):
                yield INSERT.replace("outbox_event", NOISE) + values(number * backlog.noise + copy, escape)


def _together(statements: Iterator[str]) -> Iterator[str]:
    """Statements that travel together; each has its own effect."""
    waiting: list[str] = []
    size = 0
    for statement in statements:
        waiting.append(statement)
        size += len(statement)
        if len(waiting) == _STATEMENTS or size > _BYTES:
            yield ";".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield ";".join(waiting)
