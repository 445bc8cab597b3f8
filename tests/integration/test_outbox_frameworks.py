"""Outbox on what SQLAlchemy and Django give: their sessions and connections, in their transactions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import django.conf
import django.db
import pytest
import sqlalchemy
from django.db import transaction
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from cdc_outbox import NewEvent, Outbox
from cdc_outbox.errors import NotInTransaction
from cdc_outbox.testing.services.endpoint import MySQLEndpoint
from tests.integration.outbox_database import OutboxDatabase, needs_mysqlclient, outbox_database
from tests.integration.test_outbox_drivers import ORDER

MYSQLCLIENT_BACKEND = pytest.param("django.db.backends.mysql", marks=needs_mysqlclient)

by_dialect = pytest.mark.parametrize(
    "dialect", ["pymysql", pytest.param("mysqldb", marks=needs_mysqlclient), "mysqlconnector"]
)
by_async_dialect = pytest.mark.parametrize("dialect", ["aiomysql", "asyncmy"])


@pytest.fixture(scope="module")
def _made(mysql_server: MySQLEndpoint) -> Iterator[OutboxDatabase]:
    with outbox_database(mysql_server) as made:
        yield made


@pytest.fixture
def shop(_made: OutboxDatabase) -> Iterator[OutboxDatabase]:
    yield _made
    _made.clear()


# -- SQLAlchemy ---------------------------------------------------------------------------------------------------


@pytest.fixture
def engine(shop: OutboxDatabase, dialect: str) -> Iterator[sqlalchemy.Engine]:
    made = sqlalchemy.create_engine(shop.url(dialect))
    yield made
    made.dispose()


@by_dialect
def test_a_session(shop: OutboxDatabase, engine: sqlalchemy.Engine) -> None:
    outbox = Outbox(headers={"trace": "trace_id"})
    with Session(engine) as session:
        first = outbox.add(session, **ORDER, headers={"trace": 7}, delay=30)  # begins by itself, as a Session does
        session.execute(sqlalchemy.text("UPDATE orders SET state = 1 WHERE id = 1"))
        assert shop.event_ids() == []
        session.commit()
        outbox.add(session, **ORDER)
        session.rollback()
    with Session(engine) as session, session.begin():
        both = outbox.add_many(session, [NewEvent(**ORDER), NewEvent(**ORDER)])
        with pytest.raises(ZeroDivisionError), session.begin_nested():
            outbox.add(session, **ORDER)
            _ = 1 // 0
    assert shop.event_ids() == [first, *both]
    assert shop.row(first)["trace_id"] == "7"
    assert shop.row(first)["wait"] > 20
    assert shop.execute("SELECT state FROM orders WHERE id = 1") == [(1,)]


@by_dialect
def test_a_connection(shop: OutboxDatabase, engine: sqlalchemy.Engine) -> None:
    outbox = Outbox()
    with engine.begin() as connection:
        first = outbox.add(connection, **ORDER)
    with engine.connect() as connection:
        outbox.add(connection, **ORDER)  # nobody commits
    pooled = engine.raw_connection()
    second = outbox.add(pooled, **ORDER)
    pooled.commit()
    pooled.close()
    assert shop.event_ids() == [first, second]


@pytest.mark.parametrize("dialect", ["pymysql"])
def test_a_scoped_session(shop: OutboxDatabase, engine: sqlalchemy.Engine) -> None:
    session = scoped_session(sessionmaker(engine))
    event_id = Outbox().add(session, **ORDER)
    session.commit()
    session.remove()
    assert shop.event_ids() == [event_id]


@by_dialect
def test_an_engine_with_autocommit_is_no_transaction(shop: OutboxDatabase, engine: sqlalchemy.Engine) -> None:
    """session.in_transaction() is true there, and every statement is committed by itself."""
    committing = engine.execution_options(isolation_level="AUTOCOMMIT")
    with Session(committing) as session:
        session.begin()
        with pytest.raises(NotInTransaction, match=r"session\.begin"):
            Outbox().add(session, **ORDER)
    with committing.begin() as connection, pytest.raises(NotInTransaction):
        Outbox().add(connection, **ORDER)
    assert shop.event_ids() == []


@pytest.mark.parametrize("dialect", ["pymysql"])
def test_a_session_that_does_not_begin_by_itself(shop: OutboxDatabase, engine: sqlalchemy.Engine) -> None:
    with Session(engine, autobegin=False) as session:
        with pytest.raises(NotInTransaction, match="autobegin=False"):
            Outbox().add(session, **ORDER)
        with session.begin():
            event_id = Outbox().add(session, **ORDER)
    assert shop.event_ids() == [event_id]


@asynccontextmanager
async def async_engine(shop: OutboxDatabase, dialect: str, **options: Any) -> AsyncIterator[Any]:
    engine = create_async_engine(shop.url(dialect), **options)
    try:
        yield engine
    finally:
        await engine.dispose()


@by_async_dialect
def test_an_async_session_and_connection(shop: OutboxDatabase, dialect: str) -> None:
    outbox = Outbox()

    async def work() -> list[str]:
        async with async_engine(shop, dialect) as engine:
            async with AsyncSession(engine) as session, session.begin():
                first: str = await outbox.add(session, **ORDER)
                await session.execute(sqlalchemy.text("UPDATE orders SET state = 1 WHERE id = 1"))
                assert shop.event_ids() == []
            async with AsyncSession(engine) as session:
                await outbox.add(session, **ORDER)
                await session.rollback()
            connection: AsyncConnection
            async with engine.begin() as connection:
                two: list[str] = await outbox.add_many(connection, [NewEvent(**ORDER), NewEvent(**ORDER)])
            return [first, *two]

    assert asyncio.run(work()) == shop.event_ids()


@by_async_dialect
def test_an_async_engine_with_autocommit_is_no_transaction(shop: OutboxDatabase, dialect: str) -> None:
    async def work() -> None:
        async with (
            async_engine(shop, dialect, isolation_level="AUTOCOMMIT") as engine,
            AsyncSession(engine) as session,
            session.begin(),
        ):
            with pytest.raises(NotInTransaction):
                await Outbox().add(session, **ORDER)

    asyncio.run(work())
    assert shop.event_ids() == []


# -- Django -------------------------------------------------------------------------------------------------------


@pytest.fixture
def alias(shop: OutboxDatabase, backend: str) -> Iterator[str]:
    """The name of a database of Django's that is the shop."""
    if not django.conf.settings.configured:
        django.conf.settings.configure(USE_TZ=True)
        django.setup()
    at = shop.server
    databases = {
        name: {"ENGINE": backend, "NAME": shop.name, "USER": at.user, "PASSWORD": at.password}
        | {"HOST": at.host, "PORT": str(at.port)}
        for name in ("default", "shop")
    }
    before = django.db.connections
    django.db.connections = django.db.utils.ConnectionHandler(databases)
    transaction.connections = django.db.connections
    yield "shop"
    django.db.connections.close_all()
    django.db.connections = before
    transaction.connections = before


@pytest.mark.parametrize("backend", [MYSQLCLIENT_BACKEND, "mysql.connector.django"])
def test_django(shop: OutboxDatabase, alias: str) -> None:
    connection, outbox = django.db.connections[alias], Outbox()
    with pytest.raises(NotInTransaction, match=r"transaction\.atomic"):
        outbox.add(connection, **ORDER)
    with transaction.atomic(using=alias):
        first = outbox.add(connection, **ORDER)
        with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):
            outbox.add(connection, **ORDER)
            _ = 1 // 0
        assert shop.event_ids() == []
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):
        outbox.add(connection, **ORDER)
        _ = 1 // 0
    with pytest.raises(NotInTransaction):
        outbox.add(connection, **ORDER)
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        second = outbox.add_many(connection, [NewEvent(**ORDER)])
        cursor.execute("COMMIT")
    assert shop.event_ids() == [first, *second]


@pytest.mark.parametrize("backend", [MYSQLCLIENT_BACKEND, "mysql.connector.django"])
def test_a_transaction_of_another_database_of_django(shop: OutboxDatabase, alias: str) -> None:
    with transaction.atomic(using="default"), pytest.raises(NotInTransaction, match="the same database"):
        Outbox().add(django.db.connections[alias], **ORDER)
    assert shop.event_ids() == []
