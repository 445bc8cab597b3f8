"""The loop over rows with the same columns present and the same ones NULL: as Python made for them, or as steps that
accelerator.c takes.

A row image is the null bits of the columns it holds, then their values. What is not wanted is skipped by its size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from itertools import chain
from struct import Struct

from pymysqlreplication.constants import FIELD_TYPE

from cdc_outbox.binlog.accelerator import Decoder, JsonText
from cdc_outbox.binlog.charsets import UNKNOWN, UTF8, text_of
from cdc_outbox.binlog.packed import datetime_text
from cdc_outbox.binlog.row_image import fixed_size, length_size
from cdc_outbox.binlog.table_map import INTEGERS, Column
from cdc_outbox.model import Event, TableName

Add = Callable[[Event], object]
RowLoop = Callable[[bytes, int, int, int | None, Add], int]
"""Gives `add` an Event for each row between two places of an event with rows, `committed_at` of each the third number.

It returns where it stopped: at the end, or at a row with other null bits. Raises ValueError, IndexError, struct.error.
"""

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
_STRINGS = {FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING, FIELD_TYPE.BLOB}
_INTEGER_FORMATS = {1: "b", 2: "h", 4: "i", 8: "q"}
_LENGTH_FORMATS = {1: "B", 2: "H", 4: "I"}


def row_loop(
    table: TableName, columns: Sequence[Column], image: bytes, nulls: bytes, *, extra: Sequence[str], parts: Decoder
) -> RowLoop:
    """image, nulls: bits of the columns present, and of those of them that are NULL. extra: columns to be read too.

    Raises ValueError where no event can be made of such rows.
    """
    row = _Row(columns, extra, image, nulls)
    if parts.rows is not None and (steps := row.steps()) is not None:
        return partial(parts.rows, steps, nulls, Event, row.constants(table))
    return row.python(table, nulls, parts.json_text)


class _Step(IntEnum):
    """What accelerator.c does at a column: step over a value of so many bytes, or over one whose length has so many, or
    make an argument of it. COMMITTED_AT is of no column."""

    FIXED = 0
    VARIABLE = 1
    SIGNED = 2
    UNSIGNED = 3
    TEXT = 4
    JSON = 5
    BYTES = 6
    COMMITTED_AT = 7


@dataclass(frozen=True)
class _Argument:
    """One of Event's. source: as a Python expression of the columns' variables.

    constant: the same where no column decides it. step: how accelerator.c makes it of `variable`'s column, None where
    it cannot.
    """

    source: str
    constant: object = None
    variable: str | None = None
    step: _Step | None = None


def _constant(value: object) -> _Argument:
    return _Argument(repr(value), value)


class _Row:
    """What each argument of Event comes from."""

    def __init__(self, columns: Sequence[Column], extra: Sequence[str], image: bytes, nulls: bytes) -> None:
        self._extra = extra
        present = [column for i, column in enumerate(columns) if _bit(image, i)]
        self._walked = {f"c{i}": column for i, column in enumerate(present) if not _bit(nulls, i)}
        """By variable, in order: the columns that have a value."""
        self._values: dict[str, tuple[Column, str | None]] = {
            column.name or "": (column, None) for i, column in enumerate(present) if _bit(nulls, i)
        }
        """By column name; no variable: NULL."""
        self._values |= {column.name or "": (column, variable) for variable, column in self._walked.items()}
        if self._values.get("id", (None, None))[1] is None:
            raise ValueError("a row without its id")  # nothing else names it; and it may be of no bytes at all
        self._complete = True
        self._converted: dict[str, Column] = {}  # variables with text from other character sets
        self._arguments = self._event()

    def _event(self) -> list[_Argument]:
        """What cannot be given makes the event incomplete."""
        arguments = [
            _Argument("table"),
            self._integer("id", 0),
            self._text("event_id") or _constant(""),
            self._text("aggregate_type") or _constant(""),
            self._text("aggregate_id") or _constant(""),
            self._text("event_type") or _constant(""),
            self._payload(),
            self._integer("status", 0),
            self._integer("retry_count", 0),
            self._integer("max_retries", 3),
            _constant(self._value("next_retry_at", nullable=True) is not None),  # parked
            _Argument("committed_at", step=_Step.COMMITTED_AT),
            _constant(None),  # created_at: a DATETIME without its time zone; committed_at is the better one
            self._columns(),
        ]
        return [*arguments, self._incomplete()]

    def _value(self, name: str, *, nullable: bool = False) -> tuple[Column, str] | None:
        """The column and its variable; None when there is no value to print.

        A column that its row image lacks makes an event incomplete.
        """
        column, variable = self._values.get(name, (None, None))
        if column is None or (variable is None and not nullable):
            self._complete = False
        return None if column is None or variable is None else (column, variable)

    def _integer(self, name: str, default: int) -> _Argument:
        value = self._value(name)
        if value is None:
            return _constant(default)
        column, variable = value
        if column.type not in INTEGERS:
            self._complete = False
            return _constant(default)
        step = _Step.UNSIGNED if column.unsigned else _Step.SIGNED
        return _Argument(_integer(column, variable), variable=variable, step=step)

    def _payload(self) -> _Argument:
        value = self._value("payload", nullable=True)
        if value is None:
            return _constant(None)
        column, variable = value
        if column.type == FIELD_TYPE.JSON:
            return _Argument(f"json_text({variable})", variable=variable, step=_Step.JSON)
        if column.type in _STRINGS and column.charset in UTF8:
            return _Argument(_bytes(column, variable), variable=variable, step=_unfilled(column, _Step.BYTES))
        text = self._converted_text(column, variable)
        if text is None:
            self._complete = False
            return _constant(None)
        return _Argument(f"{text.source}.encode()")

    def _columns(self) -> _Argument:
        if not self._extra:
            return _constant(None)
        texts = {name: self._text(name, nullable=True) or _constant(None) for name in self._extra}
        return _Argument(f"{{{', '.join(f'{name!r}: {text.source}' for name, text in texts.items())}}}")

    def _text(self, name: str, *, nullable: bool = False) -> _Argument | None:
        """`CAST(name AS CHAR)`; None where there is no value, or none we can print."""
        value = self._value(name, nullable=nullable)
        if value is None:
            return None
        column, variable = value
        printed = {
            **dict.fromkeys(INTEGERS, f"str({_integer(column, variable)})"),
            FIELD_TYPE.JSON: f"json_text({variable}).decode()",
            FIELD_TYPE.DATETIME2: f"datetime_text({variable}, {column.metadata})",
        }
        if column.type in printed:
            return _Argument(printed[column.type])
        if column.type in _STRINGS and column.charset in UTF8:
            source = f"{_bytes(column, variable)}.decode()"
            return _Argument(source, variable=variable, step=_unfilled(column, _Step.TEXT))
        text = self._converted_text(column, variable)
        if text is None:
            self._complete = False
            if column.type in _STRINGS:
                return _Argument(f"{variable}.decode('utf-8', 'replace')")  # names the row, where it is its event_id
        return text

    def _converted_text(self, column: Column, variable: str) -> _Argument | None:
        """A string in another character set; None where we cannot convert it."""
        if column.type not in _STRINGS or text_of(column.charset) is None:
            return None
        self._converted[variable] = column
        return _Argument(f"{variable}_text")

    def _incomplete(self) -> _Argument:
        if self._converted and self._complete:
            return _Argument(" or ".join(f"UNKNOWN in {variable}_text" for variable in self._converted))
        return _constant(not self._complete)

    # -- as steps ------------------------------------------------------------------------------------------------

    def steps(self) -> bytes | None:
        """Of accelerator.c: step, size of the value or of its length, and number of the argument, of each column.

        None where it has no step for something.
        """
        of: dict[str | None, tuple[_Step, int]] = {}
        for number, argument in enumerate(self._arguments[1:], 1):
            if argument.step is not None:
                of[argument.variable] = (argument.step, number)
            elif argument != _constant(argument.constant):
                return None
        step, number = of[None]
        steps = [(step, 0, number)]
        for variable, column in self._walked.items():
            size = fixed_size(column)
            step, number = of.get(variable, (_Step.FIXED if size else _Step.VARIABLE, 0))
            steps.append((step, size or length_size(column), number))
        return bytes(chain.from_iterable(steps))

    def constants(self, table: TableName) -> tuple[object, ...]:
        """The arguments as they are before any step."""
        return (table, *(argument.constant for argument in self._arguments[1:]))

    # -- as Python -----------------------------------------------------------------------------------------------

    def python(self, table: TableName, nulls: bytes, json_text: JsonText) -> RowLoop:
        """For the usual table:

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
        """
        names: dict[str, object] = {
            "Event": Event,
            "table": table,
            "nulls": nulls,
            "json_text": json_text,
            "UNKNOWN": UNKNOWN,
            "datetime_text": datetime_text,
        }
        walk = _Walk(names)
        wanted = {*_NEEDED, *self._extra}
        for variable, column in self._walked.items():
            walk.over(column, variable if column.name in wanted else None)
        lines = walk.end()
        for variable, column in self._converted.items():
            names[f"{column.charset}_text"] = text_of(column.charset)
            lines.append(f"{variable}_text = {column.charset}_text({variable})")
        source = [
            "def rows(b, at, end, committed_at, add):",
            "    while at < end:",
            f"        if b[at:at + {len(nulls)}] != nulls: return at",
            f"        at += {len(nulls)}",
            *(f"        {line}" for line in lines),
            "        if at > end: raise ValueError('a row reaches out of its event')",
            f"        add(Event({', '.join(argument.source for argument in self._arguments)}))",
            "    return at",
        ]
        exec("\n".join(source), names)
        return names["rows"]  # type: ignore[return-value]


class _Walk:
    """Lines that step over the values, those that are wanted into variables."""

    def __init__(self, names: dict[str, object]) -> None:
        self._names = names
        self._lines: list[str] = []
        self._run: list[tuple[str, str | None]] = []  # struct formats, with the variables that take the values
        self._run_size = 0

    def over(self, column: Column, variable: str | None) -> None:
        """variable: for a value that is wanted."""
        size = fixed_size(column)
        if not size:
            length = length_size(column)
            self._step(_LENGTH_FORMATS.get(length, f"{length}s"), length, "n")
            self.end()
            if length not in _LENGTH_FORMATS:
                self._lines.append("n = int.from_bytes(n, 'little')")
            self._lines.append(f"{variable} = b[at:at + n]; at += n" if variable else "at += n")
        elif variable and column.type in INTEGERS and size in _INTEGER_FORMATS:
            letter = _INTEGER_FORMATS[size]
            self._step(letter.upper() if column.unsigned else letter, size, variable)
        elif variable:
            self._step(f"{size}s", size, variable)
        else:
            self._step(f"{size}x", size, None)

    def _step(self, letters: str, size: int, variable: str | None) -> None:
        self._run.append((letters, variable))
        self._run_size += size

    def end(self) -> list[str]:
        """One unpack for all fixed-size values since the last variable one; gives the lines so far."""
        variables = [variable for _, variable in self._run if variable]
        if variables:
            unpack = f"unpack{len(self._names)}"
            self._names[unpack] = Struct("<" + "".join(letters for letters, _ in self._run)).unpack_from
            self._lines.append(f"{', '.join(variables)}, = {unpack}(b, at)")
        if self._run_size:
            self._lines.append(f"at += {self._run_size}")
        self._run.clear()
        self._run_size = 0
        return self._lines


def _bit(bits: bytes, i: int) -> int:
    return bits[i >> 3] >> (i & 7) & 1


def _is_filled(column: Column) -> bool:
    """The row image leaves out the zeros that fill up a BINARY(n)."""
    return column.type == FIELD_TYPE.STRING and column.charset == "binary"


def _unfilled(column: Column, step: _Step) -> _Step | None:
    return None if _is_filled(column) else step


def _bytes(column: Column, variable: str) -> str:
    """A string whole."""
    return f"{variable}.ljust({column.metadata}, b'\\0')" if _is_filled(column) else variable


def _integer(column: Column, variable: str) -> str:
    if column.type == FIELD_TYPE.INT24:
        return f"int.from_bytes({variable}, 'little', signed={not column.unsigned})"
    return variable
