"""Topic, key, headers and timestamp of records and dead letters."""

from __future__ import annotations

import time

import pytest

from cdc_outbox.config import ColumnSettings, KafkaSettings
from cdc_outbox.errors import RecordRefused
from cdc_outbox.kafka.routing import Router
from cdc_outbox.kafka.topics import record_bytes
from cdc_outbox.model import Event, TableName

COMMITTED = int(time.time() * 1000) - 60_000


def event(**fields: object) -> Event:
    values: dict[str, object] = {
        "table": TableName("shop", "outbox_event"),
        "id": 7,
        "event_id": "e-7",
        "aggregate_type": "order",
        "aggregate_id": "o-1",
        "event_type": "OrderCreated",
        "payload": b'{"a": 1}',
        "committed_at": COMMITTED,
    }
    return Event(**{**values, **fields})  # type: ignore[arg-type]


def router(columns: dict[str, object] | None = None, **kafka: object) -> Router:
    return Router(
        ColumnSettings(**(columns or {})),  # type: ignore[arg-type]
        KafkaSettings(bootstrap_servers="kafka:9092", **kafka),  # type: ignore[arg-type]
    )


def test_a_record_as_the_contract_says() -> None:
    one = event()
    record = router().record(one)
    assert record.topic == "outbox.event.order"
    assert record.key == b"o-1"
    assert record.value == b'{"a": 1}'
    assert record.headers == [
        ("event_id", b"e-7"),
        ("event_type", b"OrderCreated"),
        ("aggregate_type", b"order"),
        ("aggregate_id", b"o-1"),
        ("outbox_id", b"7"),
    ]
    assert record.timestamp == COMMITTED
    assert record.token is one


def test_text_is_utf_8_and_null_is_a_tombstone() -> None:
    record = router(topic="orders").record(event(aggregate_id="größe-订单", event_type="Erzeugt ✓", payload=None))
    assert record.key == "größe-订单".encode()
    assert ("event_type", "Erzeugt ✓".encode()) in record.headers
    assert record.value is None


@pytest.mark.parametrize(
    ("template", "topic"),
    [
        ("orders", "orders"),
        ("x.{aggregate_type}.{event_type}", "x.order.OrderCreated"),
        ("{aggregate_id}", "o-1"),
    ],
)
def test_templates(template: str, topic: str) -> None:
    assert router(topic=template).record(event()).topic == topic


def test_a_template_is_filled_anew_for_each_event() -> None:
    by_event = router(topic="{event_type}")
    assert [by_event.record(event(event_type=one)).topic for one in ("A", "B")] == ["A", "B"]
    by_type = router()
    topics = [by_type.record(event(aggregate_type=one)).topic for one in ("order", "user", "order")]
    assert topics == ["outbox.event.order", "outbox.event.user", "outbox.event.order"]


@pytest.mark.parametrize("aggregate_type", ["order item", "größe", "x" * 250, "a/b"])
def test_a_type_that_no_topic_name_can_hold_is_refused_until_it_is_mapped(aggregate_type: str) -> None:
    with pytest.raises(RecordRefused, match="topic_map") as refused:
        router().record(event(aggregate_type=aggregate_type))
    assert refused.value.name == "INVALID_TOPIC_EXCEPTION"
    mapped = router(topic_map={aggregate_type: "order-items"})
    assert mapped.record(event(aggregate_type=aggregate_type)).topic == "order-items"


@pytest.mark.parametrize("topic", [".", ".."])
def test_names_of_dots_alone_are_no_topics(topic: str) -> None:
    with pytest.raises(RecordRefused):
        router(topic="{aggregate_type}").record(event(aggregate_type=topic))


def test_braces_in_a_row_are_only_text() -> None:
    with pytest.raises(RecordRefused, match="cannot be a topic"):
        router(topic="{aggregate_type}").record(event(aggregate_type="{aggregate_id.__class__}"))


def test_mapped_columns() -> None:
    mapped = router({"key": "customer", "topic": "goes_to", "headers": {"tenant": "tenant", "type": "event_type"}})
    record = mapped.record(event(columns={"customer": "c-9", "goes_to": "billing", "tenant": "acme"}))
    assert (record.topic, record.key) == ("billing", b"c-9")
    assert record.headers[5:] == [("tenant", b"acme"), ("type", b"OrderCreated")]


def test_null_in_a_mapped_column() -> None:
    mapped = router({"key": "customer", "headers": {"tenant": "tenant"}})
    record = mapped.record(event(columns={"customer": None, "tenant": None}))
    assert record.key is None
    assert [name for name, _ in record.headers][5:] == []
    with pytest.raises(RecordRefused, match="column goes_to, which names the topic, is NULL"):
        router({"topic": "goes_to"}).record(event(columns={"goes_to": None}))


def test_the_timestamp_is_the_commit_then_the_creation_and_never_ahead_of_now() -> None:
    before = int(time.time() * 1000)
    future = before + 3_600_000
    swept = {"committed_at": None}
    assert router().record(event(**swept, created_at=COMMITTED)).timestamp == COMMITTED
    for fields in ({"committed_at": future}, {**swept, "created_at": future}, swept):
        assert before <= router().record(event(**fields)).timestamp <= int(time.time() * 1000)


def test_what_is_older_than_the_limit_gets_the_present_time_and_says_its_own() -> None:
    before = int(time.time() * 1000)
    old = event(committed_at=before - 86_400_000 - 1000)
    record = router().record(old)
    assert before <= record.timestamp <= int(time.time() * 1000)
    assert record.headers[5:] == [("committed_at", b"%d" % (before - 86_401_000))]
    young = router().record(event(committed_at=before - 86_400_000 + 60_000))
    assert (young.timestamp, young.headers[5:]) == (before - 86_340_000, [])
    assert router(timestamp_max_age="30s").record(event()).headers[5:] == [("committed_at", b"%d" % COMMITTED)]
    assert router(timestamp_max_age=None).record(event(committed_at=1)).timestamp == 1


REFUSED = RecordRefused("MESSAGE_TOO_LARGE", "MESSAGE_TOO_LARGE: much too large")


def test_a_dead_letter_is_the_record_and_what_happened_to_it() -> None:
    before = int(time.time() * 1000)
    one = event()
    letter = router(dead_letter_topic="graveyard").dead_letter(one, REFUSED, 4, "outbox.event.order", 10_000)
    record = router().record(one)
    assert (letter.topic, letter.key, letter.value, letter.token) == ("graveyard", record.key, record.value, one)
    assert letter.headers == [
        *record.headers,
        ("error_class", b"MESSAGE_TOO_LARGE"),
        ("error_message", b"MESSAGE_TOO_LARGE: much too large"),
        ("attempts", b"4"),
        ("original_topic", b"outbox.event.order"),
    ]
    assert letter.timestamp >= before


def test_a_dead_letter_that_is_too_large_leaves_its_value_out() -> None:
    one = event(payload=b"x" * 1000)
    size = record_bytes(router().dead_letter(one, REFUSED, 1, "t", 10_000))
    assert router().dead_letter(one, REFUSED, 1, "t", size).value == b"x" * 1000
    letter = router().dead_letter(one, REFUSED, 1, "t", size - 1)
    assert letter.value is None
    assert letter.headers[-1] == ("payload_omitted", b"true")


def test_a_dead_letter_of_an_event_without_a_topic() -> None:
    one = event(aggregate_type="order item")
    letter = router().dead_letter(one, RecordRefused("INVALID_TOPIC_EXCEPTION", "ü" * 5000), 1, "order item", 10_000)
    headers = dict(letter.headers)
    assert headers["original_topic"] == b"order item"
    assert headers["error_message"].decode() == "ü" * 500
