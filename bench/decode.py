"""What reading the binlog costs in CPU, with the pure decoder and with the compiled one, and where it goes."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from bench.backlog import Backlog, fill
from bench.drain import Say
from bench.failure import BenchFailed
from bench.servers import Servers
from bench.site import site
from cdc_outbox.binlog.accelerator import PURE, Decoder, decoder
from cdc_outbox.binlog.decoder import RowDecoder
from cdc_outbox.binlog.events import CHECKSUM_SIZE, TABLE_MAP, WRITE_ROWS
from cdc_outbox.binlog.packets import LARGEST_PACKET, Piece
from cdc_outbox.binlog.stream import BinlogStream
from cdc_outbox.binlog.table_map import TableMap, parse_table_map, table_name
from cdc_outbox.binlog.transactions import Assembler
from cdc_outbox.errors import BinlogUnreadable
from cdc_outbox.model import Event, Position, TableName

ROUNDS = 15
"""Of each measurement; the best counts, so that other load on the machine does not."""

QUICK_FLOOR = 1.3
"""The least that the compiled side must be, as a multiple of the pure one, in a quick run on any machine."""

_SERVER_ID = 2_000_000_011
_BODY = 25  # header and table id


@dataclass(frozen=True)
class Decode:
    """One side. Bytes an event, and CPU in µs an event: socket; cut, rows (without JSON), JSON and others of what
    `whole` is; another: all of it where the same transactions are another table's.
    """

    kind: str
    events: int
    event_bytes: float
    json_bytes: float
    socket: float
    cut: float
    rows: float
    json: float
    whole: float
    another: float

    @property
    def rest(self) -> float:
        """Headers, GTIDs, table maps, transactions, positions; in pure Python the checksums, too."""
        return self.whole - self.cut - self.rows - self.json


def ratio(sides: Sequence[Decode]) -> float | None:
    """How many times the pure decoder's CPU is the compiled one's."""
    whole = {side.kind: side.whole for side in sides}
    return whole["pure"] / whole["compiled"] if len(whole) == 2 else None


@dataclass
class _Recording:
    """A part of the binlog, as the reader gets it: what one read from the socket brought, after the other."""

    table: TableName
    start: Position
    batches: list[list[bytes]]
    socket_cpu: float
    """Seconds that BinlogStream.read took."""

    @property
    def events(self) -> Iterator[bytes]:
        return (event for batch in self.batches for event in batch)

    def packets(self) -> list[bytes]:
        """The bytes that brought each batch."""
        return [b"".join((len(event) + 1).to_bytes(3, "little") + b"\0\0" + event for event in b) for b in self.batches]


def measure_decoding(servers: Servers, events: int, say: Say) -> list[Decode]:
    """One Decode a side: pure, and compiled where it is installed. Raises BenchFailed."""
    with site(servers, "decode") as place:
        table = TableName(place.database, "outbox_event")
        start = _server_position(servers)
        say(f"decode: writing {events:,} events")
        fill(place, Backlog(events))
        recording = _record(servers, table, start)
    say("decode: reading them again and again")
    sides = []
    for pure in (True, False):
        with _forced(pure):
            if decoder().kind == ("pure" if pure else "compiled"):
                sides.append(_measure(recording, events))
            else:
                say(f"decode: only pure Python: {decoder().why}")
    return sides


def _server_position(servers: Servers) -> Position:
    with servers.connect() as session, session.cursor() as cursor:
        cursor.execute("SHOW BINARY LOG STATUS")
        found = cursor.fetchone()
    if not found:
        raise BenchFailed("MySQL writes no binlog")
    return Position(str(found[0]), int(found[1]))


def _record(servers: Servers, table: TableName, start: Position) -> _Recording:
    end = _server_position(servers)
    follower = _assembler(table, start)
    recording = _Recording(table, start, [], 0)
    stream = BinlogStream(servers.connect(), server_id=_SERVER_ID, heartbeat=5)
    try:
        stream.start(start)
        while not Position(follower.file, follower.offset).reached(end):
            begun = time.thread_time()
            batch = [event for event in stream.read() if isinstance(event, bytes)]  # nothing is passed over here
            recording.socket_cpu += time.thread_time() - begun
            recording.batches.append(batch)
            _read(follower, batch)
    except BinlogUnreadable as error:
        raise BenchFailed(f"others use this server: {error.message}") from error
    finally:
        stream.close()
    return recording


def _read(assembler: Assembler, batch: Iterable[Piece]) -> None:
    for _ in assembler.feed(batch):
        pass


@contextlib.contextmanager
def _forced(pure: bool) -> Iterator[None]:
    before = os.environ.get(PURE)
    os.environ[PURE] = "1" if pure else "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[PURE]
        else:
            os.environ[PURE] = before


def _measure(recording: _Recording, events: int) -> Decode:
    parts = decoder()
    payloads: list[bytes] = []

    def collect(value: bytes) -> bytes:
        payloads.append(value)
        return value

    rows = _Rows(recording)
    rows.reader(parts._replace(json_text=collect, rows=None))()
    if len(payloads) != events:
        raise BenchFailed("somebody else writes into the table that is measured")
    packets = recording.packets()

    def cut(table: TableName) -> Iterator[list[Piece]]:
        kept = tuple(name.encode() for name in _assembler(table, recording.start).kept)
        return (parts.cut(data, LARGEST_PACKET, kept)[0] for data in packets)

    def cut_only() -> None:
        deque(cut(recording.table), maxlen=0)

    def read(table: TableName) -> None:
        assembler = _assembler(table, recording.start)
        for pieces in cut(table):
            _read(assembler, pieces)

    def json() -> None:
        for payload in payloads:
            parts.json_text(payload)

    def each(work: Callable[[], object]) -> float:
        return _best(work) / events * 1e6

    printing = each(json)
    return Decode(
        kind=parts.kind,
        events=events,
        event_bytes=sum(map(len, recording.events)) / events,
        json_bytes=sum(map(len, payloads)) / events,
        socket=recording.socket_cpu / events * 1e6,
        cut=each(cut_only),
        json=printing,
        rows=each(rows.reader(parts)) - printing,
        whole=each(lambda: read(recording.table)),
        another=each(lambda: read(TableName("elsewhere", "of_others"))),
    )


def _assembler(table: TableName, start: Position) -> Assembler:
    return Assembler([table], start.file, start.offset)


class _Rows:
    """The row events of the table, to be decoded without what is around them."""

    def __init__(self, recording: _Recording) -> None:
        self._events: list[tuple[TableMap, bytes]] = []
        maps: dict[bytes, TableMap] = {}
        current: dict[bytes, TableMap] = {}
        for event in recording.events:
            if event[4] == TABLE_MAP:
                body = event[_BODY:-CHECKSUM_SIZE]
                if table_name(body) == recording.table:
                    current[event[19:_BODY]] = maps.setdefault(body, parse_table_map(body))
            elif event[4] == WRITE_ROWS and event[19:_BODY] in current:
                self._events.append((current[event[19:_BODY]], event))

    def reader(self, parts: Decoder) -> Callable[[], None]:
        """Decodes all of them, with decoders that it keeps."""
        decoders: dict[int, RowDecoder] = {}
        for table_map, _ in self._events:
            decoders.setdefault(id(table_map), RowDecoder(table_map, parts=parts))
        calls = [(decoders[id(table_map)].read, event) for table_map, event in self._events]
        last: deque[Event] = deque(maxlen=1)

        def read() -> None:
            for decode, event in calls:
                decode(event, len(event) - CHECKSUM_SIZE, 0, last.append)

        return read


def _best(work: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(ROUNDS):
        begun = time.thread_time()
        work()
        best = min(best, time.thread_time() - begun)
    return best
