"""Whether the tables are laid out as the relay needs them. Pure: a Layout in, findings with their fix out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cdc_outbox.model import TableName
from cdc_outbox.mysql import schema
from cdc_outbox.mysql.findings import Finding

_INTEGER = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_NUMBER = _INTEGER | {"decimal", "float", "double"}
_STRING = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BLOB = frozenset({"tinyblob", "blob", "mediumblob", "longblob"})
_TIME = frozenset({"datetime", "timestamp"})

ACCEPTED: Mapping[str, frozenset[str]] = {
    "id": frozenset({"int", "bigint"}),
    "event_id": _STRING,
    "aggregate_type": _STRING,
    "aggregate_id": _STRING,
    "event_type": _STRING,
    "payload": frozenset({"json", "text", "mediumtext", "longtext"}) | _BLOB,
    "status": _INTEGER,
    "retry_count": _INTEGER,
    "max_retries": _INTEGER,
    "next_retry_at": _TIME,
    "created_at": _TIME,
    "updated_at": _TIME,
}
"""Columns of an outbox table and the types that serve."""

_MAY_BE_NULL = frozenset({"payload", "next_retry_at", "created_at", "updated_at"})
DUE_INDEX = "idx_status_next_retry"
"""Queries name this index: without it the sweep would read the whole table."""
LAST_ERROR_LENGTH = 512
_PARTITIONED_KEY = ("event_id", "id")
"""Unique, of a table that is partitioned by id: the server wants the partitions' column in every unique key."""


@dataclass(frozen=True)
class Column:
    """One column as information_schema.columns describes it.

    type: its name alone; full_type: as ALTER TABLE takes it; length in characters, None where it has none.
    """

    name: str
    type: str
    full_type: str
    nullable: bool
    default: str | None
    extra: str
    length: int | None = None


@dataclass(frozen=True)
class Index:
    """One index; columns in its order, None for an expression."""

    name: str
    unique: bool
    columns: tuple[str | None, ...]
    visible: bool = True


@dataclass(frozen=True)
class Layout:
    """A table as the server describes it; `name` is spelled the server's way."""

    name: TableName
    engine: str
    base_table: bool
    columns: tuple[Column, ...]
    indexes: tuple[Index, ...]

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def index(self, name: str) -> Index | None:
        return next((index for index in self.indexes if index.name.lower() == name.lower()), None)


def outbox(table: TableName, layout: Layout, mapped: Sequence[str]) -> list[Finding]:
    """table: as the settings spell it; mapped: columns that outbox.columns names."""
    storage = _storage("outbox-table", table, layout)
    if not layout.base_table:
        return storage
    problems = [
        *storage,
        *_layout(layout),
        *_event_id(layout),
        *_extra_columns(layout),
        *_mapped(layout, mapped),
        *_on_update(layout),
        *_last_error(layout),
    ]
    if any(finding.level == "error" for finding in problems):
        return problems
    return [
        Finding("outbox-table", "ok", f"{table}: {len(layout.columns)} columns, keys as needed"),
        *problems,
    ]


def checkpoint(table: TableName, layout: Layout) -> list[Finding]:
    wanted = schema.column_definitions(schema.CHECKPOINT)
    changes = [f"ADD COLUMN {wanted[name]}" for name in wanted if layout.column(name) is None]
    missing = ", ".join(name for name in wanted if layout.column(name) is None)
    problems = _storage("checkpoint-table", table, layout)
    if changes:
        problems.append(
            Finding(
                "checkpoint-table",
                "error",
                f"{table} has no column {missing}",
                "the relay keeps its place and its fence there",
                _alter(table, changes),
            )
        )
    primary = layout.index("PRIMARY")
    if primary is None or primary.columns != ("name", "shard"):
        drop = ["DROP PRIMARY KEY"] if primary else []
        problems.append(
            Finding(
                "checkpoint-table",
                "error",
                f"{table} has no PRIMARY KEY (name, shard)",
                "two rows for one relay would undo its fence",
                _alter(table, [*drop, "ADD PRIMARY KEY (name, shard)"]),
            )
        )
    return problems or [Finding("checkpoint-table", "ok", f"{table}: {len(layout.columns)} columns")]


def _alter(table: TableName, changes: Sequence[str]) -> str:
    return f"ALTER TABLE {table.quoted} {', '.join(changes)};"


def _storage(check: str, table: TableName, layout: Layout) -> list[Finding]:
    if not layout.base_table:
        return [
            Finding(
                check,
                "error",
                f"{table} is a view",
                "the binlog names the table behind it",
                "outbox.tables: the table itself" if check == "outbox-table" else f"DROP VIEW {table.quoted};",
            )
        ]
    findings = []
    if layout.engine.lower() != "innodb":
        findings.append(
            Finding(
                check,
                "error",
                f"{table} is stored by {layout.engine}",
                "only InnoDB rolls back: an event must vanish with its transaction",
                _alter(table, ["ENGINE=InnoDB"]),
            )
        )
    if check == "outbox-table" and layout.name != table:
        findings.append(
            Finding(
                check,
                "error",
                f"outbox.tables says {table}, the server says {layout.name}",
                "the binlog uses the server's spelling, and the relay would wait for another table",
                f"outbox: {{tables: [{layout.name}]}}",
            )
        )
    return findings


@dataclass(frozen=True)
class _Flaw:
    """What is wrong with a table, and the clauses of the ALTER TABLE that mend it."""

    text: str
    changes: tuple[str, ...]


def _layout(layout: Layout) -> Iterator[Finding]:
    # One ALTER for all: an AUTO_INCREMENT column and its key can only be added together.
    flaws = [*_columns(layout), *_keys(layout)]
    if flaws:
        yield Finding(
            "outbox-layout",
            "error",
            f"{layout.name}: {', '.join(flaw.text for flaw in flaws)}",
            "an event could not be published, or its outcome not be written or found",
            _alter(layout.name, [change for flaw in flaws for change in flaw.changes]),
        )


def _columns(layout: Layout) -> Iterator[_Flaw]:
    spelled = {column.name.lower(): column.name for column in layout.columns}
    for name, types in ACCEPTED.items():
        column = layout.column(name)
        definition = schema.column_definitions(schema.OUTBOX)[name].replace(" PRIMARY KEY", "")
        if column is None and name in spelled:
            yield _Flaw(f"{spelled[name]} must be spelled {name}", (f"RENAME COLUMN `{spelled[name]}` TO {name}",))
        elif column is None:
            yield _Flaw(f"no column {name}", (f"ADD COLUMN {definition}",))
        elif column.type not in types:
            yield _Flaw(f"{name} is {column.type.upper()}", (f"MODIFY COLUMN {definition}",))
        elif name == "next_retry_at" and not column.nullable:
            yield _Flaw(f"{name} is NOT NULL", (f"MODIFY COLUMN {definition}",))
        elif name not in _MAY_BE_NULL and column.nullable:
            yield _Flaw(f"{name} may be NULL", (f"MODIFY COLUMN {definition}",))


def _keys(layout: Layout) -> Iterator[_Flaw]:
    primary = layout.index("PRIMARY")
    if primary is None or primary.columns[0] != "id":
        drop = ("DROP PRIMARY KEY",) if primary else ()
        yield _Flaw(
            "no primary key on id (each status change would lock the whole table)",
            (*drop, "ADD PRIMARY KEY (id)"),
        )
    if not any(index.unique and index.columns in {("event_id",), _PARTITIONED_KEY} for index in layout.indexes):
        drop = ("DROP INDEX uk_event_id",) if layout.index("uk_event_id") else ()
        yield _Flaw(
            "no unique key on event_id (the idempotency key)",
            (*drop, "ADD UNIQUE KEY uk_event_id (event_id)"),
        )
    columns = ("status", "next_retry_at")
    serving = [index for index in layout.indexes if index.visible and index.columns in {columns, (*columns, "id")}]
    if not any(index.name.lower() == DUE_INDEX for index in serving):
        yield _Flaw(
            f"no visible index {DUE_INDEX} ({', '.join(columns)}) (the poller's searches name it)",
            _due_index_changes(layout, columns, serving),
        )


def _due_index_changes(layout: Layout, columns: tuple[str, ...], serving: Sequence[Index]) -> tuple[str, ...]:
    named = layout.index(DUE_INDEX)
    if named is not None and named.columns == columns:
        return (f"ALTER INDEX {DUE_INDEX} VISIBLE",)
    drop = (f"DROP INDEX {DUE_INDEX}",) if named is not None else ()
    if serving:
        return (*drop, f"RENAME INDEX `{serving[0].name}` TO {DUE_INDEX}")
    return (*drop, f"ADD INDEX {DUE_INDEX} ({', '.join(columns)})")


def _event_id(layout: Layout) -> Iterator[Finding]:
    named = [index for index in layout.indexes if index.unique and index.columns[:1] == ("event_id",)]
    if named and all(index.columns == _PARTITIONED_KEY for index in named):
        yield Finding(
            "outbox-layout",
            "warning",
            f"{layout.name}: unique is (event_id, id), not event_id",
            "a table partitioned by id can have no other key, and the server takes an event_id that is there already",
            f"leave it where the producer never repeats an event_id; else, without partitions: ALTER TABLE"
            f" {layout.name.quoted} DROP INDEX `{named[0].name}`, ADD UNIQUE KEY uk_event_id (event_id);",
        )


def _extra_columns(layout: Layout) -> Iterator[Finding]:
    owed = [
        column
        for column in layout.columns
        if column.name.lower() not in ACCEPTED
        and not column.nullable
        and column.default is None
        and "generated" not in column.extra.lower()
        and "auto_increment" not in column.extra.lower()
    ]
    if owed:
        yield Finding(
            "outbox-extra-columns",
            "warning",
            f"{layout.name}: {', '.join(column.name for column in owed)} NOT NULL without a default",
            "`cdc-outbox emit`, and any insert that does not name them, fails",
            _alter(layout.name, [_with_default(column) for column in owed]),
        )


def _with_default(column: Column) -> str:
    if column.type in _NUMBER:
        return f"ALTER COLUMN `{column.name}` SET DEFAULT 0"
    if column.type in {"char", "varchar"}:
        return f"ALTER COLUMN `{column.name}` SET DEFAULT ''"
    return f"MODIFY COLUMN `{column.name}` {column.full_type} NULL"


def _mapped(layout: Layout, mapped: Sequence[str]) -> Iterator[Finding]:
    missing = [name for name in dict.fromkeys(mapped) if layout.column(name) is None]
    if missing:
        yield Finding(
            "outbox-mapped-columns",
            "error",
            f"outbox.columns names {', '.join(missing)}, which {layout.name} does not have",
            "keys, topics and headers are taken from these columns",
            f"outbox.columns: names among {', '.join(column.name for column in layout.columns)}",
        )


def _on_update(layout: Layout) -> Iterator[Finding]:
    column = layout.column("updated_at")
    if column is not None and "on update" not in column.extra.lower():
        definition = schema.column_definitions(schema.OUTBOX)["updated_at"]
        yield Finding(
            "outbox-updated-at",
            "warning",
            f"{layout.name}: updated_at does not change by itself",
            "with claim: row a row that another worker has just claimed may be taken for an abandoned one",
            _alter(layout.name, [f"MODIFY COLUMN {definition}"]),
        )


def _last_error(layout: Layout) -> Iterator[Finding]:
    column = layout.column("last_error")
    if column is None:
        return
    if column.type not in _STRING or (column.length or 0) < LAST_ERROR_LENGTH or not column.nullable:
        yield Finding(
            "outbox-last-error",
            "error",
            f"{layout.name}: last_error is {column.type.upper()}"
            + (f"({column.length})" if column.length else "")
            + ("" if column.nullable else " NOT NULL"),
            f"the relay fills last_error where it exists, with up to {LAST_ERROR_LENGTH} characters",
            _alter(layout.name, [f"MODIFY COLUMN last_error VARCHAR({LAST_ERROR_LENGTH}) NULL"]),
        )
