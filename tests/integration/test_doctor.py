"""`doctor` against real servers, and against listeners that accept and never answer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from cdc_outbox.config import Settings
from cdc_outbox.mysql import schema
from cdc_outbox.mysql.session import Session
from cdc_outbox.ops.doctor import examine
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint

PROMISED = 5.0
"""Seconds within which `doctor` reports."""


def settings(server: MySQLEndpoint, database: str, **kafka: object) -> Settings:
    return Settings.model_validate(
        {
            "name": "orders",
            "mysql": {
                "host": server.host,
                "port": server.port,
                "user": server.user,
                "password": server.password,
                "database": database,
            },
            "kafka": kafka,
        }
    )


def wrong(chosen: Settings) -> dict[str, str]:
    return {one.check: one.level for one in examine(chosen) if one.level != "ok"}


def initialise(chosen: Settings) -> None:
    session = Session(chosen.mysql, lifetime=30)
    try:
        schema.create(session, chosen)
    finally:
        session.close()


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_two_good_servers(mysql_server: MySQLEndpoint, kafka_broker: KafkaEndpoint, database: str, client: str) -> None:
    create = {"partitions": 1, "replication_factor": 1}
    chosen = settings(
        mysql_server, database, bootstrap_servers=kafka_broker.bootstrap, client=client, create_topics=create
    )
    initialise(chosen)
    findings = examine(chosen)
    assert {one.check: one.level for one in findings if one.level != "ok"} == {}
    assert {"clock", "kafka-reachable"} <= {one.check for one in findings}


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_servers_that_accept_and_never_answer(mysql_server: MySQLEndpoint, client: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        chosen = settings(
            MySQLEndpoint("127.0.0.1", port, "relay", ""),
            "shop",
            bootstrap_servers=f"127.0.0.1:{port}",
            client=client,
        )
        began = time.monotonic()
        found = wrong(chosen)
        took = time.monotonic() - began
        _wait_for_the_abandoned_checks()
    assert found == {"mysql-reachable": "error", "kafka-reachable": "error"}
    assert took < PROMISED


def _wait_for_the_abandoned_checks() -> None:
    """The listener stays until they have given up: a connection in the making would be dropped unclosed."""
    for thread in threading.enumerate():
        if thread.name == "doctor":
            thread.join(10)
            assert not thread.is_alive()


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_a_broker_that_creates_no_topics(
    mysql_server: MySQLEndpoint, make_kafka: Callable[..., Any], database: str, client: str
) -> None:
    broker = make_kafka({"auto.create.topics.enable": "false"}).endpoint
    chosen = settings(
        mysql_server,
        database,
        bootstrap_servers=broker.bootstrap,
        client=client,
        topic_map={"a/b": "not-there"},
    )
    initialise(chosen)
    assert wrong(chosen) == {
        "kafka-create-topics": "warning",
        "kafka-topics": "error",
        "kafka-dead-letter-topic": "warning",
    }
