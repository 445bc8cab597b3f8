"""MariaDB where MySQL is expected: the relay's statements in its words, and what it lacks. The only place that knows.

Read by file and offset: its GTIDs are another thing, and are not used. JSON is text there, and comes as it was written.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pymysql.connections import Connection

if TYPE_CHECKING:
    _Plain = Connection[Any]
else:
    _Plain = Connection  # generic for the type checker only

_OURS = {
    # MariaDB has no UUID of a server. Two servers must not look alike: a file and an offset would be followed on the
    # wrong one.
    "@@server_uuid": "MD5(CONCAT_WS('/', @@server_id, @@hostname, @@port, @@datadir))",
    "SHOW BINARY LOG STATUS": "SHOW BINLOG STATUS",
    "is_visible": "IF(ignored = 'YES', 'NO', 'YES')",
}
_TEXT_OR_WORD = re.compile(r"'(?:[^'\\]|\\.|'')*'|" + "|".join(map(re.escape, _OURS)), re.DOTALL)


def is_mariadb(version: str) -> bool:
    """version: as the handshake or @@version names it."""
    return "mariadb" in version.lower()


def in_mariadb(sql: str) -> str:
    """The statement in MariaDB's words; what stands in quotes is left alone."""
    if not any(words in sql for words in _OURS):
        return sql
    return _TEXT_OR_WORD.sub(lambda found: _OURS.get(found[0], found[0]), sql)


def row_image_privilege(version: str) -> str:
    """What lets an account choose the row image of its own sessions."""
    return "BINLOG ADMIN" if is_mariadb(version) else "SESSION_VARIABLES_ADMIN"


def fix_in_mariadb(fix: str) -> str:
    """A finding's fix in MariaDB's words: it cannot write a setting down by itself."""
    changed = fix.replace("SET PERSIST ", "SET GLOBAL ")
    return fix if changed == fix else f"{changed}  -- and in my.cnf, for the next start"


class FlavouredConnection(_Plain):
    """A plain connection that may be told MySQL's statements, whichever of the two answers."""

    def query(self, sql: str | bytes, unbuffered: bool = False) -> Any:
        if isinstance(sql, str) and is_mariadb(self.get_server_info()):  # type: ignore[no-untyped-call]
            sql = in_mariadb(sql)
        return super().query(sql, unbuffered)
