"""kill -9 at every named point of the relay: nothing lost, order kept, nothing settled sent again."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from cdc_outbox.testing import kill_points
from tests.harness.judge import Judge
from tests.harness.process import environment
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer

PACKAGE = Path(kill_points.__file__).parents[1]
AT_FIRST_PASS = {"lock-taken", "epoch-raised", "recovered", "swept-everything"}
"""Points that a relay passes once; the others are met under load, at a later pass."""

SHORT = [
    ("recovered", "leader"),
    ("sent", "leader"),
    ("outcomes-committed", "leader"),
    ("claimed", "row"),
    ("due-claimed", "row"),
    ("missed-claimed", "leader"),
]
EVERY = [
    (point, claim)
    for point, claim in itertools.product(kill_points.POINTS, ("leader", "row"))
    if claim == "row" or not point.startswith("claim")
]
TOO_LARGE = '{"pad": "' + "x" * 3000 + '"}'


class Load:
    """Everything that makes a relay pass every point: commits, refusals with and without retries left, rows that the
    binlog does not show, and some that are there before the first start."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.commits: dict[str, list[str]] = defaultdict(list)
        self.refuse(max_retries=0)
        self.refuse(max_retries=1)
        self.writer = Writer(world, threads=2, aggregates=10, rate=100).start()

    def refuse(self, max_retries: int) -> None:
        """An event that is too large, and one that waits for it."""
        aggregate = f"bad-{max_retries}"
        for payload in (TOO_LARGE, "{}"):
            event_id = self.world.insert(aggregate, payload=payload, max_retries=max_retries)
            self.commits[aggregate].append(event_id)

    def hide(self) -> None:
        """Only the table knows it, and two of them that wait for each other."""
        with self.world.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_log_bin = 0")
            for number in range(2):
                event_id = f"hidden-{len(self.commits['hidden'])}-{number}"
                cursor.execute(
                    "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
                    " VALUES (%s, 'order', 'hidden', 'OrderPlaced', '{}')",
                    (event_id,),
                )
                self.commits["hidden"].append(event_id)

    def stop(self) -> dict[str, list[str]]:
        return {**self.writer.stop(), **self.commits}


def die_at(world: World, point: str, claim: str) -> None:
    config = world.config(
        outbox={"claim": claim, "sending_timeout": "2s"},
        kafka={"max_record_bytes": "2KiB", "batch_bytes": "2KiB"},
    )
    load = Load(world)
    passes = 1 if point in AT_FIRST_PASS else 2
    relay = world.start(config, wait_for=None, environ={kill_points.VARIABLE: f"{point}:{passes}"})
    if point not in AT_FIRST_PASS:
        # Points that the sweep before reading passes as well may come twice in it.
        wait_until(lambda: "sweep_done" in relay.events() or not relay.running, "the end of the first sweep")
        load.refuse(max_retries=1)
        load.hide()
    assert relay.wait(90) == -signal.SIGKILL, f"{point} was not passed {passes} times"
    judge = Judge(world)
    snapshot = judge.snapshot()
    world.start(config).wait_for("leader")
    commits = load.stop()
    world.wait_settled()
    judge.check(commits, [snapshot])


@pytest.mark.parametrize(("point", "claim"), SHORT)
def test_the_relay_dies_at(world: World, point: str, claim: str) -> None:
    die_at(world, point, claim)


@pytest.mark.long
@pytest.mark.parametrize(("point", "claim"), [one for one in EVERY if one not in SHORT])
def test_the_relay_dies_at_every_point(world: World, point: str, claim: str) -> None:
    die_at(world, point, claim)


def test_every_point_is_in_the_code_once() -> None:
    """A point that is not passed anywhere would never be tried; one that is not listed, neither."""
    passed = [
        name
        for path in PACKAGE.rglob("*.py")
        if path.name != "kill_points.py"
        for name in re.findall(r'\bkill_point\("([\w-]+)"\)', path.read_text("utf-8"))
    ]
    assert sorted(passed) == sorted(kill_points.POINTS)


def test_without_the_variable_nothing_is_asked() -> None:
    program = "from cdc_outbox.testing import kill_points as k; assert k.kill_point is k._nothing"
    assert subprocess.run([sys.executable, "-c", program], env=environment(), check=False).returncode == 0


@pytest.mark.parametrize(("wanted", "code"), [("sent:2", -signal.SIGKILL), ("sent", -signal.SIGKILL), ("sent:3", 0)])
def test_it_dies_at_the_pass_that_was_named(wanted: str, code: int) -> None:
    program = "from cdc_outbox.testing.kill_points import kill_point as k; k('sent'); k('read'); k('sent')"
    environ = environment(**{kill_points.VARIABLE: wanted})
    assert subprocess.run([sys.executable, "-c", program], env=environ, check=False).returncode == code


def test_a_point_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="outcomes-committed"):
        kill_points._armed("nowhere")
