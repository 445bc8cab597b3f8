"""Whose connection it is, whether it is in a transaction, how to run a statement on it. Never begins or ends one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cdc_outbox.errors import ApplicationError, NotInTransaction

_IN_TRANS, _AUTOCOMMIT = 1, 2
"""Status flags of the protocol: https://dev.mysql.com/doc/dev/mysql-server/latest/mysql__com_8h.html"""
_TRANSACTION_IN_PROGRESS = 1568
"""ER_CANT_CHANGE_TX_CHARACTERISTICS"""

_Kind = Literal["async", "session", "connection", "pooled", "django", "async driver", "no connection", "driver"]


class WrongConnection(ApplicationError, TypeError):
    """What was given is nothing that a statement could be run on."""


@dataclass(slots=True)
class Target:
    """Where a statement will run.

    driver: the DB-API connection at the bottom. execute: runs a statement on what the caller gave. cursor: makes a
    cursor on it. atomic: the framework says that a transaction is open. how: what to do to begin one.
    """

    driver: Any
    execute: Callable[[str, Sequence[Any]], Any]
    cursor: Callable[[], Any]
    how: str
    atomic: bool = False


def is_async(given: object) -> bool:
    """True for SQLAlchemy's AsyncSession and AsyncConnection."""
    return _kind(type(given)) == "async"


def target(given: Any) -> Target:
    """What the caller gave, looked through down to the driver. Raises WrongConnection, NotInTransaction."""
    kind = _kind(type(given))
    if kind == "session":
        return _session(given)
    if kind == "connection":
        return _connection(given)
    if kind == "django" and hasattr(given, "ensure_connection"):
        return _django(given)
    if kind == "pooled":
        return _driver(given.dbapi_connection)
    if kind == "driver" and hasattr(given, "cursor"):
        return _driver(given)
    name = f"{type(given).__module__}.{type(given).__qualname__}"
    if kind == "async driver":
        raise WrongConnection(
            f"{name} is asynchronous", hint="Pass an AsyncSession or AsyncConnection of SQLAlchemy and await the result"
        )
    raise WrongConnection(
        f"{name} is no connection",
        hint="Pass the DB-API connection, SQLAlchemy Session or Connection, or Django connection of your transaction",
    )


def require_transaction(place: Target) -> None:
    """Raise NotInTransaction unless what is written now will be committed together with the caller's changes.

    With autocommit off, the statement that is about to run begins a transaction where none is open: that is inside one.
    """
    if place.atomic or _known_state(place.driver) or _autocommit(place.driver) is False:
        return
    if _known_state(place.driver) is None and _server_says(place):
        return
    raise NotInTransaction(
        "The event was not written: no transaction is open, so it would be committed at once, whatever becomes of the"
        " change that it tells of",
        hint=place.how,
    )


def require_still_open(place: Target, event_ids: Sequence[str]) -> None:
    """After the write, by the flags of the server's answer. Raises NotInTransaction when it was committed by itself.

    A driver learns nothing of a transaction's end from an error (a deadlock rolls back): what it knew before was old.
    """
    if _known_state(place.driver) is False:
        raise NotInTransaction(
            f"Event {event_ids[0]}{f' and {len(event_ids) - 1} more' if event_ids[1:] else ''} was committed by itself:"
            " the transaction had been ended before, most likely rolled back by a deadlock or another error",
            hint="Do not go on in a transaction after such an error: roll back and run it all again",
        )


# -- what the driver and the server know --------------------------------------------------------------------------


def _known_state(driver: Any) -> bool | None:
    """Whether a transaction is open, by the server's last answer; None: this driver does not tell."""
    status = getattr(driver, "server_status", None)  # PyMySQL, aiomysql, asyncmy
    if isinstance(status, int):
        return bool(status & _IN_TRANS)
    told = getattr(driver, "in_transaction", None)  # mysql-connector-python
    return told if isinstance(told, bool) else None


def _autocommit(driver: Any) -> bool | None:
    """Whether a statement outside a transaction is one by itself; None: the driver does not tell."""
    status = getattr(driver, "server_status", None)
    if isinstance(status, int):
        return bool(status & _AUTOCOMMIT)
    if callable(ask := getattr(driver, "get_autocommit", None)):  # mysqlclient
        return bool(ask())
    told = getattr(driver, "autocommit", None)  # mysql-connector-python asks the server
    return told if isinstance(told, bool) else None


def _server_says(place: Target) -> bool:
    """Ask the server, for drivers that do not show its status flags (mysqlclient).

    MySQL has no variable for it, but refuses to change the next transaction's isolation while one is open; the value
    that is set is the one that holds already.
    """
    cursor = place.cursor()
    try:
        cursor.execute("SELECT @@autocommit, VERSION()")
        autocommit, version = cursor.fetchone()
        if not int(autocommit):
            return True
        if "mariadb" in str(version).lower():
            cursor.execute("SELECT @@in_transaction")
            return bool(cursor.fetchone()[0])
        try:
            cursor.execute("SET @@transaction_isolation = @@SESSION.transaction_isolation")
        except Exception as error:  # each driver has classes of its own
            if error_number(error) == _TRANSACTION_IN_PROGRESS:
                return True
            raise
        return False
    finally:
        cursor.close()


def error_number(error: BaseException) -> int | None:
    """MySQL's number of a driver's error; None where it has none."""
    error = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's
    number = getattr(error, "errno", None) or (error.args[0] if error.args else None)
    return number if isinstance(number, int) else None


# -- what was given -----------------------------------------------------------------------------------------------


_kinds: dict[type, _Kind] = {}


def _kind(given: type) -> _Kind:
    if (known := _kinds.get(given)) is None:
        known = _kinds[given] = _look_up_kind(given)
    return known


def _look_up_kind(given: type) -> _Kind:
    """By the names of its classes' modules, so that no library is imported for it."""
    modules = [base.__module__ for base in given.__mro__]
    libraries = {module.partition(".")[0] for module in modules}
    if "sqlalchemy" in libraries:
        if "sqlalchemy.ext.asyncio.scoping" in modules:
            return "async driver"  # async_scoped_session: calling it gives the AsyncSession
        found: dict[str, _Kind] = {
            "run_sync": "async",
            "exec_driver_sql": "connection",
            "get_bind": "session",
            "dbapi_connection": "pooled",
        }
        return next((kind for name, kind in found.items() if hasattr(given, name)), "no connection")
    if "django" in libraries:
        return "django"
    if libraries & {"aiomysql", "asyncmy"} or any(module.startswith("mysql.connector.aio") for module in modules):
        return "async driver"
    return "driver"


_BEGIN_SQLALCHEMY = "Write inside `with session.begin():` or before session.commit(), on an engine without AUTOCOMMIT"


def _session(session: Any) -> Target:
    if not hasattr(session, "in_transaction"):
        session = session()  # a scoped_session, which gives the Session of this scope
    if not session.in_transaction() and getattr(session, "autobegin", True) is False:
        raise NotInTransaction(
            "The event was not written: this Session has autobegin=False, and no transaction was begun",
            hint=_BEGIN_SQLALCHEMY,
        )
    return _connection(session.connection())


def _connection(connection: Any) -> Target:
    if connection.dialect.name not in {"mysql", "mariadb"}:
        raise WrongConnection(f"this is a connection to {connection.dialect.name}", hint="The outbox is a MySQL table")
    pooled = connection.connection
    return Target(pooled.driver_connection, connection.exec_driver_sql, pooled.cursor, _BEGIN_SQLALCHEMY)


def _django(connection: Any) -> Target:
    connection.ensure_connection()

    def execute(statement: str, values: Sequence[Any]) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement, values)

    return Target(
        connection.connection,
        execute,
        connection.cursor,
        "Write inside `with transaction.atomic():`, with the connection of the same database",
        atomic=connection.in_atomic_block,
    )


def _driver(connection: Any) -> Target:
    def execute(statement: str, values: Sequence[Any]) -> None:
        cursor = connection.cursor()
        try:
            cursor.execute(statement, values)
        finally:
            cursor.close()

    begin = "begin" if hasattr(connection, "begin") else "start_transaction"
    call = f"connection.{begin}()" if hasattr(connection, begin) else "START TRANSACTION"
    return Target(
        connection,
        execute,
        connection.cursor,
        f"Begin one with {call}, change your tables, add the event, commit; or connect with autocommit off",
    )
