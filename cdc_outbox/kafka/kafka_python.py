"""The Kafka client on kafka-python: its producer behind our interface."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from cdc_outbox.errors import Hold, RecordRefused
from cdc_outbox.kafka.kafka_python_admin import NAME, Queries, meaning_at_start, producer_options
from cdc_outbox.kafka.kafka_python_net import (
    Client,
    LibraryLog,
    error_name,
    error_said,
    error_text,
    survive_refused_batches,
)
from cdc_outbox.kafka.options import GONE_MS, without_secrets
from cdc_outbox.kafka.outcomes import outcome
from cdc_outbox.kafka.publisher import LEADERS_TIMEOUT, Delivery, OnDeliveries, Record
from cdc_outbox.kafka.topics import TopicDirectory
from cdc_outbox.kafka.trouble import Trouble

if TYPE_CHECKING:
    from cdc_outbox.config import KafkaSettings


class KafkaPythonPublisher:
    """See `publisher.Publisher`."""

    def __init__(self, settings: KafkaSettings, on_deliveries: OnDeliveries, timeout: float) -> None:
        self.name = NAME
        self._settings = settings
        self._on_deliveries = on_deliveries
        self._trouble = Trouble(settings.linger)
        self._closed = False
        self._done: list[Delivery] = []
        self._gone: dict[str, float] = {}
        options = producer_options(settings, timeout)
        self._client = Client(self._hand_over, options)
        self._library_log = LibraryLog(self._library_complains)
        self._producer: Any = None  # its thread runs, and may complain, before its constructor is back
        try:
            self._producer = KafkaProducer(**options, kafka_client=lambda **_: self._client)
        except BaseException as error:
            self._client.close()
            self._library_log.detach()
            if isinstance(error, Exception):
                raise meaning_at_start(error, settings, self._client) from None
            raise
        survive_refused_batches(self._producer)
        self._client.cluster.add_listener(self._brokers_answered)
        self._queries = Queries(settings, self._client, self._producer)
        self._topics = TopicDirectory(settings, self._queries)

    def refusal(self, record: Record) -> RecordRefused | None:
        return self._topics.refusal(record)

    def send(self, records: Sequence[Record]) -> None:
        for record in records:
            if self._closed:
                raise Hold("Kafka: the publisher is closed", reason="kafka")
            self._send(record)

    def _send(self, record: Record) -> None:
        done, token, topic = self._done, record.token, record.topic
        self._trouble.records_sent(1)
        try:
            sent = self._producer.send(topic, record.value, record.key, record.headers, None, record.timestamp)
        except KafkaError as error:
            meaning = self._failed(error, topic)
            if isinstance(meaning, Hold) and not meaning.suspect:
                raise meaning from None  # each next one would wait as long; and if it went, it would overtake this one
            done.append(Delivery(token, meaning))
            self._client.wakeup()
            return

        def settled(result: Any) -> None:
            if isinstance(result, BaseException):
                partition = sent._produce_future.topic_partition.partition
                done.append(Delivery(token, self._failed(result, topic), partition))
            else:
                done.append(Delivery(token, None, result.partition))

        sent.add_both(settled)
        if sent.is_done:  # before we were listening: have it handed over now
            self._client.wakeup()

    def leaders(self, topic: str) -> Sequence[bool]:
        return self._queries.leaders(topic, LEADERS_TIMEOUT)

    def purge(self) -> None:
        self._closed = True
        self._client.is_shut = True
        if self._producer is not None:
            # close() waits for what is in flight, gives up with an exception and leaves the thread running.
            self._producer._sender.force_close()

    def trouble(self) -> str | None:
        return self._trouble.line()

    def close(self, timeout: float) -> bool:
        self._topics.close()
        self.purge()
        sender = self._producer._sender
        self._client.abort_connections()
        sender.join(max(0.0, timeout))
        ended = not sender.is_alive()
        if ended:
            with contextlib.suppress(Exception):  # nothing is left to fail: this only takes its atexit hook away
                self._producer.close(timeout=0)
        self._library_log.detach()
        return ended

    def _hand_over(self) -> None:
        """On the sender's thread, after each round of its network loop."""
        count = len(self._done)
        if count:
            deliveries = self._done[:count]
            del self._done[:count]  # `send` may be appending at this moment
            self._trouble.records_settled(count)
            if deliveries[-1].error is None:
                self._trouble.complaint = None
            self._on_deliveries(deliveries)

    def _failed(self, error: BaseException, topic: str) -> RecordRefused | Hold:
        if self._closed:
            return Hold(self._trouble.fatal or "Kafka: dropped before it was acknowledged", reason="kafka")
        meaning = outcome(error_name(error), without_secrets(f"topic {topic}: {error_said(error)}", self._settings))
        if isinstance(meaning, RecordRefused):
            self._topics.forget(topic)
        return meaning

    def _brokers_answered(self, cluster: Any) -> None:
        """On the sender's thread, with each new metadata. kafka-python would wait for a deleted topic for ever."""
        self._trouble.complaint = None
        waiting = self._producer._accumulator._batches
        now = time.monotonic()
        gone = {one.topic for one in list(waiting) if waiting[one] and cluster.partitions_for_topic(one.topic) is None}
        self._gone = {topic: self._gone.get(topic, now) for topic in gone}
        for topic, since in self._gone.items():
            if now - since > GONE_MS / 1000:
                self._give_up(f"Kafka: topic {topic} has been deleted while records were on their way to it")

    def _library_complains(self, text: str, *, sender_failed: bool) -> None:
        text = f"Kafka: {without_secrets(error_text(self._client.connections.failure) or text, self._settings)}"
        self._trouble.complaint = text
        if sender_failed:  # it would fail again at once, for ever
            self._give_up(text)

    def _give_up(self, text: str) -> None:
        """Fail everything in flight: a publisher made anew may do better."""
        self._trouble.fatal = text
        self.purge()
