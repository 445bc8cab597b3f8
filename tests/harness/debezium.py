"""A real Debezium: Kafka Connect with the MySQL connector and its outbox EventRouter, run from its jars.

`python -m tests.harness.debezium` records tests/golden/debezium.json anew, against servers of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.child import Child, PrivateFolder
from cdc_outbox.testing.services.debezium import DEBEZIUM_VERSION, connect_standalone
from cdc_outbox.testing.services.endpoint import free_port
from tests.harness.kafka import Seen, end_offsets, read_topic
from tests.harness.world import World, wait_until

GOLDEN = Path(__file__).parents[1] / "golden" / "debezium.json"
OWN_CONTEXT = "__debezium.context."
"""Headers in which Debezium speaks of its own task, not of the event."""

ROWS: list[tuple[str, str, str]] = [
    # aggregate_id, event_type, payload
    ("A-1", "OrderPlaced", '{"order": "A-1", "cents": 1250}'),
    ("A-1", "OrderPaid", '{"nested": {"list": [1, 2.5, -3, null, true, false, "x"], "empty": {}, "none": []}}'),
    ("größe-订单", "Erzeugt ✓", '{"text": "größe 订单 \\" \\\\ \\n \\u0001 😀", "": 0}'),
    ("A-2", "Numbers", '{"max": 9223372036854775807, "min": -9223372036854775808, "u": 18446744073709551615}'),
    ("A-2", "Doubles", "[0.1, 1e-7, 1.5e300, -0.0, 100000.0, 123456789.125]"),
    ("A-3", "Scalar", '"just text"'),
    ("A-3", "Null", "null"),
    ("A-4", "Long", json.dumps({"text": "x" * 2_000, "keys": {f"k{i}": i for i in range(40)}})),
    ("", "NoAggregate", "{}"),
]


@contextmanager
def debezium(world: World, prefix: str, table: str = "outbox_event") -> Iterator[Child]:
    """Debezium on one of the world's tables, its records going to {prefix}{aggregate_type}."""
    folder = PrivateFolder("debezium")
    converter = "org.apache.kafka.connect.storage.StringConverter"
    worker = {
        "bootstrap.servers": world.bootstrap,
        "key.converter": converter,
        "value.converter": converter,
        "offset.storage.file.filename": folder.path / "offsets",
        "offset.flush.interval.ms": 1000,
        "listeners": f"http://127.0.0.1:{free_port()}",
        "plugin.discovery": "only_scan",
    }
    connector = {
        "name": "outbox",
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.hostname": world.host,
        "database.port": world.port,
        "database.user": world.user,
        "database.password": world.password,
        "database.server.id": 770_000 + world.port % 1000,
        "topic.prefix": f"{prefix}raw",
        "database.include.list": world.database,
        "table.include.list": f"{world.database}.{table}",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": folder.path / "history",
        "include.schema.changes": "false",
        "snapshot.mode": "initial",
        "transforms": "outbox",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.table.field.event.id": "event_id",
        "transforms.outbox.table.field.event.key": "aggregate_id",
        "transforms.outbox.table.field.event.payload": "payload",
        "transforms.outbox.route.by.field": "aggregate_type",
        "transforms.outbox.route.topic.replacement": f"{prefix}${{routedByValue}}",
        "transforms.outbox.table.fields.additional.placement": "event_type:header:eventType",
        "transforms.outbox.table.op.invalid.behavior": "warn",
    }
    command = connect_standalone(folder.path, worker, connector, ["-Xmx512m", "-XX:+UseSerialGC"], print)
    child = Child(command, log=folder.path / "connect.log")
    child.start()
    try:
        yield child
    finally:
        child.stop()
        folder.remove()


def records_of(world: World, count: int, prefix: str) -> list[Seen]:
    """What Debezium makes of the `count` rows that are in the table."""
    topic = f"{prefix}order"
    with debezium(world, prefix) as connect:

        def arrived() -> bool:
            assert connect.alive, connect.last_lines(40)
            return sum(end_offsets(world.bootstrap, topic).values()) >= count

        wait_until(arrived, f"{count} records from Debezium")
    return read_topic(world.bootstrap, topic)


def insert_rows(world: World) -> None:
    for number, (aggregate, event_type, payload) in enumerate(ROWS, start=1):
        world.insert(aggregate, event_type=event_type, payload=payload, event_id=f"golden-{number}")


def printed_payloads(world: World) -> dict[str, str]:
    return dict(world.execute("SELECT event_id, CAST(payload AS CHAR) FROM outbox_event"))


def described(seen: list[Seen], payloads: dict[str, str]) -> list[dict[str, Any]]:
    """Each record beside the row that it was made of; the row's payload as MySQL prints it."""
    records = {one.headers["id"].decode(): one for one in seen}
    found = []
    for number, (aggregate, event_type, _) in enumerate(ROWS, start=1):
        record = records[f"golden-{number}"]
        found.append(
            {
                "row": [aggregate, event_type, payloads[f"golden-{number}"]],
                "key": None if record.key is None else record.key.decode(),
                "headers": {
                    name: value.decode() for name, value in record.headers.items() if not name.startswith(OWN_CONTEXT)
                },
                "value": None if record.value is None else record.value.decode(),
            }
        )
    return found


def main() -> None:
    folder = PrivateFolder("recording")
    mysql, kafka = providers.make_mysql({}, print), providers.make_kafka({}, print)
    server = mysql.endpoint
    world = World(
        server.host, server.port, server.user, server.password, "shop", kafka.endpoint.bootstrap, "g.", folder.path
    )
    try:
        root = World(server.host, server.port, server.user, server.password, "mysql", "", "", folder.path)
        root.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        root.close()
        world.init()
        insert_rows(world)
        found = described(records_of(world, len(ROWS), "d."), printed_payloads(world))
        GOLDEN.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        print(f"recorded {len(found)} records of Debezium {DEBEZIUM_VERSION}")
    finally:
        world.close()
        mysql.remove()
        kafka.remove()
        folder.remove()


if __name__ == "__main__":
    main()
