"""`tail` beside a relay: events as they arrive, how late, and only those asked for.

With kafka-python here, with the other client below; tests/contract/test_followers.py has both do all of it.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.harness.process import COMMAND, environment, run_command
from tests.harness.world import World, wait_until

TOO_LARGE = '{"pad": "' + "x" * 3000 + '"}'
SMALL = {"max_record_bytes": "2KiB", "batch_bytes": "2KiB"}


class Tail:
    """A running `tail --json`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def ids(self) -> list[str]:
        return [event["event_id"] for event in self.events]


@contextmanager
def tail(config: Path, *words: str) -> Iterator[Tail]:
    process = subprocess.Popen(
        [*COMMAND, "--config", str(config), "tail", "--json", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        yield Tail(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_events_are_followed_with_their_latency(world: World) -> None:
    config = world.config(kafka={"client": "kafka-python", **SMALL})
    world.start(config)
    before = world.insert("a0")
    world.wait_sent(before)
    with tail(config) as all_of_them, tail(config, "--aggregate", "order/a2", "--since", "1h") as some:

        def both_follow() -> bool:
            world.insert("a1")
            world.insert("a2")
            return bool(all_of_them.events and some.events)

        wait_until(both_follow, "both have begun")
        new = world.insert("a2", event_type="OrderPaid", payload='{"secret": 1}')
        dead = world.insert("a3", payload=TOO_LARGE, max_retries=0)
        wait_until(lambda: new in all_of_them.ids() and dead in all_of_them.ids() and new in some.ids(), "they come")
        some.process.send_signal(signal.SIGINT)
        assert some.process.wait(30) == 0
    assert before not in all_of_them.ids(), "it begins at the end"
    assert {event["aggregate_id"] for event in some.events} == {"a2"}
    shown = next(event for event in all_of_them.events if event["event_id"] == new)
    assert shown.pop("partition") >= 0
    assert shown.pop("offset") >= 0
    assert 0 <= shown.pop("latency_seconds") < 120
    assert shown.pop("timestamp") > 1_700_000_000_000
    assert shown == {
        "topic": world.topic,
        "key": "a2",
        "event_id": new,
        "event_type": "OrderPaid",
        "aggregate_type": "order",
        "aggregate_id": "a2",
        "error_class": None,
    }
    letter = next(event for event in all_of_them.events if event["event_id"] == dead)
    assert (letter["topic"], letter["error_class"]) == (world.dead_letter_topic, "MESSAGE_TOO_LARGE")


def test_it_says_that_nothing_was_published_yet(world: World) -> None:
    words = [*COMMAND, "--config", str(world.config()), "tail"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        process.terminate()
    assert said == "none of this relay's topics is there yet: it has published nothing; waiting\n"


def test_it_ends_after_so_many_and_prints_a_line_for_each(world: World) -> None:
    config = world.config()
    world.start(config)
    sent = [world.insert("a1"), world.insert("a1", event_type="OrderPaid", payload='{"n": 1}')]
    world.wait_sent(*sent)
    done = run_command(config, "tail", "--since", "1h", "--count", "1", "--type", "OrderPaid", "--topic", world.topic)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    assert f"order/a1  OrderPaid  {sent[1]}  {world.topic}[" in line
    assert '"n"' not in line, "payloads are shown only when asked for"
    done = run_command(config, "tail", "--since", "1h", "--count", "1", "--type", "OrderPaid", "--payload")
    assert '{"n": 1}' in done.stdout
