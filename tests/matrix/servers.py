"""What servers.yaml says: a server version, and what the relay does with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

_FILE = Path(__file__).with_name("servers.yaml")

MYSQL_TESTS = ("tests/golden", "tests/integration", "tests/acceptance")
MARIADB_TESTS = (
    "tests/golden",
    "tests/integration/test_binlog_mariadb.py",
    "tests/integration/test_consumer_mariadb.py",
    "tests/integration/test_outbox_mariadb.py",
    "tests/acceptance/test_mariadb.py",
)
REFUSED_TEST = "tests/matrix/refused.py"


@dataclass(frozen=True)
class Listed:
    """One server version. because: what a refused one lacks."""

    name: str
    image: str
    outcome: Literal["works", "refused"]
    because: str = ""

    @property
    def mariadb(self) -> bool:
        return self.image.startswith("mariadb:")

    @property
    def image_variable(self) -> str:
        """What makes the fixtures take this image."""
        return f"CDC_OUTBOX_TEST_{'MARIADB' if self.mariadb else 'MYSQL'}_IMAGE"

    @property
    def tests(self) -> tuple[str, ...]:
        if self.outcome == "refused":
            return (REFUSED_TEST,)
        return MARIADB_TESTS if self.mariadb else MYSQL_TESTS


def listed_servers() -> list[Listed]:
    return [Listed(**one) for one in yaml.safe_load(_FILE.read_text(encoding="utf-8"))]
