"""Which layouts of the outbox and checkpoint tables are accepted, and the ALTER for those that are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdc_outbox.model import TableName
from cdc_outbox.mysql import schema, table_checks
from cdc_outbox.mysql.findings import Finding
from cdc_outbox.mysql.table_checks import Column, Index, Layout

TABLE = TableName("shop", "outbox_event")


def column(name: str, kind: str, *, nullable: bool = False, default: str | None = None, extra: str = "") -> Column:
    return Column(name, kind, kind, nullable, default, extra)


GOOD = Layout(
    TABLE,
    "InnoDB",
    True,
    (
        column("id", "bigint", extra="auto_increment"),
        column("event_id", "varchar"),
        column("aggregate_type", "varchar"),
        column("aggregate_id", "varchar"),
        column("event_type", "varchar"),
        column("payload", "json"),
        column("status", "tinyint", default="0"),
        column("retry_count", "int", default="0"),
        column("max_retries", "int", default="3"),
        column("next_retry_at", "datetime", nullable=True),
        column("created_at", "datetime", default="CURRENT_TIMESTAMP"),
        column(
            "updated_at",
            "datetime",
            default="CURRENT_TIMESTAMP",
            extra="DEFAULT_GENERATED on update CURRENT_TIMESTAMP",
        ),
    ),
    (
        Index("PRIMARY", True, ("id",)),
        Index("uk_event_id", True, ("event_id",)),
        Index("idx_status_next_retry", False, ("status", "next_retry_at")),
    ),
)


def with_column(changed: Column) -> Layout:
    kept = tuple(changed if one.name == changed.name else one for one in GOOD.columns)
    return replace(GOOD, columns=kept if changed in kept else (*kept, changed))


def without_column(name: str) -> Layout:
    return replace(GOOD, columns=tuple(one for one in GOOD.columns if one.name != name))


def with_indexes(*indexes: Index) -> Layout:
    return replace(GOOD, indexes=indexes)


def complaints(layout: Layout, *mapped: str) -> list[Finding]:
    return [one for one in table_checks.outbox(TABLE, layout, mapped) if one.level != "ok"]


def fix(layout: Layout) -> str:
    (finding,) = complaints(layout)
    assert finding.fix is not None
    return finding.fix


def test_the_agreed_layout_passes() -> None:
    assert complaints(GOOD, "aggregate_id") == []


@pytest.mark.parametrize(
    "accepted",
    [
        column("id", "int"),
        column("event_id", "char"),
        column("aggregate_id", "longtext"),
        column("payload", "longtext"),
        column("payload", "longblob", nullable=True),
        column("status", "int"),
        column("next_retry_at", "timestamp", nullable=True),
        column("created_at", "timestamp", nullable=True),
        column("note", "varchar", nullable=True),
        column("note", "varchar", default=""),
        column("derived", "int", extra="STORED GENERATED"),
        Column("last_error", "varchar", "varchar(512)", True, None, "", 512),
        Column("last_error", "text", "text", True, None, "", 65535),
    ],
)
def test_wider_types_and_further_columns_pass(accepted: Column) -> None:
    assert complaints(with_column(accepted)) == []


@pytest.mark.parametrize("name", list(schema.column_definitions(schema.OUTBOX)))
def test_a_missing_column_is_added_as_the_ddl_has_it(name: str) -> None:
    definition = schema.column_definitions(schema.OUTBOX)[name].replace(" PRIMARY KEY", "")
    assert fix(without_column(name)) == f"ALTER TABLE `shop`.`outbox_event` ADD COLUMN {definition};"


@pytest.mark.parametrize(
    ("wrong", "clause"),
    [
        (column("id", "varchar"), "MODIFY COLUMN id BIGINT NOT NULL AUTO_INCREMENT"),
        (column("status", "varchar"), "MODIFY COLUMN status TINYINT NOT NULL DEFAULT 0"),
        (column("payload", "int"), "MODIFY COLUMN payload JSON NOT NULL"),
        (column("status", "tinyint", nullable=True), "MODIFY COLUMN status TINYINT NOT NULL"),
        (column("event_id", "varchar", nullable=True), "MODIFY COLUMN event_id VARCHAR(64) NOT NULL"),
        (column("next_retry_at", "datetime"), "MODIFY COLUMN next_retry_at DATETIME DEFAULT NULL"),
        (
            Column("last_error", "varchar", "varchar(100)", True, None, "", 100),
            "last_error VARCHAR(512) NULL",
        ),
    ],
)
def test_a_column_that_cannot_serve_is_an_error(wrong: Column, clause: str) -> None:
    (finding,) = complaints(with_column(wrong))
    assert finding.level == "error"
    assert finding.fix is not None and clause in finding.fix


def test_another_spelling_of_a_column_is_renamed() -> None:
    layout = replace(
        without_column("event_id"),
        columns=(*without_column("event_id").columns, column("Event_ID", "varchar")),
    )
    assert fix(layout) == "ALTER TABLE `shop`.`outbox_event` RENAME COLUMN `Event_ID` TO event_id;"


def test_key_and_column_are_mended_by_one_statement() -> None:
    layout = replace(without_column("id"), indexes=GOOD.indexes[1:])
    assert fix(layout) == (
        "ALTER TABLE `shop`.`outbox_event` ADD COLUMN id BIGINT NOT NULL AUTO_INCREMENT, ADD PRIMARY KEY (id);"
    )


PRIMARY, UNIQUE, DUE = GOOD.indexes


@pytest.mark.parametrize(
    ("indexes", "clauses"),
    [
        ((UNIQUE, DUE), "ADD PRIMARY KEY (id)"),
        ((Index("PRIMARY", True, ("event_id",)), UNIQUE, DUE), "DROP PRIMARY KEY, ADD PRIMARY KEY (id)"),
        ((PRIMARY, DUE), "ADD UNIQUE KEY uk_event_id (event_id)"),
        (
            (PRIMARY, replace(UNIQUE, unique=False), DUE),
            "DROP INDEX uk_event_id, ADD UNIQUE KEY uk_event_id (event_id)",
        ),
        ((PRIMARY, UNIQUE), "ADD INDEX idx_status_next_retry (status, next_retry_at)"),
        ((PRIMARY, UNIQUE, replace(DUE, name="due")), "RENAME INDEX `due` TO idx_status_next_retry"),
        ((PRIMARY, UNIQUE, replace(DUE, visible=False)), "ALTER INDEX idx_status_next_retry VISIBLE"),
        (
            (PRIMARY, UNIQUE, replace(DUE, columns=("next_retry_at",))),
            "DROP INDEX idx_status_next_retry, ADD INDEX idx_status_next_retry (status, next_retry_at)",
        ),
    ],
)
def test_a_missing_key_is_an_error_with_its_alter(indexes: tuple[Index, ...], clauses: str) -> None:
    assert fix(with_indexes(*indexes)) == f"ALTER TABLE `shop`.`outbox_event` {clauses};"


def test_a_unique_key_of_another_name_serves() -> None:
    assert complaints(with_indexes(PRIMARY, replace(UNIQUE, name="event"), DUE)) == []


@pytest.mark.parametrize(
    ("extra", "clause"),
    [
        (column("tenant", "int"), "ALTER COLUMN `tenant` SET DEFAULT 0"),
        (column("tenant", "varchar"), "ALTER COLUMN `tenant` SET DEFAULT ''"),
        (column("tenant", "date"), "MODIFY COLUMN `tenant` date NULL"),
    ],
)
def test_a_column_that_every_insert_owes_is_a_warning(extra: Column, clause: str) -> None:
    (finding,) = complaints(with_column(extra))
    assert (finding.check, finding.level) == ("outbox-extra-columns", "warning")
    assert finding.fix == f"ALTER TABLE `shop`.`outbox_event` {clause};"


def test_mapped_columns_must_exist() -> None:
    (finding,) = complaints(GOOD, "aggregate_id", "tenant", "tenant")
    assert (finding.check, finding.level) == ("outbox-mapped-columns", "error")
    assert "tenant," in finding.found and finding.found.count("tenant") == 1


def test_only_innodb_serves() -> None:
    assert fix(replace(GOOD, engine="MyISAM")) == "ALTER TABLE `shop`.`outbox_event` ENGINE=InnoDB;"


def test_a_view_is_no_outbox() -> None:
    (finding,) = complaints(replace(GOOD, base_table=False, engine=""))
    assert finding.level == "error" and "view" in finding.found


def test_the_settings_must_spell_a_table_as_the_server_does() -> None:
    (finding,) = table_checks.outbox(TableName("shop", "Outbox_Event"), GOOD, [])[:1]
    assert finding.fix == "outbox: {tables: [shop.outbox_event]}"


def test_updated_at_must_move_by_itself() -> None:
    (finding,) = complaints(with_column(column("updated_at", "datetime", default="CURRENT_TIMESTAMP")))
    assert (finding.check, finding.level) == ("outbox-updated-at", "warning")


def checkpoint(*, without: str = "", keyed: bool = True) -> list[Finding]:
    table = TableName("shop", schema.CHECKPOINT)
    names = [name for name in schema.column_definitions(schema.CHECKPOINT) if name != without]
    indexes = (Index("PRIMARY", True, ("name", "shard")),) if keyed else ()
    layout = Layout(table, "InnoDB", True, tuple(column(name, "any") for name in names), indexes)
    return table_checks.checkpoint(table, layout)


def test_the_checkpoint_table_needs_every_column() -> None:
    assert [one.level for one in checkpoint()] == ["ok"]
    (finding,) = checkpoint(without="paused")
    assert finding.fix == ("ALTER TABLE `shop`.`cdc_outbox_checkpoint` ADD COLUMN paused TINYINT NOT NULL DEFAULT 0;")


def test_the_checkpoint_table_needs_its_key() -> None:
    (finding,) = checkpoint(keyed=False)
    assert finding.level == "error" and finding.fix is not None
    assert "ADD PRIMARY KEY (name, shard)" in finding.fix
