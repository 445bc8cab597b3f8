"""The Kafka client on kafka-python: its producer, and what that lacks (an end, patience with logins, a quiet log).

Reaches into kafka-python where its interface ends; each place says why. Written against 3.0.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import kafka
from kafka import KafkaProducer
from kafka.errors import BrokerResponseError, KafkaConnectionError, KafkaError, RetriableError, for_code
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.partitioner import DefaultPartitioner
from kafka.protocol.admin import CreateTopicsRequest, DescribeConfigsRequest
from kafka.protocol.metadata import MetadataRequest

from cdc_outbox.errors import CdcOutboxError, Hold, RecordRefused, Refused
from cdc_outbox.kafka.murmur2 import partition_of
from cdc_outbox.kafka.options import check_options, refused_login, refused_options, without_secrets
from cdc_outbox.kafka.outcomes import OTHERS_INVALID, is_refused_login, official, outcome
from cdc_outbox.kafka.publisher import START_TIMEOUT, BrokerFacts, Delivery, OnDeliveries, Record
from cdc_outbox.kafka.topics import LOOKUP_TIMEOUT, TopicDirectory
from cdc_outbox.kafka.trouble import Trouble

if TYPE_CHECKING:
    from cdc_outbox.config import KafkaSettings

NAME = f"kafka-python {kafka.__version__}"

_log = logging.getLogger(__name__)

_TOPIC, _BROKER = 2, 4
"""Resource types of DescribeConfigs."""
_CONNECT_TIMEOUT_MS = 5000
_OVERHEAD = 65_536
"""What kafka-python may count beyond our own measure of a record; that one is checked before sending."""
_SMALLEST_REQUEST = 1_048_576
_PAUSE = 0.1
_GONE = 5.0
"""Seconds without metadata of a topic that has records waiting."""
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


class KafkaPythonPublisher:
    """See `publisher.Publisher`."""

    def __init__(self, settings: KafkaSettings, on_deliveries: OnDeliveries) -> None:
        self.name = NAME
        self._settings = settings
        self._on_deliveries = on_deliveries
        self._trouble = Trouble()
        self._closed = False
        self._done: list[Delivery] = []
        self._gone: dict[str, float] = {}
        options = _producer_options(settings)
        self._client = _Client(self._hand_over, options)
        self._library_log = _LibraryLog(self._library_complains)
        try:
            self._producer = KafkaProducer(**options, kafka_client=lambda **_: self._client)
        except BaseException as error:
            self._client.close()
            self._library_log.detach()
            if isinstance(error, Exception):
                raise _meaning_at_start(error, settings, self._client) from None
            raise
        _survive_refused_batches(self._producer)
        self._client.cluster.add_listener(self._brokers_answered)
        self._topics = TopicDirectory(settings, _Queries(settings, self._client, self._producer))

    def refusal(self, record: Record) -> RecordRefused | None:
        return self._topics.refusal(record)

    def send(self, record: Record) -> None:
        if self._closed:
            raise Hold("Kafka: the publisher is closed", reason="kafka")
        done, token, topic = self._done, record.token, record.topic

        def settled(result: object) -> None:
            done.append(Delivery(token, self._failed(result, topic) if isinstance(result, BaseException) else None))

        self._trouble.record_sent()
        try:
            sent = self._producer.send(topic, record.value, record.key, record.headers, None, record.timestamp)
        except KafkaError as error:
            settled(error)
            self._client.wakeup()
            return
        sent.add_both(settled)
        if sent.is_done:  # before we were listening: have it handed over now
            self._client.wakeup()

    def purge(self) -> None:
        self._closed = True
        self._client.is_shut = True
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
        meaning = outcome(_name(error), without_secrets(f"topic {topic}: {_said(error)}", self._settings))
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
            if now - since > _GONE:
                self._give_up(f"Kafka: topic {topic} has been deleted while records were on their way to it")

    def _library_complains(self, text: str, *, sender_failed: bool) -> None:
        text = f"Kafka: {without_secrets(_text(self._client.connections.failure) or text, self._settings)}"
        self._trouble.complaint = text
        if sender_failed:  # it would fail again at once, for ever
            self._give_up(text)

    def _give_up(self, text: str) -> None:
        """Fail everything in flight: a publisher made anew may do better."""
        self._trouble.fatal = text
        self.purge()


class _Client(KafkaNetClient):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's network client, with an end, and a word to us after each round of the loop."""

    def __init__(self, after_poll: Callable[[], None], options: Mapping[str, Any]) -> None:
        net = NetworkSelector(**options)
        timeouts = dict.fromkeys(
            ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"), _CONNECT_TIMEOUT_MS
        )
        super().__init__(net=net, manager=_Connections(net, **options, **timeouts))
        self._after_poll = after_poll
        self.is_shut = False

    @property
    def connections(self) -> _Connections:
        return self._manager  # type: ignore[no-any-return]

    def poll(self, timeout_ms: float | None = None, future: Any = None) -> None:
        try:
            super().poll(timeout_ms=timeout_ms, future=future)
        finally:
            self._after_poll()

    def maybe_connect(self, node_id: object, **_: object) -> None:
        # A broker that has just left the metadata raises UnknownBrokerIdError here, through the sender's loop.
        with contextlib.suppress(KafkaError):
            self._manager.get_connection(node_id)

    def connection_delay(self, node_id: object) -> float:
        """Milliseconds after which the sender looks again. kafka-python answers 0 while it connects and else seconds,
        which the sender takes for milliseconds: its loop would spin through an outage."""
        backoff: float = self._manager.connection_delay(node_id)
        return backoff * 1000 or _PAUSE * 1000

    def send(self, node_id: object, request: object, **kwargs: object) -> Any:
        if self.is_shut:
            return Future().failure(KafkaConnectionError("the publisher is closed"))
        return super().send(node_id, request, **kwargs)

    def abort_connections(self) -> None:
        """Fail whatever waits for a broker, on the loop's own thread; from any thread."""
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._net.call_soon_threadsafe(self._manager.close)

    def close(self, node_id: object = None) -> None:
        super().close(node_id=node_id)
        if node_id is None:
            self._after_poll()


class _Connections(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's connections, which remember why the last one failed, and wait after every failure."""

    def __init__(self, net: NetworkSelector, **options: Any) -> None:
        super().__init__(net, **options)
        self._request_update = self.cluster.request_update
        self.cluster.request_update = self._request_update_once

    failure: BaseException | None = None
    """Why the last attempt failed; None since one has succeeded."""

    def get_connection(self, node_id: object, **kwargs: object) -> Any:
        known = self._conns.get(node_id)
        connection = super().get_connection(node_id, **kwargs)
        if connection is not known:
            connection.init_future.add_both(self._attempted)
        return connection

    def _attempted(self, result: object) -> None:
        self.failure = result if isinstance(result, BaseException) else None

    def _request_update_once(self) -> Any:
        """While a partition has no leader, the sender asks for metadata in each round, and each asking wakes it up."""
        cluster = self.cluster
        if cluster.need_update and cluster._future is not None and not cluster._future.is_done:
            return cluster._future
        return self._request_update()

    async def _build_transport(self, node: object, timeout_at: float | None = None) -> Any:
        """kafka-python drops what arrives together with the end of a connection: a refused login, a last answer."""
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        receive = transport._sock_recv

        def receive_in_order() -> tuple[bytes, BaseException | None]:
            received, error = receive()
            return received, None if received else error  # the end is there again at the next read

        transport._sock_recv = receive_in_order
        return transport

    def maybe_raise_auth_failure(self, node_id: object) -> None:
        """At start a refused login ends the waiting; later it is tried again, where kafka-python never would."""
        if not self.bootstrapped and self.failure is not None and is_refused_login(_name(self.failure)):
            raise self.failure

    def reset_backoff(self, node_id: object) -> None:
        """Called once TCP is connected; when the broker then refused us, kafka-python would come back at once."""
        connection = self._conns.get(node_id)
        if node_id == "metadata" or (connection is not None and connection.connected):
            super().reset_backoff(node_id)
        else:
            self.update_backoff(node_id)

    def close(self, node_id: object = None, timeout_ms: object = None) -> None:
        """Drop what is not on the wire yet; kafka-python would still write it to a broker that wakes up."""
        if node_id is None:
            for connection in list(self._conns.values()):
                connection.close(KafkaConnectionError("the publisher is closed"))
        super().close(node_id=node_id, timeout_ms=timeout_ms)


def _survive_refused_batches(producer: KafkaProducer) -> None:
    """A batch that the broker refuses costs its own records only.

    kafka-python's idempotent producer takes it for fatal: every later record of any topic then fails with that batch's
    error. The batch was not appended, so its sequence numbers are free again; there is only one in flight a partition.
    """
    transactions = producer._transaction_manager
    classify = transactions.classify_batch_error

    def classify_batch_error(error: BaseException, batch: Any, log_start_offset: int = -1) -> object:
        verdict = classify(error, batch, log_start_offset=log_start_offset)
        refused = isinstance(outcome(_name(error), ""), RecordRefused)
        if verdict != transactions.ERROR_CLASS_FATAL or not refused or not batch.has_sequence:
            return verdict
        transactions.set_sequence_number(batch.topic_partition, batch.base_sequence)
        return transactions.ERROR_CLASS_RETRIABLE  # in this place: fail the batch and go on

    transactions.classify_batch_error = classify_batch_error


class _Partitioner(DefaultPartitioner):  # type: ignore[misc]  # kafka-python has no types
    """Java's partitions, as kafka-python's own gives them, in half the time."""

    def partition(self, topic: str, key: object, serialized_key: bytes | None, *rest: Any) -> int:
        if serialized_key is None:
            return int(super().partition(topic, key, serialized_key, *rest))
        cluster = rest[-1]
        return partition_of(serialized_key, len(cluster.partitions_for_topic(topic)))


class _LibraryLog(logging.Handler):
    """Takes kafka-python's own log away: a line a second while a broker is down, tracebacks, payloads at debug level.

    Its warnings become the trouble that we report, and are in our debug log.
    """

    _SPEAKERS = ("kafka.net.manager", "kafka.net.connection", "kafka.cluster", "kafka.producer.sender")
    _WHO = re.compile(r"^<[^>]*>: ")

    def __init__(self, complain: Callable[..., None]) -> None:
        super().__init__(logging.WARNING)
        self._complain = complain
        self._logger = logging.getLogger("kafka")
        self._logger.setLevel(logging.WARNING)
        self._logger.propagate = False
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        text = self._WHO.sub("", record.getMessage())
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"
        failed = bool(record.exc_info) and record.name == "kafka.producer.sender"
        # Whoever keeps the record must not keep the exception: its frames hold sockets.
        record.msg, record.args, record.exc_info = text, None, None
        _log.debug("%s: %s", record.name, text)
        if record.name in self._SPEAKERS:
            self._complain(text, sender_failed=failed)

    def detach(self) -> None:
        self._logger.removeHandler(self)
        if not self._logger.handlers:
            self._logger.addHandler(logging.NullHandler())


class _Queries:
    """See `topics.BrokerQueries`. producer: its thread drives the client; without one, the asking thread does."""

    def __init__(self, settings: KafkaSettings, client: _Client, producer: KafkaProducer | None = None) -> None:
        self._settings = settings
        self._client = client
        self._producer = producer

    def topic_error(self, topic: str, timeout: float, *, auto_create: bool) -> str | None:
        asked = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=auto_create
        )
        error = _error_name(self.ask(asked, timeout).topics[0].error_code)
        if error is None and self._producer is not None:
            try:  # `send` would block until its own metadata has the topic: let it have it now
                self._producer.partitions_for(topic)
            except KafkaError as raised:
                raise self._no_answer(raised) from None
        return error

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
        error = _error_name(answer.error_code)
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
        return Hold(f"Kafka: {without_secrets(_text(error), self._settings)}", reason="kafka")


def describe_broker(settings: KafkaSettings) -> BrokerFacts:
    """See `publisher.describe_broker`."""
    deadline = time.monotonic() + START_TIMEOUT
    log = _LibraryLog(lambda _text, **_: None)
    client = _Client(lambda: None, _connection_options(settings))
    try:
        client.connections.bootstrap(START_TIMEOUT * 1000)
        queries = _Queries(settings, client)
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
        raise _meaning_at_start(error, settings, client) from None
    finally:
        client.close()
        log.detach()


def _connection_options(settings: KafkaSettings) -> dict[str, Any]:
    check_options(settings, _OURS)
    for name, value in settings.options.items():
        _check_option(name, value)
    security = settings.security
    password = security.password
    return {
        "bootstrap_servers": [one.strip() for one in settings.bootstrap_servers.split(",")],
        "client_id": "cdc-outbox",
        "security_protocol": security.protocol,
        "sasl_mechanism": security.sasl_mechanism,
        "sasl_plain_username": security.username,
        "sasl_plain_password": None if password is None else password.get_secret_value(),
        "ssl_cafile": security.ca,
        "ssl_certfile": security.cert,
        "ssl_keyfile": security.key,
        "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 1000,
        "retry_backoff_ms": 100,
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


def _producer_options(settings: KafkaSettings) -> dict[str, Any]:
    return {
        "linger_ms": settings.linger * 1000,
        "batch_size": settings.batch_bytes,
        "compression_type": None if settings.compression == "none" else settings.compression,
        "max_request_size": max(settings.max_record_bytes + _OVERHEAD, _SMALLEST_REQUEST),
        "bootstrap_timeout_ms": START_TIMEOUT * 1000,
        "max_block_ms": LOOKUP_TIMEOUT * 1000,
        "metrics_enabled": False,
        "partitioner": _Partitioner(),
        **_connection_options(settings),
        "acks": "all",
        "enable_idempotence": True,
        "delivery_timeout_ms": float("inf"),
    }


def _meaning_at_start(error: Exception, settings: KafkaSettings, client: _Client) -> CdcOutboxError:
    failure = client.connections.failure or error
    if is_refused_login(_name(failure)):
        return refused_login(settings, _text(failure))
    if isinstance(error, (RetriableError, BrokerResponseError)):
        why = without_secrets(_text(failure), settings)
        return Hold(f"Kafka: {why} (kafka.bootstrap_servers: {settings.bootstrap_servers})", reason="kafka")
    return refused_options(settings, error)


def _error_name(code: int) -> str | None:
    return None if code == 0 else official(_name(for_code(code)()))


def _text(error: BaseException | None) -> str:
    """The error's name and what it says."""
    return "" if error is None else f"{official(_name(error))}: {_said(error)}"


def _said(error: BaseException) -> str:
    """What the error says, without the names that kafka-python puts before it, up to three times."""
    said = "" if not error.args or error.args[0] is None else str(error.args[0])
    return said.removeprefix(f"{type(error).__name__}: ") or type(error).__name__


def _name(error: BaseException) -> str:
    """Kafka's name of a broker's error, else the name of the class."""
    if isinstance(error, BrokerResponseError) and error.message:
        return str(error.message)
    if type(error) is KafkaError and "part of a batch" in str(error):
        return OTHERS_INVALID
    return type(error).__name__
