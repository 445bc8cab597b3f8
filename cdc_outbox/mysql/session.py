"""MySQL sessions: how we connect, what every session is set to, and what a MySQL error means to the relay."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import CLIENT, ER
from pymysql.err import Error, InternalError, MySQLError, OperationalError, ProgrammingError

from cdc_outbox.errors import CdcOutboxError, Hold, Refused
from cdc_outbox.mysql.flavour import FlavouredConnection

if TYPE_CHECKING:
    from cdc_outbox.config import MySQLSettings

CONNECT_TIMEOUT = 5.0
LOCK_WAIT = 2
"""innodb_lock_wait_timeout in seconds: the application's own locks must not stall the relay for longer."""

DEADLOCK = ER.LOCK_DEADLOCK
LOCK_WAIT_TIMEOUT = ER.LOCK_WAIT_TIMEOUT
_REFUSING = {
    1044: "mysql.database",
    1045: "mysql.user and mysql.password",
    1049: "mysql.database",
    1054: "outbox.columns",
    1142: "the grants",
    1143: "the grants",
    1146: "outbox.tables",
    1227: "the grants",
    1298: "mysql.time_zone",
    1698: "mysql.user and mysql.password",
    3159: "mysql.tls",
}
"""MySQL errors that a person must put right, and what to look at."""


def connect(
    settings: MySQLSettings, *, database: str | None = None, read_timeout: float | None = None
) -> pymysql.Connection[Any]:
    """Open a plain connection (autocommit on, no session settings).

    read_timeout in seconds, None waits for ever. Raises pymysql's errors; `mysql_trouble` says what they mean.
    """
    return FlavouredConnection(
        host=settings.host,
        port=settings.port,
        user=settings.user,
        # PyMySQL would take text for Latin-1. From the environment it may be any bytes.
        password=settings.password.get_secret_value().encode(errors="surrogateescape"),
        database=database,
        charset="utf8mb4",
        autocommit=True,
        connect_timeout=CONNECT_TIMEOUT if read_timeout is None else min(CONNECT_TIMEOUT, read_timeout),
        read_timeout=read_timeout,
        write_timeout=read_timeout,
        client_flag=CLIENT.FOUND_ROWS,
        **_tls(settings),
    )


def _tls(settings: MySQLSettings) -> dict[str, Any]:
    tls = settings.tls
    if tls.mode == "disabled":
        return {"ssl_disabled": True}
    if tls.mode == "preferred" and not (tls.ca or tls.cert):
        return {}
    context = ssl.create_default_context(cafile=tls.ca)
    context.check_hostname = tls.mode == "verify_identity"
    context.verify_mode = ssl.CERT_REQUIRED if tls.mode in {"verify_ca", "verify_identity"} else ssl.CERT_NONE
    if tls.cert:
        context.load_cert_chain(tls.cert, tls.key)
    return {"ssl": context}


class Session:
    """One connection set up for the relay's own statements: READ COMMITTED, short lock waits, small binlog images.

    Used by one thread. `execute` returns matched rows (FOUND_ROWS), not changed ones.
    """

    def __init__(self, settings: MySQLSettings, *, lifetime: float, bare: bool = False) -> None:
        """lifetime: seconds of silence after which the server ends the session, and its locks with it.

        bare: without a default database and a time zone, for an account that may read the binlog and nothing else.
        """
        self.closed = False
        database = None if bare else settings.database
        self._connection = connect(settings, database=database, read_timeout=lifetime)
        self._socket: socket.socket | None = getattr(self._connection, "_sock", None)
        self.server_version = str(self._connection.get_server_info())  # type: ignore[no-untyped-call]
        self.thread_id = int(self._connection.thread_id())  # type: ignore[no-untyped-call]
        try:
            self.execute(f"SET SESSION wait_timeout = {max(1, int(lifetime))}, innodb_lock_wait_timeout = {LOCK_WAIT}")
            self.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            if settings.time_zone and not bare:
                self.execute("SET SESSION time_zone = %s", (settings.time_zone,))
            with contextlib.suppress(MySQLError):
                # Without the privilege (1227) the server's own image stands: more binlog, same meaning.
                self.execute("SET SESSION binlog_row_image = 'MINIMAL'")
        except BaseException:
            self.close()
            raise

    def query(self, sql: str, args: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, args or None)
            return list(cursor.fetchall())

    def row(self, sql: str, args: Sequence[object] = ()) -> tuple[Any, ...] | None:
        rows = self.query(sql, args)
        return rows[0] if rows else None

    def execute(self, sql: str, args: Sequence[object] = ()) -> int:
        """Rows matched by the statement."""
        with self._connection.cursor() as cursor:
            return int(cursor.execute(sql, args or None))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """BEGIN … COMMIT; ROLLBACK on any exception (also after 1205, which leaves the transaction open)."""
        self._connection.begin()
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):
                self._connection.rollback()
            raise
        self._connection.commit()

    def log_whole_rows(self) -> None:
        """For rows that somebody reads from the binlog and nowhere else."""
        with contextlib.suppress(MySQLError):  # without the privilege the server's own image stands
            self.execute("SET SESSION binlog_row_image = 'FULL'")

    def literal(self, value: str) -> str:
        """The value as a quoted SQL literal."""
        if "'" not in value and "\\" not in value:
            return f"'{value}'"
        return str(self._connection.escape(value))

    def ping(self) -> None:
        self.query("SELECT 1")

    def interrupt(self) -> None:
        """Wake whoever waits in this session, from any thread; the session is lost by it."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # The plain socket's method: SSLSocket's own takes the TLS state away under whoever reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        self.closed = True
        with contextlib.suppress(Exception):
            self._connection.close()


def error_code(error: BaseException) -> int:
    """MySQL's error number, 0 where there is none."""
    return error.args[0] if isinstance(error, MySQLError) and error.args and isinstance(error.args[0], int) else 0


def is_retriable(error: BaseException) -> bool:
    """Deadlock or lock wait: the transaction as a whole may simply be tried again."""
    return error_code(error) in {DEADLOCK, LOCK_WAIT_TIMEOUT}


def mysql_trouble(error: BaseException, settings: MySQLSettings) -> CdcOutboxError:
    """What a MySQL error means: Refused (a person must act) or Hold (the server will come back)."""
    code = error_code(error)
    where = f"MySQL at {settings.host}:{settings.port}"
    text = str(error.args[1]) if isinstance(error, MySQLError) and len(error.args) > 1 else str(error)
    if code in _REFUSING:
        return Refused(
            f"{where} refused {settings.user!r}: {text} ({code}); check {_REFUSING[code]}",
            hint="cdc-outbox init --print shows the tables and the grants this user needs",
            reason="mysql_refused",
        )
    if isinstance(error, (OperationalError, InternalError, OSError, Error, ProgrammingError)):
        return Hold(f"{where}: {text}" + (f" ({code})" if code else ""), reason="mysql")
    raise error
