"""What each TABLE_MAP body stands for: one of our tables, with its row decoder, or another one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from cdc_outbox.binlog.decoder import RowDecoder
from cdc_outbox.binlog.table_map import parse_table_map, table_name
from cdc_outbox.model import TableName

CHECKPOINT_TABLE = "cdc_outbox_checkpoint"

Describe = Callable[[TableName], list[str]]
"""The names of a table's columns as they are now, in order."""

_LAYOUTS_KEPT = 10_000
_FIX = "SET GLOBAL binlog_row_metadata = FULL"


class Layout:
    """foreign: neither one of our tables nor a checkpoint table, so that its traffic counts."""

    __slots__ = ("body", "decoder", "foreign", "ours", "table")

    def __init__(self, body: bytes, table: TableName, *, ours: bool) -> None:
        self.body = body
        self.table = table
        self.ours = ours
        self.foreign = not ours and table.name != CHECKPOINT_TABLE
        self.decoder: RowDecoder | None = None


class Layouts:
    """Known by the bytes of their bodies: table ids start anew with the server, and then name other tables."""

    def __init__(self, tables: Collection[TableName], extra_columns: Sequence[str], describe: Describe | None) -> None:
        self._tables = tables
        self._extra_columns = extra_columns
        self._describe = describe
        self._known: dict[bytes, Layout] = {}
        self.get = self._known.get

    def add(self, body: bytes) -> Layout:
        """body: what follows the table id. Raises ValueError when it cannot be understood."""
        if len(self._known) >= _LAYOUTS_KEPT:
            self._known.clear()
        table = table_name(body)
        layout = self._known[body] = Layout(body, table, ours=table in self._tables)
        return layout

    def decoder(self, layout: Layout) -> RowDecoder:
        """Asked for at the first insert: a layout that only updates show need not be understood.

        Raises ValueError where it cannot be decoded, with the fix.
        """
        table_map = parse_table_map(layout.body)
        if not table_map.described:
            raise ValueError(f"the binlog does not describe its columns; {_FIX} (MySQL 8.0.1 or later)")
        if not table_map.named:
            names = self._describe(layout.table) if self._describe else []
            if len(names) != len(table_map.columns):
                raise ValueError(
                    f"the binlog has {len(table_map.columns)} columns without names, "
                    f"the table has {len(names) or 'unknown ones'} now; {_FIX}"
                )
            table_map = table_map.with_names(names)
        layout.decoder = RowDecoder(table_map, self._extra_columns)
        return layout.decoder

    def forget(self) -> None:
        """A table was changed: names that were looked up may be others now."""
        self._known.clear()
