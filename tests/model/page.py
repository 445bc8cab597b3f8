"""The table of the searches at the end of docs/model.md: written, and read again to go on with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "model.md"
_HEAD = """| run | outcome | states | depth | MiB | seconds |
|---|---|---|---|---|---|
"""
_ROW = re.compile(r"^\| `([\w-]+)` \| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", flags=re.M)


@dataclass(frozen=True)
class Row:
    """One search. seconds: its compilation and, where it has one, the search for endless runs included."""

    outcome: str
    states: int
    depth: int
    mebibytes: int
    seconds: int


def rows(text: str) -> dict[str, Row]:
    """Those of a page's table."""
    return {name: Row(outcome, *map(int, numbers)) for name, outcome, *numbers in _ROW.findall(text)}


def with_rows(text: str, table: Mapping[str, Row]) -> str:
    """The page with another table."""
    lines = "".join(
        f"| `{name}` | {row.outcome} | {row.states} | {row.depth} | {row.mebibytes} | {row.seconds} |\n"
        for name, row in table.items()
    )
    return text[: text.index(_HEAD)] + _HEAD + lines
