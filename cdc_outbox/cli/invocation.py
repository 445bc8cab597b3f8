"""What a command was called with: where its settings are, and whether somebody can be asked."""

# ruff: noqa: PLC0415  (commands import what they need when they run)

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cdc_outbox.errors import Refused

if TYPE_CHECKING:
    from cdc_outbox.config import Settings


class Invocation:
    """`ctx.obj` of every command."""

    def __init__(self, config: str) -> None:
        self._config = config

    def settings(self) -> Settings:
        """Read and check the settings; raises Refused."""
        from cdc_outbox.config import load_settings

        if not self._config and not any(name.startswith("CDC_OUTBOX_MYSQL") for name in os.environ):
            raise Refused(
                "There are no settings",
                hint="name a file with --config FILE (before the command) or CDC_OUTBOX_CONFIG;"
                " config/cdc-outbox.example.yaml is one to start from",
            )
        return load_settings(Path(self._config) if self._config else None, os.environ)

    @staticmethod
    def confirm(question: str, *, yes: bool) -> None:
        """Go on only when a person agrees; raises Refused otherwise, and where nobody can be asked."""
        if yes:
            return
        if not _somebody_is_there():
            raise Refused("This needs to be confirmed and nobody can be asked; nothing was changed", hint="add --yes")
        typer.echo(f"{question} [y/N] ", err=True, nl=False)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise Refused("Nothing was changed")


def _somebody_is_there() -> bool:
    """True where a question can be seen and answered."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
