"""MariaDB's words for MySQL's: found wherever they stand in a statement, never inside a text."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from cdc_outbox.mysql.flavour import fix_in_mariadb, in_mariadb, is_mariadb, row_image_privilege


def test_which_is_mariadb() -> None:
    assert is_mariadb("5.5.5-10.11.18-MariaDB-0+deb12u1-log")
    assert not is_mariadb("9.7.4")


def test_a_statement_is_put_into_mariadbs_words() -> None:
    identity = in_mariadb("SELECT @@server_uuid")
    assert "@@server_uuid" not in identity and "@@server_id" in identity and "@@datadir" in identity
    assert in_mariadb("SHOW BINARY LOG STATUS") == "SHOW BINLOG STATUS"
    assert in_mariadb("SELECT name FROM t") == "SELECT name FROM t"


@pytest.mark.parametrize("text", ["'@@server_uuid'", "'it''s @@server_uuid'", r"'\' @@server_uuid'", "'is_visible'"])
def test_texts_are_left_alone(text: str) -> None:
    sql = f"UPDATE t SET a = {text} WHERE b = @@server_uuid AND c = {text}"
    assert in_mariadb(sql).count(text) == 2
    assert "@@server_id" in in_mariadb(sql)


def test_nothing_of_mysqls_own_is_left_in_the_relays_statements() -> None:
    statements = resources.files("cdc_outbox.mysql").joinpath("queries.sql").read_text("utf-8")
    variables = set(re.findall(r"@@(?:global\.|session\.)?(\w+)", in_mariadb(statements)))
    assert variables == {"server_id", "hostname", "port", "datadir", "read_only"}


def test_fixes() -> None:
    assert fix_in_mariadb("SET PERSIST sync_binlog = 1;") == (
        "SET GLOBAL sync_binlog = 1;  -- and in my.cnf, for the next start"
    )
    assert fix_in_mariadb("cdc-outbox init") == "cdc-outbox init"
    assert row_image_privilege("10.11.6-MariaDB") == "BINLOG ADMIN"
