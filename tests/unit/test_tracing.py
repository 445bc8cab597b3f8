"""Spans that link to the trace a row names, and everything that is no reason to stop."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from cdc_outbox.config import Settings
from cdc_outbox.model import Event, TableName
from cdc_outbox.ops.tracing import Tracing, make_tracing

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@dataclass
class Published:
    event: Event
    handed_at: float


def published(traceparent: str | None, seconds: float = 0.0) -> Published:
    columns = {"trace": traceparent}
    event = Event(TableName("shop", "outbox_event"), 7, "e-7", "order", "o-1", "OrderPaid", b"{}", columns=columns)
    return Published(event, time.monotonic() - seconds)


def spans(*events: Published) -> list[object]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    Tracing(provider, "trace").published(events)
    return list(exporter.get_finished_spans())


def test_a_publish_is_a_span_linked_to_the_trace_of_its_row() -> None:
    (span,) = spans(published(f"00-{TRACE}-{SPAN}-01", seconds=2.0))
    (link,) = span.links  # type: ignore[attr-defined]
    assert (f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}") == (TRACE, SPAN)
    assert span.parent is None  # type: ignore[attr-defined]
    assert span.name == "publish order"  # type: ignore[attr-defined]
    assert 2.0 <= (span.end_time - span.start_time) / 1e9 < 30  # type: ignore[attr-defined]
    assert span.attributes["messaging.message.id"] == "e-7"  # type: ignore[attr-defined]
    assert "{}" not in str(span.attributes.values())  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "traceparent",
    [None, "", "nonsense", f"00-{TRACE}-{SPAN}-00", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{SPAN}-0x"],
    ids=["null", "empty", "no traceparent", "not sampled", "no trace", "no flags"],
)
def test_what_names_no_sampled_trace_has_no_span(traceparent: str | None) -> None:
    assert spans(published(traceparent)) == []


def settings(**headers: str) -> Settings:
    return Settings.model_validate(
        {
            "name": "orders",
            "mysql": {"user": "u", "password": "p", "database": "shop"},
            "kafka": {"bootstrap_servers": "k:1"},
            "outbox": {"columns": {"headers": headers}},
        }
    )


def test_nobody_asked_for_traces() -> None:
    assert make_tracing(settings(traceparent="trace"), {}) is None
    assert make_tracing(settings(traceparent="trace"), {"OTEL_TRACES_EXPORTER": "none"}) is None


@pytest.mark.parametrize(
    ("headers", "exporter", "said"),
    [
        ({}, "otlp", "no column is mapped to the header traceparent"),
        ({"traceparent": "trace"}, "zipkin", "OTEL_TRACES_EXPORTER=zipkin is not known here"),
    ],
)
def test_what_cannot_be_set_up_is_a_warning(
    caplog: pytest.LogCaptureFixture, headers: dict[str, str], exporter: str, said: str
) -> None:
    with caplog.at_level(logging.WARNING, "cdc_outbox"):
        assert make_tracing(settings(**headers), {"OTEL_TRACES_EXPORTER": exporter}) is None
    (record,) = caplog.records
    assert vars(record)["event"] == "no_traces"
    assert said in record.getMessage()
