"""kafka-python beside its producer: options, questions to the broker, what an error at the start means."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import kafka
from kafka import KafkaProducer
from kafka.errors import BrokerResponseError, KafkaError, RetriableError, for_code
from kafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from cdc_outbox.errors import CdcOutboxError, Hold, Refused
from cdc_outbox.kafka.kafka_python_net import Client, LibraryLog, Partitioner, Tokens, error_name, error_text
from cdc_outbox.kafka.oauth import first_token
from cdc_outbox.kafka.options import (
    IDLE_MS,
    SILENCE_MS,
    check_options,
    refused_login,
    refused_options,
    without_secrets,
)
from cdc_outbox.kafka.outcomes import is_refused_login, official
from cdc_outbox.kafka.publisher import START_TIMEOUT, BrokerFacts
from cdc_outbox.kafka.topics import LOOKUP_TIMEOUT

if TYPE_CHECKING:
    from cdc_outbox.config import KafkaSettings

NAME = f"kafka-python {kafka.__version__}"

_TOPIC, _BROKER = 2, 4
"""Resource types of DescribeConfigs."""
_OVERHEAD = 65_536
"""What kafka-python may count beyond our own measure of a record; that one is checked before sending."""
_SMALLEST_REQUEST = 1_048_576
_PAUSE = 0.1
_OURS = frozenset(
    {
        "acks",
        "bootstrap_servers",
        "bootstrap_timeout_ms",
        "delivery_timeout_ms",
        "enable_idempotence",
        "kafka_client",
        "key_serializer",
        "max_in_flight_requests_per_connection",
        "retries",
        "transactional_id",
        "value_serializer",
    }
)
_OBJECTS = frozenset(
    {"metric_reporters", "partitioner", "sasl_oauth_token_provider", "selector", "socket_options", "ssl_context"}
)


class Queries:
    """See `topics.BrokerQueries`. producer: its thread drives the client; without one, the asking thread does."""

    def __init__(self, settings: KafkaSettings, client: Client, producer: KafkaProducer | None = None) -> None:
        self._settings = settings
        self._client = client
        self._producer = producer

    def topic_error(self, topic: str, timeout: float, *, auto_create: bool) -> str | None:
        asked = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=auto_create
        )
        error = _code_name(self.ask(asked, timeout).topics[0].error_code)
        if error is None and self._producer is not None:
            try:  # `send` would block until its own metadata has the topic: let it have it now
                self._producer.partitions_for(topic)
            except KafkaError as raised:
                raise self._no_answer(raised) from None
        return error

    def leaders(self, topic: str, timeout: float) -> list[bool]:
        """See `publisher.Publisher`."""
        asked = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        partitions = {one.partition_index: one for one in self.ask(asked, timeout).topics[0].partitions}
        return [partitions[number].leader_id >= 0 for number in sorted(partitions)]

    def topic_configs(self, topic: str, timeout: float) -> Mapping[str, str]:
        return self._configs(_TOPIC, topic, timeout)

    def creates_topics(self, timeout: float) -> bool | None:
        broker = next(iter(self._client.cluster.brokers()), None)
        if broker is None:
            return None
        value = self._configs(_BROKER, str(broker.node_id), timeout, node_id=broker.node_id).get(
            "auto.create.topics.enable"
        )
        return None if value is None else value == "true"

    def create_topic(self, topic: str, partitions: int, replication_factor: int, timeout: float) -> str | None:
        asked = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=topic,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    assignments=[],
                    configs=[],
                )
            ],
            timeout_ms=int(timeout * 1000),
            validate_only=False,
        )
        controller = self._client.cluster.controller
        answer = self.ask(asked, timeout, node_id=None if controller is None else controller.node_id).topics[0]
        error = _code_name(answer.error_code)
        if error is None or error == "TOPIC_ALREADY_EXISTS":
            return None
        return f"{error}: {answer.error_message}"

    def ask(self, request: Any, timeout: float, node_id: object = None) -> Any:
        """The broker's answer. Raises Hold without one in time."""
        deadline = time.monotonic() + timeout
        while True:
            future = self._client.connections.call_soon(self._client.connections.send, request, node_id)
            self._wait(future, deadline - time.monotonic())
            if future.succeeded():
                return future.value
            error = future.exception or TimeoutError(f"no answer in {timeout:.1f} s")
            if not isinstance(error, RetriableError) or time.monotonic() + _PAUSE > deadline:
                raise self._no_answer(error) from None
            time.sleep(_PAUSE)  # the connection was lost, or is in its backoff

    def _wait(self, future: Any, timeout: float) -> None:
        if self._producer is None:
            self._client.poll(timeout_ms=max(0.0, timeout) * 1000, future=future)
            return
        answered = threading.Event()
        future.add_both(lambda _: answered.set())
        answered.wait(timeout)

    def _configs(self, kind: int, name: str, timeout: float, node_id: object = None) -> dict[str, str]:
        asked = DescribeConfigsRequest(resources=[(kind, name, None)], include_synonyms=False)
        answer = self.ask(asked, timeout, node_id).results[0]
        return {one.name: one.value for one in answer.configs if one.value is not None}

    def _no_answer(self, error: BaseException) -> Hold:
        return Hold(f"Kafka: {without_secrets(error_text(error), self._settings)}", reason="kafka")


def describe_broker(settings: KafkaSettings) -> BrokerFacts:
    """See `publisher.describe_broker`."""
    deadline = time.monotonic() + START_TIMEOUT
    log = LibraryLog(lambda _text, **_: None)
    client = Client(lambda: None, connection_options(settings))
    try:
        client.connections.bootstrap(START_TIMEOUT * 1000)
        queries = Queries(settings, client)
        asked = MetadataRequest(topics=MetadataRequest.ALL_TOPICS, allow_auto_topic_creation=False)
        seen = queries.ask(asked, max(_PAUSE, deadline - time.monotonic()))
        return BrokerFacts(
            client=NAME,
            cluster_id=seen.cluster_id,
            brokers=[f"{one.host}:{one.port}" for one in seen.brokers],
            controller=None if seen.controller_id < 0 else str(seen.controller_id),
            topics=frozenset(one.name for one in seen.topics),
            creates_topics=queries.creates_topics(max(_PAUSE, deadline - time.monotonic())),
        )
    except CdcOutboxError:
        raise
    except Exception as error:
        raise meaning_at_start(error, settings, client) from None
    finally:
        client.close()
        log.detach()


def connection_options(settings: KafkaSettings) -> dict[str, Any]:
    check_options(settings, _OURS)
    for name, value in settings.options.items():
        _check_option(name, value)
    security = settings.security
    password, tokens = security.password, first_token(settings)
    return {
        "bootstrap_servers": [one.strip() for one in settings.bootstrap_servers.split(",")],
        "client_id": "cdc-outbox",
        "security_protocol": security.protocol,
        "sasl_mechanism": security.sasl_mechanism,
        "sasl_plain_username": security.username,
        "sasl_plain_password": None if password is None else password.get_secret_value(),
        "sasl_oauth_token_provider": None if tokens is None else Tokens(tokens),
        "ssl_cafile": security.ca,
        "ssl_certfile": security.cert,
        "ssl_keyfile": security.key,
        "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 1000,
        "retry_backoff_ms": 100,
        "request_timeout_ms": SILENCE_MS,
        "connections_max_idle_ms": IDLE_MS,
        **settings.options,
    }


def _check_option(name: str, value: str | float | bool) -> None:
    """kafka-python shows the value of an option that it does not know, and finds a wrong type only when it uses it."""
    default = KafkaProducer.DEFAULT_CONFIG.get(name, KafkaProducer)
    if default is KafkaProducer:
        wrong = "is no option of kafka-python's KafkaProducer"
    elif name in _OBJECTS:
        wrong = "takes a Python object, which a file cannot hold"
    elif isinstance(default, (int, float)) and isinstance(value, str):
        wrong = f"must be a {'boolean' if isinstance(default, bool) else 'number'}"
    else:
        return
    raise Refused(f"kafka.options.{name} {wrong}", hint="https://kafka-python.readthedocs.io lists the options")


def producer_options(settings: KafkaSettings, timeout: float) -> dict[str, Any]:
    return {
        "linger_ms": settings.linger * 1000,
        "batch_size": settings.batch_bytes,
        "compression_type": None if settings.compression == "none" else settings.compression,
        "max_request_size": max(settings.max_record_bytes + _OVERHEAD, _SMALLEST_REQUEST),
        "bootstrap_timeout_ms": timeout * 1000,
        "max_block_ms": LOOKUP_TIMEOUT * 1000,
        "metrics_enabled": False,
        "partitioner": Partitioner(),
        **connection_options(settings),
        "acks": "all",
        "enable_idempotence": True,
        "delivery_timeout_ms": float("inf"),
    }


def meaning_at_start(error: Exception, settings: KafkaSettings, client: Client) -> CdcOutboxError:
    failure = client.connections.failure or error
    if is_refused_login(error_name(failure), error_text(failure)):
        return refused_login(settings, error_text(failure))
    if isinstance(error, (RetriableError, BrokerResponseError)):
        why = without_secrets(error_text(failure), settings)
        return Hold(f"Kafka: {why} (kafka.bootstrap_servers: {settings.bootstrap_servers})", reason="kafka")
    return refused_options(settings, error)


def _code_name(code: int) -> str | None:
    return None if code == 0 else official(error_name(for_code(code)()))
