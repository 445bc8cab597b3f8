"""Outbox on the drivers' own connections: what it writes, and that it writes in a transaction only."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from cdc_outbox import NewEvent, Outbox
from cdc_outbox.errors import EventRefused, NotInTransaction
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from tests.harness.world import wait_until
from tests.integration.outbox_database import DRIVERS, OutboxDatabase, outbox_database

ORDER: dict[str, Any] = {
    "aggregate_type": "order",
    "aggregate_id": "A-1",
    "event_type": "OrderPaid",
    "payload": {"order": "A-1", "cents": 1250, "to": "Zoë 📦"},
}

by_driver = pytest.mark.parametrize("driver", DRIVERS)


@pytest.fixture(scope="module")
def _made(mysql_server: MySQLEndpoint) -> Iterator[OutboxDatabase]:
    with outbox_database(mysql_server) as made:
        yield made


@pytest.fixture
def shop(_made: OutboxDatabase) -> Iterator[OutboxDatabase]:
    yield _made
    _made.clear()


def waits_for_a_lock(shop: OutboxDatabase, thread: int) -> bool:
    """By the one report that MySQL and MariaDB share and that is not cached."""
    ((_, _, report),) = shop.execute("SHOW ENGINE INNODB STATUS")
    return re.search(rf"^LOCK WAIT[^-]*thread id {thread},", report, re.MULTILINE) is not None


def run(connection: Any, statement: str) -> Any:
    cursor = connection.cursor()
    cursor.execute(statement)
    found = cursor.fetchall() if cursor.description else None
    cursor.close()
    return found


# -- inside a transaction -----------------------------------------------------------------------------------------


@by_driver
@pytest.mark.parametrize("autocommit", [True, False], ids=["autocommit", "no autocommit"])
def test_the_event_is_committed_with_the_change_it_tells_of(
    shop: OutboxDatabase, driver: str, autocommit: bool
) -> None:
    connection = shop.connect(driver, autocommit=autocommit)
    run(connection, "START TRANSACTION")
    run(connection, "UPDATE orders SET state = 1 WHERE id = 1")
    event_id = Outbox().add(connection, **ORDER)
    assert shop.event_ids() == []
    connection.commit()
    assert shop.event_ids() == [event_id]
    row = shop.row(event_id)
    assert json.loads(row["text"]) == ORDER["payload"]
    assert row | {"id": 0, "payload": 0, "text": "", "created_at": 0, "updated_at": 0} == {
        "id": 0,
        "event_id": event_id,
        "aggregate_type": "order",
        "aggregate_id": "A-1",
        "event_type": "OrderPaid",
        "payload": 0,
        "text": "",
        "status": 0,
        "retry_count": 0,
        "max_retries": 3,
        "next_retry_at": None,
        "wait": None,
        "created_at": 0,
        "updated_at": 0,
        "trace_id": None,
    }


@by_driver
def test_a_rollback_takes_the_event_along(shop: OutboxDatabase, driver: str) -> None:
    connection = shop.connect(driver, autocommit=True)
    run(connection, "BEGIN")
    assert run(connection, "SELECT id FROM orders WHERE id = 1") in (((1,),), [(1,)])  # its answer has flags too
    Outbox().add(connection, **ORDER)
    connection.rollback()
    assert shop.event_ids() == []


@by_driver
def test_without_autocommit_the_event_may_be_the_first_statement(shop: OutboxDatabase, driver: str) -> None:
    """It begins the transaction that the caller's commit ends."""
    connection = shop.connect(driver, autocommit=False)
    kept = []
    for commit in (True, False, True):
        event_id = Outbox().add(connection, **ORDER)
        run(connection, "UPDATE orders SET state = state + 1 WHERE id = 1")
        if commit:
            connection.commit()
            kept.append(event_id)
        else:
            connection.rollback()
    assert shop.event_ids() == kept
    assert shop.execute("SELECT state FROM orders WHERE id = 1") == [(2,)]


@by_driver
def test_many_events_are_one_statement(shop: OutboxDatabase, driver: str) -> None:
    connection = shop.connect(driver, autocommit=False)
    outbox = Outbox(headers={"trace": "trace_id"})
    common = {**ORDER, "payload": "[1]"}
    events = [
        NewEvent(**common),
        NewEvent(**common, headers={"trace": "%s %(x)s"}, max_retries=9),
        NewEvent(**common, event_id="of-my-own", delay=90),
    ]
    before = int(run(connection, "SHOW SESSION STATUS LIKE 'Com_insert'")[0][1])
    ids = outbox.add_many(connection, events)
    assert int(run(connection, "SHOW SESSION STATUS LIKE 'Com_insert'")[0][1]) == before + 1
    connection.commit()
    assert shop.event_ids() == ids
    assert ids[2] == "of-my-own"
    rows = [shop.row(event_id) for event_id in ids]
    assert [row["trace_id"] for row in rows] == [None, "%s %(x)s", None]
    assert [row["max_retries"] for row in rows] == [3, 9, 3]
    assert [row["next_retry_at"] is None for row in rows] == [True, True, False]
    assert 80 <= rows[2]["wait"] <= 90


def test_a_thousand_events_at_once(shop: OutboxDatabase) -> None:
    connection = shop.connect("pymysql", autocommit=False)
    ids = Outbox().add_many(connection, (NewEvent(**{**ORDER, "aggregate_id": number}) for number in range(1000)))
    connection.commit()
    assert shop.event_ids() == ids == sorted(ids)
    assert shop.execute("SELECT aggregate_id FROM outbox_event ORDER BY id DESC LIMIT 1") == [("999",)]


def test_no_events_are_no_statement(shop: OutboxDatabase) -> None:
    connection = shop.connect("pymysql", autocommit=False)
    assert Outbox("no_such_table").add_many(connection, []) == []


def test_tables_of_other_names(shop: OutboxDatabase) -> None:
    shop.execute("CREATE TABLE `odd``na%me` LIKE outbox_event")
    connection = shop.connect("pymysql", autocommit=False)
    Outbox(f"{shop.name}.odd`na%me").add(connection, **ORDER)
    connection.commit()
    assert shop.execute("SELECT COUNT(*) FROM `odd``na%me`") == [(1,)]


# -- outside one --------------------------------------------------------------------------------------------------


@by_driver
def test_outside_a_transaction_nothing_is_written(shop: OutboxDatabase, driver: str) -> None:
    connection = shop.connect(driver, autocommit=True)
    outbox = Outbox()

    def refused() -> None:
        with pytest.raises(NotInTransaction, match=r"no transaction is open.*Begin one with connection\.\w+\(\)"):
            outbox.add(connection, **ORDER)
        with pytest.raises(NotInTransaction):
            outbox.add_many(connection, [NewEvent(**ORDER), NewEvent(**ORDER)])

    refused()
    run(connection, "START TRANSACTION")
    first = outbox.add(connection, **ORDER)
    connection.commit()
    refused()
    run(connection, "BEGIN")
    connection.rollback()
    refused()
    run(connection, "BEGIN")
    run(connection, "ALTER TABLE orders COMMENT = ''")  # commits
    refused()
    assert shop.event_ids() == [first]


@by_driver
def test_the_question_changes_nothing(shop: OutboxDatabase, driver: str) -> None:
    """Asked outside a transaction, it leaves the next transaction's isolation level alone."""
    connection = shop.connect(driver, autocommit=True)
    run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    with pytest.raises(NotInTransaction):
        Outbox().add(connection, **ORDER)
    run(connection, "BEGIN")
    run(connection, "SELECT * FROM orders")
    shop.execute("UPDATE orders SET state = 7 WHERE id = 1")
    assert tuple(run(connection, "SELECT state FROM orders WHERE id = 1")[0]) == (7,)
    connection.rollback()
    ((_, isolation), *_) = run(
        connection, "SHOW SESSION VARIABLES WHERE variable_name RLIKE '^(tx|transaction)_isolation$'"
    )
    assert isolation == "READ-COMMITTED"


class Flagless:
    """A connection that shows no status flags, as mysqlclient's does not, on machines without mysqlclient too."""

    def __init__(self, connection: Any) -> None:
        self.cursor, self.begin, self.rollback = connection.cursor, connection.begin, connection.rollback


def test_where_the_driver_does_not_tell_the_server_is_asked(shop: OutboxDatabase) -> None:
    connection = Flagless(shop.connect("pymysql", autocommit=True))
    with pytest.raises(NotInTransaction, match="no transaction is open"):
        Outbox().add(connection, **ORDER)
    connection.begin()
    Outbox().add(connection, **ORDER)
    connection.rollback()
    with pytest.raises(NotInTransaction, match="no transaction is open"):
        Outbox().add(connection, **ORDER)
    assert Outbox().add(Flagless(shop.connect("pymysql", autocommit=False)), **ORDER)
    assert shop.event_ids() == []


@by_driver
def test_a_transaction_that_a_deadlock_ended_is_none(shop: OutboxDatabase, driver: str) -> None:
    """An error brings no status flags: the driver still thinks that it is in one."""
    connection = shop.connect(driver, autocommit=True)
    run(connection, "BEGIN")
    run(connection, "UPDATE orders SET state = 1 WHERE id = 1")
    other = shop.connect("pymysql", autocommit=True)
    run(other, "BEGIN")
    for number in (2, 3, 4):  # one by one: MariaDB would scan the table, and wait for the first row
        run(other, f"UPDATE orders SET state = 2 WHERE id = {number}")  # it does more: we are the victim
    waiting = threading.Thread(target=run, args=(other, "UPDATE orders SET state = 2 WHERE id = 1"))
    waiting.start()
    wait_until(lambda: waits_for_a_lock(shop, other.thread_id()), "the other to wait")
    with pytest.raises(Exception, match=r"[Dd]eadlock"):
        run(connection, "UPDATE orders SET state = 1 WHERE id = 2")
    waiting.join()
    with pytest.raises(NotInTransaction):
        Outbox().add(connection, **ORDER)
    other.rollback()


# -- before anything is written -----------------------------------------------------------------------------------


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_what_mysql_would_cut_or_refuse_is_refused_before(shop: OutboxDatabase) -> None:
    connection = shop.connect("pymysql", autocommit=False)
    run(connection, "SET SESSION sql_mode = ''")
    outbox = Outbox()
    for wrong in (
        {"payload": "{'order': 1}"},
        {"payload": '"\\ud800"'},
        {"payload": "1e999"},
        {"payload": nested(101)},
        {"payload": {"rate": float("nan")}},
        {"event_id": "e" * 65},
        {"aggregate_id": "a" * 65},
        {"event_type": "t" * 129},
    ):
        with pytest.raises(EventRefused):
            outbox.add(connection, **{**ORDER, **wrong})
    last = outbox.add(
        connection,
        aggregate_type="t" * 64,
        aggregate_id="i" * 64,
        event_type="e" * 128,
        event_id="d" * 64,
        payload=nested(shop.depth),
    )
    connection.commit()
    assert shop.event_ids() == [last]


def test_an_event_id_that_is_there_is_the_drivers_error(shop: OutboxDatabase) -> None:
    connection = shop.connect("pymysql", autocommit=False)
    outbox = Outbox()
    outbox.add(connection, **ORDER, event_id="twice")
    with pytest.raises(Exception, match="Duplicate entry 'twice'"):
        outbox.add(connection, **ORDER, event_id="twice")
    connection.commit()
    assert shop.event_ids() == ["twice"]
