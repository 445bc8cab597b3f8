"""Events → Transactions: which rows are ours, where a transaction ends, what the binlog does not say whole.

Pure: no I/O but the `describe` call-back. Everything except inserts into our tables is skipped unread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import error as StructError
from typing import NoReturn
from zlib import crc32

from cdc_outbox.binlog import events as ev
from cdc_outbox.binlog.barrier import Barriers
from cdc_outbox.binlog.events import GTID, HEADER_SIZE, INTACT, QUERY, TABLE_MAP, TRANSACTION_PAYLOAD, WRITE_ROWS, XID
from cdc_outbox.binlog.gtid_wire import CommitStamp, decode_gtid_event, decode_gtid_set, decode_mariadb_gtid
from cdc_outbox.binlog.layouts import CHECKPOINT_TABLE, Describe, Layout, Layouts
from cdc_outbox.binlog.packets import Piece
from cdc_outbox.binlog.payload import Inflater
from cdc_outbox.binlog.prepared import XA_COMMIT, XA_ROLLBACK, XA_START, PreparedTransactions
from cdc_outbox.errors import BinlogUnreadable, Hold
from cdc_outbox.gtid import GtidRange
from cdc_outbox.model import Event, TableName, Transaction

_UINT32 = 0xFFFFFFFF


class Assembler:
    """Takes the events of a dump in order; `feed` gives the transactions they complete.

    file, offset: where the last complete transaction ended. After a lost connection `restart` is called and the dump
    goes on from there; events of a half-read transaction that were given already are not given again.
    """

    def __init__(
        self,
        tables: Iterable[TableName],
        file: str,
        offset: int,
        *,
        extra_columns: Sequence[str] = (),
        chunk_events: int = 5000,
        chunk_bytes: int = 16 << 20,
        prepared_bytes: int = 16 << 20,
        describe: Describe | None = None,
        first_images: bool = False,
    ) -> None:
        """chunk_events, chunk_bytes: a transaction above one of these is given in parts.

        prepared_bytes: above them all XA transactions that are prepared and not ended are left to the sweep.
        first_images: an insert is what it says, whatever its transaction does to the row afterwards; nothing is left to
        a sweep, which would find no rows.
        """
        self._first_images = first_images
        self.file = file
        self.offset = self._at = offset  # _at also follows the rows of the open transaction
        ours = frozenset(tables)
        self.kept = frozenset((*(table.name for table in ours), CHECKPOINT_TABLE))
        """Names of tables, in whatever database, whose changes are to be fed."""
        self._layouts = Layouts(ours, tuple(extra_columns), describe)
        self._barriers = Barriers(ours)
        self._chunk_events = chunk_events
        self._chunk_bytes = chunk_bytes
        self._done: list[Transaction] = []
        self._given = 0  # events of the half-read transaction that are out already
        self._given_of: object = None
        self._prepared = PreparedTransactions(prepared_bytes)
        self._inflater = Inflater()
        self._inside_transaction = self._events_of_a_transaction()
        self._rare = self._rare_events()
        self.restart()

    def _events_of_a_transaction(self) -> dict[int, Callable[[bytes], None]]:
        return {
            ev.QUERY: self._query,
            ev.TABLE_MAP: self._table_map,
            ev.WRITE_ROWS: self._write_rows,
            ev.XID: self._end,
            ev.XA_PREPARE: self._xa_prepare,
            **dict.fromkeys(ev.ROW_CHANGES, self._row_change),
            **dict.fromkeys(ev.STATEMENT_PARTS, self._statement_part),
            **dict.fromkeys(ev.WITHOUT_ROWS, self._skip),
        }

    def _rare_events(self) -> dict[int, Callable[[bytes], None]]:
        return {
            ev.XA_PREPARE: self._xa_prepare,
            ev.FORMAT_DESCRIPTION: self._format_description,
            ev.PREVIOUS_GTIDS: self._previous_gtids,
            ev.ROTATE: self._rotate,
            ev.STOP: self._step,
            ev.INCIDENT: self._incident,
            ev.MARIADB_GTID: self._mariadb_gtid,
            ev.WRITE_ROWS_V1: self._write_rows_v1,
            **dict.fromkeys(ev.MARIADB_PLACES, self._step),
            **dict.fromkeys(ev.MARIADB_COMPRESSED, self._mariadb_compressed),
            **dict.fromkeys((ev.ANONYMOUS_GTID, ev.GTID_TAGGED), self._gtid),
            **dict.fromkeys(ev.ROW_CHANGES, self._row_change),
            **dict.fromkeys(ev.HEARTBEATS, self._heartbeat),
            **dict.fromkeys(ev.STATEMENT_PARTS, self._statement_part),
            **dict.fromkeys(ev.WITHOUT_ROWS, self._skip),
        }

    def restart(self) -> None:
        """A new dump begins after the last complete transaction."""
        self._checksum_size = ev.CHECKSUM_SIZE  # as asked for; each file's first event says what it has
        self._dump_begins = True
        self._payload: bytes | None = None  # the event that the present one is inside
        self._at = self.offset
        self._forget()

    def _forget(self) -> None:
        """No transaction is open."""
        self._gtid_event: bytes | None = None
        self._stamp: CommitStamp | None = None
        self._in_transaction = False
        self._xid: bytes | None = None  # of an XA transaction
        self._left_out = False  # it is too large to be kept
        self._foreign = False
        self._open: dict[bytes, Layout] = {}  # by table id, which holds until the transaction ends
        self._events: list[Event] = []
        self._events_before = 0  # events of this transaction that are no longer in _events
        self._row_bytes = 0

    def feed(self, batch: Iterable[Piece]) -> Iterator[list[Transaction]]:
        """The transactions that these events complete, stretches without events taken together. A tuple is a Whole.

        In one list, or in several where a compressed event holds many parts of a large transaction.
        Raises BinlogUnreadable with the position, Hold when a half-read transaction does not come again.
        """
        self._done = []
        for event in batch:
            if isinstance(event, tuple):
                self._whole(*event)
                continue
            if (crc32(event) != INTACT or len(event) < HEADER_SIZE) and self._is_damaged(event):
                self._unreadable(event, "an event's checksum is wrong: the file or the connection is damaged")
            kind = event[4]
            if kind == WRITE_ROWS:
                self._write_rows(event)
            elif kind == TABLE_MAP:
                self._table_map(event)
            elif kind == GTID:
                self._gtid(event)
            elif kind == QUERY:
                self._query(event)
            elif kind == XID:
                self._end(event)
            elif kind == TRANSACTION_PAYLOAD:
                yield from self._parts_inside(event)
            else:
                self._rare.get(kind, self._unknown)(event)
        if self._done:
            yield self._handed_out()

    def _handed_out(self) -> list[Transaction]:
        done, self._done = self._done, []
        return done

    def _is_damaged(self, event: bytes) -> bool:
        """Not where checksums are off, which the event that begins a file says for itself: its own is wrong then."""
        if len(event) < HEADER_SIZE:
            return True
        is_first = event[4] == ev.FORMAT_DESCRIPTION
        return (ev.checksum_size(event) if is_first else self._checksum_size) > 0

    # -- inside a transaction ------------------------------------------------------------------------------

    def _gtid(self, event: bytes) -> None:
        if self._in_transaction or self._gtid_event is not None:
            self._unreadable(event, "a transaction begins inside another one")
        self._gtid_event = event

    def _mariadb_gtid(self, event: bytes) -> None:
        """MariaDB's beginning of a transaction; it has no BEGIN and no XA START."""
        self._gtid(event)
        self._stamp = (None, 0, 0)
        try:
            gtid = decode_mariadb_gtid(event)
        except ValueError as error:
            self._unreadable(event, f"a GTID event of MariaDB cannot be understood: {error}")
        self._in_transaction = not gtid.alone
        self._xid = gtid.xid

    def _query(self, event: bytes) -> None:
        statement = ev.query_statement(event, len(event) - self._checksum_size)
        if self._in_transaction:
            if statement == b"COMMIT":
                self._end(event)
            elif statement == b"ROLLBACK":
                self._end(event, discard=True)  # written when a table without transactions was changed, too
            elif statement.startswith(b"ROLLBACK TO"):
                _mark_incomplete(self._events)
            elif not statement.startswith((b"SAVEPOINT", b"XA END")):
                self._foreign = True
        elif statement == b"BEGIN":
            self._in_transaction = True
        elif statement.startswith(XA_START):
            self._in_transaction = True
            self._xid = statement.removeprefix(XA_START)
        else:
            self._statement(event, statement)

    def _statement(self, event: bytes, statement: bytes) -> None:
        """A statement that is a transaction of its own: DDL, or the second phase of an XA transaction."""
        if statement in (b"COMMIT", b"ROLLBACK"):
            self._inside(event)
        barrier = None
        if statement.startswith(XA_COMMIT):
            self._events = self._prepared.take(statement.removeprefix(XA_COMMIT))
            for one in self._events:
                one.committed_at = self._committed_at(event)
            self._split_kept()
        elif statement.startswith(XA_ROLLBACK):
            self._prepared.take(statement.removeprefix(XA_ROLLBACK))
        else:
            self._foreign = True
            barrier = self._barriers.find(ev.query_database(event), statement)
        if barrier is not None:
            self._layouts.forget()
        self._in_transaction = True
        self._end(event, barrier=barrier)

    def _table_map(self, event: bytes) -> None:
        if not self._in_transaction:
            self._inside(event)
        body = event[25 : len(event) - self._checksum_size]
        layout = self._layouts.get(body)
        if layout is None:
            try:
                layout = self._layouts.add(body)
            except ValueError as error:
                self._unreadable(event, str(error))
        self._open[event[19:25]] = layout
        if layout.foreign:
            self._foreign = True

    def _write_rows(self, event: bytes) -> None:
        layout = self._layout_of(event)
        if not layout.ours:
            return
        try:
            decoder = layout.decoder or self._layouts.decoder(layout)
            end = len(event) - self._checksum_size
            decoder.read(event, end, self._committed_at(event), self._events.append)
        except ValueError as error:
            self._unreadable(event, f"rows of {layout.table} cannot be decoded: {error}")
        self._row_bytes += len(event)
        if len(self._events) >= self._chunk_events or self._row_bytes >= self._chunk_bytes:
            self._chunk()

    def _write_rows_v1(self, event: bytes) -> None:
        """MariaDB's: as version 2, without the (empty) extra data."""
        self._write_rows(event[: ev.ROWS_V1_HEAD] + ev.NO_EXTRA_DATA + event[ev.ROWS_V1_HEAD :])

    def _mariadb_compressed(self, event: bytes) -> None:
        self._unreadable(event, "a compressed event of MariaDB, which this version cannot read (log_bin_compress = ON)")

    def _row_change(self, event: bytes) -> None:
        """UPDATE or DELETE. A row inserted before in this transaction is no longer what its insert says."""
        layout = self._layout_of(event)
        if layout.ours and not self._first_images:
            _mark_incomplete(one for one in self._events if one.table == layout.table)

    def _layout_of(self, event: bytes) -> Layout:
        layout = self._open.get(event[19:25])
        if layout is None:
            self._inside(event)
        self._at = self._end_of(event)
        return layout

    def _statement_part(self, _: bytes) -> None:
        self._foreign = True

    def _skip(self, _: bytes) -> None:
        """Nothing in it concerns us."""

    def _unknown(self, event: bytes) -> None:
        if not ev.header(event).flags & ev.IGNORABLE:
            self._unreadable(event, f"an event of type {event[4]}, which this version does not know")

    def _incident(self, event: bytes) -> None:
        self._unreadable(event, "an INCIDENT event: the server says that events are missing here")

    def _parts_inside(self, payload: bytes) -> Iterator[list[Transaction]]:
        """A compressed transaction: what is large in it is given out part by part."""
        for _ in self._events_inside(payload):
            if self._done and self._done[-1].end is None:
                yield self._handed_out()

    def _events_inside(self, payload: bytes) -> Iterator[None]:
        """Read a compressed transaction as if its events stood in the payload's place; yields after each of them."""
        outside, self._checksum_size = self._checksum_size, 0
        self._payload = payload
        events = self._inflater.events(payload, len(payload) - outside, self._passes_over)
        while (event := self._next_inside(events)) is not None:
            self._inside_transaction.get(event[4], self._unknown)(event)
            yield
        self._payload = None
        self._checksum_size = outside

    def _next_inside(self, events: Iterator[bytes]) -> bytes | None:
        try:
            return next(events, None)
        except ValueError as error:
            assert self._payload is not None
            self._unreadable(self._payload, f"a compressed transaction cannot be read: {error}")

    def _passes_over(self, table_id: bytes) -> bool:
        """Rows of this table are of no interest."""
        layout = self._open.get(table_id)
        return layout is not None and not layout.ours

    # -- ends ----------------------------------------------------------------------------------------------

    def _end(self, event: bytes, *, discard: bool = False, barrier: str | None = None) -> None:
        if not self._in_transaction:
            self._inside(event)
        if discard:
            self._events.clear()
        self._complete(ev.end_position(self._payload or event), barrier=barrier)

    def _complete(self, end: int, *, last: int = 0, barrier: str | None = None) -> None:
        """The open transaction ends at the position whose low 32 bits are `end`, or with it those up to number `last`.

        An event inside a payload stands nowhere by itself: its payload's end is the transaction's.
        """
        events = self._taken_out() if self._events or self._given else []
        source, number, _ = self._stamp or self._commit_stamp()
        begin = self.offset
        self.offset = self._at = self._widened(end)
        traffic = self.offset - begin if self._foreign else 0
        self._given = 0
        self._forget()
        self._give(events, source, number, traffic, last=last, barrier=barrier)

    def _whole(self, gtid: bytes, last: int, end: int, others: bool, changes: tuple[bytes, ...]) -> None:
        """What `Whole` says."""
        self._gtid(gtid)
        self._in_transaction = True
        self._foreign = others
        for event in changes:
            self._inside_transaction[event[4]](event)
        self._complete(end, last=last)

    def _xa_prepare(self, event: bytes) -> None:
        """Its end, for now or, in one phase, for good. Until it is committed its rows are locked."""
        if self._left_out:
            self._events.clear()
        if ev.is_one_phase(event):
            self._split_kept()
        elif self._xid is not None:
            self._prepared.keep(self._xid, self._events)
            self._events = []
        self._end(event)

    def _split_kept(self) -> None:
        """An XA transaction is committed: what was kept of it is given in parts as others are."""
        size = self._chunk_events
        while len(self._events) > size:
            self._done.append(Transaction(self._events[:size], None))
            del self._events[:size]

    def _chunk(self) -> None:
        """Give out what has come of a large transaction; what changes these rows later is still unread."""
        if self._xid is not None:
            # Only its end says whether it is prepared or committed in one phase. The sweep finds what is too large.
            self._left_out = self._left_out or not self._prepared.fits(len(self._events), self._row_bytes)
            if self._left_out and self._first_images:
                raise self._too_large_to_be_kept()
            if self._left_out:
                self._events.clear()
            return
        events = self._taken_out()
        if not self._first_images:
            _mark_incomplete(events)
        if events:
            self._done.append(Transaction(events, None))
        self._given = max(self._given, self._events_before)
        self._given_of = self._identity()
        self._row_bytes = 0

    def _too_large_to_be_kept(self) -> BinlogUnreadable:
        return BinlogUnreadable(
            f"an XA transaction before {self.file}:{self._at} is too large to be kept until it is committed, and"
            " outbox.rows is transient: there will be no rows to find",
            hint="smaller XA transactions, or outbox.rows: keep;"
            " `cdc-outbox checkpoint set` with a position behind it gives its events up",
        )

    def _taken_out(self) -> list[Event]:
        """The collected events, without those that were given before the connection was lost."""
        if self._given and self._given_of != self._identity():
            raise Hold("the transaction that was half read when MySQL went did not come again", reason="mysql")
        events, self._events = self._events, []
        again = self._given - self._events_before
        self._events_before += len(events)
        return events[again:] if again > 0 else events

    def _identity(self) -> object:
        source, number, _ = self._commit_stamp()
        return (source, number) if source else (self.file, self.offset)

    def _give(
        self,
        events: list[Event],
        source: str | None = None,
        number: int = 0,
        traffic: int = 0,
        *,
        last: int = 0,
        rotated: bool = False,
        barrier: str | None = None,
    ) -> None:
        """All up to where we are is complete. What has no events is joined to a stretch without events.

        number, last: of its first and, unless it is the same, last GTID.
        """
        done = self._done
        end = (self.file, self.offset)
        stretch = done[-1] if done else None
        if events or barrier or stretch is None or stretch.events or stretch.barrier or stretch.end is None:
            gtids = [GtidRange(source, number, last or number)] if source else []
            done.append(Transaction(events, end, gtids, traffic, rotated, barrier))
            return
        stretch.end = end
        stretch.traffic += traffic
        stretch.rotated |= rotated
        if source:
            before = stretch.gtids[-1] if stretch.gtids else None
            if before and before.source == source and before.last + 1 == number:
                stretch.gtids[-1] = GtidRange(source, before.first, last or number)
            else:
                stretch.gtids.append(GtidRange(source, number, last or number))

    def _commit_stamp(self) -> CommitStamp:
        if self._stamp is None:
            event = self._gtid_event
            self._stamp = (None, 0, 0)
            if event is not None:
                try:
                    self._stamp = decode_gtid_event(event)
                except (ValueError, StructError) as error:
                    self._unreadable(event, f"a GTID event cannot be understood: {error}")
        return self._stamp

    def _committed_at(self, event: bytes) -> int:
        _, _, micros = self._stamp or self._commit_stamp()
        return micros // 1000 if micros else int.from_bytes(event[:4], "little") * 1000

    # -- between transactions --------------------------------------------------------------------------------

    def _format_description(self, event: bytes) -> None:
        """A file begins, or a dump in the middle of one."""
        self._checksum_size = ev.checksum_size(event)
        self._dump_begins = False
        if self._in_transaction or self._gtid_event is not None:
            # The server died while it wrote: what has no end was never committed.
            self._given = 0
            self._forget()
        self._step(event)

    def _previous_gtids(self, event: bytes) -> None:
        """All that earlier files hold. We have read that or left it out; it also names GTIDs without events."""
        try:
            gtids = list(decode_gtid_set(event[ev.HEADER_SIZE : len(event) - self._checksum_size]))
        except ValueError as error:
            self._unreadable(event, str(error))
        self._step(event)
        if gtids:
            self._give([])
            self._done[-1].gtids += gtids

    def _step(self, event: bytes) -> None:
        if ev.end_position(event):
            self._move_to(event)
            self._give([])

    def _rotate(self, event: bytes) -> None:
        file, offset = ev.rotate_target(event, len(event) - self._checksum_size)
        if ev.header(event).flags & ev.ARTIFICIAL:
            if self._dump_begins:
                self._go_to(file, offset)
                return
            if file == self.file:
                return  # the real one came before; it did not where the server died
        self._go_to(file, offset)
        self._give([], rotated=True)

    def _heartbeat(self, event: bytes) -> None:
        """Where the server is; it may have passed over much that we asked it to leave out."""
        if self._in_transaction or self._gtid_event is not None:
            return
        file, offset = ev.heartbeat_position(event, len(event) - self._checksum_size)
        if event[4] == ev.HEARTBEAT and file == self.file:
            offset = self._widened(offset)
        if (file, offset) != (self.file, self.offset):
            self._go_to(file, offset)
            self._give([])

    # -- positions -------------------------------------------------------------------------------------------

    def _go_to(self, file: str, offset: int) -> None:
        self.file = file
        self.offset = self._at = offset

    def _move_to(self, event: bytes) -> None:
        self.offset = self._at = self._end_of(event)

    def _end_of(self, event: bytes) -> int:
        """An event inside a payload stands nowhere by itself."""
        return self._widened(ev.end_position(self._payload or event))

    def _widened(self, low: int) -> int:
        """Events give the low 32 bits of their position; a file is longer where one transaction is.

        It is asked for all events with rows, less than 4 GiB apart, so that no wrap is missed.
        """
        return self._at + ((low - self._at) & _UINT32)

    def _inside(self, event: bytes) -> NoReturn:
        self._unreadable(event, "the position that was read from stands inside a transaction")

    def _unreadable(self, event: bytes, what: str) -> NoReturn:
        event = self._payload or event
        end = ev.end_position(event) if len(event) >= HEADER_SIZE else 0
        at = f"{self.file}:{end - len(event)}" if end else f"{self.file}, after {self.offset},"
        source, number, _ = self._commit_stamp()
        transaction = f"transaction {source}:{number}" if source else "this transaction"
        raise BinlogUnreadable(
            f"the binlog cannot be read on at {at} in {transaction}: {what}",
            hint=f"`cdc-outbox checkpoint set` with a position behind {transaction} (this event ends at "
            f"{self.file}:{end}) steps over it; the sweep picks its rows up",
        )


def _mark_incomplete(events: Iterable[Event]) -> None:
    for event in events:
        event.incomplete = True
