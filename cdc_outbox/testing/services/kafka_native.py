"""Apache Kafka run from its jars on this machine's Java: brokers that are their own controllers (KRaft)."""

from __future__ import annotations

import base64
import os
import re
import shutil
import uuid
from functools import partial
from pathlib import Path

from cdc_outbox.testing.services.cache import fetched
from cdc_outbox.testing.services.child import PrivateFolder, finish
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, free_port
from cdc_outbox.testing.services.maven import maven_jars
from cdc_outbox.testing.services.options import Options, kafka_options
from cdc_outbox.testing.services.server import START_DEADLINE, NativeServer
from cdc_outbox.testing.services.system_packages import install_as_root
from cdc_outbox.testing.services.words import Say, Unavailable

KAFKA_VERSION = "4.4.0"
JAVA_AT_LEAST = 17
_EXAMPLE_CLUSTER = "cdcOutboxCdcOutboxCdcQ"  # 16 bytes, base64
_EXAMPLE = {
    "listeners": "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
    "controller.quorum.voters": "1@127.0.0.1:2",
}
_HERE = Path(__file__).parent


def native_kafka(jars: Path, java: str, options: Options | None = None) -> NativeServer[KafkaEndpoint]:
    """A broker on a port and a log folder of its own, not yet started. options: of server.properties."""
    return native_brokers(jars, java, 1, options)[0]


def native_brokers(
    jars: Path, java: str, count: int, options: Options | None = None
) -> list[NativeServer[KafkaEndpoint]]:
    """The brokers of one cluster, all of them controllers as well; each answers once most of them run."""
    cluster = _new_id()
    controllers = [free_port() for _ in range(count)]
    voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(controllers, start=1))
    memory = "-Xmx512m" if count == 1 else "-Xmx256m"
    logging = f"-Dlog4j2.configurationFile={_HERE / 'kafka_log.properties'}"
    call = [java, memory, "-XX:+UseSerialGC", logging, "-cp", f"{jars}/*"]
    brokers = []
    for node, controller in enumerate(controllers, start=1):
        private = PrivateFolder("kafka")
        folder = private.path
        port = free_port()
        place = {
            "node.id": str(node),
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "controller.quorum.voters": voters,
            "log.dirs": f"{folder}/logs",
        }
        chosen = kafka_options(place, options or {})
        properties = folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
        brokers.append(
            NativeServer(
                "kafka",
                KafkaEndpoint(f"127.0.0.1:{port}"),
                port=port,
                folder=private,
                command=[*call, "kafka.Kafka", str(properties)],
                prepare=partial(_format, call, folder, node, cluster),
            )
        )
    return brokers


def _format(call: list[str], folder: Path, node: int, cluster: str) -> None:
    """Lay out the log folder: a copy of one formatted before, made this node's of this cluster."""

    def fill(empty: Path) -> None:
        example = empty / "server.properties"
        options = kafka_options({"log.dirs": f"{empty}/logs", **_EXAMPLE}, {})
        example.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
        command = [*call, "kafka.tools.StorageTool", "format", "-t", _EXAMPLE_CLUSTER, "-c", str(example)]
        done = finish(command, deadline=START_DEADLINE)
        if done.returncode:
            raise Unavailable(f"the broker's log folder could not be made:\n{(done.stderr + done.stdout)[-600:]}")

    logs = folder / "logs"
    shutil.copytree(fetched(f"kafka-formatted-{KAFKA_VERSION}", fill) / "logs", logs)
    meta = logs / "meta.properties"
    text = meta.read_text().replace(_EXAMPLE_CLUSTER, cluster)
    text = re.sub(r"(?m)^node\.id=.*$", f"node.id={node}", text)
    meta.write_text(re.sub(r"(?m)^directory\.id=.*$", f"directory.id={_new_id()}", text))


def _new_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def java_command(say: Say) -> str:
    """The path of a Java that runs Kafka; root on Debian or Ubuntu has it installed. Raises Unavailable."""
    java = find_java()
    if java is None:
        install_as_root(["default-jre-headless"], "Kafka needs Java", say)
        java = find_java()
    if java is None:
        raise Unavailable("no Java is installed")
    found = re.search(r'version "(\d+)', finish([java, "-version"], deadline=30).stderr)
    if found is None or int(found[1]) < JAVA_AT_LEAST:
        seen = found[1] if found else "unknown"
        raise Unavailable(f"{java} is version {seen}; {JAVA_AT_LEAST} or later is needed")
    return java


def kafka_jars(say: Say) -> Path:
    """The folder of Kafka's jars, fetched once. Raises Unavailable."""
    pom = (_HERE / "kafka_pom.xml").read_text().replace("@KAFKA_VERSION@", KAFKA_VERSION)
    return maven_jars(f"kafka-{KAFKA_VERSION}", pom, f"Apache Kafka {KAFKA_VERSION}, about 60 MB", say)


def find_java() -> str | None:
    """The Java of $JAVA_HOME, else the one on PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and os.access(f"{home}/bin/java", os.X_OK):
        return f"{home}/bin/java"
    return shutil.which("java")
