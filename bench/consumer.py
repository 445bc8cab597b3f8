"""A consumer of the topic that notes when it has each event; it ends when it has them all."""

from __future__ import annotations

import json
import time
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from bench.backlog import number_of
from bench.place import Place, say_ready


def consume(place: Place, events: int) -> dict[int, int]:
    """Event number, from 0 on -> when it was seen first, CLOCK_MONOTONIC in ns. Raises KafkaException."""
    consumer = Consumer(
        {"bootstrap.servers": place.servers.kafka.bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    partitions = consumer.list_topics(place.topic, timeout=10).topics[place.topic].partitions
    consumer.assign([TopicPartition(place.topic, partition, OFFSET_BEGINNING) for partition in partitions])
    say_ready()
    seen: dict[int, int] = {}
    while len(seen) < events:
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            raise KafkaException(message.error())
        now = time.monotonic_ns()
        headers = dict(message.headers() or [])
        event_id = headers.get("event_id", headers.get("id"))  # Debezium's name for it
        assert isinstance(event_id, bytes)
        number = number_of(event_id.decode())
        if number < events:  # not what was sent to see whether the side works
            seen.setdefault(number, now)
    consumer.close()
    return seen


if __name__ == "__main__":
    given = Place.given()
    Path(given.arguments["notes"]).write_text(json.dumps(list(consume(given, given.arguments["events"]).items())))
