"""Record formats besides plain: CloudEvents, binary and structured, and what Debezium's outbox event router writes.

A format decides about value and headers only; topic, key and timestamp are the router's in every format.
"""

from __future__ import annotations

import importlib.util
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from cdc_outbox.errors import RecordRefused, Refused
from cdc_outbox.kafka.outcomes import INVALID_RECORD
from cdc_outbox.kafka.routing import Content, Router

if TYPE_CHECKING:
    from cdc_outbox.config import ColumnSettings, KafkaSettings
    from cdc_outbox.model import Event

_JSON, _TEXT, _BYTES = "application/json", "text/plain", "application/octet-stream"


def make_router(columns: ColumnSettings, kafka: KafkaSettings) -> Router:
    """The router of `kafka.format`. Raises Refused where the format's library is not installed."""
    missing = missing_library(kafka)
    if missing is not None:
        raise missing
    routers = {
        "plain": Router,
        "debezium": DebeziumRouter,
        "cloudevents": BinaryCloudEventsRouter,
        "cloudevents-structured": StructuredCloudEventsRouter,
    }
    return routers[kafka.format](columns, kafka)


def missing_library(kafka: KafkaSettings) -> Refused | None:
    """Why this format cannot be written here, or None."""
    if not kafka.format.startswith("cloudevents") or importlib.util.find_spec("cloudevents") is not None:
        return None
    return Refused(
        f"kafka.format is {kafka.format}, but the CloudEvents SDK is not installed",
        hint="pip install 'cdc-outbox[cloudevents]', or set kafka.format: plain",
    )


class DebeziumRouter(Router):
    """Records as Debezium's outbox EventRouter makes them with StringConverter: headers `id` and `eventType`.

    https://debezium.io/documentation/reference/3.6/transformations/outbox-event-router.html, with
    `table.fields.additional.placement` giving the event's type to the header eventType. The value is equal as JSON:
    Debezium prints numbers and blanks in its own way, this is MySQL's text.
    """

    def _content(self, event: Event) -> Content:
        headers = [("id", event.event_id.encode()), ("eventType", event.event_type.encode())]
        return event.payload, headers + self._mapped_headers(event)

    def _letter_content(self, event: Event) -> Content:
        return _with_the_plain_headers(self._content(event), Router._content(self, event))


class _CloudEventsRouter(Router):
    """CloudEvents 1.0 by the official SDK, which also checks the attributes."""

    def __init__(self, columns: ColumnSettings, kafka: KafkaSettings) -> None:
        # The SDK is an optional dependency.
        from cloudevents.core.bindings import kafka as binding  # noqa: PLC0415
        from cloudevents.core.exceptions import CloudEventValidationError  # noqa: PLC0415
        from cloudevents.core.v1.event import CloudEvent  # noqa: PLC0415

        super().__init__(columns, kafka)
        self._binding = binding
        self._cloud_event = CloudEvent
        self._invalid = CloudEventValidationError

    def _letter_content(self, event: Event) -> Content:
        plain = Router._content(self, event)
        try:
            return _with_the_plain_headers(self._content(event), plain)
        except RecordRefused:  # what cannot be a CloudEvent dies as it stands in its row
            return plain

    def _as_cloud_event(self, event: Event, content_type: str | None) -> Any:
        """The event without its data. Raises RecordRefused where CloudEvents has no room for it."""
        attributes: dict[str, Any] = {
            "specversion": "1.0",
            "id": event.event_id,
            "source": f"/{quote(event.table.database, safe='')}/{quote(event.table.name, safe='')}",
            "type": event.event_type,
            "time": _instant(event),
            "aggregatetype": event.aggregate_type,
            "outboxid": str(event.id),
        }
        if content_type is not None:
            attributes["datacontenttype"] = content_type
        if event.aggregate_id:
            attributes["subject"] = event.aggregate_id
        key = self._key(event)
        if key:
            attributes["partitionkey"] = key.decode()
        try:
            return self._cloud_event(attributes)
        except self._invalid as error:
            wrong = ", ".join(sorted(error.errors))
            raise RecordRefused(
                INVALID_RECORD, f"{INVALID_RECORD}: no CloudEvent can be made of it, wrong are: {wrong}"
            ) from None


class BinaryCloudEventsRouter(_CloudEventsRouter):
    """Attributes as headers `ce_…`, the payload itself as value."""

    def _content(self, event: Event) -> Content:
        content_type = None if event.payload is None else _content_type(event.payload)
        message = self._binding.to_binary_event(self._as_cloud_event(event, content_type))
        return event.payload, [*message.headers.items(), *self._mapped_headers(event)]


class StructuredCloudEventsRouter(_CloudEventsRouter):
    """One JSON object with the attributes and, under `data`, the payload: its text, digit by digit."""

    def _content(self, event: Event) -> Content:
        content_type = None if event.payload is None else _content_type(event.payload)
        cloud_event = self._as_cloud_event(event, content_type)
        if event.payload is not None and content_type != _JSON:
            text = event.payload.decode() if content_type == _TEXT else event.payload
            cloud_event = self._cloud_event(cloud_event.get_attributes(), text)
        message = self._binding.to_structured_event(cloud_event)
        value: bytes = message.value
        if event.payload is not None and content_type == _JSON:
            # The SDK would read the payload and print it again, and 1.10 would come out as 1.1.
            value = value[:-1] + b', "data": ' + event.payload + b"}"
        return value, [*message.headers.items(), *self._mapped_headers(event)]


def _with_the_plain_headers(content: Content, plain: Content) -> Content:
    """Dead letters have the plain headers in every format: who reads them needs to know one form only."""
    value, headers = content
    there = {name for name, _ in headers}
    return value, headers + [header for header in plain[1] if header[0] not in there]


def _instant(event: Event) -> datetime:
    """When it was committed, or, for a row found by SQL, created; now where neither is known."""
    milliseconds = event.committed_at or event.created_at
    if milliseconds is None:
        return datetime.now(UTC)
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _content_type(payload: bytes) -> str:
    try:
        json.loads(payload.decode(), parse_float=str, parse_int=str)
    except UnicodeDecodeError:
        return _BYTES
    except ValueError:
        return _TEXT
    return _JSON
