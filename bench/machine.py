"""Where and with what the figures were made."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import version
from pathlib import Path

import confluent_kafka

from bench.servers import Servers
from cdc_outbox import __version__
from cdc_outbox.binlog.accelerator import decoder
from cdc_outbox.config import LimitSettings
from cdc_outbox.testing.services.child import finish
from cdc_outbox.testing.services.debezium import DEBEZIUM_VERSION
from cdc_outbox.testing.services.kafka_native import find_java

_GIB = 2**30


def describe(servers: Servers) -> list[tuple[str, str]]:
    """What -> its value. Raises pymysql.MySQLError."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB
    return [
        ("CPU", f"{cpu_model(Path('/proc/cpuinfo').read_text())}, {cores} cores, shared by all that takes part"),
        ("memory", f"{memory:.0f} GiB"),
        ("system", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        *servers.mysql_facts(),
        ("Kafka", f"{servers.kafka_version()}, one broker, topics of 4 partitions"),
        ("Python", f"{platform.python_version()} ({platform.python_implementation()})"),
        (
            "cdc-outbox",
            f"{__version__}, `limits.batch` {LimitSettings().batch}, {decoder().kind} decoder",
        ),
        ("confluent-kafka", f"{version('confluent-kafka')} (librdkafka {confluent_kafka.libversion()[0]})"),
        ("kafka-python", version("kafka-python")),
        ("mysql-replication", version("mysql-replication")),
        ("Debezium", f"{DEBEZIUM_VERSION}, {java_version()}"),
        ("PyMySQL", version("PyMySQL")),
    ]


def java_version() -> str:
    """Of the Java that Kafka and Debezium run on here."""
    java = find_java()
    told = finish([java, "-version"], deadline=30).stderr if java else ""
    found = re.search(r'version "([^"]+)"', told)
    return f"Java {found[1]}" if found else "no Java"


def cpu_model(cpuinfo: str) -> str:
    """The `model name` of /proc/cpuinfo; not every architecture has one."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()
