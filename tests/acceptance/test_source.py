"""`binlog.source`: the binlog comes from a replica, statuses go to the primary, and either may fail over."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.harness.judge import Judge
from tests.harness.process import run_command
from tests.harness.proxy import Proxy
from tests.harness.replication import follow, run
from tests.harness.world import World
from tests.harness.writer import Writer

if TYPE_CHECKING:
    from tests.conftest import MakeMySQL


@pytest.fixture
def primary(make_mysql: MakeMySQL) -> Server[MySQLEndpoint]:
    return make_mysql(server_id=1)


@pytest.fixture
def replica(make_mysql: MakeMySQL, primary: Server[MySQLEndpoint]) -> Server[MySQLEndpoint]:
    made = make_mysql(server_id=2, log_bin="other")
    follow(made, primary)
    return made


@pytest.fixture
def address(primary: Server[MySQLEndpoint]) -> Iterator[Proxy]:
    """Of the primary."""
    with Proxy(primary.endpoint.host, primary.port) as made:
        yield made


@pytest.fixture
def source_address(replica: Server[MySQLEndpoint]) -> Iterator[Proxy]:
    with Proxy(replica.endpoint.host, replica.port) as made:
        yield made


def source(port: int, **more: object) -> dict[str, object]:
    return {"source": {"host": "127.0.0.1", "port": port, **more}}


def dumps(server: Server[MySQLEndpoint]) -> int:
    """Connections that read its binlog."""
    rows = run(server, "SELECT COUNT(*) FROM performance_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'")
    return int(rows[0][0])


def test_the_replica_is_read_and_the_primary_written(
    make_world: Callable[..., World], primary: Server[MySQLEndpoint], replica: Server[MySQLEndpoint]
) -> None:
    """Two writers beside it: everything arrives once and in order, and only the replica dumps the primary."""
    world = make_world(mysql=primary.endpoint)
    before = [world.insert("a0") for _ in range(3)]
    config = world.config(binlog=source(replica.port))
    relay = world.start(config)
    commits = Writer(world, threads=2, limit=600).start().join()
    world.wait_settled()
    assert (dumps(primary), dumps(replica)) == (1, 1)
    Judge(world).check({"a0": before, **commits})
    (read,) = [line["message"] for line in relay.lines if line.get("event") == "reading"]
    assert f"127.0.0.1:{replica.port}" in read and "(GTID)" in read
    status = json.loads(run_command(config, "status", "--json").stdout)
    assert status["source"] == f"127.0.0.1:{replica.port}" and status["state"] == "leader"
    assert status["position"]["gtid_set"]
    assert relay.stop() == 0
