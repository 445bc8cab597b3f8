"""The metrics of one relay, each labelled with its name. Two relays in one process keep two registries."""

from __future__ import annotations

from typing import Literal

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

Outcome = Literal["sent", "failed", "dead", "parked", "skipped"]
OUTCOMES: tuple[Outcome, ...] = ("sent", "failed", "dead", "parked", "skipped")
CONTENT_TYPE = prometheus_client.CONTENT_TYPE_LATEST

_DELIVERY_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

# A second time series for each counter that says when it began: of no use to anybody here.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    """cdc_outbox_* for the relay `name`; attributes are ready to use: `metrics.events["sent"].inc(n)`."""

    def __init__(self, name: str) -> None:
        self.registry = CollectorRegistry()
        self._name = name

        events = self._counter("events_total", "Events by outcome, each retry counted", "outcome")
        self.events: dict[Outcome, Counter] = {one: events.labels(name, one) for one in OUTCOMES}
        self.retries = self._counter("retries_total", "Attempts that were not an event's first").labels(name)
        self.reordered = self._counter(
            "reordered_total", "Events published before an earlier one of their aggregate"
        ).labels(name)
        self.delivery_seconds = Histogram(
            "cdc_outbox_delivery_seconds",
            "From commit to the broker's acknowledgement",
            ["relay"],
            registry=self.registry,
            buckets=_DELIVERY_BUCKETS,
        ).labels(name)

        self.lag_seconds = self._gauge("lag_seconds", "Age of the oldest commit that is not settled").labels(name)
        self.in_flight = self._gauge("in_flight", "Events read and not yet settled").labels(name)
        self.blocked_aggregates = self._gauge(
            "blocked_aggregates", "Aggregates whose events wait for an earlier one"
        ).labels(name)
        self.parked_events = self._gauge("parked_events", "Rows waiting behind an earlier event").labels(name)
        self.dead_events = self._gauge("dead_events", "Rows whose retries are used up").labels(name)
        self.leader = self._gauge("leader", "1 while this relay leads").labels(name)
        self.binlog_retention_left_seconds = self._gauge(
            "binlog_retention_left_seconds", "Time until the server may purge what is still to be read"
        ).labels(name)

        self._hold = self._gauge("hold", "1 while the relay waits for this", "reason")
        self._alerts = self._counter("alerts_total", "Alerts, held back ones included", "kind")
        for reason in ("kafka", "mysql"):
            self.hold(reason, False)

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
