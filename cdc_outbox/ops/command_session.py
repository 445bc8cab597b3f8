"""A MySQL session for one command, with MySQL's errors said in our words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pymysql.err import DataError, MySQLError

from cdc_outbox.errors import Refused
from cdc_outbox.mysql import schema
from cdc_outbox.mysql.session import Session, mysql_trouble

if TYPE_CHECKING:
    from cdc_outbox.config import Settings

PATIENCE = 60.0
"""Seconds that a command's statement may take, and its session may be idle."""


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
        trouble = mysql_trouble(error, settings.mysql)
        missing = schema.missing_grants(settings, error, needs) if isinstance(error, MySQLError) else None
        if isinstance(trouble, Refused) and missing:
            trouble = Refused(trouble.message, hint=missing)
        raise trouble from error
