"""One measurement's own database, topic and settings: made, used, removed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its way of exporting
from confluent_kafka.cimpl import NewTopic

from bench.contender import Contender
from bench.failure import BenchFailed
from bench.servers import Servers
from cdc_outbox.testing.services.child import PrivateFolder, finish
from cdc_outbox.testing.services.endpoint import wait_until

PARTITIONS = 4
KAFKA_DEADLINE = 30.0
POLL_INTERVAL = 0.1
"""Seconds that the polling relay pauses when it has found nothing."""


class Site:
    """settings: what a relay here is given beyond its connections, its name and its topic."""

    def __init__(self, servers: Servers, label: str, folder: Path, settings: Mapping[str, Any]) -> None:
        self.servers = servers
        self.label = label
        self.folder = folder
        unique = f"{label}-{uuid.uuid4().hex[:8]}"
        self.database = f"bench_{unique.replace('-', '_')}"
        self.topic = f"bench.{unique}"
        self._starts = 0
        self._config = folder / "relay.yaml"
        self._config.touch(mode=0o600)  # it may hold a password
        self._config.write_text(yaml.safe_dump(self._settings(unique, settings)))

    def _settings(self, name: str, further: Mapping[str, Any]) -> dict[str, Any]:
        mysql, kafka = self.servers.mysql, self.servers.kafka
        settings: dict[str, Any] = {
            "name": name,
            "mysql": {
                "host": mysql.host,
                "port": mysql.port,
                "user": mysql.user,
                "password": mysql.password,
                "database": self.database,
            },
            "kafka": {"bootstrap_servers": kafka.bootstrap, "topic": self.topic},
            "http": {"listen": "127.0.0.1:0"},
        }
        for section, values in further.items():
            settings[section] = {**settings.get(section, {}), **values}
        return settings

    # -- processes --------------------------------------------------------------------------------------------

    def relay(self, environ: Mapping[str, str] | None = None, ready: str = " leader: ") -> Contender:
        """`cdc-outbox start`, not started."""
        command = [sys.executable, "-m", "cdc_outbox", "--config", str(self._config), "start"]
        return Contender(command, self.log("relay"), ready=ready, environ=environ)

    def polling_relay(self) -> Contender:
        """The relay that everybody writes first, not started."""
        return self.own_process("polling_relay", interval=POLL_INTERVAL)

    def handwritten_relay(self) -> Contender:
        """The one that is written on mysql-replication, not started."""
        return self.own_process("handwritten_relay", position=str(self.folder / "position"))

    def own_process(self, module: str, **arguments: object) -> Contender:
        """`python -m bench.MODULE FILE`, not started; the file tells it where it works, and its further arguments."""
        given = self.folder / f"{module}.json"
        given.touch(mode=0o600)
        given.write_text(
            json.dumps(
                {
                    "mysql": self.servers.mysql.url,
                    "kafka": self.servers.kafka.bootstrap,
                    "database": self.database,
                    "topic": self.topic,
                    **arguments,
                }
            )
        )
        return Contender([sys.executable, "-m", f"bench.{module}", str(given)], self.log(module), ready="ready\n")

    def log(self, name: str) -> Path:
        """A file for the output of one more process."""
        self._starts += 1
        return self.folder / f"{name}-{self._starts}.log"

    # -- what is there ----------------------------------------------------------------------------------------

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with self.servers.connect(self.database) as session, session.cursor() as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def checkpoint(self) -> tuple[Any, ...] | None:
        """The relay's position; None before it has one."""
        found = self.rows(
            "SELECT binlog_file, binlog_pos, gtid_set FROM cdc_outbox_checkpoint"
            " WHERE binlog_file IS NOT NULL OR gtid_set IS NOT NULL"
        )
        return found[0] if found else None

    def records(self) -> int:
        """How many records the topic has; one request to the broker. Raises KafkaException."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        ends = {TopicPartition(self.topic, partition): latest for partition in range(PARTITIONS)}
        found = self._admin.list_offsets(ends, request_timeout=KAFKA_DEADLINE)
        return sum(end.result(KAFKA_DEADLINE).offset for end in found.values())

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers.kafka.bootstrap})

    # -- made and removed -------------------------------------------------------------------------------------

    def make(self) -> None:
        with self.servers.connect() as session, session.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{self.database}` CHARACTER SET utf8mb4")
        self._admin.create_topics([NewTopic(self.topic, PARTITIONS)])[self.topic].result(KAFKA_DEADLINE)
        if not wait_until(self._led, seconds=KAFKA_DEADLINE):
            raise BenchFailed(f"Kafka: topic {self.topic} has no leaders {KAFKA_DEADLINE:.0f} s after it was created")
        done: subprocess.CompletedProcess[str] = finish(
            [sys.executable, "-m", "cdc_outbox", "--config", str(self._config), "init"], deadline=60
        )
        if done.returncode:
            raise BenchFailed(f"cdc-outbox init failed:\n{done.stderr.strip()}")

    def _led(self) -> bool:
        found = self._admin.list_topics(timeout=KAFKA_DEADLINE).topics.get(self.topic)
        return (
            found is not None
            and len(found.partitions) == PARTITIONS
            and all(partition.leader >= 0 for partition in found.partitions.values())
        )

    def remove(self) -> None:
        with self.servers.connect() as session, session.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS `{self.database}`")
        with contextlib.suppress(KafkaException):
            self._admin.delete_topics([self.topic])[self.topic].result(KAFKA_DEADLINE)


@contextlib.contextmanager
def site(servers: Servers, label: str, settings: Mapping[str, Any] | None = None) -> Iterator[Site]:
    """A Site for the block. Raises BenchFailed, pymysql.MySQLError, KafkaException."""
    folder = PrivateFolder("bench")
    try:
        place = Site(servers, label, folder.path, settings or {})
        try:
            place.make()
            yield place
        finally:
            place.remove()
    finally:
        folder.remove()
