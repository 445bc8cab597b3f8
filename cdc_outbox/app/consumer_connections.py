"""The consumer's connections, DB-API or SQLAlchemy, behind one small interface, and what MySQL's errors mean to it.

Nothing is imported for it: what a source is shows by its methods. Transactions begin with START TRANSACTION whatever
the connection's autocommit says.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

Row = tuple[Any, ...]

AGAIN = frozenset({1205, 1213})
"""Lock wait timeout and deadlock: the transaction as a whole may simply be tried again."""

AWAY = frozenset(
    {
        1040,  # too many connections
        1053,  # server shutdown in progress
        1079,  # connection killed by a shutdown
        1152,  # aborted connection
        *range(1158, 1162),  # network errors
        1290,  # read-only: a failover is under way
        1792,  # read-only transaction
        1836,  # read-only mode
        1927,  # connection killed (MariaDB)
        2002,
        2003,
        2006,
        2013,
        2014,
        2055,
        3169,  # session killed
        4031,  # disconnected by the server because of inactivity
    }
)
"""The server or the connection is gone, or cannot be written to for now."""

_DRIVERS = frozenset(
    {"pymysql", "MySQLdb", "mysql", "mariadb", "sqlalchemy", "asyncmy", "aiomysql", "_mysql_connector"}
)
MISSING = frozenset({1044, 1049, 1054, 1142, 1143, 1146})
"""No such table or column, or no right to it."""


def error_code(error: BaseException) -> int:
    """MySQL's number in a driver's error, looked for in what it wraps too; 0 where there is none."""
    seen: BaseException | None = error
    while seen is not None:
        library = type(seen).__module__.partition(".")[0]
        if library in _DRIVERS:
            code = getattr(seen, "errno", None) or (seen.args[0] if seen.args else None)
            if isinstance(code, int) and code > 0:
                return code
            # On a connection that was closed: (0, '') from PyMySQL, -1 from MySQL Connector.
            if library != "sqlalchemy" and type(seen).__name__ in {"InterfaceError", "OperationalError"}:
                return 2006
        seen = getattr(seen, "orig", None) or seen.__cause__
    return 0


def is_again(error: BaseException) -> bool:
    return error_code(error) in AGAIN


def is_away(error: BaseException) -> bool:
    return error_code(error) in AWAY


class Work(Protocol):
    """One connection. given: what a handler gets."""

    given: Any
    reusable: bool

    def begin(self) -> None: ...

    def execute(self, sql: str, args: Sequence[object] = ()) -> int:
        """Rows that the driver counted."""

    def rows(self, sql: str, args: Sequence[object] = ()) -> list[Row]: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def close(self) -> None: ...


class DbApiWork:
    """A PEP 249 connection of a driver with `%s` marks: PyMySQL, mysqlclient, MySQL Connector. Not the async ones."""

    reusable = True

    def __init__(self, connection: Any) -> None:
        self.given = connection

    def begin(self) -> None:
        self.execute("START TRANSACTION")

    def execute(self, sql: str, args: Sequence[object] = ()) -> int:
        with contextlib.closing(self.given.cursor()) as cursor:
            cursor.execute(sql, tuple(args) if args else None)
            return int(cursor.rowcount)

    def rows(self, sql: str, args: Sequence[object] = ()) -> list[Row]:
        with contextlib.closing(self.given.cursor()) as cursor:
            cursor.execute(sql, tuple(args) if args else None)
            # Connections may be set to give dictionaries, in the order of the columns.
            return [tuple(row.values()) if isinstance(row, Mapping) else tuple(row) for row in cursor.fetchall()]

    def commit(self) -> None:
        self.given.commit()

    def rollback(self) -> None:
        self.given.rollback()

    def close(self) -> None:
        self.given.close()


class AlchemyWork:
    """A SQLAlchemy 2 Connection or Session."""

    reusable = False  # its engine keeps connections; a session must not keep objects from one event to the next

    def __init__(self, given: Any) -> None:
        self.given = given
        self._is_session = not hasattr(given, "exec_driver_sql")

    def _run(self, sql: str, args: Sequence[object]) -> Any:
        connection = self.given.connection() if self._is_session else self.given
        return connection.exec_driver_sql(sql, tuple(args) if args else None)

    def begin(self) -> None:
        self._run("START TRANSACTION", ())

    def execute(self, sql: str, args: Sequence[object] = ()) -> int:
        return int(self._run(sql, args).rowcount)

    def rows(self, sql: str, args: Sequence[object] = ()) -> list[Row]:
        return [tuple(row) for row in self._run(sql, args)]

    def commit(self) -> None:
        self.given.commit()

    def rollback(self) -> None:
        self.given.rollback()

    def close(self) -> None:
        self.given.close()


def work_on(connection: Any) -> Work:
    """The interface over an open DB-API connection, SQLAlchemy Connection or Session. Raises TypeError for others."""
    if hasattr(connection, "exec_driver_sql") or (hasattr(connection, "flush") and hasattr(connection, "connection")):
        return AlchemyWork(connection)
    if hasattr(connection, "cursor") and hasattr(connection, "commit"):
        return DbApiWork(connection)
    raise TypeError(
        f"{type(connection).__name__} is no connection that is known here: give a DB-API connection, a SQLAlchemy"
        " Connection or a SQLAlchemy Session"
    )


class Connections:
    """Opens connections as they are needed and keeps those that may be used again. Safe for many threads.

    source: a callable that opens a DB-API connection, a sessionmaker, or a SQLAlchemy Engine.
    """

    def __init__(self, source: Any) -> None:
        if hasattr(source, "raw_connection"):
            self._open: Callable[[], Any] = source.connect
        elif callable(source):
            self._open = source
        else:
            raise TypeError(
                f"connect must be a function that opens a connection, a sessionmaker or an Engine, not"
                f" {type(source).__name__}"
            )
        self._idle: deque[Work] = deque()

    @contextlib.contextmanager
    def use(self) -> Iterator[Work]:
        """A connection without an open transaction; the caller leaves none open, but where it raises."""
        try:
            work = self._idle.pop()
        except IndexError:
            work = work_on(self._open())
        try:
            yield work
        except BaseException as error:
            with contextlib.suppress(Exception):
                work.rollback()
            if is_away(error) or not work.reusable:
                _drop(work)
            else:
                self._idle.append(work)
            raise
        if work.reusable:
            self._idle.append(work)
        else:
            _drop(work)

    def forget(self) -> None:
        """Close what is idle: after one connection was found dead the others mostly are, too."""
        with contextlib.suppress(IndexError):
            while True:
                _drop(self._idle.pop())


def _drop(work: Work) -> None:
    with contextlib.suppress(Exception):
        work.close()
