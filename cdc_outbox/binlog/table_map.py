"""TABLE_MAP events: a table's columns as they were when its rows were written.

Body (after header and table id): flags 2, database and table (each length 1, name, NUL), number of columns, one
type byte a column, the types' metadata, null bits, then fields (type 1, length, value) with signedness, character
sets and, with binlog_row_metadata=FULL, names. Source: rows_event.h of the MySQL server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, repeat

from pymysqlreplication.constants import FIELD_TYPE

from cdc_outbox.binlog.charsets import charset_of
from cdc_outbox.binlog.events import length_encoded
from cdc_outbox.model import TableName

VECTOR = 242  # newer than the library's table

INTEGERS = {
    FIELD_TYPE.TINY: 1,
    FIELD_TYPE.SHORT: 2,
    FIELD_TYPE.INT24: 3,
    FIELD_TYPE.LONG: 4,
    FIELD_TYPE.LONGLONG: 8,
}
"""Integer types and their bytes."""

_NUMERIC = {*INTEGERS, FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE, FIELD_TYPE.NEWDECIMAL, FIELD_TYPE.YEAR}
_ENUM_OR_SET = {FIELD_TYPE.ENUM, FIELD_TYPE.SET}
_CHARACTER = {FIELD_TYPE.STRING, FIELD_TYPE.VARCHAR, FIELD_TYPE.BLOB, VECTOR}

_METADATA_SIZE = {
    FIELD_TYPE.FLOAT: 1,
    FIELD_TYPE.DOUBLE: 1,
    FIELD_TYPE.TIMESTAMP2: 1,
    FIELD_TYPE.DATETIME2: 1,
    FIELD_TYPE.TIME2: 1,
    FIELD_TYPE.BLOB: 1,
    FIELD_TYPE.GEOMETRY: 1,
    FIELD_TYPE.JSON: 1,
    VECTOR: 1,
    FIELD_TYPE.VARCHAR: 2,
    FIELD_TYPE.BIT: 2,
    FIELD_TYPE.NEWDECIMAL: 2,
    FIELD_TYPE.STRING: 2,
    FIELD_TYPE.VAR_STRING: 2,
    FIELD_TYPE.ENUM: 2,
    FIELD_TYPE.SET: 2,
}

_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _COLUMN_NAME = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a row image.

    type      number of the field type; what stands for ENUM and SET in a STRING is resolved
    metadata  by type: bytes of the length (BLOB, JSON …), maximum bytes (VARCHAR, STRING), fraction digits
              (DATETIME2 …), precision | scale << 8 (NEWDECIMAL), bytes (ENUM, SET), bits | bytes << 8 (BIT)
    charset   name of a string's character set, None where it is unknown or has no meaning
    """

    name: str | None
    type: int
    metadata: int
    unsigned: bool
    charset: str | None


@dataclass(frozen=True, slots=True)
class TableMap:
    """described: signedness and character sets are known; servers older than 8.0.1 do not write them."""

    table: TableName
    columns: tuple[Column, ...]
    described: bool

    @property
    def named(self) -> bool:
        return all(column.name is not None for column in self.columns)

    def with_names(self, names: Iterable[str]) -> TableMap:
        columns = zip(self.columns, names, strict=True)
        return replace(self, columns=tuple(replace(column, name=name) for column, name in columns))


def table_name(body: bytes) -> TableName:
    """Only whose columns these are. Raises ValueError."""
    try:
        name, _ = _table_name(body)
    except IndexError as error:
        raise ValueError("a TABLE_MAP event is cut short") from error
    return name


def parse_table_map(body: bytes) -> TableMap:
    """body: what follows the table id, without checksum. Raises ValueError when it cannot be understood."""
    try:
        return _parse(body)
    except IndexError as error:
        raise ValueError("a TABLE_MAP event is cut short") from error


def _table_name(body: bytes) -> tuple[TableName, int]:
    at = 2
    names = []
    for _ in range(2):
        end = at + 1 + body[at]
        names.append(body[at + 1 : end].decode())
        at = end + 1
    return TableName(*names), at


def _parse(body: bytes) -> TableMap:
    table, at = _table_name(body)
    count, at = length_encoded(body, at)
    types = body[at : at + count]
    size, at = length_encoded(body, at + count)
    typed = list(_types_and_metadata(types, body[at : at + size]))
    at += size + (count + 7) // 8
    if at > len(body):
        raise ValueError("a TABLE_MAP event is cut short")
    fields = dict(_optional_fields(body, at))
    unsigned = _unsigned(typed, fields.get(_SIGNEDNESS, b""))
    charsets = _charsets(typed, fields)
    names = _names(fields.get(_COLUMN_NAME, b""), count)
    columns = tuple(
        Column(name, type_, metadata, sign, charset)
        for (type_, metadata), sign, charset, name in zip(typed, unsigned, charsets, names, strict=True)
    )
    return TableMap(table, columns, _SIGNEDNESS in fields)


def _types_and_metadata(types: bytes, metadata: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    for type_ in types:
        size = _METADATA_SIZE.get(type_, 0)
        first = metadata[at] if size else 0
        second = metadata[at + 1] if size == 2 else 0
        at += size
        if type_ in {FIELD_TYPE.STRING, FIELD_TYPE.VAR_STRING}:
            if first in _ENUM_OR_SET:
                yield first, second
            else:
                # CHAR of more than 255 bytes: two high bits of its length are hidden in the type, inverted.
                yield FIELD_TYPE.STRING, ((first & 0x30) ^ 0x30) << 4 | second
        else:
            yield type_, first | second << 8
    if at != len(metadata):
        raise ValueError(f"a TABLE_MAP event has {len(metadata)} bytes of metadata where its types have {at}")


def _optional_fields(body: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at < len(body):
        field = body[at]
        size, at = length_encoded(body, at + 1)
        if at + size > len(body):
            raise ValueError("a field of a TABLE_MAP event is cut short")
        yield field, body[at : at + size]
        at += size


def _unsigned(typed: Iterable[tuple[int, int]], bits: bytes) -> Iterator[bool]:
    """One bit a numeric column, the first one highest."""
    numeric = 0
    for type_, _ in typed:
        if type_ in _NUMERIC and bits:
            yield bool(bits[numeric >> 3] & 0x80 >> (numeric & 7))
            numeric += 1
        else:
            yield False


def _charsets(typed: Iterable[tuple[int, int]], fields: dict[int, bytes]) -> Iterator[str | None]:
    """Collations come as one for all but some (index among the strings, collation), or as one a string."""
    collations: Iterator[int | None] = repeat(None)
    if _COLUMN_CHARSET in fields:
        collations = chain(_numbers(fields[_COLUMN_CHARSET]), repeat(None))
    elif _DEFAULT_CHARSET in fields:
        default, *pairs = _numbers(fields[_DEFAULT_CHARSET])
        exceptions = dict(zip(pairs[::2], pairs[1::2], strict=True))
        collations = (exceptions.get(index, default) for index in range(1 << 16))
    for type_, _ in typed:
        collation = next(collations) if type_ in _CHARACTER else None
        yield None if collation is None else charset_of(collation)


def _numbers(value: bytes) -> Iterator[int]:
    at = 0
    while at < len(value):
        number, at = length_encoded(value, at)
        yield number


def _names(value: bytes, count: int) -> Iterator[str | None]:
    if not value:
        yield from repeat(None, count)
        return
    at = 0
    for _ in range(count):
        size, at = length_encoded(value, at)
        yield value[at : at + size].decode()
        at += size
    if at != len(value):
        raise ValueError("the column names of a TABLE_MAP event do not fit its columns")
