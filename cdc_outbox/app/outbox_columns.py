"""An event's values as its columns take them, and the SQL text around them. Pure: no connection, no state."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from enum import Enum
from uuid import UUID

from cdc_outbox.errors import EventRefused

DELAYED = "next_retry_at"
"""Set, it makes a new event wait; given as seconds, written by the database's clock."""


def identifier(column: str, value: object, limit: int) -> str:
    """The value as text that the column holds whole: without strict mode MySQL would cut it in silence."""
    text = value if type(value) is str else plain_text(value)
    if text is None:
        raise EventRefused(f"{column} must be a str, an int or a UUID, not {type(value).__qualname__}")
    if not text:
        raise EventRefused(f"{column} is empty")
    if len(text) > limit:
        raise EventRefused(
            f"{column} has {len(text)} characters, its column holds {limit}: {text[:40]!r}…",
            hint="Outbox(max_lengths={…}) tells of a table with longer columns",
        )
    if "\0" in text:
        raise EventRefused(f"{column} holds a NUL character")
    return text


def plain_text(value: object) -> str | None:
    """Plain text of a str, an int, a UUID, or an Enum member of one; None for anything else.

    No subclass of str is left: some drivers know only str itself.
    """
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | UUID) and not isinstance(value, bool):
        return str(value)
    return None


def seconds(delay: float | timedelta) -> int:
    wanted = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not 0 <= wanted < math.inf:
        raise EventRefused(f"delay is {delay}; it is the seconds, from 0, by which the event is published later")
    return math.ceil(wanted)


def quoted(name: str) -> str:
    """A name as it stands in a statement whose values are marked by %s."""
    return f"`{name.replace('`', '``').replace('%', '%%')}`"


def names(columns: Iterable[str]) -> str:
    return f"({', '.join(quoted(column) for column in columns)})"


def marks(columns: Iterable[str], given: Iterable[str]) -> str:
    """One row of VALUES: what is not given gets the column's default."""
    there = set(given)
    return f"({', '.join(_mark(column) if column in there else 'DEFAULT' for column in columns)})"


def _mark(column: str) -> str:
    return "NOW() + INTERVAL %s SECOND" if column == DELAYED else "%s"
