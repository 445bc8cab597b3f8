"""The network between the relay and its servers is cut, half-open or slow: nothing lost, no retry spent, order kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cdc_outbox.config import KafkaSettings
from cdc_outbox.kafka.publisher import make_publisher
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from tests.harness import recovery
from tests.harness.kafka_by_proxy import KafkaByProxy, kafka_by_proxy
from tests.harness.load import Load
from tests.harness.process import RelayProcess
from tests.harness.proxy import Proxy
from tests.harness.recovery import Note
from tests.harness.world import World

CLIENTS = pytest.mark.parametrize("client", [pytest.param("kafka-python", marks=pytest.mark.long), "confluent"])
SOON = {"socket.timeout.ms": 4000}
"""As options of confluent: how long a broker may be silent, for those who cannot wait for the default."""


@pytest.fixture
def to_mysql(mysql_server: MySQLEndpoint) -> Iterator[Proxy]:
    """The relay's way to MySQL; the test's own leads there directly."""
    with Proxy(mysql_server.host, mysql_server.port) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaByProxy]:
    with kafka_by_proxy() as made:
        yield made


@pytest.fixture
def to_kafka(broker: KafkaByProxy) -> Iterator[KafkaByProxy]:
    yield broker
    broker.proxy.mend()


def by(proxy: Proxy) -> dict[str, Any]:
    return {"host": proxy.host, "port": proxy.port}


# -- MySQL ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flowing", [pytest.param(False, marks=pytest.mark.long), True], ids=["idle", "flowing"])
def test_mysql_half_open(world: World, to_mysql: Proxy, record_property: Note, flowing: bool) -> None:
    """No error ever comes. The lead is given up by the relay's own deadline, and the server frees the lock by its."""
    relay = world.start(mysql=by(to_mysql))
    world.wait_sent(world.insert("a1"))
    load = Load(world) if flowing else None
    to_mysql.swallow()
    relay.wait_for("leadership_lost")
    assert recovery.measure(world, to_mysql.mend, record_property) < recovery.AT_MOST
    if load is not None:
        load.check()
    assert relay.running
    assert relay.stop() == 0


def test_a_standby_leads_when_the_leader_is_half_open(world: World, to_mysql: Proxy) -> None:
    leader = world.start(mysql=by(to_mysql))
    standby = world.start(wait_for="standby")
    load = Load(world)
    to_mysql.swallow()
    standby.wait_for("leader")
    leader.wait_for("leadership_lost")
    load.flow(100)
    to_mysql.mend()
    leader.wait_for("standby")
    load.check()


def test_mysql_forgets_the_dump_alone(world: World, to_mysql: Proxy) -> None:
    """As a firewall forgets an idle connection: the heartbeats that stay away tell, and the lead is not lost."""
    relay = world.start(mysql=by(to_mysql))
    load = Load(world)
    to_mysql.forget(*ports(world, "Binlog Dump%"))
    relay.wait_for("binlog_connection_lost")
    relay.wait_for("binlog_connection_recovered")
    load.check()
    assert "leadership_lost" not in relay.events()
    load.judge.check_no_duplicates()


def ports(world: World, command: str) -> list[int]:
    """Where the server sees those connections to this database come from, whose command is like this one."""
    found = world.execute(
        "SELECT host FROM information_schema.processlist WHERE command LIKE %s AND id <> CONNECTION_ID()", command
    )
    return [int(host.rpartition(":")[2]) for (host,) in found]


def test_mysql_cut_again_and_again(world: World, to_mysql: Proxy, record_property: Note) -> None:
    relay = world.start(mysql=by(to_mysql))
    load = Load(world)
    for _ in range(3):
        to_mysql.cut()
        load.flow(50)
    to_mysql.refuse()
    relay.wait_for("hold")
    assert recovery.measure(world, to_mysql.mend, record_property) < recovery.AT_MOST
    load.check()
    assert relay.running


# -- Kafka ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "options"),
    [
        pytest.param("confluent", SOON, id="confluent-soon"),
        pytest.param("confluent", {}, marks=pytest.mark.long, id="confluent"),
        pytest.param("kafka-python", {}, marks=pytest.mark.long, id="kafka-python"),
    ],
)
def test_kafka_half_open(
    make_world: Callable[..., World],
    to_kafka: KafkaByProxy,
    record_property: Note,
    client: str,
    options: dict[str, Any],
) -> None:
    """The connection in use is dead for ever: nothing but the silence on it tells."""
    world, relay = by_proxy(make_world, to_kafka, client=client, kafka={"options": options})
    load = Load(world)
    to_kafka.proxy.swallow()
    relay.wait_for("hold")
    load.pile_up(50)
    assert recovery.measure(world, to_kafka.proxy.mend, record_property) < recovery.AT_MOST
    load.check()
    assert relay.running


@CLIENTS
def test_kafka_cut(
    make_world: Callable[..., World], to_kafka: KafkaByProxy, record_property: Note, client: str
) -> None:
    world, relay = by_proxy(make_world, to_kafka, client=client)
    load = Load(world)
    for _ in range(3):
        to_kafka.proxy.cut()
        load.flow(50)
    to_kafka.proxy.refuse()
    relay.wait_for("hold")
    assert recovery.measure(world, to_kafka.proxy.mend, record_property) < recovery.AT_MOST
    load.check()
    assert relay.running


@pytest.mark.long
@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_a_slow_network_is_no_outage(
    make_world: Callable[..., World], to_mysql: Proxy, to_kafka: KafkaByProxy, client: str
) -> None:
    """Every answer comes late, as from across an ocean."""
    to_mysql.delay(0.05)
    to_kafka.proxy.delay(0.1)
    world, relay = by_proxy(make_world, to_kafka, client=client, mysql=by(to_mysql), leadership_timeout="10s")
    load = Load(world)
    load.check()
    load.judge.check_no_duplicates()
    assert relay.stop() == 0
    assert not {"hold", "leadership_lost", "binlog_connection_lost"} & set(relay.events())


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_a_broker_that_is_far_away_is_found(to_kafka: KafkaByProxy, client: str) -> None:
    to_kafka.proxy.delay(0.3)
    given = {"client": client, "bootstrap_servers": to_kafka.bootstrap}
    publisher = make_publisher(KafkaSettings.model_validate(given), lambda _: None)
    assert publisher.trouble() is None
    assert publisher.close(10)


def by_proxy(
    make_world: Callable[..., World], to_kafka: KafkaByProxy, *, client: str, **sections: Any
) -> tuple[World, RelayProcess]:
    """A world whose relay reaches Kafka by the proxy."""
    world = make_world(kafka=to_kafka.endpoint)
    kafka = {"client": client, "bootstrap_servers": to_kafka.bootstrap}
    return world, world.start(**{**sections, "kafka": {**kafka, **sections.get("kafka", {})}})
