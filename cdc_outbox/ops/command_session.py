"""A MySQL session for one command, with MySQL's errors said in our words."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pymysql.err import DataError, MySQLError

from cdc_outbox.errors import Refused
from cdc_outbox.mysql import schema
from cdc_outbox.mysql.session import Session, error_code, mysql_trouble

if TYPE_CHECKING:
    from cdc_outbox.config import Settings

PATIENCE = 60.0
"""Seconds that a command's statement may take, and its session may be idle."""


_NO_DATABASE, _NO_TABLE = 1049, 1146
_NAME = re.compile(r"'([^']+)'")


@contextlib.contextmanager
def command_session(
    settings: Settings, *, patience: float = PATIENCE, needs: Sequence[str] | None = None
) -> Iterator[Session]:
    """Open a session, close it at the end. Raises Refused or Hold, never a MySQL error.

    needs: the grants to name where the account has none at all in the database; None: those of a relay.
    Nothing but SQL belongs inside: an OSError of anything else would be taken for MySQL's.
    """
    try:
        session = Session(settings.mysql, lifetime=patience)
        try:
            yield session
        finally:
            session.close()
    except DataError as error:
        raise Refused(f"MySQL does not take this value: {error.args[-1]}") from error
    except (MySQLError, OSError) as error:
        if error_code(error) in (_NO_DATABASE, _NO_TABLE):
            raise _missing(settings, error) from error
        trouble = mysql_trouble(error, settings.mysql)
        missing = schema.missing_grants(settings, error, needs) if isinstance(error, MySQLError) else None
        if isinstance(trouble, Refused) and missing:
            trouble = Refused(trouble.message, hint=missing)
        raise trouble from error


def _missing(settings: Settings, error: BaseException) -> Refused:
    """A table that is not there yet, or a name that was misspelt: nobody has refused anything."""
    where = f"MySQL at {settings.mysql.host}:{settings.mysql.port}"
    found = _NAME.search(str(error.args[-1]))
    name = found[1] if found else "the one asked for"
    if error_code(error) == _NO_DATABASE:
        return Refused(
            f"there is no database {name} on {where}; nothing was done",
            hint=f"if mysql.database is right: CREATE DATABASE {schema.identifier(name)}; then cdc-outbox init",
        )
    return Refused(
        f"there is no table {name} on {where}; nothing was done",
        hint="if outbox.tables and mysql.database are right: cdc-outbox init creates it, init --print shows the SQL",
    )
