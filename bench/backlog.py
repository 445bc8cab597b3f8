"""The events that every side gets: the same ones, byte by byte, each in a transaction of its own."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.site import Site

AGGREGATES = 5000
INSERT = "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES "
_TOGETHER = 500
_THREADS = 2


def payload(number: int) -> str:
    """An order as a service would write it: nested, some of it not ASCII, about 400 bytes."""
    return json.dumps(
        {
            "order_id": number,
            "customer": {
                "id": number * 7,
                "name": f"Zoë {number}",
                "email": f"c{number}@example.com",
                "vip": bool(number % 2),
            },
            "lines": [{"sku": f"SKU-{number + k:05d}", "qty": k + 1, "price": 12.5 * (k + 1)} for k in range(3)],
            "currency": "EUR",
            "total": 99.25,
            "note": None,
            "pad": "x" * 110,
        },
        ensure_ascii=False,
    )


def event_id(number: int) -> str:
    return f"evt-{number:09d}"


def number_of(event_id: str) -> int:
    return int(event_id.rpartition("-")[2])


def values(number: int, escape: Any) -> str:
    """`(…)` for INSERT. escape: the connection's."""
    aggregate = f"agg-{number % AGGREGATES:06d}"
    return f"('{event_id(number)}', 'order', '{aggregate}', 'OrderPlaced', {escape(payload(number))})"


def fill(site: Site, events: int) -> int:
    """Commit `events` events; gives the last row's id."""
    over = threading.Event()
    shares = [range(events * share // _THREADS, events * (share + 1) // _THREADS) for share in range(_THREADS)]
    with site.servers.filled_quickly(), ThreadPoolExecutor(_THREADS) as writers:
        try:
            list(writers.map(lambda share: _write(site, share, over), shares))
        finally:
            over.set()  # Ctrl-C need not wait for a million rows
    return int(site.rows("SELECT MAX(id) FROM outbox_event")[0][0])


def _write(site: Site, numbers: range, over: threading.Event) -> None:
    """The statements travel together; each commits by itself."""
    with site.servers.connect(site.database) as session, session.cursor() as cursor:
        for begin in range(0, len(numbers), _TOGETHER):
            if over.is_set():
                return
            together = numbers[begin : begin + _TOGETHER]
            cursor.execute(";".join(INSERT + values(number, session.escape) for number in together))
            while cursor.nextset():
                pass
