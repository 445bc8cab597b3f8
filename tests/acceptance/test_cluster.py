"""A cluster of three brokers loses them one by one, and its replicas: it flows on, or holds and spends nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its way of exporting

from cdc_outbox.kafka.murmur2 import partition_of
from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.endpoint import KafkaEndpoint
from cdc_outbox.testing.services.server import Server
from tests.harness import recovery
from tests.harness.judge import Judge
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


WINDOW = 40
"""limits.max_in_flight: half of it is enough to hold a partition."""

OF_PARTITION = [[f"{n}" for n in range(200) if partition_of(f"{n}".encode(), 2) == number][:10] for number in (0, 1)]
"""Aggregates of each of two."""

PARKED = "SELECT COUNT(*) FROM outbox_event WHERE next_retry_at IS NOT NULL"


@pytest.mark.parametrize(
    ("client", "claim", "ordering"),
    [
        ("confluent", "leader", "aggregate"),
        ("kafka-python", "row", "strict"),
        pytest.param("confluent", "row", "strict", marks=pytest.mark.long),
        pytest.param("kafka-python", "leader", "aggregate", marks=pytest.mark.long),
        pytest.param("kafka-python", "leader", "none", marks=pytest.mark.long),
    ],
)
def test_what_waits_for_a_stuck_partition_goes_in_order_once_it_answers(
    make_world: Callable[..., World], cluster: Cluster, client: str, claim: str, ordering: str
) -> None:
    """Each of two partitions is on one broker only, and one of the two is killed."""
    world, broker = make_world(kafka=cluster.endpoint), cluster.brokers[1]
    admin = AdminClient({"bootstrap.servers": world.bootstrap, "log_level": 0})
    spread = NewTopic(world.topic, 2, replica_assignment=[[1], [2]], config={"min.insync.replicas": "1"})
    admin.create_topics([spread])[world.topic].result(30)
    relay = world.start(
        kafka={"client": client},
        outbox={"claim": claim, "ordering": ordering},
        limits={"max_in_flight": WINDOW, "batch": 10},
    )
    commits: dict[str, list[str]] = {one: [world.insert(one)] for one in OF_PARTITION[0] + OF_PARTITION[1]}
    world.wait_settled()
    broker.kill()
    flowing: list[str] = []
    for number in range(3 * WINDOW):
        for aggregates in OF_PARTITION:
            aggregate = aggregates[number % len(aggregates)]
            commits[aggregate].append(world.insert(aggregate))
            if aggregate in OF_PARTITION[0]:
                flowing.append(commits[aggregate][-1])
    world.wait_sent(*flowing)
    relay.wait_for("partition_stuck")
    relay.wait_for("partition_held")
    wait_until(lambda: world.execute(PARKED)[0][0] >= WINDOW, "they wait in the table")
    broker.start()
    relay.wait_for("partition_back")
    world.wait_settled()
    assert world.execute("SELECT COUNT(*) FROM outbox_event WHERE retry_count > 0")[0][0] == 0
    judge = Judge(world)
    judge.check_complete(commits)
    judge.check_no_duplicates()
    if ordering != "none":
        judge.check_order(commits)
