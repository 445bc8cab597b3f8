"""What commands have in common: ages, tables, columns of text, a progress line."""

# ruff: noqa: PLC0415  (commands import what they need when they run)

from __future__ import annotations

import contextlib
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import typer

from cdc_outbox.errors import Refused

if TYPE_CHECKING:
    from cdc_outbox.config import Settings
    from cdc_outbox.model import TableName


def age(text: str, option: str) -> float:
    """Seconds of `90s`, `7d`. A usage error (exit 2) for anything else."""
    from cdc_outbox.config_values import seconds

    try:
        return seconds(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}", param_hint=option) from None


def table_of(settings: Settings, name: str | None) -> TableName:
    """The configured table that is named, or the first. Raises Refused for any other."""
    tables = settings.table_names
    if name is None:
        return tables[0]
    for table in tables:
        if name in (table.name, str(table)):
            return table
    raise Refused(
        f"{name!r} is none of this relay's tables",
        hint=f"outbox.tables has {', '.join(str(one) for one in tables)}",
    )


def tables_of(settings: Settings, name: str | None) -> list[TableName]:
    """The configured table that is named, or all. Raises Refused for any other."""
    return list(settings.table_names) if name is None else [table_of(settings, name)]


def ago(seconds: float) -> str:
    """A duration in two figures: `42s`, `3m20s`, `5h12m`, `9d3h`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600}h"


def counted(count: int, noun: str, verb: str = "", *, verbs: str = "are") -> str:
    """`1 event`, `2,000 events`; with verb (of one) and verbs (of many) `1 event is`, `2,000 events are`."""
    one = count == 1
    return f"{count:,} {noun}{'' if one else 's'}" + (f" {verb if one else verbs}" if verb else "")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows with their columns under each other, each on one line whatever it holds; a wide letter counts two."""
    shown = [[printable(cell) for cell in row] for row in rows]
    widths = [max(_width(row[at]) for row in shown) for at in range(len(shown[0]))]
    return [
        "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in shown
    ]


def printable(text: str) -> str:
    """Control characters of a row must not reach the terminal."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress line on standard error while it takes more than a moment; none where nobody looks."""
    if not sys.stderr.isatty():
        yield lambda done, of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
