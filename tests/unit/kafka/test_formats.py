"""CloudEvents read back by their own SDK, and Debezium's records as a real Debezium wrote them."""

from __future__ import annotations

import importlib.util
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary_event, from_structured_event

from cdc_outbox.config import ColumnSettings, KafkaSettings
from cdc_outbox.errors import RecordRefused, Refused
from cdc_outbox.kafka.formats import make_router
from cdc_outbox.kafka.publisher import Record
from cdc_outbox.kafka.routing import Router
from cdc_outbox.model import Event, TableName

COMMITTED = int(time.time() * 1000) - 60_000
GOLDEN = Path(__file__).parents[2] / "golden" / "debezium.json"
CLOUD = pytest.mark.parametrize("form", ["cloudevents", "cloudevents-structured"])


def event(**fields: object) -> Event:
    values: dict[str, object] = {
        "table": TableName("shop", "outbox_event"),
        "id": 7,
        "event_id": "e-7",
        "aggregate_type": "order",
        "aggregate_id": "größe-订单",
        "event_type": "OrderCreated",
        "payload": b'{"a": 1.10}',
        "committed_at": COMMITTED,
    }
    return Event(**{**values, **fields})  # type: ignore[arg-type]


def router(form: str, columns: dict[str, object] | None = None) -> Router:
    return make_router(
        ColumnSettings(**(columns or {})),  # type: ignore[arg-type]
        KafkaSettings(bootstrap_servers="kafka:9092", format=form),  # type: ignore[arg-type]
    )


def read_back(form: str, record: Record) -> Any:
    message = KafkaMessage(dict(record.headers), record.key, record.value or b"")
    return from_binary_event(message) if form == "cloudevents" else from_structured_event(message)


@CLOUD
def test_the_sdk_reads_what_was_written(form: str) -> None:
    record = router(form).record(event())
    assert (record.topic, record.key, record.timestamp) == ("outbox.event.order", "größe-订单".encode(), COMMITTED)
    found = read_back(form, record)
    assert found.get_data() == {"a": 1.1}
    attributes = found.get_attributes()
    assert attributes.pop("time") == datetime.fromtimestamp(COMMITTED / 1000, UTC)
    assert attributes == {
        "specversion": "1.0",
        "id": "e-7",
        "source": "/shop/outbox_event",
        "type": "OrderCreated",
        "subject": "größe-订单",
        "partitionkey": "größe-订单",
        "aggregatetype": "order",
        "outboxid": "7",
        "datacontenttype": "application/json",
    }


def test_the_payload_keeps_every_digit() -> None:
    payload = '{"d": 1.10, "n": 12345678901234567890123, "t": "订单"}'.encode()
    assert router("cloudevents").record(event(payload=payload)).value == payload
    assert payload in (router("cloudevents-structured").record(event(payload=payload)).value or b"")


def test_binary_mode_has_the_headers_of_the_kafka_binding() -> None:
    headers = dict(router("cloudevents").record(event()).headers)
    assert headers["content-type"] == b"application/json"
    assert (headers["ce_specversion"], headers["ce_id"], headers["ce_type"]) == (b"1.0", b"e-7", b"OrderCreated")
    structured = router("cloudevents-structured").record(event()).headers
    assert structured == [("content-type", b"application/cloudevents+json")]


@CLOUD
@pytest.mark.parametrize(
    ("payload", "content_type", "data"),
    [(b"no json", "text/plain", "no json"), (b"\xff\x00", "application/octet-stream", b"\xff\x00")],
)
def test_what_is_no_json_is_not_announced_as_json(form: str, payload: bytes, content_type: str, data: object) -> None:
    record = router(form).record(event(payload=payload))
    if form == "cloudevents":
        assert (dict(record.headers)["content-type"], record.value) == (content_type.encode(), payload)
    else:
        found = read_back(form, record)
        assert (found.get_datacontenttype(), found.get_data()) == (content_type, data)


def test_null_is_a_tombstone_in_binary_mode_and_no_data_in_structured_mode() -> None:
    assert router("cloudevents").record(event(payload=None)).value is None
    structured = json.loads(router("cloudevents-structured").record(event(payload=None)).value or b"")
    assert "data" not in structured and "datacontenttype" not in structured


@CLOUD
def test_an_event_without_a_type_is_refused_and_dies_as_it_is(form: str) -> None:
    nameless = event(event_type="", payload=b"{}")
    with pytest.raises(RecordRefused, match="wrong are: type"):
        router(form).record(nameless)
    assert router(form).topic(nameless) == "outbox.event.order"
    letter = router(form).dead_letter(nameless, RecordRefused("INVALID_RECORD", "bad"), 4, "t", 10_000)
    assert letter.value == b"{}"
    assert dict(letter.headers)["event_id"] == b"e-7"


@CLOUD
def test_an_aggregate_without_a_name_has_no_subject(form: str) -> None:
    attributes = read_back(form, router(form).record(event(aggregate_id=""))).get_attributes()
    assert "subject" not in attributes


@pytest.mark.parametrize("form", ["cloudevents", "cloudevents-structured", "debezium"])
def test_mapped_columns_and_dead_letters_are_those_of_the_plain_format(form: str) -> None:
    columns: dict[str, object] = {"headers": {"tenant": "tenant"}}
    one = event(columns={"tenant": "acme"})
    assert ("tenant", b"acme") in router(form, columns).record(one).headers
    letter = router(form, columns).dead_letter(one, RecordRefused("X", "x"), 4, "outbox.event.order", 10_000)
    headers = [name for name, _ in letter.headers]
    assert {"event_id", "event_type", "aggregate_type", "aggregate_id", "outbox_id"} < set(headers)
    assert len(headers) == len(set(headers))
    assert dict(letter.headers)["original_topic"] == b"outbox.event.order"
    assert letter.value == router(form, columns).record(one).value


@pytest.mark.parametrize("number", range(len(json.loads(GOLDEN.read_text("utf-8")))))
def test_debeziums_records(number: int) -> None:
    golden = json.loads(GOLDEN.read_text("utf-8"))[number]
    aggregate, event_type, payload = golden["row"]
    record = router("debezium").record(
        event(event_id=golden["headers"]["id"], aggregate_id=aggregate, event_type=event_type, payload=payload.encode())
    )
    assert record.key is not None and record.key.decode() == golden["key"]
    assert {name: value.decode() for name, value in record.headers} == golden["headers"]
    assert json.loads(record.value or b"") == json.loads(golden["value"])


def test_a_format_whose_library_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Refused, match="CloudEvents SDK is not installed") as refused:
        router("cloudevents")
    assert "cdc-outbox[cloudevents]" in (refused.value.hint or "")
    router("debezium")
