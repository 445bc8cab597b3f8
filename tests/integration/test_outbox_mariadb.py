"""Outbox and worker leases on MariaDB: the tests of MySQL's that the server has a say in, and what is its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from cdc_outbox import NewEvent, Outbox
from cdc_outbox.app.outbox_payload import MARIADB_DEPTH
from cdc_outbox.errors import EventRefused
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from cdc_outbox.testing.services.server import Server
from tests.integration.outbox_database import OutboxDatabase, outbox_database
from tests.integration.test_outbox_drivers import (  # noqa: F401
    ORDER,
    by_driver,
    nested,
    test_a_rollback_takes_the_event_along,
    test_a_thousand_events_at_once,
    test_a_transaction_that_a_deadlock_ended_is_none,
    test_an_event_id_that_is_there_is_the_drivers_error,
    test_many_events_are_one_statement,
    test_outside_a_transaction_nothing_is_written,
    test_tables_of_other_names,
    test_the_event_is_committed_with_the_change_it_tells_of,
    test_the_question_changes_nothing,
    test_what_mysql_would_cut_or_refuse_is_refused_before,
    test_where_the_driver_does_not_tell_the_server_is_asked,
    test_without_autocommit_the_event_may_be_the_first_statement,
)
from tests.integration.test_outbox_workers import (  # noqa: F401
    add_worker_table,
    test_a_lease_that_ran_out_goes_to_another_and_no_id_comes_twice,
    test_a_missing_table_is_told_with_its_fix,
    test_a_worker_id_is_leased_kept_and_given_back,
    test_all_worker_ids_are_leased,
    test_holders_at_the_same_time_have_different_worker_ids,
    test_ids_of_many_processes_are_unique_and_rise,
)


@pytest.fixture(scope="module")
def _made(own_mariadb: Server[MySQLEndpoint]) -> Iterator[OutboxDatabase]:
    with outbox_database(own_mariadb.endpoint) as made:
        add_worker_table(made)
        yield made


@pytest.fixture
def shop(_made: OutboxDatabase) -> Iterator[OutboxDatabase]:
    yield _made
    _made.clear()
    _made.execute("DELETE FROM cdc_outbox_worker")


def refused_as_too_deep(write: Callable[..., Any]) -> None:
    with pytest.raises(EventRefused, match=r"too deeply: MariaDB takes 31 levels.*Make it flatter"):
        write()


@by_driver
def test_a_payload_that_is_too_deep_is_refused_and_the_transaction_goes_on(shop: OutboxDatabase, driver: str) -> None:
    connection = shop.connect(driver, autocommit=False)
    outbox = Outbox()
    first = outbox.add(connection, **ORDER)
    deep = {**ORDER, "payload": nested(MARIADB_DEPTH + 1)}
    refused_as_too_deep(lambda: outbox.add(connection, **deep))
    refused_as_too_deep(lambda: outbox.add_many(connection, [NewEvent(**ORDER), NewEvent(**deep)]))
    last = outbox.add(connection, **{**ORDER, "payload": nested(MARIADB_DEPTH)})
    connection.commit()
    assert shop.event_ids() == [first, last]


@pytest.mark.parametrize("dialect", ["pymysql", "mysqlconnector"])
def test_too_deep_for_a_sqlalchemy_session(shop: OutboxDatabase, dialect: str) -> None:
    engine = sqlalchemy.create_engine(shop.url(dialect))
    with Session(engine) as session:
        deep = {**ORDER, "payload": nested(MARIADB_DEPTH + 1)}
        refused_as_too_deep(lambda: Outbox().add(session, **deep))
        event_id = Outbox().add(session, **ORDER)
        session.commit()
    engine.dispose()
    assert shop.event_ids() == [event_id]


def test_a_check_of_the_tables_own_stays_the_drivers_error(shop: OutboxDatabase) -> None:
    shop.execute("CREATE TABLE checked LIKE outbox_event")
    shop.execute("ALTER TABLE checked ADD CONSTRAINT few CHECK (JSON_LENGTH(payload) < 2)")
    connection = shop.connect("pymysql", autocommit=False)
    with pytest.raises(Exception, match=r"4025.*`few` failed"):
        Outbox("checked").add(connection, **ORDER)
