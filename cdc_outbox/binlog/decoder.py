"""WRITE_ROWS events of one table layout → Events, by a loop generated per (columns present, null pattern).

A row image is the null bits of the columns it holds, then their values. Nothing separates these, so what is not
wanted is skipped by its size. Source: log_event.cc and field.cc (pack) of the MySQL server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from struct import error as StructError

from pymysqlreplication.constants import FIELD_TYPE

from cdc_outbox.binlog.accelerator import JsonText, decoder
from cdc_outbox.binlog.charsets import UNKNOWN, UTF8, text_of
from cdc_outbox.binlog.events import length_encoded
from cdc_outbox.binlog.packed import datetime_text, decimal_size
from cdc_outbox.binlog.table_map import INTEGERS, VECTOR, Column, TableMap
from cdc_outbox.model import Event, TableName

_EXTRA_DATA = 27
"""Where the size of a row event's extra data stands."""

_Add = Callable[[Event], None]
_RowLoop = Callable[[bytes, int, int, int | None, _Add], int]

_NEEDED = frozenset(
    {
        "id",
        "event_id",
        "aggregate_type",
        "aggregate_id",
        "event_type",
        "payload",
        "status",
        "retry_count",
        "max_retries",
        "next_retry_at",
    }
)

_FIXED_SIZES = {
    FIELD_TYPE.FLOAT: 4,
    FIELD_TYPE.DOUBLE: 8,
    FIELD_TYPE.YEAR: 1,
    FIELD_TYPE.DATE: 3,
    FIELD_TYPE.NEWDATE: 3,
    FIELD_TYPE.TIME: 3,
    FIELD_TYPE.TIMESTAMP: 4,
    FIELD_TYPE.DATETIME: 8,
    **INTEGERS,
}
_SIZES_BEFORE_FRACTION = {FIELD_TYPE.DATETIME2: 5, FIELD_TYPE.TIMESTAMP2: 4, FIELD_TYPE.TIME2: 3}
_LENGTH_IN_METADATA = {FIELD_TYPE.BLOB, FIELD_TYPE.JSON, FIELD_TYPE.GEOMETRY, VECTOR}
_STRINGS = {FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING, FIELD_TYPE.BLOB}

_INTEGER_FORMATS = {1: "b", 2: "h", 4: "i", 8: "q"}
_LENGTH_FORMATS = {1: "B", 2: "H", 4: "I"}


class RowDecoder:
    """Reads inserted rows of one layout of one outbox table.

    table_map must have names. extra_columns: read into Event.columns as `CAST(column AS CHAR)` prints them.
    json_text: what prints JSON; None: what decoder() names.
    Raises ValueError where the layout cannot be an outbox table, or its rows cannot be walked.
    """

    def __init__(
        self, table_map: TableMap, extra_columns: Sequence[str] = (), json_text: JsonText | None = None
    ) -> None:
        self.table = table_map.table
        self._columns = table_map.columns
        self._extra = tuple(extra_columns)
        self._json_text = json_text or decoder().json_text
        self._loops_of: dict[bytes, dict[bytes, _RowLoop]] = {}  # by columns present, then by null bits
        self._rows_at = 0
        self._header = b"\0"  # of the last event that was read: no slice up to 0 is like it
        by_name = {column.name: column for column in self._columns}
        for column in self._columns:
            _check_sizes(column)
        for name in ("id", "event_id"):
            if name not in by_name:
                raise ValueError(f"{self.table} has no column `{name}` here")
        if by_name["id"].type not in INTEGERS:
            raise ValueError(f"{self.table}.id is no integer here")

    def read(self, event: bytes, end: int, committed_at: int | None, add: _Add) -> None:
        """Give `add` an Event for each row of a WRITE_ROWS event (version 2) whose rows end at `end`.

        committed_at in ms. Raises ValueError when the bytes are not what the table map says.
        """
        try:
            at = self._rows_at
            if event[_EXTRA_DATA:at] != self._header:
                at = self._read_header(event, end)
            if at >= end:
                raise ValueError("it has no row")
            image, null_bytes, loops = self._image, self._null_bytes, self._loops
            while at < end:
                nulls = event[at : at + null_bytes]
                rows = loops.get(nulls)
                if rows is None:
                    source = _RowLoopSource(self.table, self._extra, nulls, self._json_text)
                    rows = loops[nulls] = source.build(self._columns, image)
                at = rows(event, at, end, committed_at, add)
        except (IndexError, StructError) as error:
            raise ValueError(f"a row cannot be read: {error}") from error

    def _read_header(self, event: bytes, end: int) -> int:
        """What stands before the rows and hardly ever changes; gives where they begin."""
        # Post-header: table id 6, flags 2, size of the extra data 2, which counts itself.
        count, at = length_encoded(event, _EXTRA_DATA + int.from_bytes(event[_EXTRA_DATA : _EXTRA_DATA + 2], "little"))
        if count != len(self._columns):
            raise ValueError(f"rows of {count} columns, the table has {len(self._columns)}")
        size = (count + 7) // 8
        self._image = event[at : at + size]
        self._null_bytes = (int.from_bytes(self._image, "little").bit_count() + 7) // 8
        self._loops = self._loops_of.setdefault(self._image, {})
        self._rows_at = at + size
        self._header = event[_EXTRA_DATA : self._rows_at]
        return self._rows_at


def _fixed_size(column: Column) -> int:
    """Bytes of a value, 0 for one that begins with its length. Raises ValueError for an unknown type."""
    type_, metadata = column.type, column.metadata
    if type_ in _FIXED_SIZES:
        return _FIXED_SIZES[type_]
    if type_ in _SIZES_BEFORE_FRACTION:
        return _SIZES_BEFORE_FRACTION[type_] + (metadata + 1) // 2
    if type_ == FIELD_TYPE.NEWDECIMAL:
        return decimal_size(metadata & 255, metadata >> 8)
    if type_ in {FIELD_TYPE.ENUM, FIELD_TYPE.SET}:
        return metadata
    if type_ == FIELD_TYPE.BIT:
        return (metadata >> 8) + (1 if metadata & 255 else 0)
    if type_ in {FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING} or type_ in _LENGTH_IN_METADATA:
        return 0
    raise ValueError(f"column `{column.name}` is of type {type_}, which is not known")


def _check_sizes(column: Column) -> None:
    """Raises ValueError where the metadata does not suit the type: a size would be wrong, or negative."""
    size, type_, metadata = _fixed_size(column), column.type, column.metadata
    wrong = (
        size < 0
        or (type_ == FIELD_TYPE.NEWDECIMAL and not 0 <= metadata >> 8 <= metadata & 255 <= 65)
        or (type_ in _SIZES_BEFORE_FRACTION and metadata > 6)
        or (type_ in _LENGTH_IN_METADATA and not 1 <= metadata <= 4)
    )
    if wrong:
        raise ValueError(f"column `{column.name}` of type {type_} cannot have the metadata {metadata}")


def _length_size(column: Column) -> int:
    if column.type in _LENGTH_IN_METADATA:
        return column.metadata
    return 1 if column.metadata < 256 else 2


class _RowLoopSource:
    """Source of a loop over rows with the same columns present and the same ones NULL. For the usual table:

        def rows(b, at, end, committed_at, add):
            while at < end:
                if b[at:at + 2] != nulls: return at
                at += 2
                c0, n, = unpack0(b, at); at += 9
                c1 = b[at:at + n]; at += n
                …
                if at > end: raise ValueError('a row reaches out of its event')
                add(Event(table, c0, c1.decode(), …))
            return at

    It returns where it stopped: at `end`, or at a row with another null pattern.
    """

    def __init__(self, table: TableName, extra: Sequence[str], nulls: bytes, json_text: JsonText) -> None:
        self._extra = extra
        self._nulls = nulls
        self._lines: list[str] = []
        self._run: list[tuple[str, str | None]] = []  # struct formats, with the variables that take the values
        self._run_size = 0
        self._values: dict[str, tuple[Column, str | None]] = {}  # by column name; no variable: NULL
        self._complete = True
        self._converted: list[str] = []  # variables with text from other character sets
        self._names: dict[str, object] = {
            "Event": Event,
            "table": table,
            "nulls": nulls,
            "json_text": json_text,
            "UNKNOWN": UNKNOWN,
            "datetime_text": datetime_text,
        }

    def build(self, columns: Sequence[Column], image: bytes) -> _RowLoop:
        present = [column for i, column in enumerate(columns) if image[i >> 3] >> (i & 7) & 1]
        for i, column in enumerate(present):
            if self._nulls[i >> 3] >> (i & 7) & 1:
                self._values[column.name or ""] = (column, None)
            else:
                self._walk(column, f"c{i}")
        self._end_run()
        if self._values.get("id", (None, None))[1] is None:
            raise ValueError("a row without its id")  # nothing else names it; and it may be of no bytes at all
        event = self._event()
        source = [
            "def rows(b, at, end, committed_at, add):",
            "    while at < end:",
            f"        if b[at:at + {len(self._nulls)}] != nulls: return at",
            f"        at += {len(self._nulls)}",
            *(f"        {line}" for line in self._lines),
            "        if at > end: raise ValueError('a row reaches out of its event')",
            f"        add({event})",
            "    return at",
        ]
        exec("\n".join(source), self._names)
        return self._names["rows"]  # type: ignore[return-value]

    # -- stepping over values ------------------------------------------------------------------------------

    def _walk(self, column: Column, variable: str) -> None:
        name = column.name or ""
        wanted = name in _NEEDED or name in self._extra
        size = _fixed_size(column)
        if wanted:
            self._values[name] = (column, variable)
        if not size:
            length = _length_size(column)
            self._step(_LENGTH_FORMATS.get(length, f"{length}s"), length, "n")
            self._end_run()
            if length not in _LENGTH_FORMATS:
                self._lines.append("n = int.from_bytes(n, 'little')")
            self._lines.append(f"{variable} = b[at:at + n]; at += n" if wanted else "at += n")
        elif wanted and column.type in INTEGERS and size in _INTEGER_FORMATS:
            letter = _INTEGER_FORMATS[size]
            self._step(letter.upper() if column.unsigned else letter, size, variable)
        elif wanted:
            self._step(f"{size}s", size, variable)
        else:
            self._step(f"{size}x", size, None)

    def _step(self, letters: str, size: int, variable: str | None) -> None:
        self._run.append((letters, variable))
        self._run_size += size

    def _end_run(self) -> None:
        """One unpack for all fixed-size values since the last variable one."""
        variables = [variable for _, variable in self._run if variable]
        if variables:
            unpack = f"unpack{len(self._names)}"
            self._names[unpack] = Struct("<" + "".join(letters for letters, _ in self._run)).unpack_from
            self._lines.append(f"{', '.join(variables)}, = {unpack}(b, at)")
        if self._run_size:
            self._lines.append(f"at += {self._run_size}")
        self._run.clear()
        self._run_size = 0

    # -- values as expressions; what cannot be given makes the event incomplete ----------------------------

    def _event(self) -> str:
        values = [
            "table",
            self._integer("id", "0"),
            self._text("event_id") or "''",
            self._text("aggregate_type") or "''",
            self._text("aggregate_id") or "''",
            self._text("event_type") or "''",
            self._payload(),
            self._integer("status", "0"),
            self._integer("retry_count", "0"),
            self._integer("max_retries", "3"),
            self._parked(),
            "committed_at",
            "None",  # created_at: a DATETIME without its time zone; committed_at is the better one
            self._columns(),
        ]
        return f"Event({', '.join(values)}, {self._incomplete()})"

    def _missing(self, name: str, *, nullable: bool = False) -> bool:
        """True when there is no value to print. A column that its row image lacks makes an event incomplete."""
        column, variable = self._values.get(name, (None, None))
        if column is None or (variable is None and not nullable):
            self._complete = False
        return variable is None

    def _integer(self, name: str, default: str) -> str:
        if self._missing(name):
            return default
        column, variable = self._values[name]
        if column.type not in INTEGERS:
            self._complete = False
            return default
        return _integer(column, variable or "")

    def _payload(self) -> str:
        if self._missing("payload", nullable=True):
            return "None"
        column, variable = self._values["payload"]
        if column.type == FIELD_TYPE.JSON:
            return f"json_text({variable})"
        if column.type in _STRINGS and column.charset in UTF8:
            return _bytes(column, variable or "")
        text = self._converted_text(column, variable or "")
        if text is None:
            self._complete = False
            return "None"
        return f"{text}.encode()"

    def _parked(self) -> str:
        return str(not self._missing("next_retry_at", nullable=True))

    def _columns(self) -> str:
        if not self._extra:
            return "None"
        texts = [f"{name!r}: {self._text(name, nullable=True)}" for name in self._extra]
        return f"{{{', '.join(texts)}}}"

    def _text(self, name: str, *, nullable: bool = False) -> str | None:
        """The expression of `CAST(name AS CHAR)`; None where there is no value, or none we can print."""
        if self._missing(name, nullable=nullable):
            return None
        column, variable = self._values[name]
        text = None
        if column.type in INTEGERS:
            text = f"str({_integer(column, variable or '')})"
        elif column.type == FIELD_TYPE.JSON:
            text = f"json_text({variable}).decode()"
        elif column.type == FIELD_TYPE.DATETIME2:
            text = f"datetime_text({variable}, {column.metadata})"
        elif column.type in _STRINGS and column.charset in UTF8:
            text = f"{_bytes(column, variable or '')}.decode()"
        else:
            text = self._converted_text(column, variable or "")
        if text is None:
            self._complete = False
            if column.type in _STRINGS:
                text = f"{variable}.decode('utf-8', 'replace')"  # names the row, where it is its event_id
        return text

    def _converted_text(self, column: Column, variable: str) -> str | None:
        """A variable with the text of a string in another character set; None where we cannot convert it."""
        convert = text_of(column.charset) if column.type in _STRINGS else None
        if convert is None:
            return None
        text = f"text{len(self._converted)}"
        self._names[f"{column.charset}_text"] = convert
        self._lines.append(f"{text} = {column.charset}_text({variable})")
        self._converted.append(text)
        return text

    def _incomplete(self) -> str:
        if not self._complete:
            return "True"
        return " or ".join(f"UNKNOWN in {text}" for text in self._converted) or "False"


def _bytes(column: Column, variable: str) -> str:
    """A string whole: the row image leaves out the zeros that fill up a BINARY(n)."""
    is_filled = column.type == FIELD_TYPE.STRING and column.charset == "binary"
    return f"{variable}.ljust({column.metadata}, b'\\0')" if is_filled else variable


def _integer(column: Column, variable: str) -> str:
    if column.type == FIELD_TYPE.INT24:
        return f"int.from_bytes({variable}, 'little', signed={not column.unsigned})"
    return variable
