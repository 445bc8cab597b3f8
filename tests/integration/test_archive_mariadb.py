"""`archive` on MariaDB: what its locks, its ranges and its partitions decide."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.harness.world import World
from tests.integration.test_archive import (  # noqa: F401
    settings,
    test_a_locked_row_is_left_and_holds_up_nobody,
    test_a_row_is_looked_at_again_under_its_lock,
    test_gaps_between_the_ids,
    test_months_are_split_off_and_dropped_as_the_how_to_says,
    test_only_what_is_sent_and_old_goes_and_arrives_as_it_was,
)


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server[MySQLEndpoint]]:
    server = providers.make_mariadb({}, lambda text: print(text, file=sys.stderr))
    yield server
    server.remove()


@pytest.fixture
def world(make_world: Callable[..., World], own_server: Server[MySQLEndpoint]) -> World:
    return make_world(mysql=own_server.endpoint)
