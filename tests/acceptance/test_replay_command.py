"""`events replay`: dead events come back from the dead letter topic once their rows are gone, in their order."""

from __future__ import annotations

import json

from tests.harness.kafka import read_topic
from tests.harness.process import run_command
from tests.harness.world import World, wait_until

TOO_LARGE = '{"pad": "' + "x" * 3000 + '"}'
SMALL = {"max_record_bytes": "2KiB", "batch_bytes": "2KiB"}


def test_purged_events_come_back_from_their_letters(world: World) -> None:
    world.execute("ALTER TABLE outbox_event ADD COLUMN tenant VARCHAR(20) NULL")
    outbox = {"columns": {"headers": {"tenant": "tenant"}}}
    config = world.config(outbox=outbox)
    relay = world.start(config)
    text = '{"n": 1.5, "名": "值"}'
    dead = [world.insert("A-1", kind="no topic!", payload=text, max_retries=0, tenant=f"t{n}") for n in range(3)]
    world.wait_settled()
    wait_until(lambda: len(read_topic(world.bootstrap, world.dead_letter_topic)) == 3, "three letters")

    still = run_command(config, "events", "replay", dead[0])
    assert still.returncode == 0
    assert "1 event still has its row" in still.stderr
    assert run_command(config, "events", "purge", "--state", "dead", "--yes").returncode == 0
    assert world.statuses() == {}

    refused = run_command(config, "events", "replay", "--aggregate", "no topic!/A-1")
    assert refused.returncode == 2
    assert "nothing was changed" in refused.stderr
    none = run_command(config, "events", "replay", "--aggregate", "order/nobody")
    assert (none.returncode, none.stdout) == (
        0,
        f"{world.dead_letter_topic} has no letter that these filters take; nothing was changed\n",
    )
    unknown = run_command(config, "events", "replay", "nobody")
    assert unknown.returncode == 2
    assert "no letter of nobody" in unknown.stderr
    assert run_command(config, "events", "replay", "--error-class", "MESSAGE_TOO_LARGE", "--yes", "--json").stdout == (
        '{"letters": 0, "inserted": 0, "there": 0, "without_payload": []}\n'
    )
    mended = world.config(kafka={"topic_map": {"no topic!": world.topic}}, outbox=outbox)
    assert relay.stop() == 0
    world.start(mended)
    done = run_command(mended, "events", "replay", "--aggregate", "no topic!/A-1", "--yes", "--json")
    assert json.loads(done.stdout) == {"letters": 3, "inserted": 3, "there": 0, "without_payload": []}, done.stderr
    world.wait_sent(*dead)
    records = read_topic(world.bootstrap, world.topic)
    assert [record.event_id for record in records] == dead
    assert {record.value for record in records} == {text.encode()}
    assert [record.headers["tenant"] for record in records] == [b"t0", b"t1", b"t2"]


def test_a_letter_without_its_payload_cannot_come_back(world: World) -> None:
    config = world.config(kafka=SMALL)
    world.start(config)
    dead = world.insert("A-1", payload=TOO_LARGE, max_retries=0)
    world.wait_settled()
    world.execute("DELETE FROM outbox_event")
    done = run_command(config, "events", "replay", dead)
    assert done.returncode == 0
    assert "1 letter does not hold the payload" in done.stderr
    assert dead in done.stderr
    assert world.statuses() == {}
