"""Topics that are missing or forbidden: which aggregate types wait for theirs, and when to look for it again. Pure.

The relay thread holds and releases; the poller reads which types wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc_outbox.kafka.publisher import Record

LOOK_EVERY = 5.0
"""Seconds between two look-ups of a topic that is not there."""


@dataclass
class _Hold:
    record: Record
    """One that the topic could not take, to ask about it again."""
    look_at: float


class TopicHolds:
    """Aggregate types whose topic is not there. Only where the type alone decides the topic."""

    def __init__(self) -> None:
        self._holds: dict[str, _Hold] = {}
        self.types: frozenset[str] = frozenset()
        """A new set with every change, for readers on other threads."""

    def add(self, aggregate_type: str, record: Record, now: float) -> None:
        self._holds.setdefault(aggregate_type, _Hold(record, now + LOOK_EVERY))
        self.types = frozenset(self._holds)

    def to_look_at(self, now: float) -> Iterator[tuple[str, Record]]:
        """Those whose time has come; each is due again later."""
        for aggregate_type, hold in list(self._holds.items()):
            if hold.look_at <= now:
                hold.look_at = now + LOOK_EVERY
                yield aggregate_type, hold.record

    def release(self, aggregate_type: str) -> None:
        del self._holds[aggregate_type]
        self.types = frozenset(self._holds)
