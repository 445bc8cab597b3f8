"""TRANSACTION_PAYLOAD events: a transaction's events compressed into one, inflated piece by piece and never whole.

Body: fields (type, length, value, all length-encoded) up to a type 0, then zstd frames. The events inside are whole
ones, without checksum, their end positions 0; the GTID event stands before the payload. Source:
libs/mysql/binlog/event/codecs/binary.cpp of the MySQL server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct

import zstandard

from cdc_outbox.binlog.events import HEADER_SIZE, ROWS, length_encoded

_END, _PAYLOAD_SIZE, _ALGORITHM, _INFLATED_SIZE = 0, 1, 2, 3
_ZSTD = 0
_PIECE = 1 << 18
"""Bytes inflated at a time."""

_TABLE_ID = slice(HEADER_SIZE, HEADER_SIZE + 6)
_uint32 = Struct("<I").unpack_from


class Inflater:
    """Gives the events inside payloads, one payload at a time. Used by one thread."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor()  # making one costs more than a small payload

    def events(self, payload: bytes, end: int, passed_over: Callable[[bytes], bool]) -> Iterator[bytes]:
        """The events in a TRANSACTION_PAYLOAD event whose body ends at `end`.

        passed_over: asked with the table id of each event with rows; what it says True to is not even cut out.
        Raises ValueError where the payload is not what its fields say, after the events that could be read.
        """
        begin, inflated_size = _fields(payload, end)
        frames = memoryview(payload)[begin:end]
        try:
            with self._zstd.stream_reader(frames, read_across_frames=True) as reader:
                yield from _cut(_Pieces(reader, inflated_size), passed_over)
        except zstandard.ZstdError as error:
            raise ValueError(f"it cannot be inflated: {error}") from error


class _Pieces:
    """What comes out of the frames, measured: not a byte more or less than announced."""

    def __init__(self, reader: zstandard.ZstdDecompressionReader, size: int) -> None:
        self._reader = reader
        self.left = size

    def next(self) -> bytes:
        """At least one byte, or nothing at the end."""
        piece = self._reader.read(_PIECE)
        self.left -= len(piece)
        if self.left < 0 or (not piece and self.left):
            raise ValueError("it is not as long as its fields say")
        return piece


def _cut(pieces: _Pieces, passed_over: Callable[[bytes], bool]) -> Iterator[bytes]:
    buffer, at = pieces.next(), 0
    while True:
        while len(buffer) - at < _TABLE_ID.stop and (more := pieces.next()):
            buffer, at = buffer[at:] + more, 0
        there = len(buffer) - at
        if not there:
            return
        if there < HEADER_SIZE:
            raise ValueError("an event in it is cut short")
        (size,) = _uint32(buffer, at + 9)
        if size < HEADER_SIZE or size > there + pieces.left:
            raise ValueError(f"an event in it claims to have {size} bytes")
        if buffer[at + 4] in ROWS and passed_over(buffer[at + _TABLE_ID.start : at + _TABLE_ID.stop]):
            at += size
            while at > len(buffer):
                at -= len(buffer)
                buffer = pieces.next()
        elif size <= there:
            yield buffer[at : at + size]
            at += size
        else:
            parts = [buffer[at:]]
            while there < size:
                parts.append(pieces.next())
                there += len(parts[-1])
            rest = there - size
            buffer = parts[-1]
            at = len(buffer) - rest
            parts[-1] = buffer[:at]
            yield b"".join(parts)


def _fields(payload: bytes, end: int) -> tuple[int, int]:
    """Where the frames begin, and the size of what is in them."""
    fields: dict[int, int] = {}
    at = HEADER_SIZE
    try:
        while True:
            field, at = length_encoded(payload, at)
            if field == _END:
                break
            size, at = length_encoded(payload, at)
            if field in {_PAYLOAD_SIZE, _ALGORITHM, _INFLATED_SIZE}:
                fields[field], _ = length_encoded(payload, at)
            at += size
        algorithm, inflated_size, payload_size = (fields[f] for f in (_ALGORITHM, _INFLATED_SIZE, _PAYLOAD_SIZE))
    except (IndexError, KeyError) as error:
        raise ValueError("its fields cannot be read") from error
    if algorithm != _ZSTD:
        raise ValueError(f"it is compressed by algorithm {algorithm}, which this version does not know")
    if at + payload_size != end:
        raise ValueError("it is not as long as its fields say")
    return at, inflated_size
