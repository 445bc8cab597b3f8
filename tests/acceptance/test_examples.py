"""docs/examples as a user runs them, judged from the tables and from Kafka."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from cdc_outbox.testing.demo.consumer import remove_topic
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint
from cdc_outbox.testing.services.providers import KAFKA_VARIABLE, MYSQL_VARIABLE
from tests.harness.kafka import Seen, read_topic
from tests.harness.world import DEADLINE

ROOT = Path(__file__).parents[2]


@dataclass
class Example:
    """One example's surroundings. name: of its database; its topic is named after it."""

    name: str
    mysql: MySQLEndpoint
    kafka: KafkaEndpoint

    @property
    def topic(self) -> str:
        return f"{self.name.replace('_', '-')}.order"

    @contextlib.contextmanager
    def started(self, example: str, *options: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [sys.executable, str(ROOT / "docs/examples" / example), "--name", self.name, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                MYSQL_VARIABLE: self.mysql.url,
                KAFKA_VARIABLE: self.kafka.bootstrap,
            },
        ) as running:
            try:
                yield running
            finally:
                running.kill()

    def run(self, example: str, *options: str) -> str:
        """To its end, which must be good; what it said."""
        with self.started(example, "--keep", *options) as running:
            said, _ = running.communicate(timeout=DEADLINE)
        assert running.returncode == 0, said
        return said

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        at = self.mysql
        with (
            pymysql.connect(
                host=at.host, port=at.port, user=at.user, password=at.password, database=self.name, autocommit=True
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
            return list(cursor.fetchall())

    def statuses(self) -> dict[str, int]:
        return dict(self.execute("SELECT event_id, status FROM outbox_event"))

    def records(self) -> list[Seen]:
        return read_topic(self.kafka.bootstrap, self.topic)


@pytest.fixture
def example(mysql_server: MySQLEndpoint, kafka_broker: KafkaEndpoint) -> Iterator[Example]:
    made = Example(f"t_{uuid.uuid4().hex[:12]}", mysql_server, kafka_broker)
    yield made
    with contextlib.suppress(pymysql.err.OperationalError):  # the example took it away itself
        made.execute(f"DROP DATABASE {made.name}")
    if made.records():
        remove_topic(kafka_broker.bootstrap, made.topic)


def test_the_order_service_loses_and_doubles_nothing_whatever_button_is_pressed(example: Example) -> None:
    """--check presses each button over HTTP: rolled back, relay killed, consumer crashed, delivered again."""
    said = example.run("order_service", "--check")
    assert "none doubled" in said

    events, records = example.statuses(), example.records()
    assert len(events) == 5
    assert set(events.values()) == {2}
    assert {record.event_id for record in records} == set(events)
    assert len(records) > len(events), "nothing came twice: this shows nothing"
    placed = [number for (number,) in example.execute("SELECT id FROM orders ORDER BY id")]
    assert {json.loads(record.value or b"")["order"] for record in records} == set(placed)
    assert [number for (number,) in example.execute("SELECT order_id FROM reservation ORDER BY order_id")] == placed
    assert example.execute("SELECT free FROM stock") == [(1000 - 2 * 5,)]
    done = example.execute("SELECT event_id, attempts FROM processed_event WHERE consumer_group = 'inventory'")
    assert {event_id for event_id, _ in done} == set(events)
    assert example.execute("SELECT SUM(next_offset) FROM consumer_offset") == [(len(records),)]


def test_ctrl_c_ends_the_order_service_and_leaves_nothing_behind(example: Example) -> None:
    with example.started("order_service") as running:
        url = _said(running, r"Open (http://\S+)")
        with urllib.request.urlopen(url, timeout=20) as page:
            paths = set(re.findall(r'data-(?:path|then)="([^"]+)"', page.read().decode()))
        assert _post(url + "/failures/redeliver") == 409  # there is no event yet
        with urllib.request.urlopen(url + "/state", timeout=20) as answer:
            state = json.load(answer)
        pids = [state[name]["pid"] for name in ("relay", "inventory")]
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        assert {path: _post(url + path) for path in sorted(paths)} == {
            "/failures/crash-consumer": 200,
            "/failures/kill-relay": 200,
            "/failures/redeliver": 409,
            "/orders": 201,
            "/orders?decline=true": 402,
        }
        running.send_signal(signal.SIGINT)
        said, _ = running.communicate(timeout=DEADLINE)
        assert running.returncode == 0, said
        assert "nothing is left running" in said
    with pytest.raises(pymysql.err.OperationalError, match="Unknown database"):
        example.execute("SELECT 1")
    assert example.records() == []  # the topic is gone, too


def test_django_publishes_what_is_committed_and_nothing_else(example: Example) -> None:
    example.run("django_orders.py")
    ((event_id, status),) = example.statuses().items()
    assert status == 2
    assert [record.event_id for record in example.records()] == [event_id]
    assert example.execute("SELECT customer FROM shop_order") == [("Ada",)]


def test_a_polling_worker_hands_over_to_the_relay_and_no_event_is_lost_or_doubled(example: Example) -> None:
    said = example.run("from_polling.py", "--seconds", "1.5")
    assert "0 lost, 0 doubled, 0 rows" in said
    events, records = example.statuses(), example.records()
    assert set(events.values()) == {2}
    assert Counter(record.event_id for record in records) == Counter(list(events))
    by_the_relay = sum("outbox_id" in record.headers for record in records)
    assert 0 < by_the_relay < len(records), "one of them did all: this shows nothing"


def _said(running: subprocess.Popen[str], pattern: str) -> str:
    assert running.stdout is not None
    lines = []
    for line in running.stdout:
        lines.append(line)
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError(f"no {pattern!r} in:\n{''.join(lines)}")


def _post(url: str) -> int:
    request = urllib.request.Request(url, b"{}", {"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
