"""A cluster of three brokers loses them one by one, and its replicas: it flows on, or holds and spends nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient

from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.endpoint import KafkaEndpoint
from cdc_outbox.testing.services.server import Server
from tests.harness import recovery
from tests.harness.kafka import create_topic, set_topic_config
from tests.harness.load import Load, no_retry_spent
from tests.harness.process import RelayProcess
from tests.harness.recovery import Note
from tests.harness.world import World, wait_until

CLIENTS = pytest.mark.parametrize("client", [pytest.param("kafka-python", marks=pytest.mark.long), "confluent"])

OPTIONS: dict[str, str | int] = {
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "min.insync.replicas": 2,
    "replica.lag.time.max.ms": 3000,
}


class Cluster:
    """Three brokers, each a controller too."""

    def __init__(self, brokers: list[Server[KafkaEndpoint]]) -> None:
        self.brokers = brokers
        self.endpoint = KafkaEndpoint(",".join(broker.endpoint.bootstrap for broker in brokers))

    def leaders(self, topic: str) -> list[int]:
        """Of each partition, as an index of `brokers`; -1: none."""
        admin = AdminClient({"bootstrap.servers": self.endpoint.bootstrap, "log_level": 0})
        partitions = admin.list_topics(topic, timeout=20).topics[topic].partitions
        return [partitions[number].leader - 1 for number in sorted(partitions)]

    def repair(self) -> None:
        for broker in self.brokers:
            broker.resume()
        with ThreadPoolExecutor() as pool:
            for started in [pool.submit(broker.start) for broker in self.brokers if not broker.alive]:
                started.result()


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[Cluster]:
    brokers = providers.make_kafka_cluster(3, OPTIONS, print)
    yield Cluster(brokers)
    for broker in brokers:
        broker.remove()


@pytest.fixture
def cluster(three_brokers: Cluster) -> Iterator[Cluster]:
    yield three_brokers
    three_brokers.repair()


def started(make_world: Callable[..., World], cluster: Cluster, client: str) -> tuple[World, RelayProcess]:
    """A relay whose topic has a partition on each broker."""
    world = make_world(kafka=cluster.endpoint)
    create_topic(world.bootstrap, world.topic, 3, replication=3)
    return world, world.start(kafka={"client": client})


def all_partitions_flow(world: World) -> None:
    """Far more aggregates than partitions."""
    world.wait_sent(*[world.insert(f"each-{number}") for number in range(20)])


@CLIENTS
def test_brokers_are_lost_one_by_one(
    make_world: Callable[..., World], cluster: Cluster, record_property: Note, client: str
) -> None:
    """Without one it flows on; without two there are too few replicas and no controller."""
    world, relay = started(make_world, cluster, client)
    load = Load(world, rate=30)
    first, second, _ = leaders = cluster.leaders(world.topic)
    assert set(leaders) == {0, 1, 2}
    cluster.brokers[first].kill()
    all_partitions_flow(world)
    cluster.brokers[second].kill()
    relay.wait_for("hold")
    load.pile_up(30)
    assert no_retry_spent(world)
    assert recovery.measure(world, cluster.repair, record_property) < recovery.AT_MOST
    all_partitions_flow(world)
    load.check()
    assert relay.running


@pytest.mark.long
@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_too_few_replicas_in_sync(
    make_world: Callable[..., World], cluster: Cluster, record_property: Note, client: str
) -> None:
    """The leaders are there and refuse what only two of three would have."""
    world, relay = started(make_world, cluster, client)
    load = Load(world, rate=30)
    set_topic_config(world.bootstrap, world.topic, "min.insync.replicas", "3")
    cluster.brokers[0].kill()
    relay.wait_for("hold")
    load.pile_up(30)
    assert no_retry_spent(world)

    def allow_two() -> None:
        set_topic_config(world.bootstrap, world.topic, "min.insync.replicas", "2")

    assert recovery.measure(world, allow_two, record_property) < recovery.AT_MOST
    all_partitions_flow(world)
    load.check()
    assert relay.running


@pytest.mark.long
@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_a_frozen_leader(
    make_world: Callable[..., World], cluster: Cluster, record_property: Note, client: str
) -> None:
    """Its connections stay open and its partitions are led by others soon."""
    world, relay = started(make_world, cluster, client)
    load = Load(world, rate=30)
    leader = cluster.leaders(world.topic)[0]
    cluster.brokers[leader].pause()
    wait_until(lambda: leader not in cluster.leaders(world.topic), "others lead its partitions")
    all_partitions_flow(world)
    cluster.brokers[leader].resume()
    all_partitions_flow(world)
    load.check()
    assert relay.running


@pytest.mark.long
@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_a_rolling_restart_is_no_outage(make_world: Callable[..., World], cluster: Cluster, client: str) -> None:
    world, relay = started(make_world, cluster, client)
    load = Load(world, rate=30)
    for broker in cluster.brokers:
        broker.restart()
        all_partitions_flow(world)
    load.check()
    assert relay.running
    assert "rebuild" not in relay.log
