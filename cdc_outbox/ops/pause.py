"""Pausing and resuming a relay: a word in its checkpoint row, which whoever leads obeys within a poll."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_outbox.mysql.checkpoint import read_checkpoint, set_paused
from cdc_outbox.mysql.leadership import lock_owner
from cdc_outbox.ops.command_session import command_session

if TYPE_CHECKING:
    from cdc_outbox.config import Settings


def pause(settings: Settings) -> int | None:
    """Have nothing published until `resume`; gives the MySQL connection of the relay that leads, None: none does."""
    return _set(settings, paused=True)


def resume(settings: Settings) -> int | None:
    """Have it publish again; gives the MySQL connection of the relay that leads, None: none does."""
    return _set(settings, paused=False)


def _set(settings: Settings, *, paused: bool) -> int | None:
    with command_session(settings) as session:
        row = read_checkpoint(session, settings.name)
        if (row is not None and row.paused) != paused:
            set_paused(session, settings.name, paused)
        return lock_owner(session, settings)
