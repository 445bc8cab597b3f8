"""What users of other tools reported, where no other test holds it: docs/failures.md lists all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.harness.judge import Judge
from tests.harness.kafka import create_topic, read_topic
from tests.harness.process import run_command
from tests.harness.world import World, wait_until
from tests.harness.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

INSERT = (
    "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload)"
    " VALUES (%s, 'order', %s, 'OrderPlaced', '{}')"
)
TOO_LARGE = '"' + "x" * 3000 + '"'
SMALL = {"max_record_bytes": "2KiB", "batch_bytes": "2KiB"}


def test_a_transaction_that_commits_late_is_not_skipped(world: World) -> None:
    """Higher ids were sent long ago; one was open while the first start swept the table."""
    with world.connect(autocommit=False) as before, before.cursor() as cursor:
        cursor.execute(INSERT, ("open-at-the-start", "a1"))
        relay = world.start()
        relay.wait_for("sweep_done")
        with world.connect(autocommit=False) as later, later.cursor() as other:
            other.execute(INSERT, ("open-while-it-runs", "a2"))
            world.wait_sent(*[world.insert(f"b{number}") for number in range(50)])
            before.commit()
            later.commit()
    world.wait_sent("open-at-the-start", "open-while-it-runs")
    Judge(world).check_no_duplicates()


def test_two_relays_with_one_server_id(make_world: Callable[..., World], world: World) -> None:
    """The server ends the dump of whoever was first; that one says so and ends, and does not come back for ever."""
    world.execute("CREATE TABLE other_event LIKE outbox_event")
    first = world.start(mysql={"server_id": 424_242})
    world.wait_sent(world.insert("a1"))
    second = world.start(mysql={"server_id": 424_242}, name="another", outbox={"tables": ["other_event"]})
    wait_until(lambda: not (first.running and second.running), "one of them ended")
    ended, other = (first, second) if not first.running else (second, first)
    assert ended.wait() == 2
    assert "server_id" in ended.log and "mysql.server_id" in ended.log
    assert other.running


def test_an_event_whose_dead_letter_is_refused_stays_in_its_row(world: World) -> None:
    create_topic(world.bootstrap, world.dead_letter_topic, max_message_bytes="100")
    relay = world.start(kafka=SMALL)
    event_id = world.insert("a1", payload=TOO_LARGE, max_retries=0)
    after = world.insert("a1")
    relay.wait_for("dead_letter_refused")
    world.wait_sent(after)
    row = world.row(event_id)
    assert (row["status"], row["next_retry_at"], row["payload"]) == (3, None, TOO_LARGE)
    assert read_topic(world.bootstrap, world.dead_letter_topic) == []
    world.execute("UPDATE outbox_event SET payload = '{}' WHERE event_id = %s", event_id)
    done = run_command(relay.config, "events", "retry", event_id)
    assert done.returncode == 0, done.stderr
    world.wait_sent(event_id)


def test_the_applications_inserts_meet_no_locks_of_the_relay(world: World) -> None:
    """While it retries, parks and frees: the writer's threads end with the first error that they get, 1213 and 1205
    included."""
    world.start(kafka=SMALL, retry={"waits": ["1s"], "poll_interval": "50ms"})
    writer = Writer(world, threads=4, limit=3000, aggregates=8).start()
    failing = []
    for number in range(12):
        failing.append(world.insert(f"agg-{number % 8}", payload=TOO_LARGE, max_retries=2))
        target = writer.count + 100
        wait_until(lambda target=target: writer.count >= min(target, 3000), "100 more events")
    commits = writer.join()
    world.wait_settled()
    judge = Judge(world)
    judge.check_complete(commits)
    for aggregate, events in commits.items():
        commits[aggregate] = [one for one in events if one not in failing]
    judge.check_order(commits)
