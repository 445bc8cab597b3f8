"""confluent-kafka beside its producer: options, questions to the broker, its errors and its log."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]  # its way of exporting

from cdc_outbox.errors import Hold
from cdc_outbox.kafka.oauth import first_token
from cdc_outbox.kafka.options import (
    GONE_MS,
    IDLE_MS,
    SILENCE_MS,
    check_options,
    refused_login,
    refused_options,
    without_secrets,
)
from cdc_outbox.kafka.outcomes import is_refused_login, official
from cdc_outbox.kafka.publisher import START_TIMEOUT, BrokerFacts

if TYPE_CHECKING:
    from cdc_outbox.config import KafkaSettings

NAME = f"confluent {confluent_kafka.version()} (librdkafka {confluent_kafka.libversion()[0]})"

_log = logging.getLogger(__name__)

PROBE = 0.5
"""Seconds for the first question to the brokers; each next one has longer, until they answer: they may be far away."""
LONGEST_PROBE = 2.0
_OVERHEAD = 65_536
"""What librdkafka may count beyond our own measure of a record; that one is checked before sending."""
_LARGEST = 1_000_000_000
OURS = frozenset(
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
        "oauth_cb",
        "on_delivery",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queuing.strategy",
        "request.required.acks",
        "retries",
        "transactional.id",
    }
)


class Errors:
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
        if is_refused_login(error.name(), error.str()):
            self.refused_login = error.str()


class LibraryLog:
    """librdkafka's log, for --log-level debug only: what matters of it becomes an alert."""

    def log(self, _level: int, text: str, *args: object) -> None:
        _log.debug(text, *args)


class Queries:
    """See `topics.BrokerQueries`."""

    def __init__(self, settings: KafkaSettings, producer: Callable[[], Producer]) -> None:
        self._settings = settings
        self._producer = producer

    def topic_error(self, topic: str, timeout: float, *, auto_create: bool) -> str | None:
        with answers_expected(self._settings):
            if auto_create:
                error = self._producer().list_topics(topic, timeout=timeout).topics[topic].error
                return None if error is None else official(error.name())
            admin = _admin(self._settings)
            try:
                admin.describe_topics(TopicCollection([topic]), request_timeout=timeout)[topic].result()
            except KafkaException as raised:
                return _brokers_word(raised)[0]
            return None

    def leaders(self, topic: str, timeout: float) -> list[bool]:
        """See `publisher.Publisher`."""
        with answers_expected(self._settings):
            partitions = self._producer().list_topics(topic, timeout=timeout).topics[topic].partitions
        return [partitions[number].leader >= 0 for number in sorted(partitions)]

    def topic_configs(self, topic: str, timeout: float) -> Mapping[str, str]:
        with answers_expected(self._settings):
            return _configs(_admin(self._settings), ConfigResource.Type.TOPIC, topic, timeout)

    def creates_topics(self, timeout: float) -> bool | None:
        with answers_expected(self._settings):
            return _creates_topics(_admin(self._settings), timeout)

    def create_topic(self, topic: str, partitions: int, replication_factor: int, timeout: float) -> str | None:
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replication_factor)
        with answers_expected(self._settings):
            admin = _admin(self._settings)
            try:
                admin.create_topics([new], operation_timeout=timeout, request_timeout=timeout)[topic].result()
            except KafkaException as raised:
                name, text = _brokers_word(raised)
                return None if name == "TOPIC_ALREADY_EXISTS" else f"{name}: {text}"
            return None


def describe_broker(settings: KafkaSettings) -> BrokerFacts:
    """See `publisher.describe_broker`."""
    check_options(settings, OURS)
    errors = Errors(settings)
    with options_judged(settings):
        admin = _admin(settings, errors)
    deadline = time.monotonic() + START_TIMEOUT
    seen = first_metadata(admin, settings, errors)
    with answers_expected(settings):
        creates = _creates_topics(admin, max(PROBE, deadline - time.monotonic()))
    return BrokerFacts(
        client=NAME,
        cluster_id=seen.cluster_id,
        brokers=[f"{one.host}:{one.port}" for one in seen.brokers.values()],
        controller=None if seen.controller_id < 0 else str(seen.controller_id),
        topics=frozenset(seen.topics),
        creates_topics=creates,
    )


def callbacks(settings: KafkaSettings, errors: Errors) -> dict[str, Any]:
    """The options that are functions of ours. Raises Hold or Refused where a token is needed and cannot be had."""
    ours: dict[str, Any] = {"error_cb": errors, "logger": LibraryLog()}
    tokens = first_token(settings)  # librdkafka's constructor would wait ten seconds for it
    if tokens is not None:
        ours["oauth_cb"] = lambda _: tuple(tokens.token())
    return ours


def connection_options(settings: KafkaSettings) -> dict[str, Any]:
    security = settings.security
    password, bearer = security.password, security.token_url is not None
    options = {
        "bootstrap.servers": settings.bootstrap_servers.replace(" ", ""),
        "client.id": "cdc-outbox",
        "security.protocol": security.protocol,
        "sasl.mechanism": security.sasl_mechanism,
        "sasl.username": None if bearer else security.username,
        "sasl.password": None if bearer or password is None else password.get_secret_value(),
        "ssl.ca.location": security.ca,
        "ssl.certificate.location": security.cert,
        "ssl.key.location": security.key,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "retry.backoff.ms": 100,
        "retry.backoff.max.ms": 1000,
        "socket.keepalive.enable": True,
        "socket.connection.setup.timeout.ms": 5000,
        "socket.timeout.ms": SILENCE_MS,
        "connections.max.idle.ms": IDLE_MS,
    }
    return {name: value for name, value in options.items() if value is not None}


def producer_options(settings: KafkaSettings, batch_bytes: int) -> dict[str, Any]:
    return {
        **connection_options(settings),
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "message.timeout.ms": 0,
        "topic.metadata.propagation.max.ms": GONE_MS,
        "request.timeout.ms": SILENCE_MS,  # of a broker that waits for its replicas: it answers then that it still does
        "linger.ms": settings.linger * 1000,
        "batch.size": batch_bytes,
        "compression.type": settings.compression,
        "message.max.bytes": min(settings.max_record_bytes + _OVERHEAD, _LARGEST),
        "queue.buffering.max.messages": 0,  # how much is in flight is the relay's own decision
        "queue.buffering.max.kbytes": 2**31 - 1,
        **settings.options,
    }


def _admin(settings: KafkaSettings, errors: Errors | None = None) -> AdminClient:
    """For a question or two: it ends with its last reference, so keep one until the answer is there."""
    ours = callbacks(settings, errors or Errors(settings))
    return AdminClient({**connection_options(settings), **settings.options, **ours})


def first_metadata(
    client: Producer | AdminClient | Consumer, settings: KafkaSettings, errors: Errors, timeout: float = START_TIMEOUT
) -> Any:
    """The cluster's metadata. Raises Hold when nothing answers in time, Refused when the login is not accepted."""
    deadline = time.monotonic() + timeout
    patience = PROBE
    while True:
        try:
            return client.list_topics(timeout=patience)
        except KafkaException as raised:
            client.poll(0)  # serves the error callback
            if errors.refused_login is not None:
                raise refused_login(settings, errors.refused_login) from None
            patience = min(2 * patience, LONGEST_PROBE, deadline - time.monotonic())
            if patience < PROBE:
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


@contextlib.contextmanager
def answers_expected(settings: KafkaSettings) -> Iterator[None]:
    try:
        yield
    except KafkaException as raised:
        error: KafkaError = raised.args[0]
        text = without_secrets(error.str(), settings)
        raise Hold(f"Kafka: {official(error.name())}: {text}", reason="kafka") from None


@contextlib.contextmanager
def options_judged(settings: KafkaSettings) -> Iterator[None]:
    try:
        yield
    except (KafkaException, TypeError, ValueError) as error:
        raise refused_options(settings, error) from None
