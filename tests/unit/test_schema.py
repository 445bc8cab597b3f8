"""The DDL files, their translation, and what `init --print` shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cdc_outbox.config import Settings
from cdc_outbox.model import TableName
from cdc_outbox.mysql import schema

REPOSITORY = Path(__file__).parents[2]
FILES = ("outbox_event", "cdc_outbox_checkpoint", "processed_event", "consumer_offset", "archive", "cdc_outbox_worker")


def settings(*tables: str, user: str = "relay") -> Settings:
    return Settings.model_validate(
        {
            "name": "orders",
            "mysql": {"user": user, "password": "s3cret-pass", "database": "shop"},
            "outbox": {"tables": list(tables) or ["outbox_event"]},
            "kafka": {"bootstrap_servers": "localhost:9092"},
        }
    )


def test_the_outbox_table_is_the_agreed_one() -> None:
    assert schema.column_definitions("outbox_event") == {
        "id": "id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
        "event_id": "event_id VARCHAR(64) NOT NULL COMMENT '事件唯一ID（幂等键）'",
        "aggregate_type": "aggregate_type VARCHAR(64) NOT NULL COMMENT '聚合类型，如 \"order\"'",
        "aggregate_id": "aggregate_id VARCHAR(64) NOT NULL COMMENT '聚合ID，如订单号'",
        "event_type": "event_type VARCHAR(128) NOT NULL COMMENT '事件类型，如 \"OrderCreated\"'",
        "payload": "payload JSON NOT NULL COMMENT '事件体，JSON格式'",
        "status": "status TINYINT NOT NULL DEFAULT 0 COMMENT '状态：0=待发送，1=发送中，2=已发送，3=失败'",
        "retry_count": "retry_count INT NOT NULL DEFAULT 0 COMMENT '已重试次数'",
        "max_retries": "max_retries INT NOT NULL DEFAULT 3 COMMENT '最大重试次数'",
        "next_retry_at": "next_retry_at DATETIME DEFAULT NULL COMMENT '下次重试时间'",
        "created_at": "created_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP",
        "updated_at": "updated_at DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP",
    }
    sql = schema.ddl("outbox_event", TableName("shop", "outbox_event"))
    assert "UNIQUE KEY uk_event_id (event_id)" in sql
    assert "INDEX idx_status_next_retry (status, next_retry_at)" in sql
    assert sql.endswith("ENGINE=InnoDB DEFAULT CHARSET=utf8mb4")


def test_the_archive_is_the_outbox_and_when_a_row_was_moved() -> None:
    outbox, archive = schema.column_definitions("outbox_event"), schema.column_definitions("archive")
    assert list(archive) == [*outbox, "archived_at"]
    assert not any("AUTO_INCREMENT" in one or "ON UPDATE" in one for one in archive.values())


@pytest.mark.parametrize("file", FILES)
def test_every_comment_has_its_english(file: str) -> None:
    chinese = schema.ddl(file, TableName("shop", file))
    english = schema.ddl(file, TableName("shop", file), "en")
    assert english.isascii()
    without = re.compile(r" COMMENT '[^']*'")
    assert without.sub("", chinese) == without.sub("", english)


def test_a_table_may_have_any_name() -> None:
    sql = schema.ddl("outbox_event", TableName("my shop", "odd`name\\1"))
    assert sql.startswith("CREATE TABLE IF NOT EXISTS `my shop`.`odd``name\\1` (\n")


def test_the_table_of_worker_ids_is_made_on_request() -> None:
    made = [str(one.object) for one in schema.statements(settings(), workers=True)]
    assert made == ["shop.outbox_event", "shop.cdc_outbox_checkpoint", "shop.cdc_outbox_worker"]
    assert "cdc_outbox_worker" in schema.script(settings(), workers=True)
    assert "cdc_outbox_worker" not in schema.script(settings())


def test_init_makes_each_outbox_table_and_one_checkpoint_table() -> None:
    made = [str(one.object) for one in schema.statements(settings("orders", "billing.events"), consumer=True)]
    assert made == [
        "shop.orders",
        "billing.events",
        "shop.cdc_outbox_checkpoint",
        "shop.processed_event",
        "shop.consumer_offset",
    ]


def test_the_printed_script_holds_no_password() -> None:
    printed = schema.script(settings(user="o'brien"), "en")
    assert "s3cret-pass" not in printed
    assert "'o''brien'@'%'" in printed
    assert printed.count("CREATE TABLE") == 2


def test_a_consumers_grants_run_only_with_its_account_filled_in() -> None:
    printed = schema.script(settings(), consumer=True)
    assert printed.count("CREATE TABLE") == 4
    assert "-- GRANT SELECT, INSERT, UPDATE, DELETE ON `shop`.`processed_event` TO 'consumer'@'%';" in printed
    assert "\nGRANT SELECT, INSERT, UPDATE, DELETE" not in printed


def test_the_grants_file_is_what_init_prints_for_the_example() -> None:
    written = (REPOSITORY / "config" / "grants.sql").read_text("utf-8")
    assert written.split("\n\n", 1)[1] == schema.grants_script(settings())
