"""`binlog.source`: the binlog comes from a replica, statuses go to the primary, and either may fail over."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.harness.judge import Judge
from tests.harness.process import RelayProcess, run_command
from tests.harness.proxy import Proxy
from tests.harness.replication import (
    MySQLServer,
    Pair,
    catch_up,
    commit_empty,
    made_pair,
    promote,
    purge,
    received,
    run,
    standing_still,
)
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer

MakeWorld = Callable[..., World]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """For tests that leave both running, and the replica following."""
    with ExitStack() as stack:
        yield made_pair(stack)


@pytest.fixture
def own_pair() -> Iterator[Pair]:
    """For tests that kill one of them."""
    with ExitStack() as stack:
        yield made_pair(stack)


IMPATIENT = """
import sys
from cdc_outbox.binlog import reader
from cdc_outbox.cli import main
from cdc_outbox.relay import poller

poller.SWEEP_INTERVAL = 0.2
poller.PATIENCE = 1.0
reader._GIVE_UP_AFTER = 1.0
main(["--config", sys.argv[1], "start"])
"""
"""The relay, but for how long it waits: it looks for missed rows at once, and soon calls an outage one."""


def source(port: int, more: Mapping[str, object] | None = None, **replica: object) -> dict[str, object]:
    """binlog settings: of the replica, and more."""
    return {"source": {"host": "127.0.0.1", "port": port, **replica}, **(more or {})}


def start(world: World, config: Path, **options: Any) -> RelayProcess:
    return world.start(config, program=["-c", IMPATIENT, str(config)], **options)


def dumps(server: MySQLServer) -> list[int]:
    """Connections that read its binlog."""
    found = run(server, "SELECT ID FROM performance_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'")
    return [int(row[0]) for row in found]


def held(relay: RelayProcess, topic: str = "source") -> list[str]:
    return [line["message"] for line in relay.lines if line.get("event") == "hold" and line.get("topic") == topic]


def test_the_replica_is_read_and_the_primary_written(make_world: MakeWorld, pair: Pair) -> None:
    """Two writers beside it: everything arrives once and in order, and only the replica dumps the primary."""
    world = make_world(mysql=pair.primary.endpoint)
    before = [world.insert("a0") for _ in range(3)]
    config = world.config(binlog=source(pair.replica.port, server_id=4711))
    relay = world.start(config)
    commits = Writer(world, threads=2, limit=600).start().join()
    world.wait_settled()
    assert (len(dumps(pair.primary)), len(dumps(pair.replica))) == (1, 1)
    Judge(world).check({"a0": before, **commits})
    (read,) = [line["message"] for line in relay.lines if line.get("event") == "reading"]
    assert f"127.0.0.1:{pair.replica.port}" in read and "(GTID)" in read
    status = json.loads(run_command(config, "status", "--json").stdout)
    assert status["source"] == f"127.0.0.1:{pair.replica.port}" and status["state"] == "leader"
    assert status["position"]["gtid_set"] and status["server_id"] == 4711
    assert relay.stop() == 0


def looked_at(server: MySQLServer) -> int:
    """How often it was asked for what it has purged, among other things."""
    return int(run(server, "SHOW GLOBAL STATUS LIKE 'Com_show_variables'")[0][1])


def not_shown_as_an_insert(world: World, aggregate: str) -> str:
    """Only a sweep finds it."""
    event_id = world.insert(aggregate, status=2)
    world.execute("UPDATE outbox_event SET status = 0 WHERE event_id = %s", event_id)
    return event_id


def delayed(world: World, aggregate: str, seconds: int) -> str:
    ((due,),) = world.execute("SELECT NOW() + INTERVAL %s SECOND", seconds)
    return world.insert(aggregate, next_retry_at=due)


def test_a_replica_that_stands_still_only_delays(make_world: MakeWorld, pair: Pair) -> None:
    """Nothing of what it has yet to bring is swept, also not what the primary has purged; the poller's work goes on."""
    world = make_world(mysql=pair.primary.endpoint)
    relay = start(world, world.config(binlog=source(pair.replica.port)))
    first = world.insert("a1")
    world.wait_sent(first)
    catch_up(pair.replica, pair.primary)
    with standing_still(pair.replica):
        waiting = {f"a{n}": [world.insert(f"a{n}") for _ in range(3)] for n in (1, 2)}
        missed, due = not_shown_as_an_insert(world, "a3"), delayed(world, "a4", 1)
        wait_until(lambda: received(pair.replica, pair.primary), "the replica receiving what it does not apply")
        purge(pair.primary)
        world.wait_sent(due)
        relay.wait_for("source_behind")
        later = world.insert("a2")
        looks = looked_at(pair.replica)
        wait_until(lambda: looked_at(pair.replica) > looks, "the poller asking again what is not going to come")
        states = world.statuses()
        unsent = [*waiting["a1"], *waiting["a2"], missed, later]
        assert [states[one] for one in unsent] == [0] * len(unsent)
    world.wait_settled()
    waiting["a1"].insert(0, first)
    waiting["a2"].append(later)
    Judge(world).check({**waiting, "a3": [missed], "a4": [due]})
    assert not held(relay)


@pytest.mark.parametrize("checkpoint", ["in a file", "by file and offset"])
def test_a_relay_restarts_while_the_replica_is_behind(make_world: MakeWorld, pair: Pair, checkpoint: str) -> None:
    """What a sweep publishes meanwhile is not published again when the replica brings it. A position from the days
    before there was a source is no place in the replica, and is swept over."""
    world = make_world(mysql=pair.primary.endpoint)
    stored: dict[str, object] = {}
    if checkpoint == "in a file":
        stored = {"checkpoint_store": "file", "checkpoint_file": str(world.folder / "position")}
    config = world.config(binlog=source(pair.replica.port, stored))
    relay = start(world, config)
    events = [world.insert("a1")]
    world.wait_sent(*events)
    catch_up(pair.replica, pair.primary)
    with standing_still(pair.replica):
        events += [world.insert("a1") for _ in range(3)]
        relay.kill()
        if checkpoint == "by file and offset":
            world.execute(
                "UPDATE cdc_outbox_checkpoint SET gtid_set = NULL, binlog_file = 'binlog.000001', binlog_pos = 4"
            )
        relay = start(world, config)
        if checkpoint == "by file and offset":
            world.wait_sent(*events)
            assert "binlog_lost" in relay.events()
        events += [world.insert("a1") for _ in range(3)]
        relay.wait_for("source_behind")
        assert [world.statuses()[one] for one in events[-3:]] == [0, 0, 0]
    world.wait_settled()
    Judge(world).check({"a1": events})
    assert not held(relay) and ("binlog_lost" in relay.events()) == (checkpoint != "in a file")


def test_a_set_that_the_replica_has_yet_to_get(make_world: MakeWorld, pair: Pair) -> None:
    """A server refuses to be asked for less than a set that has more of its own GTIDs than it has: as after a restore
    of a former primary. It is behind, the binlog is not lost."""
    world = make_world(mysql=pair.primary.endpoint)
    config = world.config(binlog=source(pair.replica.port))
    ((uuid,),) = run(pair.replica, "SELECT @@server_uuid")
    with standing_still(pair.replica):
        commit_empty(pair.primary, f"{uuid}:1")
        relay = start(world, config)
        events = [world.insert("a1") for _ in range(3)]
        relay.wait_for("hold")
        assert f"has not got {uuid}:1 yet" in held(relay)[0]
        status = json.loads(run_command(config, "status", "--json").stdout)
        assert (status["state"], status["holds"]) == ("holding", ["source"])
    world.wait_settled()
    relay.wait_for("recovered")
    Judge(world).check({"a1": events})
    assert "binlog_lost" not in relay.events()


def test_a_replica_that_was_written_to_is_not_read(make_world: MakeWorld, pair: Pair) -> None:
    world = make_world(mysql=pair.primary.endpoint)
    relay = start(world, world.config(binlog=source(pair.replica.port)))
    events = [world.insert("a1")]
    world.wait_sent(*events)
    catch_up(pair.replica, pair.primary)
    ((uuid,),) = run(pair.replica, "SELECT @@server_uuid")
    run(pair.replica, "SET GLOBAL super_read_only = OFF")
    before = run(pair.replica, "SELECT @@global.gtid_executed")[0][0]
    run(pair.replica, "FLUSH TABLES")
    run(pair.replica, "SET GLOBAL super_read_only = ON")
    ((strange,),) = run(pair.replica, "SELECT GTID_SUBTRACT(@@global.gtid_executed, %s)", before)
    assert strange.startswith(uuid)
    (reading,) = dumps(pair.replica)
    run(pair.replica, f"KILL {reading}")
    events.append(world.insert("a1"))
    relay.wait_for("hold")
    assert f"has transactions that the primary has not, {strange}" in held(relay)[0]
    assert world.statuses()[events[-1]] == 0
    commit_empty(pair.primary, strange)
    world.wait_settled()
    Judge(world).check({"a1": events})


def test_what_the_replica_has_purged_is_swept_over(make_world: MakeWorld, pair: Pair) -> None:
    world = make_world(mysql=pair.primary.endpoint)
    config = world.config(binlog=source(pair.replica.port))
    relay = start(world, config)
    events = [world.insert("a1")]
    world.wait_sent(*events)
    assert relay.stop() == 0
    events += [world.insert("a1") for _ in range(3)]
    catch_up(pair.replica, pair.primary)
    purge(pair.replica)
    stopping = start(
        world, world.config(binlog=source(pair.replica.port, {"on_purged": "stop"})), wait_for="connected_mysql"
    )
    assert stopping.wait() == 3
    relay = start(world, config)
    world.wait_sent(*events)
    events.append(world.insert("a1"))
    world.wait_sent(*events)
    Judge(world).check({"a1": events})
    assert "binlog_lost" in relay.events()
    assert relay.stop() == 0
    by_file = run_command(config, "checkpoint", "set", "binlog.000001:4", "--yes")
    assert by_file.returncode == 2 and "binlog.source is read by GTID only" in by_file.stderr
    purge(pair.primary)
    earliest = run_command(config, "checkpoint", "reset", "--to", "earliest", "--yes")
    ((purged,),) = run(pair.replica, "SELECT @@global.gtid_purged")
    assert f"read on from {purged.replace(chr(10), '')}" in earliest.stdout, "the replica's, not the primary's"


def test_a_replica_that_dies_is_waited_for_or_replaced(make_world: MakeWorld, own_pair: Pair) -> None:
    """The hold says so; what needs no binlog goes on; the name is looked up again."""
    primary, replica = own_pair.primary, own_pair.replica
    world = make_world(mysql=primary.endpoint)
    with Proxy(replica.endpoint.host, replica.port) as address:
        relay = start(world, world.config(binlog=source(address.port)))
        events = [world.insert("a1")]
        world.wait_sent(*events)
        replica.kill()
        events += [world.insert("a1") for _ in range(3)]
        relay.wait_for("hold")
        assert held(relay)[0].startswith("Holding, nothing is lost and no retry spent: binlog.source 127.0.0.1:")
        due = delayed(world, "a2", 0)
        world.wait_sent(due)
        replica.start()
        run(replica, "START REPLICA")
        relay.wait_for("recovered")
        world.wait_sent(*events)
        replica.kill()
        events.append(world.insert("a1"))
        address.lead_to(primary.endpoint.host, primary.port)
        world.wait_settled()
        assert len(dumps(primary)) >= 1
    Judge(world).check({"a1": events, "a2": [due]})
    assert "leadership_lost" not in relay.events() and "binlog_lost" not in relay.events()


def test_the_replica_is_promoted(make_world: MakeWorld, own_pair: Pair) -> None:
    """Lock and statuses move to it, it goes on being read, and what was settled is not sent anew."""
    primary, replica = own_pair.primary, own_pair.replica
    with Proxy(primary.endpoint.host, primary.port) as address:
        world = make_world(mysql=replace(primary.endpoint, host=address.host, port=address.port))
        relay = start(world, world.config(binlog=source(replica.port)))
        commits = Writer(world, threads=2, limit=800).start().join()
        wait_until(lambda: 2 in world.statuses().values(), "the first events sent")
        catch_up(replica, primary)
        world.close_session()
        primary.kill()
        wait_until(lambda: "leadership_lost" in relay.events() or held(relay, "mysql"), "the relay noticing")
        promote(replica)
        address.lead_to(replica.endpoint.host, replica.port)
        second = Writer(world, threads=2, limit=300, seed=9, first_number=100_000).start().join()
        world.wait_settled()
        for aggregate, written in second.items():
            commits[aggregate] = [*commits.get(aggregate, []), *written]
        judge = Judge(world)
        judge.check_complete(commits)
        judge.check_order(commits)
        assert len(judge.records()) - sum(map(len, commits.values())) < 800
        assert "binlog_lost" not in relay.events() and len(dumps(replica)) == 1
        assert relay.stop() == 0
