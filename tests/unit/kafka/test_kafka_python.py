"""What the publisher makes of kafka-python's own errors, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from cdc_outbox.config import KafkaSettings
from cdc_outbox.errors import Hold, RecordRefused
from cdc_outbox.kafka.kafka_python import KafkaPythonPublisher
from cdc_outbox.kafka.publisher import Record
from cdc_outbox.kafka.trouble import Trouble


class Failing:
    """kafka-python's producer: its first `send` fails."""

    def __init__(self, error: Exception) -> None:
        self._error: Exception | None = error
        self.sent: list[str] = []

    def send(self, topic: str, *rest: Any) -> Any:
        error, self._error = self._error, None
        if error is not None:
            raise error
        self.sent.append(topic)
        return SimpleNamespace(add_both=lambda callback: None, is_done=False)


def publisher(producer: Failing) -> Any:
    made: Any = KafkaPythonPublisher.__new__(KafkaPythonPublisher)
    made._settings = KafkaSettings(bootstrap_servers="nowhere:1")
    made._producer, made._done, made._closed = producer, [], False
    made._trouble = Trouble(0.0)
    made._client = SimpleNamespace(wakeup=lambda: None)
    made._topics = SimpleNamespace(forget=lambda topic: None)
    return made


RECORDS = [Record("orders", b"a", b"{}", [], 1, token) for token in range(2)]


def test_what_cannot_be_sent_now_is_not_overtaken_by_the_next() -> None:
    producer = Failing(KafkaTimeoutError("Failed to update metadata after 5.0 secs."))
    one = publisher(producer)
    with pytest.raises(Hold):
        one.send(RECORDS)
    assert not producer.sent


def test_what_is_refused_at_once_is_delivered_so_and_the_next_goes() -> None:
    producer = Failing(MessageSizeTooLargeError())
    one = publisher(producer)
    one.send(RECORDS)
    assert producer.sent == ["orders"]
    assert [(found.token, type(found.error)) for found in one._done] == [(0, RecordRefused)]
