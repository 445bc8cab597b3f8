"""The Kafka client on confluent-kafka (librdkafka): a producer and a polling thread for each batch size in use."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cdc_outbox.errors import Hold, RecordRefused
from cdc_outbox.kafka.confluent_admin import (
    NAME,
    OURS,
    PROBE,
    Errors,
    Queries,
    callbacks,
    first_metadata,
    options_judged,
    producer_options,
)
from cdc_outbox.kafka.options import check_options, without_secrets
from cdc_outbox.kafka.outcomes import outcome
from cdc_outbox.kafka.publisher import LEADERS_TIMEOUT, START_TIMEOUT, Delivery, OnDeliveries, Record
from cdc_outbox.kafka.topics import TopicDirectory
from cdc_outbox.kafka.trouble import Trouble

if TYPE_CHECKING:
    from cdc_outbox.config import KafkaSettings

_log = logging.getLogger(__name__)

_POLL = 0.1
_FLUSH = 0.5
_ANY_PARTITION = -1


class ConfluentPublisher:
    """See `publisher.Publisher`."""

    def __init__(self, settings: KafkaSettings, on_deliveries: OnDeliveries, timeout: float) -> None:
        self.name = NAME
        self._settings = settings
        self._on_deliveries = on_deliveries
        self._trouble = Trouble(settings.linger)
        self._closed = threading.Event()
        self._lanes: dict[int, _Lane] = {}
        self._lane_of: dict[str, _Lane] = {}
        main = self._lane(settings.batch_bytes)
        self._queries = Queries(settings, lambda: main.producer)
        self._topics = TopicDirectory(settings, self._queries)
        try:
            main.connect(timeout)
        except BaseException:
            self.close(START_TIMEOUT)
            raise

    def refusal(self, record: Record) -> RecordRefused | None:
        return self._topics.refusal(record)

    def send(self, records: Sequence[Record]) -> None:
        lanes = [self._lane_of.get(record.topic) or self._lane_for(record.topic) for record in records]
        if self._closed.is_set():
            for lane in lanes:
                lane.request_stop()  # it may be new: purge and close have not seen it
            raise Hold("Kafka: the publisher is closed", reason="kafka")
        self._trouble.records_sent(len(records))
        for lane, record in zip(lanes, records, strict=True):
            lane.send(record)
        if self._closed.is_set():
            self.purge()

    def leaders(self, topic: str) -> Sequence[bool]:
        return self._queries.leaders(topic, LEADERS_TIMEOUT)

    def purge(self) -> None:
        self._closed.set()
        for lane in list(self._lanes.values()):
            lane.purge()

    def trouble(self) -> str | None:
        return self._trouble.line()

    def close(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        self.purge()
        self._topics.close()
        lanes = list(self._lanes.values())
        for lane in lanes:
            lane.request_stop()
        ended = [lane.join(deadline - time.monotonic()) for lane in lanes]
        return all(ended)

    def _lane_for(self, topic: str) -> _Lane:
        """A topic that takes less than kafka.batch_bytes gets smaller batches: a refused batch would take its innocent
        records along. A topic keeps its lane, or its records could overtake each other."""
        most = self._topics.limits(topic).max_bytes
        batch_bytes = self._settings.batch_bytes
        if most is not None and most < batch_bytes:
            batch_bytes = 1 << (most.bit_length() - 1)  # rounded down, so that the lanes stay few
        lane = self._lane_of[topic] = self._lane(batch_bytes)
        return lane

    def _lane(self, batch_bytes: int) -> _Lane:
        lane = self._lanes.get(batch_bytes)
        if lane is None:
            lane = self._lanes[batch_bytes] = _Lane(self._settings, batch_bytes, self)
        return lane

    # What a lane reports, on its thread:

    def delivered(self, deliveries: list[Delivery]) -> None:
        self._trouble.records_settled(len(deliveries))
        self._on_deliveries(deliveries)

    def failed(self, error: KafkaError, topic: str) -> RecordRefused | Hold:
        meaning = outcome(error.name(), without_secrets(f"topic {topic}: {error.str()}", self._settings))
        if isinstance(meaning, RecordRefused):
            self._topics.forget(topic)
        return meaning

    def complains(self, text: str | None) -> None:
        self._trouble.complaint = text

    def gives_up(self, text: str | None) -> None:
        self._trouble.fatal = text


class _Lane:
    """One librdkafka producer, and the thread that polls it and, in the end, destroys it."""

    def __init__(self, settings: KafkaSettings, batch_bytes: int, publisher: ConfluentPublisher) -> None:
        self._settings = settings
        self._publisher = publisher
        self._done: list[Delivery] = []
        self._errors = Errors(settings)
        self._last_topic: str | None = None
        self._next_probe = 0.0
        self._stop = threading.Event()
        check_options(settings, OURS)
        with options_judged(settings):
            self._producer: Producer | None = Producer(
                {**producer_options(settings, batch_bytes), **callbacks(settings, self._errors)}
            )
        self._thread = threading.Thread(target=self._run, name=f"cdc-outbox-kafka-{batch_bytes}", daemon=True)
        self._thread.start()

    @property
    def producer(self) -> Producer:
        """Raises Hold once it is gone."""
        producer = self._producer
        if producer is None:
            raise Hold("Kafka: the publisher is closed", reason="kafka")
        return producer

    def connect(self, timeout: float) -> None:
        first_metadata(self.producer, self._settings, self._errors, timeout)

    def send(self, record: Record) -> None:
        done, publisher, token, topic = self._done, self._publisher, record.token, record.topic
        self._last_topic = topic

        def delivered(error: KafkaError | None, message: Message | None) -> None:
            partition = None if message is None else message.partition()
            meaning = None if error is None else publisher.failed(error, topic)
            done.append(Delivery(token, meaning, -1 if partition is None else partition))

        try:
            # By place, which takes half a microsecond less than by name.
            self.producer.produce(
                topic,
                record.value,
                record.key,
                _ANY_PARTITION,
                delivered,
                None,
                record.timestamp,
                record.headers,  # type: ignore[arg-type]  # the stub's list is invariant
            )
        except KafkaException as raised:
            delivered(raised.args[0], None)
        except BufferError as error:
            raise Hold(f"Kafka: {error}", reason="kafka") from error

    def purge(self) -> None:
        if self._producer is not None:
            self._producer.purge(blocking=False)

    def request_stop(self) -> None:
        self._stop.set()

    def join(self, timeout: float) -> bool:
        self._thread.join(max(0.0, timeout))
        return not self._thread.is_alive()

    def _run(self) -> None:
        producer = self.producer
        try:
            while not self._stop.is_set():
                producer.poll(_POLL)
                self._hand_over()
                if self._errors.suspicion is not None:
                    self._probe(producer)
            producer.purge(blocking=False)
            producer.flush(_FLUSH)
            self._hand_over()
        except Exception as error:  # a bug, ours or the caller's: nothing is delivered any more
            _log.exception("the thread that delivers Kafka's acknowledgements failed")
            self._publisher.gives_up(f"Kafka: the delivering thread failed: {error!r}")
        # The last reference ends with this thread, and in its destructor librdkafka's own threads.
        self._producer = None

    def _hand_over(self) -> None:
        count = len(self._done)
        if count:
            deliveries = self._done[:count]
            del self._done[:count]  # `send` may be appending at this moment
            if deliveries[-1].error is None and self._errors.suspicion is not None:
                self._trust()
            self._publisher.delivered(deliveries)

    def _probe(self, producer: Producer) -> None:
        """librdkafka tells of lost connections, but not that it has them again: ask."""
        errors, now = self._errors, time.monotonic()
        if errors.fatal:
            self._publisher.gives_up(errors.suspicion)
        if now < self._next_probe:
            return
        self._next_probe = now + 2 * PROBE
        try:
            producer.list_topics(self._last_topic, timeout=PROBE)
        except KafkaException:
            self._publisher.complains(errors.suspicion)
        else:
            self._trust()

    def _trust(self) -> None:
        self._errors.suspicion = None
        self._publisher.complains(None)
