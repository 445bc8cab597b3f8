"""How long to wait between attempts, and when to speak of them: doubling, bounded, quiet."""

from __future__ import annotations


class Backoff:
    """consecutive_errors counts since the last `reset`; `next` gives seconds."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self.consecutive_errors = 0

    def next(self) -> float:
        wait: float = min(self._longest, self._first * 2 ** min(self.consecutive_errors, 32))
        self.consecutive_errors += 1
        return wait

    def reset(self) -> None:
        self.consecutive_errors = 0
