"""The tables: their DDL (schema/*.sql is its only home), creating what is missing, the grants they need."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pymysql.err import MySQLError

from cdc_outbox.errors import Refused
from cdc_outbox.model import TableName
from cdc_outbox.mysql.flavour import row_image_privilege
from cdc_outbox.mysql.session import Session, error_code, mysql_trouble

if TYPE_CHECKING:
    from cdc_outbox.config import Settings

OUTBOX = "outbox_event"
CHECKPOINT = "cdc_outbox_checkpoint"
PROCESSED = "processed_event"
WORKER = "cdc_outbox_worker"
OFFSETS = "consumer_offset"

Comments = Literal["zh", "en"]

_ENGLISH = {
    "事件唯一ID（幂等键）": "unique id of the event (idempotency key)",
    '聚合类型，如 "order"': 'aggregate type, "order" for example',
    "聚合ID，如订单号": "aggregate id, an order number for example",
    '事件类型，如 "OrderCreated"': 'event type, "OrderCreated" for example',
    "事件体，JSON格式": "the event itself, JSON",
    "状态：0=待发送，1=发送中，2=已发送，3=失败": "status: 0 pending, 1 sending, 2 sent, 3 failed",
    "已重试次数": "retries so far",
    "最大重试次数": "retries allowed",
    "下次重试时间": "when the next retry is due",
    "归档时间": "when the row was moved here",
}

_CREATE = re.compile(r"^CREATE TABLE IF NOT EXISTS (\w+) \($", re.MULTILINE)
_COMMENT = re.compile(r"COMMENT '([^']*)'")
_COLUMN = re.compile(r"^  ([a-z_]+) (.*?),?$")


@dataclass(frozen=True)
class Statement:
    """One CREATE TABLE: the table it makes and its SQL, without a closing semicolon."""

    object: TableName
    sql: str


def _home() -> Traversable:
    """schema/ lies inside an installed wheel, and beside the package in a checkout."""
    packaged = resources.files("cdc_outbox").joinpath("schema")
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "schema"


@cache
def _create_table(file: str) -> str:
    text = _home().joinpath(f"{file}.sql").read_text("utf-8")
    body = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return body.strip().rstrip(";")


def ddl(file: str, table: TableName, comments: Comments = "zh") -> str:
    """The CREATE TABLE of schema/<file>.sql under another name, comments in Chinese or in English."""
    sql = _CREATE.sub(lambda _: f"CREATE TABLE IF NOT EXISTS {table.quoted} (", _create_table(file), count=1)
    if comments == "en":
        sql = _COMMENT.sub(lambda found: f"COMMENT '{_ENGLISH[found[1]]}'", sql)
    return sql


@cache
def column_definitions(file: str) -> dict[str, str]:
    """Column name -> its definition as it stands behind ADD COLUMN, in the table's order."""
    lines = (_COLUMN.match(line) for line in _create_table(file).splitlines())
    return {found[1]: f"{found[1]} {found[2]}" for found in lines if found}


def checkpoint_table(settings: Settings) -> TableName:
    return TableName(settings.mysql.database, CHECKPOINT)


def statements(
    settings: Settings, comments: Comments = "zh", consumer: bool = False, workers: bool = False
) -> list[Statement]:
    """Everything `init` makes: the outbox tables, the checkpoint table, for consumers the two of theirs.

    workers: cdc_outbox_worker as well, from which applications lease Snowflake worker ids.
    """
    wanted = [(OUTBOX, table) for table in settings.table_names]
    wanted.append((CHECKPOINT, checkpoint_table(settings)))
    if consumer:
        wanted += [(table, TableName(settings.mysql.database, table)) for table in (PROCESSED, OFFSETS)]
    if workers:
        wanted.append((WORKER, TableName(settings.mysql.database, WORKER)))
    return [Statement(table, ddl(file, table, comments)) for file, table in wanted]


def missing(session: Session, settings: Settings, consumer: bool = False, workers: bool = False) -> list[TableName]:
    """The tables of `statements` that do not exist, or that this user may not see."""
    tables = [statement.object for statement in statements(settings, consumer=consumer, workers=workers)]
    pairs = ", ".join(["(%s, %s)"] * len(tables))
    found = session.query(
        f"SELECT table_schema, table_name FROM information_schema.tables WHERE (table_schema, table_name) IN ({pairs})",
        [part for table in tables for part in table],
    )
    # A server with lower_case_table_names gives its own spelling back.
    there = {(schema.lower(), name.lower()) for schema, name in found}
    return [table for table in tables if (table.database.lower(), table.name.lower()) not in there]


def create(
    session: Session, settings: Settings, comments: Comments = "zh", consumer: bool = False, workers: bool = False
) -> list[str]:
    """Create what is missing and return the names of the new tables; what exists is not touched.

    Raises Refused where the database is not there or the user may not create tables, Hold when MySQL is away.
    """
    created: list[str] = []
    try:
        absent = missing(session, settings, consumer, workers)
        for statement in statements(settings, comments, consumer, workers):
            if statement.object in absent:
                _create(session, settings, statement)
                created.append(str(statement.object))
    except MySQLError as error:
        raise mysql_trouble(error, settings.mysql) from error
    return created


def _create(session: Session, settings: Settings, statement: Statement) -> None:
    table = statement.object
    try:
        session.execute(statement.sql)
    except MySQLError as error:
        if error_code(error) == 1049:
            raise Refused(
                f"there is no database {table.database!r} to create {table.name} in"
                " — check mysql.database and outbox.tables",
                hint=f"CREATE DATABASE {identifier(table.database)};",
            ) from error
        if error_code(error) in {1044, 1142}:
            raise Refused(
                f"mysql.user {settings.mysql.user!r} may not create {table}",
                hint="; ".join(create_grants(settings))
                + ";  -- or run the output of `cdc-outbox init --print` with an account that may create tables",
            ) from error
        raise


_TABLE_DENIED = re.compile(
    r"\b([A-Z]+)(?: with locking clause)?(?: command)? denied to user .* (?:for|in) table '([^']+)'"
)
_PRIVILEGE_NEEDED = re.compile(r"you need \(at least one of\) the (.+?) privilege")


@dataclass(frozen=True)
class _Grant:
    sql: str
    why: str


def account(user: str, host: str = "%") -> str:
    """'user'@'host', safe to stand in SQL."""
    return "@".join("'" + part.replace("\\", "\\\\").replace("'", "''") + "'" for part in (user, host))


def table_grant(privileges: str, table: TableName, to: str) -> str:
    return f"GRANT {privileges} ON {table.quoted} TO {to}"


def outbox_privileges(settings: Settings) -> str:
    """What the relay does with an outbox table."""
    return "SELECT, INSERT, UPDATE, DELETE" if settings.outbox.transient else "SELECT, UPDATE"


def _grants(settings: Settings, to: str, version: str | None = None) -> list[_Grant]:
    outbox = settings.table_names
    if version is None:
        # Each is a comment to the other server.
        image = [
            f"/*!80014 GRANT {row_image_privilege('')} ON *.* TO {to} */",
            f"/*M!100502 GRANT {row_image_privilege('MariaDB')} ON *.* TO {to} */",
        ]
    else:
        image = [f"GRANT {row_image_privilege(version)} ON *.* TO {to}"]
    return [
        *_binlog_grants(settings, to),
        *(
            _Grant(table_grant(outbox_privileges(settings), table, to), "read events and write their outcome")
            for table in outbox
        ),
        _Grant(
            table_grant("SELECT, INSERT, UPDATE", checkpoint_table(settings), to),
            "keep the position, the epoch and the state",
        ),
        *(
            _Grant(sql, "optional: small row images in the relay's own sessions, a fraction of the binlog")
            for sql in image
        ),
        *(
            _Grant(
                table_grant("INSERT", table, to),
                "optional: only `cdc-outbox emit`, which puts a test event in",
            )
            for table in outbox
            if not settings.outbox.transient
        ),
    ]


def _binlog_grants(settings: Settings, to: str) -> list[_Grant]:
    reads = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO "
    server = settings.binlog_server
    if server.user == settings.mysql.user:
        return [_Grant(reads + to, "read the binlog, and ask where it ends")]
    return [
        _Grant(f"GRANT REPLICATION CLIENT ON *.* TO {to}", "ask where the binlog ends"),
        _Grant(
            reads + account(server.user),
            f"read the binlog of binlog.source, {server.host}; the account too is made on the primary, and replicated",
        ),
    ]


def grants(settings: Settings, version: str | None = None) -> list[str]:
    """GRANT statements for the user of the settings, from any host; each was found to be needed by trial.

    version: as the server names it; without it MySQL and MariaDB both take every statement.
    """
    return [grant.sql for grant in _grants(settings, account(settings.mysql.user), version)]


def create_grants(settings: Settings) -> list[str]:
    """What `init` itself needs, in each database that has a table of ours."""
    databases = dict.fromkeys([checkpoint_table(settings).database, *(one.database for one in settings.table_names)])
    return [f"GRANT CREATE ON {identifier(one)}.* TO {account(settings.mysql.user)}" for one in databases]


def missing_grants(settings: Settings, error: MySQLError, needs: Sequence[str] | None = None) -> str | None:
    """The GRANTs that end this refusal, as SQL; None where it is none of privileges.

    needs: the grants to name where the server does not say which is missing; None: those of a relay.
    """
    code, text = error_code(error), str(error.args[-1])
    to = account(settings.mysql.user)
    found = _TABLE_DENIED.search(text)
    if code in {1142, 1143} and found is not None:
        ours = [*settings.table_names, checkpoint_table(settings)]
        tables = [table for table in ours if table.name.lower() == found[2].lower()]
        # A locking SELECT needs a right to write, too.
        privilege = "UPDATE" if "locking clause" in text else found[1]
        return "\n".join(f"{table_grant(privilege, table, to)};" for table in tables) or None
    found = _PRIVILEGE_NEEDED.search(text)
    if code == 1227 and found is not None:
        # The last one named is the narrowest: SUPER comes first.
        return f"GRANT {found[1].split(',')[-1].strip()} ON *.* TO {to};"
    if code == 1044:
        return "\n".join(f"{grant};" for grant in (grants(settings) if needs is None else needs))
    return None


CONSUMER_ACCOUNT = "consumer"
"""Stands for the account of a consuming service, which no setting of the relay names."""


def _consumer_grants(settings: Settings) -> list[_Grant]:
    to = account(CONSUMER_ACCOUNT)
    processed, offsets = (TableName(settings.mysql.database, table) for table in (PROCESSED, OFFSETS))
    return [
        _Grant(table_grant("SELECT, INSERT, UPDATE, DELETE", processed, to), "record what was processed, and purge it"),
        _Grant(
            table_grant("SELECT, INSERT, UPDATE", offsets, to),
            "optional: only consumers that keep their progress there",
        ),
    ]


def consumer_grants(settings: Settings) -> list[str]:
    """GRANT statements for a consuming service, whose account is called `consumer` in them."""
    return [grant.sql for grant in _consumer_grants(settings)]


def grants_script(settings: Settings, consumer: bool = False) -> str:
    """SQL that makes the account, each grant with its reason. It holds no password.

    consumer: also what a consuming service needs, as comments: its account's name is not known here.
    """
    to = account(settings.mysql.user)
    lines = [
        "-- An account for the relay and nothing else; '%' may be narrowed to the host it runs on.",
        f"-- CREATE USER {to} IDENTIFIED BY '…';  (the password of mysql.password)",
    ]
    reader = account(settings.binlog_server.user)
    if reader != to:
        lines.append(f"-- CREATE USER {reader} IDENTIFIED BY '…';  (the password of binlog.source.password)")
    lines.append("")
    for grant in _grants(settings, to):
        lines += [f"-- {grant.why}", f"{grant.sql};"]
    if consumer:
        lines += ["", f"-- For each consuming service, with its account in place of '{CONSUMER_ACCOUNT}':"]
        for grant in _consumer_grants(settings):
            lines += [f"-- {grant.why}", f"-- {grant.sql};"]
    return "\n".join(lines) + "\n"


def script(settings: Settings, comments: Comments = "zh", consumer: bool = False, workers: bool = False) -> str:
    """What `init --print` shows: the tables and the account, to be run by an administrator."""
    tables = [f"{statement.sql};\n" for statement in statements(settings, comments, consumer, workers)]
    return "\n".join([*tables, grants_script(settings, consumer)])


def identifier(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
