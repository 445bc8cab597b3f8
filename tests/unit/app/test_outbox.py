"""Outbox without a server: what is refused, what becomes of the arguments, what the import costs."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any
from uuid import UUID

import aiomysql
import pydantic
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker

import cdc_outbox
from cdc_outbox import NewEvent, Outbox
from cdc_outbox.app.outbox_payload import json_text
from cdc_outbox.errors import ApplicationError, CdcOutboxError, EventRefused, NotInTransaction

ORDER: dict[str, Any] = {
    "aggregate_type": "order",
    "aggregate_id": "A-1",
    "event_type": "OrderPaid",
    "payload": {"order": "A-1"},
}


@dataclass
class StubConnection:
    """Looks like PyMySQL's: notes what it is given. status: the server's flags, 1 in a transaction, 2 autocommit."""

    server_status: int = 3
    ran: list[tuple[str, Any]] = field(default_factory=list)

    def cursor(self) -> StubConnection:
        return self

    def execute(self, statement: str, values: Any) -> None:
        self.ran.append((statement, values))

    def close(self) -> None:
        pass

    def begin(self) -> None:
        self.server_status |= 1


def row(outbox: Outbox, **changed: Any) -> dict[str, Any]:
    """Column -> what was given for it."""
    connection = StubConnection()
    outbox.add(connection, **{**ORDER, **changed})
    ((statement, values),) = connection.ran
    columns = statement.partition("(")[2].partition(")")[0].replace("`", "").split(", ")
    return dict(zip(columns, values, strict=True))


# -- import -------------------------------------------------------------------------------------------------------


def test_the_import_is_light() -> None:
    """An application that only writes events loads no client of Kafka, no binlog library, no command line, no ORM."""
    code = (
        "import sys, json; from cdc_outbox import Outbox, SnowflakeIds, WorkerLease, business_key; Outbox();"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"kafka", "confluent_kafka", "pymysqlreplication", "typer", "rich", "pydantic", "sqlalchemy", "django"}
    heavy |= {"pymysql", "yaml", "starlette", "uvicorn", "prometheus_client", "asyncio"}
    assert not heavy & set(json.loads(done.stdout))


def test_every_public_name_is_there() -> None:
    for name in cdc_outbox._HOMES:
        assert getattr(cdc_outbox, name).__module__ == cdc_outbox._HOMES[name]
        assert name in dir(cdc_outbox)
    with pytest.raises(AttributeError, match="has no attribute 'Outbx'"):
        _ = cdc_outbox.Outbx


# -- the row ------------------------------------------------------------------------------------------------------


class Kind(StrEnum):
    ORDER = "order"


class State(Enum):
    PAID = "paid"


class Level(IntEnum):
    HIGH = 3


def test_identifiers_become_plain_text() -> None:
    number = UUID("0193a4b2-0000-7000-8000-000000000001")
    given = row(Outbox(), aggregate_type=Kind.ORDER, aggregate_id=number, event_type=State.PAID, event_id=17)
    assert {column: given[column] for column in ("aggregate_type", "aggregate_id", "event_type", "event_id")} == {
        "aggregate_type": "order",
        "aggregate_id": str(number),
        "event_type": "paid",
        "event_id": "17",
    }
    assert all(type(value) is str for value in given.values())


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"aggregate_id": ""}, "aggregate_id is empty"),
        ({"aggregate_id": None}, "aggregate_id must be a str"),
        ({"aggregate_id": True}, "not bool"),
        ({"aggregate_id": 1.5}, "not float"),
        ({"aggregate_id": "i" * 65}, "aggregate_id has 65 characters, its column holds 64"),
        ({"aggregate_type": "t" * 65}, "aggregate_type has 65"),
        ({"event_type": "t" * 129}, "its column holds 128"),
        ({"event_id": "t" * 65}, "event_id has 65"),
        ({"aggregate_id": "a\0b"}, "NUL"),
        ({"max_retries": -1}, "max_retries is -1"),
        ({"delay": -1}, "delay is -1"),
        ({"delay": float("inf")}, "delay is inf"),
        ({"headers": {"trace": "x"}}, "no column for header 'trace'.*It has: tenant"),
        ({"headers": {"tenant": 1.5}}, "header 'tenant' must be"),
        ({"columns": {"colour": "x"}}, "not told of a column 'colour'"),
        ({"payload": None}, "payload is None"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_sent(changed: dict[str, Any], told: str) -> None:
    connection = StubConnection()
    outbox = Outbox(headers={"tenant": "tenant_id"})
    with pytest.raises(EventRefused, match=told) as raised:
        outbox.add(connection, **{**ORDER, **changed})
    with pytest.raises(EventRefused):
        outbox.add_many(connection, [NewEvent(**ORDER), NewEvent(**{**ORDER, **changed})])
    assert connection.ran == []
    assert isinstance(raised.value, ValueError)


def test_headers_and_columns_fill_their_columns() -> None:
    outbox = Outbox(headers={"trace": "trace_id", "tenant": "tenant_id"}, columns=["topic"])
    given = row(outbox, headers={"trace": 12, "tenant": None}, columns={"topic": "eu"}, max_retries=0, delay=1.2)
    assert {name: given[name] for name in ("trace_id", "tenant_id", "topic", "max_retries", "next_retry_at")} == {
        "trace_id": "12",
        "tenant_id": None,
        "topic": "eu",
        "max_retries": 0,
        "next_retry_at": 2,
    }
    assert set(row(outbox)) == {"event_id", "aggregate_type", "aggregate_id", "event_type", "payload"}
    assert row(outbox, delay=timedelta(minutes=1))["next_retry_at"] == 60


@pytest.mark.parametrize("own", ["payload", "status", "next_retry_at"])
def test_the_outboxes_own_columns_are_not_mapped(own: str) -> None:
    with pytest.raises(ValueError, match="own column"):
        Outbox(headers={"x": own})
    with pytest.raises(ValueError, match="own column"):
        Outbox(columns=[own])


def test_longer_columns() -> None:
    assert row(Outbox(max_lengths={"aggregate_id": 70}), aggregate_id="i" * 70)["aggregate_id"] == "i" * 70
    with pytest.raises(ValueError, match="agregate_id"):
        Outbox(max_lengths={"agregate_id": 70})


def test_the_ids_are_made_from_the_event() -> None:
    outbox = Outbox(event_ids=lambda event: f"{event.aggregate_id}/{event.event_type}")
    assert row(outbox)["event_id"] == "A-1/OrderPaid"
    with pytest.raises(EventRefused, match="event_id has"):
        row(Outbox(event_ids=lambda event: "x" * 65))


def test_names_are_quoted() -> None:
    connection = StubConnection()
    Outbox("shop.odd`na%me").add(connection, **ORDER)
    assert connection.ran[0][0].startswith("INSERT INTO `shop`.`odd``na%%me` (")


# -- the connection -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "inside"), [(3, True), (1, True), (0, True), (2, False)])
def test_the_transaction_counts_not_the_autocommit_flag(status: int, inside: bool) -> None:
    connection = StubConnection(status)
    if not inside:
        with pytest.raises(NotInTransaction, match=r"connection\.begin\(\)"):
            Outbox().add(connection, **ORDER)
    else:
        connection.execute = lambda *ran: (connection.ran.append(ran), connection.begin())  # type: ignore[method-assign, assignment]
        Outbox().add(connection, **ORDER)
    assert bool(connection.ran) == inside


def test_what_was_committed_by_itself_is_told() -> None:
    """The flags of the answer to the INSERT are the truth: an error before it may have ended the transaction."""
    connection = StubConnection(3)

    def execute(statement: str, values: Any) -> None:
        connection.server_status = 2

    connection.execute = execute  # type: ignore[method-assign]
    with pytest.raises(NotInTransaction, match="Event e1 was committed by itself"):
        Outbox().add(connection, **ORDER, event_id="e1")
    connection.server_status = 3
    with pytest.raises(NotInTransaction, match="Event e1 and 1 more"):
        Outbox().add_many(connection, [NewEvent(**ORDER, event_id="e1"), NewEvent(**ORDER)])


@pytest.mark.parametrize(
    "wrong",
    [
        object(),
        None,
        "mysql://",
        sqlalchemy.create_engine("mysql+pymysql://u@h/d"),
        async_scoped_session(async_sessionmaker(), scopefunc=lambda: 1),
        aiomysql.Connection.__new__(aiomysql.Connection),
    ],
    ids=lambda wrong: type(wrong).__name__,
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_no_connection_is_told(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"(no connection|asynchronous)\. Pass"):
        Outbox().add(wrong, **ORDER)


def test_another_database_is_told() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(TypeError, match="connection to sqlite"):
        Outbox().add(connection, **ORDER)
    engine.dispose()


def test_an_async_session_gives_something_to_await() -> None:
    """Checks come at once, the database is asked when the result is awaited."""
    session = AsyncSession()
    with pytest.raises(EventRefused):
        Outbox().add(session, **{**ORDER, "aggregate_id": ""})
    waiting = Outbox().add(session, **ORDER)
    assert asyncio.iscoroutine(waiting)
    waiting.close()


def test_the_hint_is_in_the_text() -> None:
    error = NotInTransaction("what", hint="how")
    assert str(error) == "what. how"
    assert isinstance(error, ApplicationError) and isinstance(error, CdcOutboxError)
    assert str(EventRefused("what")) == "what"


# -- the payload --------------------------------------------------------------------------------------------------


@dataclass
class Line:
    sku: str
    price: Decimal
    parts: tuple[int, ...] = ()


class Customer(pydantic.BaseModel):
    id: UUID
    since: date
    lines: list[Line] = []


NUMBER = UUID("0193a4b2-0000-7000-8000-000000000001")


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({"a": 1, "b": [True, None, 1.5, "Zoë 📦"]}, '{"a": 1, "b": [true, null, 1.5, "Zoë 📦"]}'),
        ([], "[]"),
        (7, "7"),
        (False, "false"),
        ('{"a":1,\n"b":2}', '{"a": 1, "b": 2}'),
        (b'"text"', '"text"'),
        ("null", "null"),
        ({"at": datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC)}, '{"at": "2026-01-31T12:00:00.000005+00:00"}'),
        ([date(2026, 1, 31), time(12, 30)], '["2026-01-31", "12:30:00"]'),
        ({"price": Decimal("12.50")}, '{"price": "12.50"}'),
        ([NUMBER, State.PAID, Level.HIGH, Kind.ORDER], f'["{NUMBER}", "paid", 3, "order"]'),
        (Line("x", Decimal(1), (1, 2)), '{"sku": "x", "price": "1", "parts": [1, 2]}'),
        ({"lines": [Line("x", Decimal(1))]}, '{"lines": [{"sku": "x", "price": "1", "parts": []}]}'),
        (Customer(id=NUMBER, since=date(2026, 1, 1)), f'{{"id": "{NUMBER}", "since": "2026-01-01", "lines": []}}'),
        ({1: "int key"}, '{"1": "int key"}'),
        (MappingProxyType({"a": 1}), '{"a": 1}'),
        ("[" * 100 + "]" * 100, "[" * 100 + "]" * 100),
        ([[]] * 200, str([[]] * 200)),
    ],
)
def test_a_payload_as_json(payload: object, text: str) -> None:
    assert json_text(payload, 10_000) == text


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ("hello", "A str is taken as JSON text"),
        ("", "not JSON"),
        ("NaN", "NaN is no JSON"),
        ("1e400", "not JSON"),
        ('"\\ud800"', "surrogate"),
        ({"a": "\ud800"}, "surrogate"),
        (b"\xff", "not JSON"),
        ({"a": float("inf")}, "not JSON"),
        ({"a": {1, 2}}, "a set cannot be written"),
        ({"a": b"raw"}, "a bytes cannot be written"),
        ({(1, 2): "x"}, "keys must be"),
        (Line, "a type cannot be written"),
        ("[" * 101 + "]" * 101, "MySQL takes 100 levels"),
        ("[" * 100_000, "nested too deeply"),
        ("x" * 20, "not JSON"),
    ],
)
def test_what_is_no_json_is_refused(payload: object, told: str) -> None:
    with pytest.raises(EventRefused, match=told):
        json_text(payload, 1_000_000)


def test_a_payload_that_holds_itself() -> None:
    payload: dict[str, Any] = {}
    payload["self"] = payload
    with pytest.raises(EventRefused, match=r"[Cc]ircular|deeply"):
        json_text(payload, 1000)


def test_the_size_limit_counts_bytes_as_mysql_prints_them() -> None:
    assert json_text('{"a":"ë"}', 11) == '{"a": "ë"}'
    with pytest.raises(EventRefused, match=r"has 11 bytes as JSON, more than max_payload_bytes=10.*max_record_bytes"):
        json_text('{"a":"ë"}', 10)
    with pytest.raises(EventRefused, match="max_payload_bytes=900,000"):
        row(Outbox(), payload={"a": "x" * 900_000})
