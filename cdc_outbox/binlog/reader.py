"""The reader's thread: dumps the binlog, hands transactions to the relay, comes back after a lost connection.

It goes on after the last transaction read completely, and never gives the same part of the binlog twice.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pymysql

from cdc_outbox.binlog.layouts import Describe
from cdc_outbox.binlog.stream import BinlogStream, DumpFailed
from cdc_outbox.binlog.transactions import Assembler
from cdc_outbox.errors import BinlogLost, BinlogUnreadable, Hold, Refused, Stopped
from cdc_outbox.model import Position, TableName, Transaction

logger = logging.getLogger(__name__)

_FIRST_WAIT = 0.1
_LONGEST_WAIT = 2.0
_GIVE_UP_AFTER = 10.0
"""Seconds without a working dump after which the relay holds."""

_WORKS_AFTER = 1.0
"""Seconds a new dump must have lived, without events of ours, to count as working."""

_FILE_LIMIT = 1 << 32
_CANNOT_READ_BINLOG = 1236
_MARIADB_SAME_SERVER_ID = 4052
_MISSING_GRANTS = {1044, 1142, 1227}
_MORE_GTIDS = "more gtids"
_LOST_BINLOG = ("purged", "could not find first log file", _MORE_GTIDS, "position > file size", "impossible position")
_NOT_BY_GTID = "auto_position"
"""In what a server says that has transactions without GTIDs, or might get some: it is not asked by set any more."""

_NO_BINLOG = "binary log is not open"
_SAME_SERVER_ID = "same server_uuid/server_id"

Sink = Callable[[list[Transaction]], None]
Connect = Callable[[], "pymysql.Connection[Any]"]
Admit = Callable[["pymysql.Connection[Any]", Position], None]


class BinlogReader:
    """Reads from `start` on and feeds `sink`, in the thread that calls `run`."""

    def __init__(
        self,
        connect: Connect,
        tables: Sequence[TableName],
        start: Position,
        sink: Sink,
        *,
        server_id: int,
        server_uuid: str,
        extra_columns: Sequence[str] = (),
        heartbeat: float = 5.0,
        chunk_events: int = 5000,
        chunk_bytes: int = 16 << 20,
        on_connect: Callable[[], None] | None = None,
        describe: Describe | None = None,
        admit: Admit | None = None,
        first_images: bool = False,
    ) -> None:
        """connect: opens a connection, raising pymysql's errors or our own.

        start      after which transaction to begin; its GTID set, where it has one, else file and offset
        sink       takes the transactions that one read completed; may block; Stopped ends `run`
        server_id, server_uuid  what we call ourselves, and the server that `start` belongs to
        heartbeat  seconds; a server silent for three of them is taken for dead
        chunk_events, chunk_bytes  larger transactions are handed over in parts
        on_connect called after each dump command that was accepted by the socket
        first_images  an insert is what it says, whatever its transaction does to the row afterwards
        describe   column names of a table as they are now, for servers with binlog_row_metadata=MINIMAL
        admit      for a replica in the place of the server that `start` belongs to, any that has its transactions:
                   says, before each dump, whether this one can be read from the position: raises Hold while it cannot.
                   It is waited for without end, see `trouble`
        """
        self._connect = connect
        self._sink = sink
        self._server_id = server_id
        self._server_uuid = server_uuid
        self._heartbeat = heartbeat
        self._on_connect = on_connect
        self._assembler = Assembler(
            tables,
            start.file,
            start.offset,
            extra_columns=extra_columns,
            chunk_events=chunk_events,
            chunk_bytes=chunk_bytes,
            describe=self._described if describe is not None else None,
            first_images=first_images,
        )
        self._describe = describe
        self._lock = threading.Lock()  # guards the position, which other threads read
        self._position = start.copy()
        self._stop = threading.Event()
        self._stream: BinlogStream | None = None
        self._dumped = ""
        self._admit = admit
        self._outage = _Outage(endless=admit is not None)

    @property
    def position(self) -> Position:
        """After the last transaction read completely. Usable from any thread."""
        with self._lock:
            return self._position.copy()

    @property
    def trouble(self) -> str | None:
        """Why a replica cannot be read for longer than an ordinary reconnect takes. Usable from any thread."""
        return self._outage.trouble

    @property
    def dumped(self) -> str:
        """server_uuid of the server that is read now, empty while none is. Usable from any thread."""
        return self._dumped if self._stream is not None else ""

    def request_stop(self) -> None:
        """From any thread: `run` returns soon, also when it waits for the server."""
        self._stop.set()
        self.close_dump()

    def close_dump(self) -> None:
        """From any thread: end the present connection; reading goes on with another one."""
        stream = self._stream
        if stream is not None:
            stream.interrupt()

    def run(self) -> None:
        """Read until asked to stop.

        Raises BinlogUnreadable, BinlogLost, Refused (another replica has our server_id, a grant is missing), and
        Hold(reason="mysql") when the server stays away or is another one now.
        """
        try:
            while not self._stop.is_set():
                self._read_one_dump()
        except Stopped:
            return

    def _read_one_dump(self) -> None:
        """Connect and read until the connection is lost, or until asked to stop."""
        try:
            stream = self._open()
            try:
                self._stream = stream
                if not self._stop.is_set():  # it may have been set before there was a stream to interrupt
                    self._follow(stream)
            finally:
                self._stream = None
                stream.close()
        except _Lost as error:
            if not self._stop.is_set():
                self._stop.wait(self._outage.wait_after(str(error)))

    def _open(self) -> BinlogStream:
        with contextlib.ExitStack() as undo:
            try:
                connection = self._connect()
                undo.callback(_close, connection)
                position = self.position
                if self._admit is not None:
                    self._admit(connection, position)
                uuid = _server_uuid(connection)
            except (pymysql.MySQLError, OSError, Hold) as error:
                raise _Lost(str(error)) from error
            self._dumped = uuid
            if self._admit is None and uuid != self._server_uuid:
                what = f"MySQL {uuid} answers where {self._server_uuid} was: it is another server now"
                raise Hold(what, reason="mysql")
            if position.gtid_set is None and position.offset >= _FILE_LIMIT:
                raise BinlogUnreadable(
                    f"file and offset cannot name {position}: offsets end at 4 GiB",
                    hint="`cdc-outbox checkpoint set` with the beginning of the next file, its name and :4; with "
                    "gtid_mode=ON this cannot happen",
                )
            try:
                stream = BinlogStream(
                    connection, server_id=self._server_id, heartbeat=self._heartbeat, kept=self._assembler.kept
                )
                stream.start(position)
            except (pymysql.MySQLError, OSError) as error:
                raise _Lost(str(error)) from error
            undo.pop_all()
        return stream

    def _follow(self, stream: BinlogStream) -> None:
        """Feed the sink until the connection is lost, which raises _Lost."""
        self._assembler.restart()
        if self._on_connect is not None:
            self._on_connect()
        begun = time.monotonic()
        while True:
            try:
                events = stream.read()
            except DumpFailed as error:
                raise self._meaning(error) from error
            except (EOFError, OSError) as error:
                raise _Lost(str(error) or type(error).__name__) from error
            if self._outage.lasts and time.monotonic() - begun > _WORKS_AFTER:
                self._outage.end()
            for transactions in self._assembler.feed(events):
                if self._outage.lasts and any(t.events for t in transactions):
                    self._outage.end()
                self._advance(transactions)
                self._sink(transactions)

    def _advance(self, transactions: list[Transaction]) -> None:
        with self._lock:
            self._position = self._position.past(transactions)

    def _described(self, table: TableName) -> list[str]:
        assert self._describe is not None
        try:
            return self._describe(table)
        except (pymysql.MySQLError, OSError) as error:
            raise Hold(f"the columns of {table} cannot be looked up: {error}", reason="mysql") from error

    def _meaning(self, error: DumpFailed) -> Exception:
        """What an error packet in place of events says. Source: rpl_binlog_sender.cc."""
        text = error.text.lower()
        said = f"{error.text} ({error.code})"
        if error.code in _MISSING_GRANTS and self._admit is None:
            return Refused(
                f"MySQL does not let us read the binlog: {said}",
                hint="GRANT REPLICATION SLAVE ON *.* TO <mysql.user>",
            )
        # Of a replica: said better by `admit`, or mended by another one in its place.
        waits = self._admit is not None and any(sign in text for sign in (_MORE_GTIDS, _NOT_BY_GTID, _NO_BINLOG))
        if waits or error.code not in {_CANNOT_READ_BINLOG, _MARIADB_SAME_SERVER_ID}:
            return _Lost(said)
        if _SAME_SERVER_ID in text:
            return Refused(
                f"another replica reads the binlog with our server_id {self._server_id}: {said}",
                hint="give each its own mysql.server_id, or set it to null",
            )
        if _NOT_BY_GTID in text:
            return BinlogLost(f"the position is a GTID set, and gtid_mode is no longer ON: {said}")
        if any(sign in text for sign in _LOST_BINLOG):
            return BinlogLost(f"the binlog after {self.position} is no longer on the server: {said}")
        return BinlogUnreadable(
            f"the server cannot send the binlog after {self.position}: {said}",
            hint="`cdc-outbox checkpoint set` with a position that it has; the sweep picks up what lies between",
        )


class _Lost(Exception):
    """The connection is gone; what it brought so far counts."""


class _Outage:
    """Time without a working dump: how long to wait, when to give up, and one line at each end of it."""

    def __init__(self, *, endless: bool) -> None:
        self._endless = endless
        self._since: float | None = None
        self._next_wait = _FIRST_WAIT
        self.trouble: str | None = None

    @property
    def lasts(self) -> bool:
        return self._since is not None

    def wait_after(self, reason: str) -> float:
        """Seconds to wait after this failure. Raises Hold when it has lasted too long, unless it may last for ever."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            logger.warning("%s", f"the binlog connection is lost, reconnecting: {reason}", extra=_LOST_EVENT)
        elif now - self._since > _GIVE_UP_AFTER and self._endless:
            self.trouble = reason
        elif now - self._since > _GIVE_UP_AFTER:
            raise Hold(f"the binlog cannot be read for {now - self._since:.0f} s: {reason}", reason="mysql")
        wait, self._next_wait = self._next_wait, min(2 * self._next_wait, _LONGEST_WAIT)
        return wait

    def end(self) -> None:
        if self._since is not None:
            lasted = time.monotonic() - self._since
            logger.info("%s", f"the binlog is read again after {lasted:.1f} s", extra=_RECOVERED_EVENT)
        self._since = self.trouble = None
        self._next_wait = _FIRST_WAIT


_LOST_EVENT = {"event": "binlog_connection_lost"}
_RECOVERED_EVENT = {"event": "binlog_connection_recovered"}


def _close(connection: pymysql.Connection[Any]) -> None:
    with contextlib.suppress(pymysql.MySQLError, OSError):
        connection.close()


def _server_uuid(connection: pymysql.Connection[Any]) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@server_uuid")
        row = cursor.fetchone()
    return str(row[0]) if row else ""
