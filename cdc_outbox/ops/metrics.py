"""The metrics of one relay, each labelled with its name. Two relays in one process keep two registries."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Literal

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from cdc_outbox import __version__
from cdc_outbox.binlog.accelerator import decoder

Outcome = Literal["sent", "failed", "dead", "parked", "skipped"]
OUTCOMES: tuple[Outcome, ...] = ("sent", "failed", "dead", "parked", "skipped")
HOLDS = ("kafka", "mysql", "paused", "partition", "source", "topic")
"""Reasons of cdc_outbox_hold."""

ALERT_KINDS = (
    "binlog_lost",
    "checkpoint_file",
    "dead_letter_refused",
    "event_dead",
    "event_failed",
    "hold",
    "partition_stuck",
    "row_changed",
    "row_locked",
    "sending_abandoned",
    "source_behind",
    "topic_missing",
    "unexpected_error",
)
"""Every kind is there at 0 from the beginning: of a counter that appears at 1, Prometheus sees no increase."""
CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST

_DELIVERY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

# A second time series for each counter that says when it began: of no use to anybody here.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class DeliveryHistogram(Collector):
    """From commit to the broker's acknowledgement, for many events at a time.

    prometheus_client's own histogram takes two locks for each observation: more than all else that an event costs
    between its acknowledgement and its settling.
    """

    def __init__(self, relay: str) -> None:
        self._relay = relay
        self._counts = [0] * (len(_DELIVERY_BUCKETS) + 1)
        self._sum = 0.0

    def observe(self, seconds: Iterable[float]) -> None:
        """Count these delays. For one thread; a scrape on another may see part of a call."""
        counts, total = self._counts, 0.0
        for delay in seconds:
            counts[bisect_left(_DELIVERY_BUCKETS, delay)] += 1
            total += delay
        self._sum += total

    def collect(self) -> Iterator[Metric]:
        bounds = [*(f"{bound:g}" for bound in _DELIVERY_BUCKETS), "+Inf"]
        family = HistogramMetricFamily(
            "cdc_outbox_delivery_seconds", "From commit to the broker's acknowledgement", labels=["relay"]
        )
        family.add_metric([self._relay], list(zip(bounds, accumulate(self._counts), strict=True)), self._sum)
        yield family


class Metrics:
    """cdc_outbox_* for the relay `name`; attributes are ready to use: `metrics.events["sent"].inc(n)`."""

    def __init__(self, name: str) -> None:
        self.registry = CollectorRegistry()
        self._name = name

        build = self._gauge("build_info", "1, for what runs here", "version", "decoder")
        build.labels(name, __version__, decoder().kind).set(1)
        events = self._counter("events_total", "Events by outcome, each retry counted", "outcome")
        self.events: dict[Outcome, Counter] = {one: events.labels(name, one) for one in OUTCOMES}
        self.retries = self._counter("retries_total", "Attempts that were not an event's first").labels(name)
        self.reordered = self._counter(
            "reordered_total", "Events published before an earlier one of their aggregate"
        ).labels(name)
        self.delivery_seconds = DeliveryHistogram(name)
        self.registry.register(self.delivery_seconds)

        self.oldest_commit: int | None = None
        """Of what is not settled, in ms since the epoch. Kept through a hold, in which nothing looks any more."""
        self._gauge("lag_seconds", "Age of the oldest commit that is not settled").labels(name).set_function(self.lag)
        self.in_flight = self._gauge("in_flight", "Events read and not yet settled").labels(name)
        self.blocked_aggregates = self._gauge(
            "blocked_aggregates", "Aggregates whose events wait for an earlier one"
        ).labels(name)
        self.parked_events = self._gauge("parked_events", "Rows waiting behind an earlier event").labels(name)
        self.dead_events = self._gauge("dead_events", "Rows whose retries are used up").labels(name)
        self.leader = self._gauge("leader", "1 while this relay leads").labels(name)
        self._retention = self._gauge(
            "binlog_retention_left_seconds", "Time until the server may purge what is still to be read"
        )

        self._hold = self._gauge("hold", "1 while the relay waits for this", "reason")
        self._alerts = self._counter("alerts_total", "Alerts, held back ones included", "kind")
        for reason in HOLDS:
            self.hold(reason, False)
        for kind in ALERT_KINDS:
            self._alerts.labels(name, kind)

    def lag(self) -> float:
        """Seconds since the oldest commit that is not settled; 0 without one."""
        return 0.0 if self.oldest_commit is None else max(0.0, time.time() - self.oldest_commit / 1000)

    def follow(self) -> None:
        """Another relay leads: what this one knew of the tables is no longer true and must alarm nobody."""
        self.leader.set(0)
        self.oldest_commit = None
        for gauge in (self.in_flight, self.blocked_aggregates, self.parked_events, self.dead_events):
            gauge.set(0)
        for reason in HOLDS:
            self.hold(reason, False)
        # Absent, not 0: 0 would mean that the binlog may be purged now.
        self._retention.clear()

    def keeps_binlogs(self, seconds: int | None) -> None:
        """How long the server keeps its binlogs; None: until somebody purges them, and then there is no such metric."""
        if seconds is None:
            self._retention.clear()
        else:
            # Asked at each scrape: in a long hold nobody else counts down.
            self._retention.labels(self._name).set_function(lambda: max(0.0, seconds - self.lag()))

    def hold(self, reason: str, on: bool) -> None:
        """Say that the relay waits for `reason`, or no longer does."""
        self._hold.labels(self._name, reason).set(on)

    def alert(self, kind: str) -> None:
        self._alerts.labels(self._name, kind).inc()

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"cdc_outbox_{name}", meaning, ["relay", *labels], registry=self.registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(f"cdc_outbox_{name}", meaning, ["relay", *labels], registry=self.registry)
