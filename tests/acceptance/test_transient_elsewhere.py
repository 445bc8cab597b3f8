"""`rows: transient` on MariaDB, whose position is file and offset, and with `binlog.source`, where the copies are
written to another server than the events are read from: the tests of MySQL's, and what is their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from cdc_outbox.testing.services import providers
from tests.acceptance.test_transient_rows import (  # noqa: F401
    LARGE,
    ROWS,
    account,
    check_all_arrive,
    commit,
    config,
    first_start,
    order,
    sent,
    test_killed_under_load_nothing_is_lost_and_the_order_kept,
    test_rows_that_are_deleted_at_once_are_sent_as_they_were_inserted,
    test_what_is_dead_stays_and_can_be_retried_by_hand,
    test_what_is_refused_is_written_again_and_retried_and_its_successors_follow,
)
from tests.harness.judge import Judge
from tests.harness.kafka import create_topic, set_topic_config
from tests.harness.replication import MySQLServer, catch_up, made_pair, purge, run, standing_still
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer

MakeWorld = Callable[..., World]


@dataclass(frozen=True)
class Servers:
    """primary: what is written to. read: whose binlog the relay reads."""

    primary: MySQLServer
    read: MySQLServer

    def world(self, make_world: MakeWorld) -> World:
        made = make_world(mysql=self.primary.endpoint)
        if self.read is not self.primary:
            made.always["binlog"] = {"source": {"host": self.read.endpoint.host, "port": self.read.port}}
        return made


def _say(text: str) -> None:
    print(text, file=sys.stderr)


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Servers]:
    server = providers.make_mariadb({}, _say)
    yield Servers(server, server)
    server.remove()


@pytest.fixture(scope="module")
def pair() -> Iterator[Servers]:
    with ExitStack() as stack:
        made = made_pair(stack)
        yield Servers(made.primary, made.replica)


@pytest.fixture(params=["mariadb", pytest.param("pair", marks=pytest.mark.long)])
def servers(request: pytest.FixtureRequest) -> Servers:
    found: Servers = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def world(make_world: MakeWorld, servers: Servers) -> World:
    return servers.world(make_world)


on_both = pytest.mark.parametrize("servers", ["mariadb", "pair"], indirect=True)


@on_both
def test_killed_again_and_again_while_the_binlog_goes_on_to_other_files(world: World, servers: Servers) -> None:
    """kill -9 wherever it stands, with copies that wait, new files in between: nothing is lost and the order kept."""
    create_topic(world.bootstrap, world.topic, max_message_bytes="2000")
    path = config(world, limits={"batch": 20})
    relay = first_start(world, path)
    bad = {f"bad-{n}": commit(world, {"aggregate": f"bad-{n}", "payload": LARGE, "max_retries": 30}) for n in range(3)}
    writer = Writer(world, threads=2, aggregates=6, rate=60, transient=True).start()
    for _ in range(3):
        arrived = len(Judge(world).records())
        wait_until(lambda: len(Judge(world).records()) > arrived + 100, "100 records more")  # noqa: B023
        run(servers.read, "FLUSH BINARY LOGS")
        relay.kill()
        for aggregate in bad:
            bad[aggregate] += commit(world, {"aggregate": aggregate})
        relay = world.start(path)
    commits = {**writer.stop(), **bad}
    set_topic_config(world.bootstrap, world.topic, "max.message.bytes", "100000")
    check_all_arrive(world, commits)
    assert relay.stop() == 0


@on_both
def test_a_binlog_that_is_gone_is_the_end(world: World, servers: Servers) -> None:
    path = config(world)
    relay = first_start(world, path)
    first = commit(world, {})
    assert sent(world, 1) == first
    assert relay.stop() == 0
    commit(world, {})
    if servers.read is not servers.primary:
        catch_up(servers.read, servers.primary)
    purge(servers.read)
    relay = world.start(path, wait_for=None)
    assert relay.wait() == 3
    assert "is lost" in relay.log


def test_killed_while_the_replica_is_behind(make_world: MakeWorld, pair: Servers) -> None:
    """The copies are on the primary before the replica shows what goes before them: until it does none is retried."""
    world = pair.world(make_world)
    create_topic(world.bootstrap, world.topic, max_message_bytes="2000")
    path = config(world, retry={"waits": ["4s"]})
    relay = first_start(world, path)
    (bad,) = commit(world, {"payload": LARGE, "max_retries": 30})
    copied = [(bad, 3, 1, 1)]
    wait_until(lambda: world.execute(ROWS) == copied, "its copy")
    relay.kill()
    catch_up(pair.read, pair.primary)
    with standing_still(pair.read):
        after = commit(world, {}, {})
        others = commit(world, {"aggregate": "a2"})
        for seconds in (2, 4):
            relay = world.start(path)
            since = f"SELECT next_retry_at < NOW() - INTERVAL {seconds} SECOND FROM outbox_event"
            wait_until(lambda: world.execute(since)[0][0], "the copy being due for many a poll")  # noqa: B023
            relay.kill()
        assert world.execute(ROWS) == copied
        assert sent(world, 0) == []
    relay = world.start(path)
    assert sent(world, 1) == others
    set_topic_config(world.bootstrap, world.topic, "max.message.bytes", "100000")
    wait_until(lambda: world.execute(ROWS) == [], "the copies are gone once they are sent")
    assert list(dict.fromkeys(order(world, "a1"))) == [bad, *after]
    assert relay.stop() == 0
