"""Whether a server lets us in and read its binlog: connection, TLS, replication grants. For the primary and a source.

section: the settings that a fix names, `mysql` or `binlog.source`.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pymysql.err import MySQLError

from cdc_outbox.mysql import schema, server_checks
from cdc_outbox.mysql.findings import Finding
from cdc_outbox.mysql.flavour import is_mariadb
from cdc_outbox.mysql.probe import CLIENT_ERRORS, Probe
from cdc_outbox.mysql.server_checks import VARIABLES, Variables
from cdc_outbox.mysql.session import error_code

if TYPE_CHECKING:
    from cdc_outbox.config import MySQLSettings

DENIED = frozenset({1044, 1142, 1143, 1227})
_WRONG_CREDENTIALS = frozenset({1045, 1251, 1698, 1820, 1862, 3118})
_HOST_NOT_ALLOWED = 1130
_TLS_REFUSED = 2026
_TLS_REQUIRED = 3159
_BUSY = frozenset({1040, 1053, 1203, 1226})
"""Too many connections, shutting down: refusals that pass."""


def no_connection(error: MySQLError | OSError, mysql: MySQLSettings, section: str = "mysql") -> Finding:
    code = error_code(error)
    where = f"MySQL at {mysql.host}:{mysql.port}"
    text = error.args[1] if len(error.args) > 1 else str(error)
    if code in _WRONG_CREDENTIALS:
        return Finding(
            "mysql-credentials",
            "error",
            f"{where} refused {mysql.user!r}: {text}",
            "wrong user or password, or an account that is locked or expired",
            f"{section}: {{user, password}} — `cdc-outbox init --print` shows how to make the account",
        )
    if code == _HOST_NOT_ALLOWED:
        return Finding(
            "mysql-credentials",
            "error",
            f"{where}: {text}",
            "no account may connect from this host",
            f"CREATE USER {schema.account(mysql.user)} IDENTIFIED BY '…';",
        )
    if code == _TLS_REQUIRED:
        return Finding(
            "mysql-tls",
            "error",
            f"{where}, {section}.tls.mode = {mysql.tls.mode}: {text}",
            "the server takes encrypted connections only (require_secure_transport)",
            f"{section}: {{tls: {{mode: verify_identity, ca: /path/to/ca.pem}}}}  # or mode: required",
        )
    if code == _TLS_REFUSED or isinstance(getattr(error, "original_exception", error), ssl.SSLError):
        return Finding(
            "mysql-tls",
            "error",
            f"{where}, {section}.tls.mode = {mysql.tls.mode}: {text}",
            "no connection that is protected as the settings ask",
            f"{section}.tls: {{mode, ca, cert, key}}",
        )
    return no_answer(error, mysql, section)


def no_answer(error: MySQLError | OSError, mysql: MySQLSettings, section: str = "mysql") -> Finding:
    code, text = error_code(error), str(error.args[1] if len(error.args) > 1 else error)
    if not code or code in CLIENT_ERRORS or code in _BUSY:
        return unreachable(mysql, text, section)
    return Finding(
        "mysql-answer",
        "error",
        f"MySQL at {mysql.host}:{mysql.port} answered {code}: {text}",
        "a check could not be made",
        f"{section}.host: a MySQL server, 8.0 or newer",
    )


def unreachable(mysql: MySQLSettings, text: str, section: str = "mysql") -> Finding:
    return Finding(
        "mysql-reachable",
        "error",
        f"MySQL at {mysql.host}:{mysql.port} does not answer: {text}",
        "`start` waits for it; nothing is lost meanwhile",
        f"{section}: {{host, port}} — or start the server",
        heals=True,
    )


def server_variables(server: Probe) -> Variables:
    names = ", ".join(f"'{name}'" for name in VARIABLES)
    values = dict(server.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))
    # ProxySQL passes SHOW on and answers just this statement itself.
    ((comment,),) = server.rows("SELECT @@version_comment LIMIT 1")
    return Variables({**values, "version_comment": comment})


def tls(server: Probe, mode: str, section: str = "mysql") -> Iterator[Finding]:
    cipher = dict(server.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'")).get("Ssl_cipher")
    if cipher or mode in {"disabled", "preferred"}:
        yield Finding("mysql-tls", "ok", f"TLS: {cipher or 'none'}")
    else:
        yield Finding(
            "mysql-tls",
            "error",
            f"{section}.tls.mode = {mode}, and the connection is not encrypted",
            "what is read and the password's exchange are open to the network",
            "my.cnf: [mysqld] ssl_cert, ssl_key",
        )


def denied(check: str, found: str, why: str, grant: str) -> Finding:
    return Finding(check, "error", found, why, f"{grant};")


def replication_grants(
    server: Probe, databases: Sequence[str], account: str, *, reads_binlog: bool = True
) -> Iterator[Finding]:
    """databases: of the outbox tables. reads_binlog: False where that is a source's."""
    code, status = server.answer("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")
    if code in DENIED:
        yield denied(
            "grant-replication-client",
            f"{account} lacks REPLICATION CLIENT",
            "the relay cannot ask where the binlog ends",
            f"GRANT REPLICATION CLIENT ON *.* TO {account}",
        )
    else:
        yield Finding("grant-replication-client", "ok", "REPLICATION CLIENT")
    for row in status:
        hidden = server_checks.binlog_filter(row["binlog_do_db"], row["binlog_ignore_db"], databases)
        if hidden:
            yield hidden
    if not reads_binlog:
        return
    if is_mariadb(server.greeting_version):
        # No statement asks for this privilege there; the reader's refusal names it.
        yield Finding("grant-replication-slave", "ok", "REPLICATION SLAVE: MariaDB asks for it when the binlog is read")
        return
    code, _ = server.answer("SHOW REPLICAS", "SHOW SLAVE HOSTS")
    if code in DENIED:
        yield denied(
            "grant-replication-slave",
            f"{account} lacks REPLICATION SLAVE",
            "the relay cannot read the binlog",
            f"GRANT REPLICATION SLAVE ON *.* TO {account}",
        )
    else:
        yield Finding("grant-replication-slave", "ok", "REPLICATION SLAVE")
