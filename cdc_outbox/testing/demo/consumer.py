"""The demo's consumer: reads the topic as any service would and reports each event it gets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

ADMIN_DEADLINE = 20.0
PARTITIONS = 3

See = Callable[[str, str, int, float], None]
"""Called with event_id, topic, partition, and when it came (seconds since the epoch)."""


def make_topic(bootstrap: str, topic: str) -> None:
    """Create the topic where it is missing. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    if topic not in admin.list_topics(timeout=ADMIN_DEADLINE).topics:
        admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(ADMIN_DEADLINE)


def remove_topic(bootstrap: str, topic: str) -> None:
    """Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # kept: the answer does not outlive it
    admin.delete_topics([topic])[topic].result(ADMIN_DEADLINE)


class TopicReader:
    """Follows one topic from its present end on, on a thread of its own, across outages of the broker."""

    def __init__(self, bootstrap: str, topic: str, see: See) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "cdc-outbox-demo",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,  # an outage is part of the demo; the screen tells it
            }
        )
        self._topic = topic
        self._see = see
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-consumer")

    def start(self) -> None:
        """Raises KafkaException when the topic cannot be looked up."""
        partitions = self._consumer.list_topics(self._topic, timeout=ADMIN_DEADLINE).topics[self._topic].partitions
        places = [TopicPartition(self._topic, partition) for partition in partitions]
        for place in places:  # a fixed offset: OFFSET_END would be looked up later, after the first events
            place.offset = self._consumer.get_watermark_offsets(place, timeout=ADMIN_DEADLINE)[1]
        self._consumer.assign(places)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.2)
            if message is None or message.error():
                continue
            at = time.time()
            event_id = dict(message.headers() or []).get("event_id")
            if isinstance(event_id, bytes):
                self._see(event_id.decode(), self._topic, int(message.partition() or 0), at)
