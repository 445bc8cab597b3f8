"""What an archived row costs the server: CPU time of `archive`'s session by statement, and of purge behind it.

CPU time, the least of several batches: it says the same beside whatever else runs on the machine.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from bench.failure import BenchFailed
from bench.servers import Servers
from bench.tables import grid
from cdc_outbox.config import MySQLSettings, Settings
from cdc_outbox.model import TableName
from cdc_outbox.mysql.archive_table import SentRows
from cdc_outbox.mysql.session import Session

BATCH, BATCHES = 1000, 20

_STEPS = {
    "SELECT id,": "find sent rows",
    "SELECT COUNT": "lock them and look again",
    "INSERT": "copy them",
    "DELETE": "delete them",
}
"""How a statement begins -> what it does for a batch."""
_COMMIT = "commit, binlog included"
_PURGE = "purge: take out what was deleted"

T = TypeVar("T")


class _Counted(Session):
    """spent: step -> microseconds of CPU of this session's thread in the server, for each time that it was taken."""

    def __init__(self, settings: MySQLSettings, thread_cpu: Callable[[int], float]) -> None:
        self.spent: dict[str, list[float]] = {}
        self._cpu: Callable[[], float] = lambda: 0.0
        super().__init__(settings, lifetime=60)
        self._cpu = partial(thread_cpu, self.thread_id)

    def query(self, sql: str, args: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._count(sql, partial(super().query, sql, args))

    def execute(self, sql: str, args: Sequence[object] = ()) -> int:
        return self._count(sql, partial(super().execute, sql, args))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        with super().transaction():
            yield
            begun = self._cpu()
        self._add(_COMMIT, begun)

    def _count(self, sql: str, act: Callable[[], T]) -> T:
        begun = self._cpu()
        done = act()
        for start, step in _STEPS.items():
            if sql.startswith(start):
                self._add(step, begun)
        return done

    def _add(self, step: str, begun: float) -> None:
        self.spent.setdefault(step, []).append((self._cpu() - begun) * 1e6)


def measure_cost(servers: Servers, settings: Settings, into: TableName) -> dict[str, float]:
    """Step -> microseconds a row; empty where the server's threads cannot be seen.

    Raises BenchFailed where there are too few rows.
    """
    if servers.mysqld_cpu() is None:
        return {}
    (table,) = settings.table_names
    servers.come_to_rest()
    purged = servers.purge_cpu()
    session = _Counted(settings.mysql, servers.session_cpu)
    with contextlib.closing(session):
        rows = SentRows(session, table, into, 86_400.0)
        ends = rows.ends()
        above, top = (0, 0) if ends is None else (ends[0] - 1, ends[2])
        session.spent.clear()
        for _ in range(BATCHES):
            page = rows.page(above, top, BATCH)
            if len(page.old) < BATCH or page.last is None:
                raise BenchFailed("there are too few rows left: give more --rows")
            above = page.last
            rows.move(page.old)
        spent = {step: min(taken) / BATCH for step, taken in session.spent.items()}
    servers.come_to_rest()
    return {**spent, _PURGE: (servers.purge_cpu() - purged) * 1e6 / (BATCH * BATCHES)}


def cost_table(cost: Mapping[str, float]) -> str:
    cells = [[step, f"{micro:.1f}"] for step, micro in cost.items()]
    return grid(["for a row that is moved", "mysqld CPU, µs"], [*cells, ["together", f"{sum(cost.values()):.1f}"]])
