"""kafka-python's network, made fit for outages: it ends, waits between attempts, and tells us what happened.

Reaches into kafka-python where its interface ends; each place says why, and tests/contract holds it to that. Written
against 3.0.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from kafka import KafkaProducer
from kafka.errors import BrokerResponseError, KafkaConnectionError, KafkaError, SaslAuthenticationFailedError
from kafka.future import Future
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector
from kafka.partitioner import DefaultPartitioner

from cdc_outbox.errors import RecordRefused
from cdc_outbox.kafka.murmur2 import partition_of
from cdc_outbox.kafka.oauth import TokenRefused, TokenSource, TokenUnavailable
from cdc_outbox.kafka.outcomes import OTHERS_INVALID, is_refused_login, official, outcome

_log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_MS = 5000
_LOOK_AGAIN_MS = 100.0


class Client(KafkaNetClient):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's network client, with an end, and a word to us after each round of the loop."""

    def __init__(self, after_poll: Callable[[], None], options: Mapping[str, Any]) -> None:
        net = NetworkSelector(**options)
        timeouts = dict.fromkeys(
            ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms"), _CONNECT_TIMEOUT_MS
        )
        super().__init__(net=net, manager=Connections(net, **options, **timeouts))
        self._after_poll = after_poll
        self.is_shut = False

    @property
    def connections(self) -> Connections:
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
        return backoff * 1000 or _LOOK_AGAIN_MS

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


class Connections(KafkaConnectionManager):  # type: ignore[misc]  # kafka-python has no types
    """kafka-python's connections, which remember why the last one failed, and wait after every failure."""

    failure: BaseException | None = None
    """Why the last attempt failed; None since one has succeeded."""

    def __init__(self, net: NetworkSelector, **options: Any) -> None:
        super().__init__(net, **options)
        self._request_update = self.cluster.request_update
        self.cluster.request_update = self._request_update_once

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
        failure = self.failure
        if not self.bootstrapped and failure is not None and is_refused_login(error_name(failure), error_text(failure)):
            raise failure

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


def survive_refused_batches(producer: KafkaProducer) -> None:
    """A batch that the broker refuses costs its own records only.

    kafka-python's idempotent producer takes it for fatal: every later record of any topic then fails with that batch's
    error. The batch was not appended, so its sequence numbers are free again; there is only one in flight a partition.
    """
    transactions = producer._transaction_manager
    classify = transactions.classify_batch_error

    def classify_batch_error(error: BaseException, batch: Any, log_start_offset: int = -1) -> object:
        verdict = classify(error, batch, log_start_offset=log_start_offset)
        refused = isinstance(outcome(error_name(error), ""), RecordRefused)
        if verdict != transactions.ERROR_CLASS_FATAL or not refused or not batch.has_sequence:
            return verdict
        transactions.set_sequence_number(batch.topic_partition, batch.base_sequence)
        return transactions.ERROR_CLASS_RETRIABLE  # in this place: fail the batch and go on

    transactions.classify_batch_error = classify_batch_error


class Partitioner(DefaultPartitioner):  # type: ignore[misc]  # kafka-python has no types
    """Java's partitions, as kafka-python's own gives them, in half the time."""

    def partition(self, topic: str, key: object, serialized_key: bytes | None, *rest: Any) -> int:
        if serialized_key is None:
            return int(super().partition(topic, key, serialized_key, *rest))
        cluster = rest[-1]
        return partition_of(serialized_key, len(cluster.partitions_for_topic(topic)))


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """Our tokens, as kafka-python asks for them: on its network thread, for each new connection."""

    def __init__(self, source: TokenSource) -> None:
        super().__init__()
        self._source = source

    def token(self) -> str:
        try:
            return self._source.token().value
        except TokenRefused as refused:
            raise SaslAuthenticationFailedError(str(refused)) from None
        except TokenUnavailable as unavailable:
            raise KafkaConnectionError(str(unavailable)) from None


class LibraryLog(logging.Handler):
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


def error_text(error: BaseException | None) -> str:
    """The error's name and what it says."""
    return "" if error is None else f"{official(error_name(error))}: {error_said(error)}"


def error_said(error: BaseException) -> str:
    """What the error says, without the names that kafka-python puts before it, up to three times."""
    said = "" if not error.args or error.args[0] is None else str(error.args[0])
    return said.removeprefix(f"{type(error).__name__}: ") or type(error).__name__


def error_name(error: BaseException) -> str:
    """Kafka's name of a broker's error, else the name of the class."""
    if isinstance(error, BrokerResponseError) and error.message:
        return str(error.message)
    if type(error) is KafkaError and "part of a batch" in str(error):
        return OTHERS_INVALID
    return type(error).__name__
