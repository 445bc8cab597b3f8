"""What many integration tests begin with: settings and a session of a world, a database whose binlog is read, a shop
whose consumers are tested, a MariaDB of the module's own."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from cdc_outbox.config import Settings, load_settings
from cdc_outbox.mysql.session import Session
from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.harness.shop import Shop, shop_on
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


@pytest.fixture(scope="module")
def own_mariadb() -> Iterator[Server[MySQLEndpoint]]:
    server = providers.make_mariadb({}, lambda text: print(text, file=sys.stderr))
    yield server
    server.remove()


@pytest.fixture(scope="module")
def shop_of_all(mysql_server: MySQLEndpoint) -> Iterator[Shop]:
    with shop_on(mysql_server) as made:
        yield made


@pytest.fixture
def shop(shop_of_all: Shop) -> Shop:
    """Empty tables; making a database for each test would take most of the time."""
    shop_of_all.clear()
    return shop_of_all
