"""The shell and SQL of the pages, block after block on real servers; each page in a database of its own."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from cdc_outbox.model import TableName
from cdc_outbox.mysql import schema
from cdc_outbox.testing.services import providers
from cdc_outbox.testing.services.endpoint import KafkaEndpoint, MySQLEndpoint, free_port
from tests.docs.blocks import ROOT, RUN, Block, blocks
from tests.harness.process import RelayProcess
from tests.harness.shell import bash, commands
from tests.harness.world import wait_until

PASSWORD = "…"
"""As the pages write it."""
DEAD = "4f0c5a1e-dead"
ROW = "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, status, next_retry_at,"


@pytest.fixture(scope="module")
def mysql() -> Iterator[MySQLEndpoint]:
    """Of its own: the pages make accounts and databases by the names that a reader would use."""
    server = providers.make_mysql({}, lambda text: print(text, file=sys.stderr))
    yield server.endpoint
    server.remove()


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaEndpoint]:
    server = providers.make_kafka({}, lambda text: print(text, file=sys.stderr))
    yield server.endpoint
    server.remove()


class Reader:
    """Somebody who tries a page: a database `shop`, an account `relay`, orders.yaml, and a relay when one is needed."""

    def __init__(self, folder: Path, mysql: MySQLEndpoint, kafka: KafkaEndpoint) -> None:
        self.folder = folder
        self.path = commands(folder, ends=True, yes=True, client=True)
        self.env = {
            "CDC_OUTBOX_CONFIG": "orders.yaml",
            "CDC_OUTBOX_MYSQL__HOST": mysql.host,
            "CDC_OUTBOX_MYSQL__PORT": str(mysql.port),
            "CDC_OUTBOX_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap,
            "CDC_OUTBOX_HTTP__LISTEN": f"127.0.0.1:{free_port()}",
            "RELAY_PASSWORD": PASSWORD,
            "MYSQL_HOST": mysql.host,
            "MYSQL_TCP_PORT": str(mysql.port),
            "MYSQL_PWD": mysql.password,
        }
        (settings,) = [block for block in blocks(ROOT / "README.md") if block.kind == "yaml" and not block.fragment]
        self.config = folder / "orders.yaml"
        self.config.write_text(settings.text)
        self._relay: RelayProcess | None = None
        self._connection = pymysql.connect(
            host=mysql.host, port=mysql.port, user=mysql.user, password=mysql.password, autocommit=True
        )
        self.sql("DROP DATABASE IF EXISTS shop")
        self.sql("DROP USER IF EXISTS relay, archiver")
        self.sql("CREATE DATABASE shop CHARACTER SET utf8mb4")
        self._connection.select_db("shop")

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def set_up(self) -> None:
        """What `README.md` does, which is tried by itself."""
        self.sql("CREATE USER relay IDENTIFIED BY %s", PASSWORD)
        self.sql("CREATE USER archiver")
        done = self.run("cdc-outbox init --print --comments en | mysql -u root")
        assert done.returncode == 0, done.stdout
        self.sql(schema.ddl("archive", TableName("shop", "outbox_event_archive")))
        self.rights()

    def rights(self) -> None:
        """Those that single commands need besides, as the pages say."""
        self.sql("GRANT INSERT ON outbox_event_archive TO relay")
        self.sql("GRANT INSERT, DELETE ON outbox_event TO relay")
        self.sql("GRANT CREATE ON shop.* TO relay")

    def run(self, script: str) -> Any:
        return bash(script, self.folder, self.path, 120, **self.env)

    @property
    def relay(self) -> RelayProcess:
        """One that leads."""
        if self._relay is None:
            log = {"CDC_OUTBOX_LOG__FORMAT": "json"}
            self._relay = RelayProcess(self.config, **{**self.env, **log, "CDC_OUTBOX_CONFIG": str(self.config)})
            self._relay.wait_for("leader")
        return self._relay

    def alone(self) -> None:
        """No relay leads."""
        if self._relay is not None:
            assert self._relay.stop() == 0
            self._relay = None

    def close(self) -> None:
        if self._relay is not None:
            self._relay.kill()
        self._connection.close()


@pytest.fixture
def reader(tmp_path: Path, mysql: MySQLEndpoint, kafka: KafkaEndpoint) -> Iterator[Reader]:
    found = Reader(tmp_path, mysql, kafka)
    yield found
    found.close()


# -- what has to be there before a block ------------------------------------------------------------------------------


def new_account(reader: Reader) -> None:
    reader.sql("DROP USER relay")


def an_event_is_sent(reader: Reader) -> None:
    assert reader.relay


def dead_rows(reader: Reader) -> None:
    reader.alone()
    reader.sql("DELETE FROM outbox_event")
    reader.sql(
        f"{ROW} id, created_at) VALUES (%s, 'order', 'A-1001', 'T', '{{}}', 3, NULL, 80, NOW() - INTERVAL 2 HOUR),"
        " ('other', 'order', 'A-1002', 'T', '{}', 3, NULL, 81, NOW() - INTERVAL 2 HOUR)",
        DEAD,
    )


def a_failed_row(reader: Reader) -> None:
    dead_rows(reader)
    reader.sql("UPDATE outbox_event SET next_retry_at = NOW() + INTERVAL 1 HOUR")


def a_dead_letter(reader: Reader) -> None:
    """Its row is gone."""
    assert reader.relay
    reader.sql("DELETE FROM outbox_event WHERE event_id = %s", DEAD)
    reader.sql(
        "INSERT INTO outbox_event (event_id, aggregate_type, aggregate_id, event_type, payload, max_retries)"
        " VALUES (%s, 'no/topic', 'A-1001', 'T', '{}', 0)",
        DEAD,
    )
    asked = "SELECT 1 FROM outbox_event WHERE event_id = %s AND status = 3 AND next_retry_at IS NULL"
    wait_until(lambda: reader.sql(asked, DEAD), "its dead letter")
    reader.sql("DELETE FROM outbox_event WHERE event_id = %s", DEAD)


def nobody_leads(reader: Reader) -> None:
    assert reader.relay
    reader.alone()


def an_old_partition(reader: Reader) -> None:
    reader.sql(
        "ALTER TABLE outbox_event_archive REORGANIZE PARTITION p_rest INTO ("
        "PARTITION p2026_01 VALUES LESS THAN ('2026-02-01'), PARTITION p_rest VALUES LESS THAN (MAXVALUE))"
    )


BEFORE: dict[str, Callable[[Reader], None]] = {
    'mysql -u root -p -e "CREATE USER': new_account,
    "cdc-outbox emit": an_event_is_sent,
    "cdc-outbox checkpoint set": nobody_leads,
    "cdc-outbox checkpoint reset": nobody_leads,
    "cdc-outbox events list --state dead": dead_rows,
    "cdc-outbox events retry": dead_rows,
    "cdc-outbox events skip": a_failed_row,
    "cdc-outbox events replay": a_dead_letter,
    "curl": an_event_is_sent,
    "cdc-outbox status": an_event_is_sent,
    "ALTER TABLE outbox_event_archive": an_old_partition,
}
"""How a block begins -> what makes it possible."""


def filled(text: str, reader: Reader) -> str:
    """The block with the names and positions of this server in place of the page's."""
    text = re.sub(r"4f0c(?:5a1e)?-?…", DEAD, text)
    text = text.replace("127.0.0.1:9187", reader.env["CDC_OUTBOX_HTTP__LISTEN"])
    if "checkpoint set" in text:
        file, place, _, _, gtids = reader.sql("SHOW BINARY LOG STATUS")[0]
        text = text.replace("binlog.000042:1337", f"{file}:{place}")
        text = re.sub(r"3e11fa47-[0-9a-f-]*:1-5000", gtids.replace("\n", ""), text)
    return text


def do(reader: Reader, block: Block) -> None:
    for beginning, prepare in BEFORE.items():
        if block.text.startswith(beginning):
            prepare(reader)
    text = filled(block.text, reader)
    if block.kind == "sql":
        text = f"mysql -u root shop <<'END'\n{text}END\n"
    done = reader.run(text)
    assert done.returncode == 0, f"{block.page.name}:{block.line}\n{block.text}\n{done.stdout}"
    assert "Traceback" not in done.stdout


PAGES = sorted({page for page, test in RUN.items() if test.endswith("test_pages.py")} - {"README.md", "docs/deploy.md"})


def of_page(page: str) -> list[Block]:
    return [block for block in blocks(ROOT / page) if block.kind in {"sh", "sql"} and not block.marked]


def test_the_readmes_way_into_ones_own_stack(reader: Reader) -> None:
    reader.sql("CREATE TABLE orders (number VARCHAR(20) PRIMARY KEY, state VARCHAR(20) NOT NULL)")
    for block in of_page("README.md"):
        do(reader, block)
    assert reader.sql("SELECT COUNT(*) FROM outbox_event") == [(1,)]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_the_page_does_what_it_should(reader: Reader, page: str) -> None:
    reader.set_up()
    for block in of_page(page):
        if block.text.startswith("cdc-outbox"):
            reader.rights()
        do(reader, block)


def test_removed_it_leaves_nothing(reader: Reader) -> None:
    reader.set_up()
    assert reader.relay
    reader.alone()
    for block in of_page("docs/deploy.md"):
        do(reader, block)
    assert reader.sql("SHOW TABLES") == []
    assert reader.sql("SELECT user FROM mysql.user WHERE user = 'relay'") == []


def options_of(block: Block) -> dict[str, str]:
    lines = (re.sub(r"\s*#.*", "", line) for line in block.text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}


def test_servers_start_with_the_settings_that_are_shown() -> None:
    shown = [options_of(block) for block in blocks(ROOT / "docs" / "how-to.md") if block.kind == "ini"]
    makers = (providers.make_mysql, providers.make_mariadb)
    assert len(shown) == len(makers)
    for make, options in zip(makers, shown, strict=True):
        server = make(options, lambda text: None)
        try:
            place = server.endpoint
            with pymysql.connect(host=place.host, port=place.port, user=place.user, password=place.password) as one:
                for name, value in options.items():
                    if name != "log_bin":
                        with one.cursor() as cursor:
                            cursor.execute(f"SELECT @@global.{name}")
                            row = cursor.fetchone()
                        assert row is not None
                        there = (
                            {"0": "OFF", "1": "ON"}.get(str(row[0]), str(row[0])) if value in {"ON", "OFF"} else row[0]
                        )
                        assert str(there) == value, name
        finally:
            server.remove()
