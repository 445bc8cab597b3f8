"""scripts/demo's program on real services: it shows events, survives a killed relay, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pymysql
import pytest

from cdc_outbox.testing.demo.orders import ORDERS_TABLE, OrderService
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint, wait_until
from cdc_outbox.testing.services.leftover import SESSION_VARIABLE, leftovers
from cdc_outbox.testing.services.providers import KAFKA_VARIABLE, MYSQL_VARIABLE

ROOT = Path(__file__).parents[2]
EVENT = re.compile(r"Order\w+ +order A-\w+  row 2 sent  cdc-outbox-demo\.order\[\d\]  [\d.]+ ms")
STARTED = re.compile(r"^relay pid (\d+) \(start (\d+)\)")


@contextmanager
def demo(*arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "cdc_outbox.testing.demo", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, **variables},
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def _until(stream: IO[str] | None, pattern: re.Pattern[str]) -> re.Match[str]:
    """Read on to the line that matches; the demo's end without one is a failure that shows what it said."""
    assert stream is not None
    said = []
    for line in stream:
        said.append(line)
        found = pattern.search(line)
        if found:
            return found
    raise AssertionError(f"no {pattern.pattern!r} in:\n{''.join(said)}")


@pytest.fixture
def services(mysql_server: MySQLEndpoint, kafka_broker: KafkaEndpoint) -> dict[str, str]:
    return {MYSQL_VARIABLE: mysql_server.url, KAFKA_VARIABLE: kafka_broker.bootstrap}


def test_the_demo_shows_events_and_loses_none_when_its_relay_is_killed(services: dict[str, str]) -> None:
    with demo("--seconds", "8", **services) as running:
        pid, number = _until(running.stdout, STARTED).groups()
        assert number == "1"
        _until(running.stdout, EVENT)
        os.kill(int(pid), signal.SIGKILL)
        assert _until(running.stdout, STARTED)[2] == "2"
        summary = _until(running.stdout, re.compile(r"(\d+) events written, (\d+) read from Kafka, 0 not yet"))
        assert int(summary[1]) == int(summary[2]) > 10
        assert running.wait(60) == 0


def test_ctrl_c_ends_the_demo_in_good_order(services: dict[str, str], mysql_server: MySQLEndpoint) -> None:
    with demo(**services) as running:
        pid = _until(running.stdout, STARTED)[1]
        _until(running.stdout, EVENT)
        running.send_signal(signal.SIGINT)
        _until(running.stdout, re.compile("0 not yet"))
        assert running.wait(60) == 0
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(pymysql.err.OperationalError, match="Unknown database"):
        pymysql.connect(
            host=mysql_server.host,
            port=mysql_server.port,
            user=mysql_server.user,
            password=mysql_server.password,
            database="cdc_outbox_demo",
        )


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_demo_with_services_of_its_own_leaves_nothing_behind(number: int) -> None:
    session = f"demo-{number}"
    shared = leftovers(session)  # the servers that this process has started for all tests
    nothing_given = {SESSION_VARIABLE: session, MYSQL_VARIABLE: "", KAFKA_VARIABLE: ""}
    with demo(**nothing_given) as running:
        _until(running.stdout, EVENT)
        assert len(leftovers(session)) >= len(shared) + 2  # the demo, its relay, perhaps servers
        running.send_signal(number)
        running.wait(60)
    assert wait_until(lambda: set(leftovers(session)) <= set(shared), seconds=20), leftovers(session)


def test_an_order_and_its_event_are_committed_together(mysql_server: MySQLEndpoint, database: str) -> None:
    schema = (ROOT / "schema/outbox_event.sql").read_text()
    with (
        pymysql.connect(
            host=mysql_server.host,
            port=mysql_server.port,
            user=mysql_server.user,
            password=mysql_server.password,
            database=database,
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(ORDERS_TABLE)
        cursor.execute(schema)
        shop = OrderService(connection)
        number = shop.place("Ada", 1999).order
        shop.move_on(number)
        shop.move_on(number)
        connection.rollback()
        cursor.execute("SELECT state FROM orders")
        assert cursor.fetchall() == (("shipped",),)
        cursor.execute("SELECT aggregate_id, event_type, status FROM outbox_event ORDER BY id")
        assert cursor.fetchall() == (
            (number, "OrderPlaced", 0),
            (number, "OrderPaid", 0),
            (number, "OrderShipped", 0),
        )
