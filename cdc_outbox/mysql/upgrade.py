"""The relay's own table brought to this version's layout, whatever version made it; running it again does nothing.

Columns are only ever added: relays of neighbouring versions use one table side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_outbox.errors import Refused
from cdc_outbox.mysql import schema
from cdc_outbox.mysql.outbox_table import column_names
from cdc_outbox.mysql.queries import query

if TYPE_CHECKING:
    from cdc_outbox.config import Settings
    from cdc_outbox.mysql.session import Session

SCHEMA_VERSION = 1
"""What `cdc_outbox_checkpoint.schema_version` says of this version's layout."""


def upgrade(session: Session, settings: Settings) -> list[str]:
    """Say what was changed, a line each; none: the table was as it is to be.

    Raises Refused where there is no table, or where a newer version than this one has been at it.
    """
    table = schema.checkpoint_table(settings)
    there = column_names(session, table)
    if not there:
        raise Refused(f"there is no table {table} to upgrade", hint="cdc-outbox init creates it")
    if "schema_version" in there:
        row = session.row(query("schema_versions"))
        newest = row[1] if row is not None else None
        if newest is not None and newest > SCHEMA_VERSION:
            raise Refused(
                f"{table} is at schema version {newest}, made by a newer cdc-outbox than this one,"
                f" which knows {SCHEMA_VERSION}; nothing was changed",
                hint="install that version of cdc-outbox, or a newer one",
            )
    done: list[str] = []
    for name, definition in schema.column_definitions(schema.CHECKPOINT).items():
        if name not in there:
            session.execute(f"ALTER TABLE {table.quoted} ADD COLUMN {definition}")
            done.append(f"added {table}.{name}")
    rows = session.execute(query("schema_version_set"), (SCHEMA_VERSION, SCHEMA_VERSION))
    if rows:
        done.append(f"brought {rows} checkpoints to schema version {SCHEMA_VERSION}")
    return done
