"""`archive` on MariaDB: what its locks, its ranges and its partitions decide."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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


@pytest.fixture
def world(make_world: Callable[..., World], own_mariadb: Server[MySQLEndpoint]) -> World:
    return make_world(mysql=own_mariadb.endpoint)
