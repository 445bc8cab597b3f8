"""Pausing a relay, and keeping it to a rate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.judge import Judge
from tests.harness.process import run_command
from tests.harness.world import World, wait_until


def state(config: Path) -> str:
    return str(json.loads(run_command(config, "status", "--json").stdout)["state"])


@pytest.mark.parametrize("claim", ["leader", "row"])
def test_pause_survives_restarts_and_resume_goes_on_in_order(world: World, claim: str) -> None:
    config = world.config(outbox={"claim": claim})
    relay = world.start(config)
    before = world.insert("a1")
    world.wait_sent(before)
    assert run_command(config, "pause").returncode == 0
    relay.wait_for("paused")
    held = [world.insert("a1") for _ in range(5)]
    assert state(config) == "paused"
    relay.kill()
    relay = world.start(config)
    relay.wait_for("paused")
    held.append(world.insert("a1"))
    assert len(Judge(world).records()) == 1
    resumed = run_command(config, "resume")
    assert resumed.returncode == 0 and "goes on within" in resumed.stdout
    world.wait_sent(*held)
    Judge(world).check({"a1": [before, *held]})
    wait_until(lambda: state(config) == "leader", "the state says so")


def test_a_first_start_may_be_paused_and_its_sweep_waits(world: World) -> None:
    config = world.config()
    world.init(config)
    pending = [world.insert("a1") for _ in range(3)]
    assert "will be so when it starts" in run_command(config, "pause").stdout
    relay = world.start(config)
    relay.wait_for("paused")
    assert Judge(world).records() == []
    assert run_command(config, "resume").returncode == 0
    world.wait_sent(*pending)
    Judge(world).check({"a1": pending})


def test_a_paused_relay_stops_at_once(world: World) -> None:
    config = world.config()
    relay = world.start(config)
    run_command(config, "pause")
    relay.wait_for("paused")
    world.insert("a1")
    assert relay.stop() == 0
    assert "drain_timeout" not in relay.events()


def test_a_rate_holds_back_what_would_be_too_much(world: World) -> None:
    world.start(limits={"max_rate": 0.02})
    first = world.insert("a1")
    world.wait_sent(first)
    second = world.insert("a2")
    third = world.insert("a3", next_retry_at="2020-01-01")
    # A relay without a rate starts and sends meanwhile.
    world.execute("CREATE TABLE other_event LIKE outbox_event")
    world.start(world.config(name="other", outbox={"tables": ["other_event"]}))
    world.insert("a1", table="other_event")
    world.wait_settled("other_event")
    assert [world.statuses()[one] for one in (second, third)] == [0, 0]
