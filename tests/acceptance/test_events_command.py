"""`events` as a person uses it, beside a relay that runs: retried, given up, purged; asked before many are changed."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests.harness.crowd import fill
from tests.harness.judge import Judge
from tests.harness.kafka import read_topic
from tests.harness.process import COMMAND, environment, run_command
from tests.harness.world import World, wait_until

TOO_LARGE = '{"pad": "' + "x" * 3000 + '"}'
SMALL = {"max_record_bytes": "2KiB", "batch_bytes": "2KiB"}


def test_a_dead_event_is_retried_once_its_cause_is_mended(world: World) -> None:
    config = world.config(kafka=SMALL)
    world.start(config)
    bad = world.insert("a1", payload=TOO_LARGE, max_retries=0)
    world.wait_settled()
    listed = json.loads(run_command(config, "events", "list", "--json").stdout)
    assert [(one["event_id"], one["state"]) for one in listed["events"]] == [(bad, "dead")]
    world.execute("UPDATE outbox_event SET payload = '{}' WHERE event_id = %s", bad)
    done = run_command(config, "events", "retry", bad, "--reason", "payload mended")
    assert done.returncode == 0, done.stderr
    assert "1 event is due now" in done.stdout
    assert "payload mended" in done.stderr, "the log says why"
    world.wait_sent(bad)
    refused = run_command(config, "events", "retry", bad)
    assert refused.returncode == 2
    assert f"event {bad}" in refused.stderr
    assert "is sent" in refused.stderr


@pytest.mark.parametrize("claim", ["leader", "row"])
def test_a_skipped_event_ends_as_a_dead_letter_and_its_successors_go_on(world: World, claim: str) -> None:
    """The leader sends the letter without trying the event again, although it could go by now."""
    world.execute("ALTER TABLE outbox_event ADD COLUMN last_error VARCHAR(512) NULL")
    config = world.config(kafka=SMALL, retry={"waits": ["1h"]}, outbox={"claim": claim})
    world.start(config)
    bad = world.insert("a1", payload=TOO_LARGE)
    after = [world.insert("a1") for _ in range(3)]
    wait_until(lambda: world.row(after[-1])["next_retry_at"] is not None, "the successors are parked")
    world.execute("UPDATE outbox_event SET payload = '{}' WHERE event_id = %s", bad)
    done = run_command(config, "events", "skip", bad, "--reason", "customer gone", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"matched": 1, "changed": 1, "locked": 0, "moved_on": 0, "leader": True}
    world.wait_settled()
    row = world.row(bad)
    assert (row["status"], row["retry_count"], row["next_retry_at"]) == (3, 3, None)
    assert row["last_error"] == "skipped: customer gone"
    (letter,) = read_topic(world.bootstrap, world.dead_letter_topic)
    assert letter.event_id == bad
    assert letter.headers["error_class"] == b"skipped"
    assert letter.headers["error_message"] == b"skipped: customer gone"
    assert letter.headers["original_topic"].decode() == world.topic
    assert letter.value == b"{}"
    assert [record.event_id for record in Judge(world).records()] == after


def test_without_a_leader_it_waits_for_one(world: World) -> None:
    with world.sql() as cursor:
        fill(cursor, 1, "failed")
        fill(cursor, 1, "dead")
    config = world.config()
    done = run_command(config, "events", "skip", "--state", "failed", "--yes")
    assert "no relay leads" in done.stderr
    assert run_command(config, "events", "retry", "--state", "dead", "--yes").returncode == 0
    assert len(world.execute("SELECT 1 FROM outbox_event WHERE next_retry_at <= NOW()")) == 2
    world.start(config)
    world.wait_settled()
    assert world.execute("SELECT status, retry_count FROM outbox_event ORDER BY id") == [(3, 3), (2, 0)]
    assert len(read_topic(world.bootstrap, world.dead_letter_topic)) == 1


def test_many_are_retried_and_skipped_beside_a_relay(world: World) -> None:
    """1,100 of each, more than a batch; every one ends where it belongs, once."""
    config = world.config()
    world.start(config)
    with world.sql() as cursor:
        fill(cursor, 1100, "dead", kind="order")
        fill(cursor, 1100, "failed", kind="given-up")
    done = run_command(config, "events", "retry", "--aggregate", "order", "--yes")
    assert done.returncode == 0, done.stderr
    assert "1,100 events" in done.stdout
    done = run_command(config, "events", "skip", "--aggregate", "given-up", "--state", "failed", "--yes")
    assert "1,100 events" in done.stdout, done.stderr
    world.wait_settled()
    assert len(read_topic(world.bootstrap, world.dead_letter_topic)) == 1100
    records = read_topic(world.bootstrap, world.topic)
    assert len({record.event_id for record in records}) == len(records) == 1100


def ask_in_a_terminal(config: Path, answer: str, *words: str) -> tuple[int, str]:
    """Run the command with a terminal for its questions; gives its exit code and everything said."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "--config", str(config), *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(TERM="dumb", COLUMNS="200"),
    ) as process:
        os.close(theirs)
        os.write(ours, f"{answer}\n".encode())
        said = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:  # Linux' way of saying that the other side is closed
                break
            if not part:
                break
            said += part
        os.close(ours)
        return process.wait(30), said.decode()


def test_many_are_changed_only_when_somebody_agrees(world: World) -> None:
    with world.sql() as cursor:
        fill(cursor, 7, "dead")
    config = world.config()
    before = world.execute("SELECT * FROM outbox_event ORDER BY id")
    refused = run_command(config, "events", "retry", "--state", "dead")
    assert refused.returncode == 2
    assert "nothing was changed" in refused.stderr
    assert "--yes" in refused.stderr
    code, said = ask_in_a_terminal(config, "n", "events", "retry", "--state", "dead")
    assert code == 2
    assert " 7 events (7 dead)? [y/N]" in said
    assert said.count("order/a") == 5, "a sample is shown"
    assert "… and 2 more" in said
    assert "Nothing was changed" in said
    assert world.execute("SELECT * FROM outbox_event ORDER BY id") == before
    code, said = ask_in_a_terminal(config, "y", "events", "purge", "--state", "dead")
    assert code == 0
    assert "7 events are deleted" in said
    assert world.execute("SELECT * FROM outbox_event") == []
