"""Debezium, to measure and to compare with: Kafka Connect standalone with the MySQL connector, run from its jars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cdc_outbox.testing.services.kafka_native import java_command
from cdc_outbox.testing.services.maven import maven_jars
from cdc_outbox.testing.services.words import Say

DEBEZIUM_VERSION = "3.6.1.Final"
_HERE = Path(__file__).parent


def debezium_jars(say: Say) -> Path:
    """The folder of the jars of Debezium and of Kafka Connect, fetched once. Raises Unavailable."""
    pom = (_HERE / "debezium_pom.xml").read_text().replace("@DEBEZIUM_VERSION@", DEBEZIUM_VERSION)
    return maven_jars(f"debezium-{DEBEZIUM_VERSION}", pom, f"Debezium {DEBEZIUM_VERSION}, about 45 MB", say)


def connect_standalone(
    folder: Path, worker: Mapping[str, object], connector: Mapping[str, object], jvm: Sequence[str], say: Say
) -> list[str]:
    """The command that runs one connector; both property files are written into `folder`. Raises Unavailable."""
    files = [_written(folder / "worker.properties", worker), _written(folder / "connector.properties", connector)]
    java, jars = java_command(say), debezium_jars(say)
    return [java, *jvm, "-cp", f"{jars}/*", "org.apache.kafka.connect.cli.ConnectStandalone", *files]


def _written(path: Path, values: Mapping[str, object]) -> str:
    path.touch(mode=0o600)  # it may hold a password
    path.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return str(path)
