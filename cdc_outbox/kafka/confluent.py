"""The Kafka client on confluent-kafka (librdkafka): a producer and a polling thread for each batch size in use."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]  # its way of exporting

from cdc_outbox.errors import Hold, RecordRefused
from cdc_outbox.kafka.options import check_options, refused_login, refused_options, without_secrets
from cdc_outbox.kafka.outcomes import is_refused_login, official, outcome
from cdc_outbox.kafka.publisher import START_TIMEOUT, BrokerFacts, Delivery, OnDeliveries, Record
from cdc_outbox.kafka.topics import TopicDirectory
from cdc_outbox.kafka.trouble import Trouble

if TYPE_CHECKING:
    from cdc_outbox.config import KafkaSettings

NAME = f"confluent {confluent_kafka.version()} (librdkafka {confluent_kafka.libversion()[0]})"

_log = logging.getLogger(__name__)

_POLL = 0.1
_PROBE = 0.5
"""Seconds for one question to the brokers; asked again until they answer."""
_FLUSH = 0.5
_OVERHEAD = 65_536
"""What librdkafka may count beyond our own measure of a record; that one is checked before sending."""
_LARGEST = 1_000_000_000
_OURS = frozenset(
    {
        "acks",
        "bootstrap.servers",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "dr_cb",
        "enable.idempotence",
        "error_cb",
        "logger",
        "max.in.flight",
        "max.in.flight.requests.per.connection",
        "message.send.max.retries",
        "message.timeout.ms",
        "metadata.broker.list",
        "on_delivery",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queuing.strategy",
        "request.required.acks",
        "retries",
        "transactional.id",
    }
)


class ConfluentPublisher:
    """See `publisher.Publisher`."""

    def __init__(self, settings: KafkaSettings, on_deliveries: OnDeliveries) -> None:
        self.name = NAME
        self._settings = settings
        self._on_deliveries = on_deliveries
        self._trouble = Trouble()
        self._closed = threading.Event()
        self._lanes: dict[int, _Lane] = {}
        self._lane_of: dict[str, _Lane] = {}
        main = self._lane(settings.batch_bytes)
        self._topics = TopicDirectory(settings, _Queries(settings, main))
        try:
            main.connect()
        except BaseException:
            self.close(START_TIMEOUT)
            raise

    def refusal(self, record: Record) -> RecordRefused | None:
        return self._topics.refusal(record)

    def send(self, record: Record) -> None:
        lane = self._lane_of.get(record.topic) or self._lane_for(record.topic)
        if self._closed.is_set():
            lane.request_stop()  # it may be new: purge and close have not seen it
            raise Hold("Kafka: the publisher is closed", reason="kafka")
        self._trouble.record_sent()
        lane.send(record)
        if self._closed.is_set():
            lane.purge()

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
        meaning = _outcome(error, f"topic {topic}: {error.str()}", self._settings)
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
        self._errors = _Errors(settings)
        self._last_topic: str | None = None
        self._next_probe = 0.0
        self._stop = threading.Event()
        check_options(settings, _OURS)
        with _options_judged(settings):
            self._producer: Producer | None = Producer(
                {**_producer_options(settings, batch_bytes), "error_cb": self._errors, "logger": _LibraryLog()}
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

    def connect(self) -> None:
        _first_metadata(self.producer, self._settings, self._errors)

    def send(self, record: Record) -> None:
        done, publisher, token, topic = self._done, self._publisher, record.token, record.topic
        self._last_topic = topic

        def delivered(error: KafkaError | None, _message: object) -> None:
            done.append(Delivery(token, None if error is None else publisher.failed(error, topic)))

        try:
            self.producer.produce(
                topic,
                record.value,
                record.key,
                on_delivery=delivered,
                timestamp=record.timestamp,
                headers=record.headers,  # type: ignore[arg-type]  # the stub's list is invariant
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
            producer.purge()
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
            self._publisher.delivered(deliveries)

    def _probe(self, producer: Producer) -> None:
        """librdkafka tells of lost connections, but not that it has them again: ask."""
        errors, now = self._errors, time.monotonic()
        if errors.fatal:
            self._publisher.gives_up(errors.suspicion)
        if now < self._next_probe:
            return
        self._next_probe = now + 2 * _PROBE
        try:
            producer.list_topics(self._last_topic, timeout=_PROBE)
        except KafkaException:
            self._publisher.complains(errors.suspicion)
        else:
            errors.suspicion = None
            self._publisher.complains(None)


class _Errors:
    """librdkafka's error callback."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self.suspicion: str | None = None
        self.refused_login: str | None = None
        self.fatal = False

    def __call__(self, error: KafkaError) -> None:
        if self.suspicion is None or error.code() != KafkaError._ALL_BROKERS_DOWN:  # that one says not why
            self.suspicion = f"Kafka: {official(error.name())}: {without_secrets(error.str(), self._settings)}"
        self.fatal = self.fatal or error.fatal()
        if is_refused_login(error.name()):
            self.refused_login = error.str()


class _LibraryLog:
    """librdkafka's log, for --log-level debug only: what matters of it becomes an alert."""

    def log(self, _level: int, text: str, *args: object) -> None:
        _log.debug(text, *args)


class _Queries:
    """See `topics.BrokerQueries`."""

    def __init__(self, settings: KafkaSettings, lane: _Lane) -> None:
        self._settings = settings
        self._lane = lane

    def topic_error(self, topic: str, timeout: float, *, auto_create: bool) -> str | None:
        with _answers_expected(self._settings):
            if auto_create:
                error = self._lane.producer.list_topics(topic, timeout=timeout).topics[topic].error
                return None if error is None else official(error.name())
            admin = _admin(self._settings)
            try:
                admin.describe_topics(TopicCollection([topic]), request_timeout=timeout)[topic].result()
            except KafkaException as raised:
                return _brokers_word(raised)[0]
            return None

    def topic_configs(self, topic: str, timeout: float) -> Mapping[str, str]:
        with _answers_expected(self._settings):
            return _configs(_admin(self._settings), ConfigResource.Type.TOPIC, topic, timeout)

    def creates_topics(self, timeout: float) -> bool | None:
        with _answers_expected(self._settings):
            return _creates_topics(_admin(self._settings), timeout)

    def create_topic(self, topic: str, partitions: int, replication_factor: int, timeout: float) -> str | None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replication_factor)
        with _answers_expected(self._settings):
            admin = _admin(self._settings)
            try:
                admin.create_topics([new], operation_timeout=timeout, request_timeout=timeout)[topic].result()
            except KafkaException as raised:
                name, text = _brokers_word(raised)
                return None if name == "TOPIC_ALREADY_EXISTS" else f"{name}: {text}"
            return None


def describe_broker(settings: KafkaSettings) -> BrokerFacts:
    """See `publisher.describe_broker`."""
    check_options(settings, _OURS)
    errors = _Errors(settings)
    with _options_judged(settings):
        admin = _admin(settings, errors)
    deadline = time.monotonic() + START_TIMEOUT
    seen = _first_metadata(admin, settings, errors)
    with _answers_expected(settings):
        creates = _creates_topics(admin, max(_PROBE, deadline - time.monotonic()))
    return BrokerFacts(
        client=NAME,
        cluster_id=seen.cluster_id,
        brokers=[f"{one.host}:{one.port}" for one in seen.brokers.values()],
        controller=None if seen.controller_id < 0 else str(seen.controller_id),
        topics=frozenset(seen.topics),
        creates_topics=creates,
    )


def _connection_options(settings: KafkaSettings) -> dict[str, Any]:
    security = settings.security
    password = security.password
    options = {
        "bootstrap.servers": settings.bootstrap_servers.replace(" ", ""),
        "client.id": "cdc-outbox",
        "security.protocol": security.protocol,
        "sasl.mechanism": security.sasl_mechanism,
        "sasl.username": security.username,
        "sasl.password": None if password is None else password.get_secret_value(),
        "ssl.ca.location": security.ca,
        "ssl.certificate.location": security.cert,
        "ssl.key.location": security.key,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "retry.backoff.ms": 100,
        "retry.backoff.max.ms": 1000,
        "socket.keepalive.enable": True,
        "socket.connection.setup.timeout.ms": 5000,
    }
    return {name: value for name, value in options.items() if value is not None}


def _producer_options(settings: KafkaSettings, batch_bytes: int) -> dict[str, Any]:
    return {
        **_connection_options(settings),
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "message.timeout.ms": 0,
        "linger.ms": settings.linger * 1000,
        "batch.size": batch_bytes,
        "compression.type": settings.compression,
        "message.max.bytes": min(settings.max_record_bytes + _OVERHEAD, _LARGEST),
        "queue.buffering.max.messages": 0,  # how much is in flight is the relay's own decision
        "queue.buffering.max.kbytes": 2**31 - 1,
        **settings.options,
    }


def _admin(settings: KafkaSettings, errors: _Errors | None = None) -> AdminClient:
    """For a question or two: it ends with its last reference, so keep one until the answer is there."""
    ours: dict[str, Any] = {"error_cb": errors or _Errors(settings), "logger": _LibraryLog()}
    return AdminClient({**_connection_options(settings), **settings.options, **ours})


def _first_metadata(client: Producer | AdminClient, settings: KafkaSettings, errors: _Errors) -> Any:
    """The cluster's metadata. Raises Hold when nothing answers in time, Refused when the login is not accepted."""
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            return client.list_topics(timeout=_PROBE)
        except KafkaException as raised:
            client.poll(0)  # serves the error callback
            if errors.refused_login is not None:
                raise refused_login(settings, errors.refused_login) from None
            if time.monotonic() + _PROBE > deadline:
                why = errors.suspicion or f"Kafka: {official(raised.args[0].name())}"
                raise Hold(f"{why} (kafka.bootstrap_servers: {settings.bootstrap_servers})", reason="kafka") from None


def _configs(admin: AdminClient, kind: Any, name: str, timeout: float) -> dict[str, str]:
    resource = ConfigResource(kind, name)
    try:
        entries = admin.describe_configs([resource], request_timeout=timeout)[resource].result()
    except KafkaException as raised:
        _brokers_word(raised)
        return {}
    return {key: entry.value for key, entry in entries.items() if entry.value is not None}


def _creates_topics(admin: AdminClient, timeout: float) -> bool | None:
    broker = next(iter(admin.list_topics(timeout=timeout).brokers), None)
    if broker is None:
        return None
    value = _configs(admin, ConfigResource.Type.BROKER, str(broker), timeout).get("auto.create.topics.enable")
    return None if value is None else value == "true"


def _brokers_word(raised: KafkaException) -> tuple[str, str]:
    """Name and text of an error that a broker answered; an error of librdkafka itself is raised again."""
    error: KafkaError = raised.args[0]
    if error.code() < KafkaError.UNKNOWN:
        raise raised
    return official(error.name()), error.str()


def _outcome(error: KafkaError, text: str, settings: KafkaSettings) -> RecordRefused | Hold:
    return outcome(error.name(), without_secrets(text, settings))


@contextlib.contextmanager
def _answers_expected(settings: KafkaSettings) -> Iterator[None]:
    try:
        yield
    except KafkaException as raised:
        error: KafkaError = raised.args[0]
        text = without_secrets(error.str(), settings)
        raise Hold(f"Kafka: {official(error.name())}: {text}", reason="kafka") from None


@contextlib.contextmanager
def _options_judged(settings: KafkaSettings) -> Iterator[None]:
    try:
        yield
    except (KafkaException, TypeError, ValueError) as error:
        raise refused_options(settings, error) from None
