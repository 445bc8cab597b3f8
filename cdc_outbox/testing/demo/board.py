"""What is known of each event of this demo, from three sides: the order service, the table, and Kafka."""

from __future__ import annotations

import statistics
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from cdc_outbox.model import Status
from cdc_outbox.testing.demo.orders import Written

DEAD = "dead"
RECENT = 100


@dataclass
class Line:
    """One event. latency: seconds from just before its COMMIT until a consumer had it."""

    written: Written
    state: str = Status.PENDING.name.lower()
    topic: str = ""
    partition: int = -1
    latency: float | None = None
    copies: int = 0


@dataclass
class Totals:
    written: int = 0
    states: Counter[str] = field(default_factory=Counter)
    in_kafka: int = 0
    duplicates: int = 0
    latencies: list[float] = field(default_factory=list)
    """Of the events that were written last and have arrived: an outage long ago is no figure of today."""

    @property
    def missing(self) -> int:
        """Events that no consumer has seen yet."""
        return self.written - self.in_kafka

    def percentile(self, percent: int) -> float | None:
        """In seconds; None before two events have arrived."""
        if len(self.latencies) < 2:
            return None
        return statistics.quantiles(self.latencies, n=100, method="inclusive")[percent - 1]


class Board:
    """Thread-safe. An event that Kafka shows before its COMMIT has returned waits for the order service's word."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, Line] = {}
        self._early: dict[str, list[tuple[str, int, float]]] = {}

    def add(self, written: Written) -> None:
        with self._lock:
            self._lines[written.event_id] = Line(written)
            for topic, partition, at in self._early.pop(written.event_id, []):
                self._see(self._lines[written.event_id], topic, partition, at)

    def see(self, event_id: str, topic: str, partition: int, at: float) -> None:
        """A consumer has it. at: seconds since the epoch."""
        with self._lock:
            line = self._lines.get(event_id)
            if line is None:
                self._early.setdefault(event_id, []).append((topic, partition, at))
            else:
                self._see(line, topic, partition, at)

    def set_states(self, rows: Iterable[tuple[str, int, bool]]) -> None:
        """What the table says. rows: (event_id, status, dead)."""
        with self._lock:
            for event_id, status, dead in rows:
                if event_id in self._lines:
                    self._lines[event_id].state = DEAD if dead else Status(status).name.lower()

    def unsettled(self) -> list[str]:
        """The event_ids whose state may still change."""
        with self._lock:
            return [name for name, line in self._lines.items() if line.state not in ("sent", DEAD)]

    def latest(self, count: int) -> list[Line]:
        with self._lock:
            return list(self._lines.values())[-count:]

    def totals(self) -> Totals:
        with self._lock:
            totals = Totals(written=len(self._lines))
            for line in self._lines.values():
                totals.states[line.state] += 1
                totals.in_kafka += line.copies > 0
                totals.duplicates += max(0, line.copies - 1)
            totals.latencies = [line.latency for line in self._lines.values() if line.latency is not None][-RECENT:]
            return totals

    @staticmethod
    def _see(line: Line, topic: str, partition: int, at: float) -> None:
        line.copies += 1
        if line.copies == 1:
            line.topic, line.partition, line.latency = topic, partition, max(0.0, at - line.written.at)
