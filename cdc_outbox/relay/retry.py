"""The retry policy: what a refused event's row is to say next. Pure; the database's clock does the counting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RetryPolicy:
    """waits: seconds before retry 1, 2, 3 …; past the list its last value repeats. jitter: ± share of a wait."""

    waits: Sequence[float]
    jitter: float = 0.0

    def wait(self, retry_count: int, max_retries: int, random: Callable[[], float]) -> int | None:
        """Whole seconds until the next retry, None when all are used up.

        retry_count and max_retries are the row's columns before this failure; random gives 0.0 ≤ x < 1.0.
        """
        if retry_count >= max_retries:
            return None
        base = self.waits[min(retry_count, len(self.waits) - 1)]
        spread = base * self.jitter * (2.0 * random() - 1.0)
        return max(1, round(base + spread)) if base >= 1 else round(base)
