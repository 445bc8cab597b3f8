"""Many outbox rows at once, and how many rows of them a statement reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CASES = {
    "pending": "0, 0, NULL",
    "parked": "0, 0, NOW() - INTERVAL 1 SECOND",
    "sending": "1, 0, NULL",
    "sent": "2, 0, NULL",
    "failed": "3, 1, NOW() + INTERVAL 1 HOUR",
    "dead": "3, 3, NULL",
}
"""status, retry_count, next_retry_at."""


def fill(
    cursor: Any, count: int, state: str = "sent", *, days: float = 0, kind: str = "order", table: str = "outbox_event"
) -> None:
    """Insert `count` rows of one state, created `days` ago; aggregates a0 to a999 in turn."""
    # Of the two names MySQL sees the first, MariaDB the second.
    depth = "/*!80003 cte_max_recursion_depth */ /*M! max_recursive_iterations */"
    cursor.execute(f"SET SESSION {depth} = {count + 1}")
    cursor.execute(
        f"INSERT INTO {table} (event_id, aggregate_type, aggregate_id, event_type, payload,"
        "  status, retry_count, next_retry_at, created_at, updated_at)"
        f" WITH RECURSIVE one (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM one WHERE n < {count - 1})"
        f" SELECT UUID(), '{kind}', CONCAT('a', n % 1000), 'OrderPlaced', JSON_OBJECT('n', n), {CASES[state]},"
        f"  NOW() - INTERVAL {int(days * 86_400)} SECOND, NOW() - INTERVAL {int(days * 86_400)} SECOND FROM one"
    )


def rows_read(query: Callable[[str], list[tuple[Any, ...]]], act: Callable[[], object]) -> int:
    """How many rows and index entries the session of `query` reads while `act` uses it."""

    def read() -> int:
        return sum(int(count) for _, count in query("SHOW SESSION STATUS LIKE 'Handler_read%'"))

    before, again = read(), read()
    act()
    return read() - again - (again - before)
