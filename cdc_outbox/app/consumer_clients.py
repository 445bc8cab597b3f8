"""kafka-python and confluent-kafka consumers behind one small interface. Neither is imported but by its own users."""

# ruff: noqa: PLC0415  (a client is loaded by those who brought it)

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from cdc_outbox.app.consumer_partitions import Place, Received
from cdc_outbox.errors import Hold, Refused

logger = logging.getLogger(__name__)

OnPlaces = Callable[[list[Place]], None]
ANSWER_TIMEOUT = 10.0
"""Seconds that a broker may take for an offset."""


class ConsumerClient(Protocol):
    """What the loop needs. Used by one thread; the three callbacks come while `poll` waits, perhaps on another."""

    def subscribe(self, topics: Sequence[str], assigned: OnPlaces, revoked: OnPlaces, lost: OnPlaces) -> None: ...

    def poll(self, timeout: float, limit: int) -> list[Received]:
        """Raises Hold for what heals by itself."""

    def pause(self, places: list[Place]) -> None: ...

    def resume(self, places: list[Place]) -> None: ...

    def seek(self, place: Place, offset: int) -> bool:
        """Go there; it may be paused, and is not any more. False: not yet possible, try again after the next poll."""

    def let_go(self, done: dict[Place, int], left: dict[Place, int]) -> None:
        """Called within `revoked`, the last moment to commit. done: next offsets to commit; left: the first offset of
        each partition that was fetched and is not done, to begin there should the client get it back as it is."""

    def end(self, place: Place) -> int:
        """The offset behind the partition's last record. Raises Hold."""

    def commit(self, offsets: dict[Place, int]) -> bool:
        """Commit and wait. False: not committed, by a rebalance or an outage."""


def client_for(consumer: Any) -> ConsumerClient:
    """The interface over a consumer of either library. Raises Refused for auto commit, TypeError for others."""
    roots = {kind.__module__.partition(".")[0] for kind in type(consumer).__mro__}
    if roots & {"cimpl", "confluent_kafka"}:
        return ConfluentClient(consumer)
    if "kafka" in roots:
        return KafkaPythonClient(consumer)
    raise TypeError(
        f"{type(consumer).__module__}.{type(consumer).__name__} is no consumer that is known here: give a kafka-python"
        " KafkaConsumer or a confluent-kafka Consumer, or call process() in a loop of your own"
    )


class KafkaPythonClient:
    def __init__(self, consumer: Any) -> None:
        if consumer.config["enable_auto_commit"]:
            raise Refused(
                "enable_auto_commit is on: it would commit events that are not done, and a crash would lose them",
                hint="KafkaConsumer(…, enable_auto_commit=False)",
            )
        if consumer.config["group_id"] is None:
            raise Refused(
                "group_id is not set, so that no offset can be committed", hint="KafkaConsumer(…, group_id=…)"
            )
        self._consumer = consumer

    def subscribe(self, topics: Sequence[str], assigned: OnPlaces, revoked: OnPlaces, lost: OnPlaces) -> None:
        from kafka import ConsumerRebalanceListener

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned_now: Any) -> None:
                assigned(_places(assigned_now))

            def on_partitions_revoked(self, revoked_now: Any) -> None:
                revoked(_places(revoked_now))

            def on_partitions_lost(self, lost_now: Any) -> None:
                lost(_places(lost_now))

        self._consumer.subscribe(topics=list(topics), listener=Listener())

    def poll(self, timeout: float, limit: int) -> list[Received]:
        from kafka.errors import KafkaError

        try:
            batches = self._consumer.poll(timeout_ms=round(timeout * 1000), max_records=limit)
        except KafkaError as error:
            if error.retriable:
                raise Hold(f"Kafka: {error}", reason="kafka") from error
            raise
        return [
            Received(
                record.topic,
                record.partition,
                record.offset,
                record.key,
                record.value,
                dict(record.headers or ()),
                record.timestamp,
                record,
            )
            for records in batches.values()
            for record in records
        ]

    def _partitions(self, places: list[Place]) -> list[Any]:
        from kafka import TopicPartition

        return [TopicPartition(*place) for place in places]

    def pause(self, places: list[Place]) -> None:
        self._consumer.pause(*self._partitions(places))

    def resume(self, places: list[Place]) -> None:
        self._consumer.resume(*self._partitions(places))

    def seek(self, place: Place, offset: int) -> bool:
        (partition,) = self._partitions([place])
        self._consumer.resume(partition)
        self._consumer.seek(partition, offset)
        return True

    def let_go(self, done: dict[Place, int], left: dict[Place, int]) -> None:
        # On the client's own thread, which may not wait for an answer; the commit leaves before the group is rejoined.
        if done:
            self._consumer.commit_async(self._offsets(done))
        # A partition that a rebalance takes and gives back keeps its position, behind all that was fetched, and stays
        # paused (kafka-python 3.0): what waited here would be skipped.
        for place, offset in left.items():
            self.seek(place, offset)

    def end(self, place: Place) -> int:
        from kafka.errors import KafkaError

        (partition,) = self._partitions([place])
        try:
            return int(self._consumer.end_offsets([partition])[partition])
        except KafkaError as error:
            raise Hold(
                f"Kafka did not say where {place.topic} [{place.partition}] ends: {error}", reason="kafka"
            ) from error

    def _offsets(self, offsets: dict[Place, int]) -> dict[Any, Any]:
        from kafka.structs import OffsetAndMetadata

        partitions = self._partitions(list(offsets))
        return {
            one: OffsetAndMetadata(offset, "", -1) for one, offset in zip(partitions, offsets.values(), strict=True)
        }

    def commit(self, offsets: dict[Place, int]) -> bool:
        from kafka.errors import KafkaError

        try:
            self._consumer.commit(self._offsets(offsets), timeout_ms=ANSWER_TIMEOUT * 1000)
        except KafkaError as error:
            logger.warning(
                "offsets were not committed (%s); what is done is recorded, and known when it returns", error
            )
            return False
        return True


class ConfluentClient:
    def __init__(self, consumer: Any) -> None:
        from confluent_kafka import KafkaException

        # Its settings cannot be read, but storing nothing is refused where offsets are stored by themselves.
        try:
            consumer.store_offsets(offsets=[])
        except KafkaException as error:
            raise Refused(
                "enable.auto.offset.store is on: auto commit would commit events that are not done, and a crash would"
                " lose them",
                hint='Consumer({…, "enable.auto.offset.store": False, "enable.auto.commit": False})',
            ) from error
        self._consumer = consumer

    def subscribe(self, topics: Sequence[str], assigned: OnPlaces, revoked: OnPlaces, lost: OnPlaces) -> None:
        self._consumer.subscribe(
            list(topics),
            on_assign=lambda _, places: assigned(_places(places)),
            on_revoke=lambda _, places: revoked(_places(places)),
            on_lost=lambda _, places: lost(_places(places)),
        )

    def poll(self, timeout: float, limit: int) -> list[Received]:
        from confluent_kafka import KafkaError, KafkaException

        # consume() alone would wait for `limit` records or the whole of the timeout.
        first = self._consumer.poll(timeout)
        if first is None:
            return []
        records: list[Received] = []
        for message in [first, *(self._consumer.consume(limit - 1, 0) if limit > 1 else ())]:
            error = message.error()
            if error is None:
                records.append(
                    Received(
                        message.topic(),
                        message.partition(),
                        message.offset(),
                        message.key(),
                        message.value(),
                        dict(message.headers() or ()),
                        message.timestamp()[1],
                        message,
                    )
                )
            elif error.fatal() or error.code() in {
                KafkaError.TOPIC_AUTHORIZATION_FAILED,
                KafkaError.GROUP_AUTHORIZATION_FAILED,
                KafkaError._AUTO_OFFSET_RESET,
            }:
                raise KafkaException(error)
            elif error.code() != KafkaError._PARTITION_EOF:
                logger.warning("Kafka: %s", error.str())
        return records

    def _partitions(self, places: list[Place]) -> list[Any]:
        from confluent_kafka import TopicPartition

        return [TopicPartition(*place) for place in places]

    def pause(self, places: list[Place]) -> None:
        self._consumer.pause(self._partitions(places))

    def resume(self, places: list[Place]) -> None:
        self._consumer.resume(self._partitions(places))

    def seek(self, place: Place, offset: int) -> bool:
        from confluent_kafka import KafkaException, TopicPartition

        try:
            self._consumer.resume(
                self._partitions([place])
            )  # what a seek does to a paused partition is not written down
            self._consumer.seek(TopicPartition(place.topic, place.partition, offset))
        except KafkaException:  # its fetcher has not started yet
            return False
        return True

    def let_go(self, done: dict[Place, int], left: dict[Place, int]) -> None:
        if done:
            self.commit(done)  # an assigned partition begins at the group's offset, whatever was fetched before

    def end(self, place: Place) -> int:
        from confluent_kafka import KafkaException

        (partition,) = self._partitions([place])
        try:
            return int(self._consumer.get_watermark_offsets(partition, timeout=ANSWER_TIMEOUT)[1])
        except KafkaException as error:
            raise Hold(
                f"Kafka did not say where {place.topic} [{place.partition}] ends: {error}", reason="kafka"
            ) from error

    def commit(self, offsets: dict[Place, int]) -> bool:
        from confluent_kafka import KafkaException, TopicPartition

        wanted = [TopicPartition(place.topic, place.partition, offset) for place, offset in offsets.items()]
        try:
            answers = self._consumer.commit(offsets=wanted, asynchronous=False)
            refused = next((answer.error for answer in answers or () if answer.error is not None), None)
            if refused is not None:
                raise KafkaException(refused)
        except KafkaException as error:
            logger.warning(
                "offsets were not committed (%s); what is done is recorded, and known when it returns", error
            )
            return False
        return True


def _places(partitions: Any) -> list[Place]:
    return [Place(one.topic, one.partition) for one in partitions]
