"""Loads queries.sql: every statement on a table that the relay runs, by name."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- (\w+) --.*$", re.MULTILINE)


@cache
def _statements() -> dict[str, str]:
    text = resources.files("cdc_outbox.mysql").joinpath("queries.sql").read_text("utf-8")
    pieces = _NAME.split(text)[1:]
    return {name: _without_comments(body) for name, body in zip(pieces[::2], pieces[1::2], strict=True)}


def _without_comments(body: str) -> str:
    lines = (line for line in body.splitlines() if not line.startswith("--"))
    return "\n".join(lines).strip().rstrip(";")


def query(name: str, **parts: object) -> str:
    """The statement `name` with its {parts} filled in; parts are SQL text (quoted names, id lists), never values."""
    statement = _statements()[name]
    return statement.format(**parts) if parts else statement
