"""OpenTelemetry: one span for each publish, linked to the trace that the row names. Optional, set up by OTEL_… names.

Never stops the relay: what cannot be set up is a warning, what is no traceparent is left out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from cdc_outbox.ops.log import log_event

if TYPE_CHECKING:
    from cdc_outbox.config import Settings
    from cdc_outbox.model import Event

logger = logging.getLogger(__name__)

HEADER = "traceparent"
SHUTDOWN_MILLISECONDS = 3000

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
"""https://www.w3.org/TR/trace-context/#traceparent-header"""
_SAMPLED = 1


class Published(Protocol):
    """An event whose record was acknowledged. handed_at: when it was given to the client, time.monotonic()."""

    event: Event
    handed_at: float


class Tracing:
    """Spans for acknowledged events whose trace is sampled. column: where the traceparent stands in a row."""

    def __init__(self, provider: Any, column: str) -> None:
        from opentelemetry import trace  # noqa: PLC0415 - an optional dependency

        self._api = trace
        self._provider = provider
        self._tracer = provider.get_tracer("cdc_outbox")
        self._column = column

    def published(self, acknowledged: Iterable[Published]) -> None:
        """Tell of these, a moment after their acknowledgement."""
        end, now = time.time_ns(), time.monotonic()
        for one in acknowledged:
            context = self._context((one.event.columns or {}).get(self._column))
            if context is None:
                continue
            event = one.event
            span = self._tracer.start_span(
                f"publish {event.aggregate_type}",
                kind=self._api.SpanKind.PRODUCER,
                start_time=end - int(max(0.0, now - one.handed_at) * 1e9),
                links=[self._api.Link(context)],
                attributes={
                    "messaging.system": "kafka",
                    "messaging.operation.type": "send",
                    "messaging.message.id": event.event_id,
                    "messaging.kafka.message.key": event.aggregate_id,
                    "cdc_outbox.event_type": event.event_type,
                    "cdc_outbox.outbox_id": event.id,
                },
            )
            span.end(end)

    def close(self) -> None:
        """Send what is left, for a few seconds at most."""
        with contextlib.suppress(Exception):
            self._provider.force_flush(SHUTDOWN_MILLISECONDS)
            self._provider.shutdown()

    def _context(self, traceparent: str | None) -> Any:
        found = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
        if found is None or not int(found[3], 16) & _SAMPLED:
            return None
        context = self._api.SpanContext(
            int(found[1], 16), int(found[2], 16), is_remote=True, trace_flags=self._api.TraceFlags(_SAMPLED)
        )
        return context if context.is_valid else None


def make_tracing(settings: Settings, environ: Mapping[str, str] = os.environ) -> Tracing | None:
    """As OTEL_TRACES_EXPORTER=otlp and the other OTEL_ variables say; None where nobody asks for traces."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "none")
    if exporter == "none" or environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    column = settings.outbox.columns.headers.get(HEADER)
    if column is None:
        _without(f"no column is mapped to the header {HEADER}", "outbox: {columns: {headers: {traceparent: COLUMN}}}")
        return None
    if exporter != "otlp":
        _without(f"OTEL_TRACES_EXPORTER={exporter} is not known here", "OTEL_TRACES_EXPORTER=otlp")
        return None
    try:
        # An optional dependency, and slow to import.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError:
        _without("the OpenTelemetry SDK is not installed", "pip install 'cdc-outbox[otel]'")
        return None
    resource = Resource.create(
        {"service.name": environ.get("OTEL_SERVICE_NAME", "cdc-outbox"), "service.instance.id": settings.name}
    )
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider, column)


def _without(why: str, fix: str) -> None:
    log_event(logger, logging.WARNING, "no_traces", f"Traces were asked for, but {why}; going on without", fix=fix)
