"""IdempotentConsumer on MariaDB: the tests of MySQL's that the server has a say in, and what `init` makes there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pymysql
import pytest

from cdc_outbox import IdempotentConsumer, SnowflakeIds, WorkerLease
from cdc_outbox.app.consumer_retry import Outcome
from cdc_outbox.mysql import schema
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.harness.shop import Shop, shop_on
from tests.harness.world import wait_until
from tests.integration.test_consumer import (  # noqa: F401
    MODES,
    engine,
    test_a_connection_that_died_idle_is_replaced,
    test_a_dead_letter_may_be_a_row_of_the_same_transaction,
    test_a_deadlock_is_tried_again,
    test_a_handler_that_rolls_back_is_found_out,
    test_a_late_failure_does_not_free_the_event_of_a_third_consumer,
    test_a_lease_does_not_depend_on_the_sessions_time_zone,
    test_a_record_in_a_transaction_of_ones_own,
    test_a_record_of_ones_own_respects_leases_and_failures,
    test_a_record_outside_a_transaction_is_refused,
    test_a_sqlalchemy_engine,
    test_a_storm_of_redeliveries,
    test_an_event_in_anothers_transaction_is_busy,
    test_an_event_is_processed_once,
    test_an_owner_that_was_too_slow_changes_nothing,
    test_attempts_are_counted_and_then_it_is_a_dead_letter,
    test_groups_know_nothing_of_each_other,
    test_killed_in_a_transaction,
    test_many_consumers_and_one_event_at_once,
    test_mysql_connector,
    test_mysql_gone_and_back,
    test_purge_deletes_what_is_old_in_small_transactions,
    test_what_a_sqlalchemy_session_cannot_write_is_a_failure,
    test_without_its_table_it_says_what_to_do,
)
from tests.integration.test_schema import session, settings

if TYPE_CHECKING:
    from tests.conftest import MakeMySQL


@pytest.fixture(scope="module")
def shop_of_all(own_mariadb: Server[MySQLEndpoint]) -> Iterator[Shop]:
    with shop_on(own_mariadb.endpoint) as made:
        yield made


@pytest.fixture
def make_mysql(make_mariadb: MakeMySQL) -> MakeMySQL:
    return make_mariadb


def test_what_init_makes_is_enough_with_the_printed_grants(own_mariadb: Server[MySQLEndpoint]) -> None:
    at = own_mariadb.endpoint
    chosen = settings(at, "made_by_init")
    account = schema.account(schema.CONSUMER_ACCOUNT)
    with pymysql.connect(host=at.host, port=at.port, user=at.user, password=at.password) as admin:
        admin.cursor().execute("CREATE DATABASE made_by_init")
    with session(chosen) as administrator:
        tables = ["outbox_event", "cdc_outbox_checkpoint", schema.PROCESSED, schema.OFFSETS, "cdc_outbox_worker"]
        made = schema.create(administrator, chosen, consumer=True, workers=True)
        assert made == [f"made_by_init.{table}" for table in tables]
        assert schema.create(administrator, chosen, consumer=True, workers=True) == []
        administrator.execute(f"CREATE USER {account}")
        for grant in schema.consumer_grants(chosen):
            administrator.execute(grant)
        administrator.execute(f"GRANT SELECT, INSERT, UPDATE ON made_by_init.cdc_outbox_worker TO {account}")

    def connect() -> pymysql.Connection[pymysql.cursors.Cursor]:
        return pymysql.connect(host=at.host, port=at.port, user=schema.CONSUMER_ACCOUNT, database="made_by_init")

    for mode in MODES:
        with IdempotentConsumer(f"mail {mode}", connect, mode=mode) as consumer:
            outcomes = [consumer.process("e1", lambda *_: None).outcome for _ in range(2)]
            assert outcomes == [Outcome.DONE, Outcome.DUPLICATE]
            assert consumer.kept_offset("orders", 0) is None
            wait_until(lambda one=consumer: one.purge(0.001) == 1, "a millisecond to pass")
    ids = SnowflakeIds(WorkerLease(connect))
    assert ids.next() < ids.next()
    ids.close()
