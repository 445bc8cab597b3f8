"""Checks that need a server broken in an unusual way: on a real one, or on one that says what such a server says."""

from __future__ import annotations

import importlib.util
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cdc_outbox.config import Settings
from cdc_outbox.mysql.findings import Finding
from cdc_outbox.mysql.preflight import examine_mysql
from cdc_outbox.ops import doctor
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint
from tests.harness.proxy import Proxy
from tests.harness.world import World
from tests.integration.greetings import tidb
from tests.integration.test_preflight import connected, initialise, settings, wrong


def at(address: tuple[str, int]) -> Settings:
    return Settings.model_validate(
        {
            "name": "orders",
            "mysql": {
                "host": address[0],
                "port": address[1],
                "user": "u",
                "password": "p",
                "database": "shop",
                "tls": {"mode": "disabled"},
            },
            "kafka": {"bootstrap_servers": "localhost:9092"},
        }
    )


def test_a_server_on_its_way_to_gtids_lossless_replication_and_many_primaries(make_mysql: Callable[..., Any]) -> None:
    server = make_mysql(plugin_load="semisync_source.so;group_replication.so").endpoint
    with connected(server) as run:
        run("CREATE DATABASE shop")
        chosen = settings(server, "shop")
        initialise(chosen)
        assert wrong(examine_mysql(chosen)) == {}
        run("SET GLOBAL group_replication_single_primary_mode = OFF")
        run("SET GLOBAL gtid_mode = ON_PERMISSIVE")
        run("SET GLOBAL rpl_semi_sync_source_enabled = ON")
        findings = examine_mysql(chosen)
        assert wrong(findings) == {"cluster": "error", "gtid-mode": "warning", "semi-sync": "warning"}
        claiming = settings(server, "shop", outbox={"claim": "row"})
        assert "semi-sync" not in wrong(examine_mysql(claiming))
        run("SET GLOBAL rpl_semi_sync_source_enabled = OFF")


def test_another_kind_of_server_is_told_by_its_greeting(mysql_server: MySQLEndpoint, database: str) -> None:
    with Proxy(mysql_server.host, mysql_server.port, tidb) as proxy:
        place = {"host": proxy.host, "port": proxy.port, "tls": {"mode": "disabled"}}
        findings = examine_mysql(settings(mysql_server, database, mysql=place))
    assert wrong(findings) == {"server-kind": "error"}
    assert "TiDB" in next(one.found for one in findings if one.level == "error")


@contextmanager
def blocking_server() -> Iterator[tuple[str, int]]:
    """Answers every connection as MySQL does once it has blocked a host: with error 1129 in place of a greeting."""
    text = b"Host 'relay' is blocked because of many connection errors"
    packet = b"\xff" + (1129).to_bytes(2, "little") + text
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                with link:
                    link.sendall(len(packet).to_bytes(3, "little") + b"\0" + packet)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_what_the_server_says_instead_of_an_answer_is_told() -> None:
    with blocking_server() as address:
        findings = examine_mysql(at(address))
    assert wrong(findings) == {"mysql-answer": "error"}
    assert "1129" in findings[0].found and "is blocked" in findings[0].found


@pytest.mark.parametrize(("ahead", "said"), [(600, "600.0 s behind"), (-600, "600.0 s ahead of")])
def test_a_clock_that_is_wrong(
    mysql_server: MySQLEndpoint, database: str, monkeypatch: pytest.MonkeyPatch, ahead: int, said: str
) -> None:
    chosen = settings(mysql_server, database)
    initialise(chosen)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + ahead)
    findings = examine_mysql(chosen)
    assert wrong(findings) == {"clock": "warning"}
    assert said in next(one.found for one in findings if one.check == "clock")


def broken(world: World, broker: KafkaEndpoint, **kafka: object) -> dict[str, Finding]:
    chosen = settings(
        MySQLEndpoint(world.host, world.port, world.user, world.password),
        world.database,
        kafka={"bootstrap_servers": broker.bootstrap, **kafka},
    )
    return {one.check: one for one in doctor.examine(chosen) if one.level == "error"}


@pytest.mark.parametrize(("client", "option"), [("confluent", "no.such.option"), ("kafka-python", "no_such_option")])
def test_settings_that_the_client_library_does_not_take(
    world: World, kafka_broker: KafkaEndpoint, client: str, option: str
) -> None:
    found = broken(world, kafka_broker, client=client, options={option: "1"})
    assert set(found) == {"kafka-settings"}
    assert option in found["kafka-settings"].found


def test_a_format_whose_library_is_not_installed(
    world: World, kafka_broker: KafkaEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, package=None: None if name == "cloudevents" else find(name, package)
    )
    found = broken(world, kafka_broker, format="cloudevents")
    assert set(found) == {"kafka-format"}
    assert "cdc-outbox[cloudevents]" in (found["kafka-format"].fix or "")
