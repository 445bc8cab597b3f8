"""WRITE_ROWS events of one table layout → Events, by a loop per (columns present, null pattern).

Source: log_event.cc of the MySQL server.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import error as StructError

from cdc_outbox.binlog.accelerator import Decoder, decoder
from cdc_outbox.binlog.events import length_encoded
from cdc_outbox.binlog.row_image import check_sizes
from cdc_outbox.binlog.row_loop import Add, RowLoop, row_loop
from cdc_outbox.binlog.table_map import INTEGERS, TableMap

_EXTRA_DATA = 27
"""Where the size of a row event's extra data stands."""


class RowDecoder:
    """Reads inserted rows of one layout of one outbox table.

    table_map must have names. extra_columns: read into Event.columns as `CAST(column AS CHAR)` prints them.
    parts: what reads rows and prints JSON; None: what decoder() says.
    Raises ValueError where the layout cannot be an outbox table, or its rows cannot be walked.
    """

    def __init__(self, table_map: TableMap, extra_columns: Sequence[str] = (), parts: Decoder | None = None) -> None:
        self.table = table_map.table
        self._columns = table_map.columns
        self._extra = tuple(extra_columns)
        self._parts = parts or decoder()
        self._loops_of: dict[bytes, dict[bytes, RowLoop]] = {}  # by columns present, then by null bits
        self._rows_at = 0
        self._header = b"\0"  # of the last event that was read: no slice up to 0 is like it
        by_name = {column.name: column for column in self._columns}
        for column in self._columns:
            check_sizes(column)
        for name in ("id", "event_id"):
            if name not in by_name:
                raise ValueError(f"{self.table} has no column `{name}` here")
        if by_name["id"].type not in INTEGERS:
            raise ValueError(f"{self.table}.id is no integer here")

    def read(self, event: bytes, end: int, committed_at: int | None, add: Add) -> None:
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
                    rows = loops[nulls] = row_loop(
                        self.table, self._columns, image, nulls, extra=self._extra, parts=self._parts
                    )
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
