"""What Outbox.add costs beyond the INSERT that it makes, in the application's process."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.drain import Say
from bench.servers import Servers
from cdc_outbox import NewEvent, Outbox

ROUNDS, EVENTS = 100, 100
BARE, BY_HAND, OUTBOX, MANY = "bare", "by hand", "outbox", "many"

_INSERT = (
    "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload) VALUES (%s, %s, %s, %s, %s)"
)
_PAYLOAD: dict[str, Any] = {
    "order": "A-1001",
    "customer": {"id": 4711, "name": "Zoë", "city": "Zürich"},
    "lines": [{"sku": f"sku-{number}", "qty": number, "cents": 250 * number} for number in range(1, 7)],
    "paid": True,
}


@dataclass(frozen=True)
class Added:
    """One side: the best of all rounds, in microseconds an event: CPU of the application, and until the answer came."""

    side: str
    cpu: float
    elapsed: float


def payload_bytes() -> int:
    return len(json.dumps(_PAYLOAD).encode())


def measure_add(servers: Servers, database: str, say: Say) -> list[Added]:
    """The sides take turns, so that what else the machine does meets all of them. Nothing is committed."""
    connection = servers.connect(database)
    outbox = Outbox()
    text = json.dumps(_PAYLOAD)
    ids = _numbers()
    with connection, connection.cursor() as cursor:

        def bare() -> None:
            cursor.execute(_INSERT, (f"{next(ids):036}", "order", "A-1001", "OrderPaid", text))

        def by_hand() -> None:
            cursor.execute(_INSERT, (str(uuid.uuid4()), "order", "A-1001", "OrderPaid", json.dumps(_PAYLOAD)))

        def add() -> None:
            outbox.add(
                connection, aggregate_type="order", aggregate_id="A-1001", event_type="OrderPaid", payload=_PAYLOAD
            )

        event = NewEvent(aggregate_type="order", aggregate_id="A-1001", event_type="OrderPaid", payload=_PAYLOAD)

        def many() -> None:
            outbox.add_many(connection, [event] * 100)

        sides: dict[str, tuple[Callable[[], None], int]] = {
            BARE: (bare, EVENTS),
            BY_HAND: (by_hand, EVENTS),
            OUTBOX: (add, EVENTS),
            MANY: (many, EVENTS // 100),
        }
        best = {side: (float("inf"), float("inf")) for side in sides}
        say(f"Outbox.add: {ROUNDS} rounds")
        for _ in range(ROUNDS):
            for side, (run, times) in sides.items():
                connection.begin()
                cpu, begin = time.process_time(), time.perf_counter()
                for _repeat in range(times):
                    run()
                cpu, elapsed = time.process_time() - cpu, time.perf_counter() - begin
                connection.rollback()
                best[side] = (min(best[side][0], cpu), min(best[side][1], elapsed))
    return [Added(side, cpu / EVENTS * 1e6, elapsed / EVENTS * 1e6) for side, (cpu, elapsed) in best.items()]


def _numbers() -> Iterator[int]:
    number = 0
    while True:
        yield (number := number + 1)
