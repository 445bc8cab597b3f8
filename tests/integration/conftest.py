"""What many integration tests begin with: settings and a session of a world, a database whose binlog is read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_outbox.config import Settings, load_settings
from cdc_outbox.mysql.session import Session
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from tests.harness.world import World
from tests.integration.binlog_tail import Database


@pytest.fixture
def settings(world: World) -> Settings:
    return load_settings(world.config(), {})


@pytest.fixture
def session(settings: Settings) -> Iterator[Session]:
    opened = Session(settings.mysql, lifetime=60)
    yield opened
    opened.close()


@pytest.fixture
def outbox(mysql_server: MySQLEndpoint, database: str) -> Iterator[Database]:
    opened = Database(mysql_server, database)
    yield opened
    opened.close()
