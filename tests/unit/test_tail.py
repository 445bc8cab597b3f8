"""Which topics are a relay's, and what a record of each format says of its event."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_outbox.config import Settings
from cdc_outbox.errors import Refused
from cdc_outbox.kafka.follower import Followed
from cdc_outbox.ops.tail import Topics, Wanted, arrival_of


def settings(columns: dict[str, Any] | None = None, **kafka: Any) -> Settings:
    return Settings.model_validate(
        {
            "name": "orders",
            "mysql": {"user": "u", "password": "p", "database": "shop"},
            "outbox": {"columns": columns or {}},
            "kafka": {"bootstrap_servers": "localhost:9092", **kafka},
        }
    )


def record(headers: dict[str, bytes], value: bytes = b"{}", timestamp: int = 10_000) -> Followed:
    return Followed("t", 0, 0, b"A-1", value, headers, timestamp)


def test_the_topics_of_a_relay() -> None:
    topics = Topics(settings(topic_map={"order/eu": "eu"}), [])
    there = {"outbox.event.order", "outbox.event.", "outboxXevent.order", "eu", "outbox.dead-letter", "others"}
    assert topics.among(there) == {"outbox.event.order", "eu", "outbox.dead-letter"}
    named = Topics(settings(), ["others", "gone"])
    assert named.among(there) == {"others"}
    assert named.missing(there) == {"gone"}


def test_rows_that_name_their_topics_need_them_named() -> None:
    with pytest.raises(Refused) as refused:
        Topics(settings(columns={"topic": "target"}), [])
    assert "--topic" in (refused.value.hint or "")
    assert Topics(settings(columns={"topic": "target"}), ["a"]).among({"a", "b"}) == {"a"}


STRUCTURED = b'{"id": "e1", "type": "Paid", "aggregatetype": "order", "subject": "A-1", "data": {}}'


@pytest.mark.parametrize(
    "one",
    [
        record({"event_id": b"e1", "event_type": b"Paid", "aggregate_type": b"order", "aggregate_id": b"A-1"}),
        record({"ce_id": b"e1", "ce_type": b"Paid", "ce_aggregatetype": b"order", "ce_subject": b"A-1"}),
        record({"content-type": b"application/cloudevents+json; charset=UTF-8"}, STRUCTURED),
    ],
    ids=["plain", "cloudevents", "cloudevents-structured"],
)
def test_every_format_is_understood(one: Followed) -> None:
    found = arrival_of(one, 11.0)
    assert (found.event_id, found.event_type, found.aggregate_type, found.aggregate_id) == (
        "e1",
        "Paid",
        "order",
        "A-1",
    )
    assert found.latency == 1.0
    assert Wanted("order", "Paid").takes(found)
    assert Wanted("order/A-1").takes(found)
    assert not Wanted("order/A-2").takes(found)
    assert not Wanted(event_type="paid").takes(found)


def test_a_record_of_somebody_else_is_shown_as_far_as_it_goes() -> None:
    found = arrival_of(record({"id": b"e1", "eventType": b"Paid"}), 9.0)
    assert (found.event_id, found.event_type, found.aggregate_type, found.aggregate_id) == ("e1", "Paid", "", "A-1")
    assert found.latency == 0, "clocks differ"
    assert arrival_of(record({"committed_at": b"1000"}), 11.0).latency == 10.0
    assert arrival_of(record({"content-type": b"application/cloudevents+json"}, b"no json"), 11.0).event_id == ""
