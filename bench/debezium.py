"""Debezium's outbox router in Kafka Connect standalone, beside which the relay is measured. Its settings: settings/."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

from bench.contender import Contender
from bench.site import Site
from cdc_outbox.testing.services.debezium import connect_standalone
from cdc_outbox.testing.services.endpoint import free_port

SETTINGS = Path(__file__).with_name("settings")
READY = "Connected to binlog at "
"""What it logs when the server sends the binlog, from its offset on."""
_STOP_DEADLINE = 60.0
"""Seconds in which it stores its offset."""


def debezium(place: Site, tuning: str) -> Contender:
    """Kafka Connect with one connector, not started. tuning: settings/debezium-{tuning}.*; empty: none.

    What it has to remember between two starts is kept in the site's folder. Raises Unavailable.
    """
    mysql = place.servers.mysql
    worker = {
        **read("debezium-worker.properties"),
        "bootstrap.servers": place.servers.kafka.bootstrap,
        "offset.storage.file.filename": place.folder / "offsets",
        "listeners": f"http://127.0.0.1:{free_port()}",
    }
    connector = {
        **read("debezium-outbox.properties"),
        **(read(f"debezium-{tuning}.properties") if tuning else {}),
        "name": "outbox",
        "topic.prefix": "bench",
        "transforms.outbox.route.topic.replacement": place.topic,
        "database.hostname": mysql.host,
        "database.port": mysql.port,
        "database.user": mysql.user,
        "database.password": mysql.password,
        "database.server.id": 2_000_100_000 + secrets.randbelow(100_000),
        "database.include.list": place.database,
        "table.include.list": f"{place.database}.outbox_event",
        "schema.history.internal.file.filename": place.folder / "history",
    }
    jvm = [
        f"@{jvm_options(tuning)}",
        f"-Dlog4j2.configurationFile={SETTINGS / 'debezium-log.properties'}",
    ]
    command = connect_standalone(place.folder, worker, connector, jvm, lambda text: print(text, file=sys.stderr))
    return Contender(command, place.log("debezium"), ready=READY, stop_deadline=_STOP_DEADLINE)


def jvm_options(tuning: str) -> Path:
    """Options of Java: the tuning's own where it has some, else those of Kafka Connect's start script."""
    own = SETTINGS / f"debezium-{tuning}.options"
    return own if own.exists() else SETTINGS / "debezium-connect.options"


def read(name: str) -> dict[str, str]:
    """A file of settings/: key -> value."""
    lines = (SETTINGS / name).read_text().splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
    return {key: value for key, _, value in pairs}
