"""Servers on which one leader and one order cannot be had: told by doctor, refused by start."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cdc_outbox.testing.services.endpoint import MySQLEndpoint, free_port
from tests.harness.process import run_command
from tests.harness.world import World, wait_until
from tests.integration.pooling_proxy import PoolingProxy

if TYPE_CHECKING:
    from tests.conftest import MakeMySQL


def errors(config: Path) -> dict[str, str | None]:
    """What doctor finds wrong, with its fix."""
    done = run_command(config, "doctor", "--json")
    assert done.returncode in {0, 2}, done.stderr
    found = {one["check"]: one["fix"] for one in json.loads(done.stdout)["findings"] if one["level"] == "error"}
    assert bool(found) == (done.returncode == 2)
    return found


@pytest.mark.long
def test_a_group_of_many_primaries(make_world: Callable[..., World], make_mysql: MakeMySQL) -> None:
    """A real group, of one member. The printed fix makes it one that a relay can work with."""
    server = make_mysql(
        plugin_load="group_replication.so",
        loose_group_replication_group_name=str(uuid.uuid4()),
        loose_group_replication_local_address=f"127.0.0.1:{free_port()}",
        loose_group_replication_single_primary_mode="OFF",
        loose_group_replication_enforce_update_everywhere_checks="ON",
        report_host="127.0.0.1",
    )
    world = make_world(mysql=server.endpoint)
    world.execute("SET GLOBAL group_replication_bootstrap_group = ON")
    world.execute("START GROUP_REPLICATION")
    state = "SELECT member_state FROM performance_schema.replication_group_members"
    wait_until(lambda: world.execute(state) == [("ONLINE",)], "the group is up")
    config = world.config()
    found = errors(config)
    fix = found["cluster"]
    assert set(found) == {"cluster"} and fix is not None
    relay = world.start(config, wait_for=None)
    assert relay.wait() == 2
    assert fix in relay.log
    world.execute(fix)
    assert errors(config) == {}
    world.start(config)
    world.wait_sent(world.insert("a1"))


def test_a_proxy_that_shares_sessions(world: World, mysql_server: MySQLEndpoint) -> None:
    with PoolingProxy(mysql_server) as proxy:
        config = world.config(mysql={"host": proxy.host, "port": proxy.port, "tls": {"mode": "disabled"}})
        assert set(errors(config)) == {"proxy"}
        relay = world.start(config, wait_for=None)
        assert relay.wait() == 2
        assert "proxy" in relay.log
