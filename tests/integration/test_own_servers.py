"""Servers that one test owns: they keep port and data across stop, crash and freeze; the pair of scripts/services."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pymysql
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint, wait_until
from cdc_outbox.testing.services.providers import KAFKA_VARIABLE, MYSQL_VARIABLE
from tests.conftest import MakeKafka, MakeMySQL

ROOT = Path(__file__).parents[2]


def _ask(server: MySQLEndpoint, statement: str) -> tuple[Any, ...]:
    with (
        pymysql.connect(host=server.host, port=server.port, user=server.user, password=server.password) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
        return tuple(cursor.fetchall())


def test_the_shared_mysql_is_set_up_as_the_relay_wants_it(mysql_server: MySQLEndpoint) -> None:
    asked = "SELECT @@log_bin, @@binlog_format, @@gtid_mode, @@binlog_row_image, @@binlog_row_metadata"
    assert _ask(mysql_server, asked) == ((1, "ROW", "ON", "FULL", "FULL"),)


def test_a_mysql_of_ones_own_takes_options_and_keeps_port_and_data(make_mysql: MakeMySQL) -> None:
    server = make_mysql(gtid_mode="OFF", enforce_gtid_consistency="OFF", net_write_timeout=7)
    port = server.port
    assert _ask(server.endpoint, "SELECT @@gtid_mode, @@net_write_timeout") == (("OFF", 7),)
    uuid = _ask(server.endpoint, "SELECT @@server_uuid")
    _ask(server.endpoint, "CREATE DATABASE kept")

    server.kill()
    assert not server.endpoint.answers()
    server.start()
    assert server.port == port
    assert ("kept",) in _ask(server.endpoint, "SHOW DATABASES")
    assert _ask(server.endpoint, "SELECT @@server_uuid") == uuid

    server.pause()
    assert not server.endpoint.answers()
    server.resume()
    assert wait_until(server.endpoint.answers, seconds=20)


def test_two_mysql_servers_are_two_servers(make_mysql: MakeMySQL, mysql_server: MySQLEndpoint) -> None:
    asked = "SELECT @@server_uuid"
    assert _ask(make_mysql().endpoint, asked) != _ask(mysql_server, asked)


def test_options_that_shape_the_tables_are_heeded(make_mysql: MakeMySQL) -> None:
    server = make_mysql(lower_case_table_names=1)
    assert _ask(server.endpoint, "SELECT @@lower_case_table_names") == ((1,),)


def test_a_broker_of_ones_own_keeps_port_and_topics(make_kafka: MakeKafka, kafka_broker: KafkaEndpoint) -> None:
    server = make_kafka({"num.partitions": 5})
    admin = AdminClient({"bootstrap.servers": server.endpoint.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("kept")])["kept"].result(20)

    server.kill()
    assert not server.endpoint.answers()
    server.start()
    found = AdminClient({"bootstrap.servers": server.endpoint.bootstrap}).list_topics(timeout=20)
    assert len(found.topics["kept"].partitions) == 5
    shared = AdminClient({"bootstrap.servers": kafka_broker.bootstrap}).list_topics(timeout=20)
    assert shared.cluster_id != found.cluster_id

    server.pause()
    assert not server.endpoint.answers()
    server.resume()
    assert wait_until(server.endpoint.answers, seconds=20)


@pytest.mark.long
def test_the_pair_runs_from_start_to_stop() -> None:
    environ = {name: value for name, value in os.environ.items() if name not in (MYSQL_VARIABLE, KAFKA_VARIABLE)}

    def services(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cdc_outbox.testing.services", *words]
        return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=300, check=False)

    if services("status").returncode == 0:
        pytest.skip("a pair is running for somebody")
    assert services("env").returncode == 1
    assert services("start").returncode == 0
    try:
        assert services("status").stdout.count(" answers\n") == 2
        assert f"export {MYSQL_VARIABLE}=mysql://root@127.0.0.1:" in services("env").stdout
        seen = services("run", "--", "sh", "-c", f"echo ${KAFKA_VARIABLE}; exit 7")
        assert seen.returncode == 7
        assert seen.stdout.strip() in services("status").stdout
        assert "Running already" in services("start").stderr
    finally:
        stopped = services("stop")
    assert stopped.stderr == "Stopped.\n"
    assert services("status").returncode == 1
