"""How long it takes from the end of an outage until events are at a consumer again."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from tests.harness.world import DEADLINE, World

AT_MOST = 20.0
"""Seconds. What is promised is 2, and bench/ judges speed; here other tests share the machine."""

Note = Callable[[str, object], None]


def measure(
    world: World, mend: Callable[[], object], note: Note | None = None, *, aggregate: str = "measured"
) -> float:
    """Take the cause away; gives the seconds until an event committed at that moment is at a consumer.

    mend: returns when the cause is gone. note: pytest's record_property; the end of the run lists what was noted.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": world.bootstrap,
            "group.id": "measure",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 100,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
        }
    )
    try:
        mend()
        gone = time.monotonic()
        event_id = world.insert(aggregate)
        # Only now can all brokers be asked; and from the beginning, since the end may have no leader yet.
        seen = consumer.list_topics(world.topic, timeout=DEADLINE).topics[world.topic]
        consumer.assign([TopicPartition(world.topic, partition, OFFSET_BEGINNING) for partition in seen.partitions])
        while not _has(consumer, event_id):
            assert time.monotonic() - gone < DEADLINE, f"nothing arrived within {DEADLINE:g} s of the end of the outage"
        took = time.monotonic() - gone
    finally:
        consumer.close()
    if note is not None:
        note("recovery", f"{took:.2f}")
    return took


def _has(consumer: Consumer, event_id: str) -> bool:
    with suppress(KafkaException):
        for message in consumer.consume(1000, 0.05):
            if message.error() is None and dict(message.headers() or [])["event_id"] == event_id.encode():
                return True
    return False
