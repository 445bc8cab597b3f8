"""IdempotentConsumer.run with both Kafka clients: order, holds, rebalance, crashes, outages, kept progress."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer

from cdc_outbox import IdempotentConsumer
from cdc_outbox.app.consumer_partitions import Received
from cdc_outbox.app.consumer_retry import Failure
from cdc_outbox.errors import Refused
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.harness.kafka import consumer_of, create_topic
from tests.harness.shop import ConsumerProcess, Shop, make_shop
from tests.harness.world import wait_until

both_clients = pytest.mark.parametrize("client", ["kafka-python", "confluent"])


class Fails(Exception):
    """What handlers raise here."""


class Street:
    """A topic of one test's own, and what a group has committed in it."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = f"g-{uuid.uuid4().hex[:8]}"
        create_topic(bootstrap, topic, partitions)
        self._producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})

    def send(self, *event_ids: str, partition: int = 0) -> None:
        for event_id in event_ids:
            body = event_id.encode()
            self._producer.produce(self.topic, body, body, partition=partition, headers={"event_id": body})
        assert self._producer.flush(20) == 0

    def _asker(self) -> Any:
        return Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.group, "log_level": 0})

    def committed(self, partition: int = 0) -> int:
        """The group's next offset; -1001 where there is none."""
        asker = self._asker()
        try:
            (found,) = asker.committed([TopicPartition(self.topic, partition)], timeout=20)
            return int(found.offset)
        finally:
            asker.close()

    def commit(self, offset: int) -> None:
        asker = self._asker()
        try:
            asker.commit(offsets=[TopicPartition(self.topic, 0, offset)], asynchronous=False)
        finally:
            asker.close()


@pytest.fixture
def street(kafka_broker: KafkaEndpoint, topic_prefix: str) -> Street:
    return Street(kafka_broker.bootstrap, f"{topic_prefix}order", 2)


def event_id_of(record: Received) -> str:
    return (record.headers["event_id"] or b"").decode()


@contextlib.contextmanager
def running(
    consumer: IdempotentConsumer, street: Street, client: str, handler: Callable[..., Any], **options: Any
) -> Iterator[threading.Thread]:
    """The consumer in its loop on a thread, stopped and its client closed at the end; its errors are raised then."""
    kafka = consumer_of(client, street.bootstrap, street.group)
    errors: list[BaseException] = []

    def loop() -> None:
        try:
            consumer.run(kafka, [street.topic], handler, **{"poll_timeout": 0.05, "commit_interval": 0.1, **options})
        except BaseException as error:
            errors.append(error)
        finally:
            kafka.close()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield thread
    finally:
        consumer.request_stop()
        thread.join(60)
    if errors:
        raise errors[0]


def writes(shop: Shop) -> Callable[[Any, Received], None]:
    return lambda connection, record: shop.write(connection, event_id_of(record))


def in_order(shop: Shop) -> list[str]:
    return [event_id for (event_id,) in shop.execute("SELECT event_id FROM effect")]


# -- the main job -----------------------------------------------------------------------------------------------------


@both_clients
@pytest.mark.parametrize("mode", ["transactional", "record_first"])
def test_events_are_processed_in_order_and_committed(shop: Shop, street: Street, client: str, mode: str) -> None:
    events = [f"e{number}" for number in range(15)]
    street.send(*events)
    street.send(*events[:10])  # as after a restart of the relay
    seen: list[Received] = []

    def handler(*given: Any) -> None:
        seen.append(given[-1])
        (writes(shop) if mode == "transactional" else lambda record: shop.act(event_id_of(record)))(*given)

    with shop.consumer(mode=mode, group=street.group) as consumer, running(consumer, street, client, handler):
        wait_until(lambda: street.committed() == 25, "everything committed")
    assert in_order(shop) == events
    first = seen[0]
    assert (first.topic, first.partition, first.offset, first.key) == (street.topic, 0, 0, b"e0")
    assert first.timestamp and first.raw is not None


@both_clients
def test_an_event_that_fails_holds_its_partition_and_no_other(shop: Shop, street: Street, client: str) -> None:
    street.send("bad", "after bad")
    street.send("other 1", "other 2", partition=1)
    failures: list[str] = []
    healed = threading.Event()

    def handler(connection: Any, record: Received) -> None:
        event_id = event_id_of(record)
        shop.write(connection, event_id)
        if event_id == "bad" and not healed.is_set():
            failures.append(event_id)
            raise Fails

    consumer = shop.consumer(group=street.group, retry_waits=[0.05])
    # So short a poll that kafka-python would never get to the end of joining, were it not given longer for that.
    with running(consumer, street, client, handler, poll_timeout=0.002):
        wait_until(lambda: len(failures) > 2 and street.committed(1) == 2, "the other partition goes on")
        assert street.committed(0) < 1, "committed past an event that is not done"
        assert set(shop.effects()) == {"other 1", "other 2"}
        healed.set()
        wait_until(lambda: street.committed(0) == 2, "the partition goes on")
    assert [one for one in in_order(shop) if "bad" in one] == ["bad", "after bad"]


@both_clients
def test_a_dead_letter_lets_its_partition_go_on(shop: Shop, street: Street, client: str) -> None:
    street.send("bad", "good")
    dead: list[Failure] = []

    def handler(connection: Any, record: Received) -> None:
        if event_id_of(record) == "bad":
            raise Fails
        shop.write(connection, event_id_of(record))

    options: dict[str, Any] = {"max_attempts": 2, "retry_waits": [0.05], "dead_letter": dead.append}
    with running(shop.consumer(group=street.group, **options), street, client, handler):
        wait_until(lambda: street.committed() == 2, "both done with")
    assert [(one.event_id, one.attempts) for one in dead] == [("bad", 2)]
    assert dead[0].args[0].offset == 0
    assert shop.effects() == {"good": 1}


@both_clients
def test_an_event_leased_by_another_consumer_is_not_acknowledged(shop: Shop, street: Street, client: str) -> None:
    """Killed between record and effect: the next owner of the partition waits for the lease, and then does it."""
    street.send("e0", "e1", "e2")
    job = {"client": client, "bootstrap": street.bootstrap, "topic": street.topic}
    victim = ConsumerProcess(
        shop, mode="record_first", lease=9.0, group=street.group, kafka=job, stop_at={"e1": "before"}
    )
    victim.wait_for("before e1")
    victim.kill()
    assert shop.row("e1", street.group) == (0, 1)
    consumer = shop.consumer(mode="record_first", group=street.group)
    with running(consumer, street, client, lambda record: shop.act(event_id_of(record))):
        wait_until(lambda: street.committed() == 3, "everything done")
    assert in_order(shop) == ["e0", "e1", "e2"]
    assert shop.row("e1", street.group) == (1, 2)


# -- rebalance --------------------------------------------------------------------------------------------------------


@both_clients
def test_a_rebalance_in_the_middle(shop: Shop, street: Street, client: str) -> None:
    """A second consumer joins and leaves while fetched events wait: each partition in order, each effect once."""
    events = {partition: [f"{partition}-{number}" for number in range(100)] for partition in (0, 1)}
    for partition, some in events.items():
        street.send(*some, partition=partition)
    owners: dict[str, set[int]] = {"first": set(), "second": set()}
    joined = threading.Event()

    def handler(name: str) -> Callable[[Any, Received], None]:
        def handle(connection: Any, record: Received) -> None:
            owners[name].add(record.partition)
            shop.write(connection, event_id_of(record))
            if not joined.is_set():
                threading.Event().wait(0.1)  # slow, so that the others are fetched and wait
                if owners["second"] and len(shop.effects()) > 20:
                    joined.set()

        return handle

    first, second = shop.consumer(group=street.group), shop.consumer(group=street.group)
    with running(first, street, client, handler("first"), commit_interval=600):
        wait_until(lambda: owners["first"] == {0, 1}, "the first has both partitions")
        with running(second, street, client, handler("second"), commit_interval=600):
            wait_until(joined.is_set, "the second has a partition")
            assert street.committed(*owners["second"]) > 0, "not committed when it was taken away"
        wait_until(lambda: len(shop.effects()) == 200, "everything done")
    assert [street.committed(one) for one in (0, 1)] == [100, 100]
    done = in_order(shop)
    for partition, some in events.items():
        assert [one for one in done if one.startswith(f"{partition}-")] == some


@both_clients
def test_a_revoked_partition_is_not_committed(shop: Shop, street: Street, client: str) -> None:
    """Held when it is taken away: what waits behind is dropped, and neither is committed by the old owner."""
    street.send("held 0", "behind 0")
    street.send("held 1", "behind 1", partition=1)
    held: set[int] = set()

    def never(_: Any, record: Received) -> None:
        held.add(record.partition)
        raise Fails

    first, second = shop.consumer(group=street.group, retry_waits=[0.3]), shop.consumer(group=street.group)
    with running(first, street, client, never):
        wait_until(lambda: held == {0, 1}, "both partitions are held")
        with running(second, street, client, writes(shop)):
            wait_until(lambda: 2 in {street.committed(0), street.committed(1)}, "the second has done its partition")
    taken = 0 if street.committed(0) == 2 else 1
    assert set(shop.effects()) == {f"held {taken}", f"behind {taken}"}
    assert street.committed(1 - taken) < 1


# -- crashes and outages ----------------------------------------------------------------------------------------------


def test_killed_in_the_middle_of_a_stream(shop: Shop, street: Street) -> None:
    """kill -9 with an open transaction; nothing was committed to Kafka yet: all comes again, nothing twice."""
    events = [f"e{number}" for number in range(30)]
    street.send(*events)
    job = {"client": "confluent", "bootstrap": street.bootstrap, "topic": street.topic}
    victim = ConsumerProcess(shop, mode="transactional", group=street.group, kafka=job, stop_at={"e20": "after"})
    victim.wait_for("after e20")
    victim.kill()
    assert len(in_order(shop)) == 20
    with running(shop.consumer(group=street.group), street, "confluent", writes(shop)):
        wait_until(lambda: street.committed() == 30, "everything committed")
    assert in_order(shop) == events


def test_mysql_gone_and_back(make_mysql: Callable[..., Server[MySQLEndpoint]], street: Street) -> None:
    server = make_mysql()
    shop = make_shop(server.endpoint)
    consumer = shop.consumer(group=street.group, max_attempts=1, dead_letter=print)
    with running(consumer, street, "confluent", writes(shop)):
        street.send("e0")
        wait_until(lambda: street.committed() == 1, "the first is done")
        server.kill()
        street.send("e1", "e2")
        server.start()
        wait_until(lambda: street.committed() == 3, "it goes on by itself")
    assert in_order(shop) == ["e0", "e1", "e2"]
    assert shop.row("e1", street.group) == (1, 1), "an outage spends no attempt"


# -- progress ---------------------------------------------------------------------------------------------------------


@both_clients
def test_progress_is_kept_in_the_same_transaction(shop: Shop, street: Street, client: str) -> None:
    """The group's offsets are lost, and the old records are purged: the database says where to go on."""
    street.send("e0", "e1", "e2")
    consumer = shop.consumer(group=street.group, keep_progress=True)
    with running(consumer, street, client, writes(shop)):
        wait_until(lambda: shop.offset(street.topic, 0, street.group) == 3, "progress")
    shop.execute("DELETE FROM processed_event")
    old, street.group = street.group, f"{street.group}-2"  # to Kafka it is a new group
    street.send("e3")
    with running(shop.consumer(group=old, keep_progress=True), street, client, writes(shop)):
        wait_until(lambda: street.committed() == 4, "everything committed")
    assert in_order(shop) == ["e0", "e1", "e2", "e3"]
    assert shop.offset(street.topic, 0, old) == 4


@both_clients
def test_an_offset_behind_the_end_of_the_topic_is_not_used(shop: Shop, street: Street, client: str) -> None:
    """As after the topic was made anew: the group's offset in Kafka says where to read on."""
    shop.execute("INSERT INTO consumer_offset VALUES (%s, %s, 0, 1000, UTC_TIMESTAMP(3))", street.group, street.topic)
    street.send("e0", "e1", "e2")
    street.commit(1)
    with running(shop.consumer(group=street.group, keep_progress=True), street, client, writes(shop)):
        wait_until(lambda: street.committed() == 3, "read on")
    assert in_order(shop) == ["e1", "e2"]
    assert shop.offset(street.topic, 0, street.group) == 3


# -- async, and what is refused ---------------------------------------------------------------------------------------


@both_clients
def test_async_handlers(shop: Shop, street: Street, client: str) -> None:
    street.send("e0", "e1", "stay")
    kafka = consumer_of(client, street.bootstrap, street.group)

    async def service() -> None:
        here = asyncio.get_running_loop()
        inside = asyncio.Event()

        async def handler(connection: Any, record: Received) -> None:
            assert asyncio.get_running_loop() is here
            shop.write(connection, event_id_of(record))
            if event_id_of(record) == "stay":
                inside.set()
                await asyncio.sleep(60)

        consumer = shop.consumer(group=street.group)
        task = asyncio.create_task(consumer.run_async(kafka, [street.topic], handler, poll_timeout=0.05))
        await asyncio.wait_for(inside.wait(), 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(service())
    kafka.close()
    assert in_order(shop) == ["e0", "e1"]
    assert street.committed() == 2, "what is done is committed when it is cancelled"


def test_async_handlers_without_a_loop_of_ones_own(shop: Shop, street: Street) -> None:
    street.send("e0", "e1")
    loops = set()

    async def handler(connection: Any, record: Received) -> None:
        loops.add(asyncio.get_running_loop())
        shop.write(connection, event_id_of(record))

    with running(shop.consumer(group=street.group), street, "confluent", handler):
        wait_until(lambda: street.committed() == 2, "everything committed")
    assert len(loops) == 1


@both_clients
def test_a_record_without_an_id_stops_the_consumer_loudly(shop: Shop, street: Street, client: str) -> None:
    street.send("e0")
    with (
        pytest.raises(Refused, match="offset 0 has no header 'id'"),
        running(shop.consumer(group=street.group), street, client, writes(shop), event_id="id") as thread,
    ):
        thread.join(60)
    assert street.committed() < 0


def test_auto_commit_is_refused(shop: Shop, kafka_broker: KafkaEndpoint) -> None:
    confluent = Consumer({"bootstrap.servers": kafka_broker.bootstrap, "group.id": "x", "log_level": 0})
    python = KafkaConsumer(bootstrap_servers=kafka_broker.bootstrap, group_id="x", enable_auto_commit=True)
    groupless = KafkaConsumer(bootstrap_servers=kafka_broker.bootstrap, group_id=None, enable_auto_commit=False)
    for client, word in (
        (confluent, "enable.auto.offset.store"),
        (python, "enable_auto_commit"),
        (groupless, "group_id"),
    ):
        with pytest.raises(Refused, match=word):
            shop.consumer().run(client, ["x"], print)
        client.close()
    with pytest.raises(TypeError, match="no consumer that is known"):
        shop.consumer().run(object(), ["x"], print)
