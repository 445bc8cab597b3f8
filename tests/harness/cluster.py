"""A cluster of two Kafka brokers on this machine's Java: the first is its controller, the second may be killed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its way of exporting

from cdc_outbox.testing.services.child import PrivateFolder, finish
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, free_port
from cdc_outbox.testing.services.kafka_native import java_command, kafka_jars, native_kafka
from cdc_outbox.testing.services.options import kafka_options
from cdc_outbox.testing.services.server import NativeServer

Broker = NativeServer[KafkaEndpoint]


@contextmanager
def two_brokers(say: Callable[[str], None]) -> Iterator[tuple[Broker, Broker]]:
    """Both started; what each stores stays until the end."""
    jars, java = kafka_jars(say), java_command(say)
    first = native_kafka(jars, java)
    try:
        first.start()
        second = _joining(first, jars, java)
        try:
            second.start()
            yield first, second
        finally:
            second.remove()
    finally:
        first.remove()


def _joining(first: Broker, jars: Path, java: str) -> Broker:
    """A broker, and no controller, in the cluster of `first`."""
    private, port = PrivateFolder("kafka"), free_port()
    logs = private.path / "logs"
    theirs = (first.log.parent / "server.properties").read_text()
    voters = re.search(r"(?m)^controller\.quorum\.voters=(.*)$", theirs)
    cluster = re.search(r"(?m)^cluster\.id=(.*)$", (first.log.parent / "logs" / "meta.properties").read_text())
    assert voters is not None and cluster is not None
    chosen = kafka_options(
        {
            "process.roles": "broker",
            "node.id": "2",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.voters": voters[1],
            "log.dirs": str(logs),
        },
        {},
    )
    properties = private.path / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
    call = [java, "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]

    def lay_out() -> None:
        done = finish(
            [*call, "kafka.tools.StorageTool", "format", "-t", cluster[1], "-c", str(properties)], deadline=60
        )
        assert done.returncode == 0, done.stderr + done.stdout

    return NativeServer(
        "kafka",
        KafkaEndpoint(f"127.0.0.1:{port}"),
        port=port,
        folder=private,
        command=[*call, "kafka.Kafka", str(properties)],
        prepare=lay_out,
    )


def create_spread_topic(bootstrap: str, topic: str) -> None:
    """Two partitions without a second replica: 0 on the first broker, 1 on the second."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, 2, replica_assignment=[[1], [2]])])[topic].result(30)
