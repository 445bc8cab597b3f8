"""What a process of the benchmark is told by the file that its command line names."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.servers import Servers
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint

DEADLOCK = 1213
"""ER_LOCK_DEADLOCK: MySQL has rolled the transaction back, and it may be tried again."""


@dataclass(frozen=True)
class Place:
    servers: Servers
    database: str
    topic: str
    arguments: dict[str, Any]

    @classmethod
    def given(cls) -> Place:
        told: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
        servers = Servers(MySQLEndpoint.parse(told.pop("mysql")), KafkaEndpoint(told.pop("kafka")))
        return cls(servers, told.pop("database"), told.pop("topic"), told)


def say_ready() -> None:
    print("ready", flush=True)
