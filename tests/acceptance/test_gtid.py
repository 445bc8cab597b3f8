"""Positions as GTID sets: a relay follows its set to another primary, and through a change of gtid_mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.harness.judge import Judge
from tests.harness.proxy import Proxy
from tests.harness.replication import catch_up, follow, promote, run
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer

if TYPE_CHECKING:
    from tests.conftest import MakeMySQL


@pytest.fixture
def primary(make_mysql: MakeMySQL) -> Server[MySQLEndpoint]:
    return make_mysql(server_id=1)


@pytest.fixture
def replica(make_mysql: MakeMySQL, primary: Server[MySQLEndpoint]) -> Server[MySQLEndpoint]:
    """Follows the primary by GTID; other files, another uuid, other offsets."""
    made = make_mysql(server_id=2, log_bin="other")
    follow(made, primary)
    return made


@pytest.fixture
def address(primary: Server[MySQLEndpoint]) -> Iterator[Proxy]:
    with Proxy(primary.endpoint.host, primary.port) as made:
        yield made


@pytest.mark.parametrize("claim", ["leader", "row"])
def test_a_replica_takes_over(
    make_world: Callable[..., World],
    primary: Server[MySQLEndpoint],
    replica: Server[MySQLEndpoint],
    address: Proxy,
    claim: str,
) -> None:
    """While the relay works: what the old primary had sent is not sent anew but for what was in flight then."""
    world = make_world(mysql=replace(primary.endpoint, host=address.host, port=address.port))
    # With `row`, what the old incarnation had claimed is another worker's until it has stood at 1 for this long.
    relay = world.start(outbox={"claim": claim, "sending_timeout": "2s" if claim == "row" else None})
    first = Writer(world, threads=2, limit=3000).start()
    wait_until(lambda: first.count > 1000, "1,000 events written")
    commits = first.stop()
    catch_up(replica, primary)
    world.close_session()
    primary.kill()
    wait_until(lambda: "hold" in relay.events() or "rebuild" in relay.log, "the relay noticing")
    promote(replica)
    address.lead_to(replica.endpoint.host, replica.port)
    second = Writer(world, threads=2, limit=500, seed=9, first_number=100_000).start().join()
    world.wait_settled()
    for aggregate, events in second.items():
        commits[aggregate] = [*commits.get(aggregate, []), *events]
    judge = Judge(world)
    judge.check_complete(commits)
    judge.check_order(commits)
    assert "binlog_lost" not in relay.events(), "it went on by its set"
    again = len(judge.records()) - sum(map(len, commits.values()))
    assert again < 1500
    (gtids,) = world.execute("SELECT gtid_set FROM cdc_outbox_checkpoint")[0]
    assert len(gtids.split(",")) == 2, "both servers' transactions, whatever holes there are at the moment"


def test_what_a_lost_primary_took_along_is_swept_over(
    make_world: Callable[..., World],
    primary: Server[MySQLEndpoint],
    replica: Server[MySQLEndpoint],
    address: Proxy,
) -> None:
    """Asynchronous replication: the new primary never had the last transactions, which the relay's set holds."""
    world = make_world(mysql=replace(primary.endpoint, host=address.host, port=address.port))
    relay = world.start()
    kept = [world.insert("a1") for _ in range(5)]
    world.wait_sent(*kept)
    catch_up(replica, primary)
    run(replica, "STOP REPLICA")
    gone = world.insert("a1")
    world.wait_sent(gone)
    wait_until(lambda: world.execute("SELECT COUNT(*) FROM outbox_event WHERE status = 2")[0][0] == 6, "all sent")
    primary.kill()
    world.close_session()
    promote(replica)
    address.lead_to(replica.endpoint.host, replica.port)
    new = [world.insert("a1") for _ in range(5)]
    world.wait_settled()
    judge = Judge(world)
    judge.check_complete({"a1": kept + new})
    first = [record.event_id for record in judge.records()]
    assert [one for one in dict.fromkeys(first) if one != gone] == kept + new
    assert relay.running


STEPS = {
    "ON": ["OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON"],
    "OFF": ["ON", "ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"],
}


@pytest.mark.parametrize("to", ["ON", "OFF"])
def test_gtid_mode_changes_under_a_running_relay(
    make_world: Callable[..., World], make_mysql: MakeMySQL, to: str
) -> None:
    steps = STEPS[to]
    world = make_world(mysql=make_mysql(gtid_mode=steps[0]).endpoint)
    config = world.config()
    relay = world.start(config)
    sent = [world.insert("a1")]
    for step in steps[1:]:
        world.execute(f"SET GLOBAL gtid_mode = {step}")
        sent += [world.insert("a1") for _ in range(3)]
        world.wait_sent(*sent)
        assert relay.running
    assert relay.stop() == 0
    sent += [world.insert("a1") for _ in range(3)]
    relay = world.start(config)
    world.wait_sent(*sent)
    Judge(world).check({"a1": sent})
