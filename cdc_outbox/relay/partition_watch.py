"""Looks for partitions that are stuck, now and then, and says so: metrics, alerts, log. Used by the relay thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from cdc_outbox.errors import Hold
from cdc_outbox.ops.log import log_event
from cdc_outbox.relay.partition_holds import HeldPartitions, Partition, PartitionHolds

if TYPE_CHECKING:
    from cdc_outbox.kafka.publisher import Publisher
    from cdc_outbox.ops.log import Alerts
    from cdc_outbox.ops.metrics import Metrics
    from cdc_outbox.relay.budget import Budget
    from cdc_outbox.relay.in_flight import InFlight

logger = logging.getLogger(__name__)

LOOK_EVERY = 0.25
"""Seconds between two looks at what is out."""


class PartitionWatch:
    """topics: see PartitionHolds; empty where more than the aggregate decides a record's partition."""

    def __init__(
        self,
        *,
        topics: Mapping[str, str],
        publisher: Publisher,
        ledger: InFlight,
        budget: Budget,
        metrics: Metrics,
        alerts: Alerts,
        linger: float,
    ) -> None:
        self._publisher = publisher
        self._ledger = ledger
        self._budget = budget
        self._metrics = metrics
        self._alerts = alerts
        self._holds = PartitionHolds(
            topics, self._leaders, max_events=budget.max_events, max_bytes=budget.max_bytes, linger=linger
        )
        self._looked_at = float("-inf")
        metrics.hold("partition", False)  # what an earlier incarnation held is found anew

    @property
    def held(self) -> HeldPartitions:
        """Partitions that get nothing more for now. From any thread."""
        return self._holds.held

    def look(self, latest: float, *, all_wait: bool) -> None:
        """latest: when the last of what was ever acknowledged was sent. all_wait: nothing goes out before what is out
        has come back."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY:
            return
        self._looked_at = now
        stuck, held = self._holds.stuck, self._holds.held.partitions
        self._holds.look(now, self._ledger.undelivered(), latest, hold_all=all_wait)
        self._budget.set_aside(*self._holds.aside, held=self._holds.waiting)
        if self._holds.stuck != stuck or self._holds.held.partitions != held:
            self._tell(stuck, held)

    def _leaders(self, topic: str) -> Sequence[bool] | None:
        try:
            return self._publisher.leaders(topic)
        except Hold:
            return None

    def _tell(self, stuck_before: frozenset[Partition], held_before: frozenset[Partition]) -> None:
        stuck, held = self._holds.stuck, self._holds.held.partitions
        self._metrics.hold("partition", bool(stuck))
        for topic, numbers in _by_topic(stuck - stuck_before):
            line = (
                f"{numbers} of topic {topic} acknowledges nothing; nothing is lost and no retry spent,"
                " all other partitions go on"
            )
            self._alerts.alert("partition_stuck", line, topic=topic)
        for topic, numbers in _by_topic(held - held_before):
            line = (
                f"What waits for {numbers} of topic {topic} fills half of what may be in flight: what else is bound for"
                " there waits in the table"
            )
            log_event(logger, logging.WARNING, "partition_held", line, topic=topic)
        for topic, numbers in _by_topic(stuck_before - stuck):
            line = f"{numbers} of topic {topic} acknowledges again: what waited for it goes now"
            log_event(logger, logging.INFO, "partition_back", line, topic=topic)


def _by_topic(partitions: Collection[Partition]) -> Iterator[tuple[str, str]]:
    """(topic, its partitions in words)."""
    for topic, of_topic in groupby(sorted(partitions), key=lambda one: one[0]):
        numbers = [str(number) for _, number in of_topic]
        yield topic, f"Partition{'s' * (len(numbers) > 1)} {', '.join(numbers)}"
