"""Snowflake worker ids leased through a real MySQL: no two holders at once, no id twice."""

from __future__ import annotations

import heapq
import os
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cdc_outbox import Outbox, SnowflakeIds, WorkerLease
from cdc_outbox.errors import NoWorkerId
from cdc_outbox.model import TableName
from cdc_outbox.mysql import schema
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from tests.integration.outbox_database import DRIVERS, OutboxDatabase, outbox_database
from tests.integration.test_outbox_drivers import ORDER

LEASE_OVER = "UPDATE cdc_outbox_worker SET lease_until = NOW(3) - INTERVAL 1 SECOND"


@pytest.fixture(scope="module")
def _made(mysql_server: MySQLEndpoint) -> Iterator[OutboxDatabase]:
    with outbox_database(mysql_server) as made:
        add_worker_table(made)
        yield made


def add_worker_table(made: OutboxDatabase) -> None:
    made.execute(schema.ddl("cdc_outbox_worker", TableName(made.name, "cdc_outbox_worker")))


@pytest.fixture
def shop(_made: OutboxDatabase) -> Iterator[OutboxDatabase]:
    yield _made
    _made.clear()
    _made.execute("DELETE FROM cdc_outbox_worker")


def ids_of(shop: OutboxDatabase, driver: str = "pymysql", **options: Any) -> SnowflakeIds:
    return SnowflakeIds(WorkerLease(lambda: shop.connect(driver, autocommit=False), **options))


def worker(number: int) -> int:
    return number >> 12 & 1023


def milliseconds(number: int) -> int:
    return (number >> 22) + 1_704_067_200_000


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_worker_id_is_leased_kept_and_given_back(shop: OutboxDatabase, driver: str) -> None:
    ids = ids_of(shop, driver)
    first = ids.next()
    assert worker(first) == 0
    ((host, left, floor, ceiling),) = shop.execute(
        "SELECT host, TIMESTAMPDIFF(SECOND, NOW(3), lease_until), floor_ms, ceiling_ms FROM cdc_outbox_worker"
    )
    assert str(os.getpid()) in host
    assert 50 <= left <= 60
    assert floor < milliseconds(first) < ceiling

    assert ids._span is not None
    ids._span.renew_at = 0
    shop.execute("UPDATE cdc_outbox_worker SET lease_until = NOW(3) + INTERVAL 1 SECOND")
    assert worker(ids.next()) == 0
    assert shop.execute("SELECT TIMESTAMPDIFF(SECOND, NOW(3), lease_until) FROM cdc_outbox_worker")[0][0] >= 50

    last = ids.next()
    ids.close()
    assert shop.execute("SELECT lease_until < NOW(3), ceiling_ms FROM cdc_outbox_worker") == [(1, milliseconds(last))]
    assert ids.next() > last


def test_holders_at_the_same_time_have_different_worker_ids(shop: OutboxDatabase) -> None:
    """All ask at once, with an empty table and with one that has free rows."""
    for _ in range(2):
        made: list[SnowflakeIds] = [ids_of(shop) for _ in range(12)]
        threads = [threading.Thread(target=ids.next) for ids in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(worker(ids.next()) for ids in made) == list(range(12))
        for ids in made:
            ids.close()


def test_a_lease_that_ran_out_goes_to_another_and_no_id_comes_twice(shop: OutboxDatabase) -> None:
    """The old holder was frozen and knows nothing of it: it gives ids of the same worker, of its own span."""
    old, new = ids_of(shop), ids_of(shop)
    before = [old.next() for _ in range(100)]
    shop.execute(LEASE_OVER)
    taken = [new.next() for _ in range(10_000)]
    frozen = [old.next() for _ in range(10_000)]
    assert {worker(one) for one in (*taken, *frozen)} == {0}
    assert not {*before, *frozen} & {*taken}
    assert max(frozen) < min(taken)

    assert old._span is not None
    old._span.renew_at = 0  # it awakes, and finds out
    after = [old.next() for _ in range(100)]
    assert {worker(one) for one in after} == {1}
    assert [*before, *frozen, *after] == sorted({*before, *frozen, *after})


def test_a_holder_whose_lease_ran_out_unnoticed_keeps_it(shop: OutboxDatabase) -> None:
    ids = ids_of(shop)
    ids.next()
    shop.execute(LEASE_OVER)
    assert ids._span is not None
    ids._span.renew_at = 0
    assert worker(ids.next()) == 0
    assert shop.execute("SELECT lease_until > NOW(3) FROM cdc_outbox_worker") == [(1,)]


def test_all_worker_ids_are_leased(shop: OutboxDatabase) -> None:
    shop.execute("INSERT INTO cdc_outbox_worker VALUES (1023, 'x', 'elsewhere:1', NOW(3) + INTERVAL 1 HOUR, 0, 0)")
    ids = ids_of(shop)
    with pytest.raises(NoWorkerId, match=r"all 1024 in cdc_outbox_worker are leased.*SELECT host"):
        ids.next()
    shop.execute(LEASE_OVER)
    assert worker(ids.next()) == 1023


def test_a_missing_table_is_told_with_its_fix(shop: OutboxDatabase) -> None:
    with pytest.raises(NoWorkerId, match=r"no table no_such_table.*init --workers"):
        ids_of(shop, table="no_such_table").next()


def test_an_outbox_with_snowflake_ids(shop: OutboxDatabase) -> None:
    outbox = Outbox(event_ids=ids_of(shop))
    connection = shop.connect("pymysql", autocommit=False)
    made = [outbox.add(connection, **ORDER) for _ in range(5)]
    connection.commit()
    assert shop.event_ids() == made
    assert [int(one) for one in made] == sorted(int(one) for one in made)


WRITER = """
import sys
from array import array
import pymysql
from cdc_outbox import SnowflakeIds, WorkerLease

host, port, user, password, database, count, path = sys.argv[1:]
def connect():
    return pymysql.connect(host=host, port=int(port), user=user, password=password, database=database)

ids = SnowflakeIds(WorkerLease(connect, seconds=3))
made = array("Q", (ids.next() for _ in range(int(count))))
with open(path, "wb") as file:
    made.tofile(file)
ids.close()
"""


@pytest.mark.parametrize(
    ("processes", "each"), [(4, 50_000), pytest.param(8, 1_000_000, marks=pytest.mark.long)], ids=["short", "8 million"]
)
def test_ids_of_many_processes_are_unique_and_rise(
    shop: OutboxDatabase, tmp_path: Path, processes: int, each: int
) -> None:
    """They come and go, so that worker ids pass from one to the next."""
    at = shop.server
    arguments = [at.host, str(at.port), at.user, at.password, shop.name, str(each)]
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, *arguments, str(tmp_path / f"{number}")])
        for number in range(processes)
    ]
    assert [one.wait(timeout=300) for one in running] == [0] * processes
    made = []
    for number in range(processes):
        ids = array("Q")
        with (tmp_path / f"{number}").open("rb") as file:
            ids.fromfile(file, each)
        made.append(ids)
        assert all(one < other for one, other in pairwise(ids)), "not rising"
    count, last = 0, -1
    for one in heapq.merge(*made):
        assert one != last, "the same id twice"
        count, last = count + 1, one
    assert count == processes * each
