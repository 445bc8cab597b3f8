"""What MySQL's errors mean: a person must act, or the server will come back."""

from __future__ import annotations

import os

import pymysql
import pytest
from pydantic import SecretStr

from cdc_outbox.config import MySQLSettings
from cdc_outbox.errors import Hold, Refused
from cdc_outbox.mysql import session
from cdc_outbox.mysql.session import mysql_trouble

SETTINGS = MySQLSettings.model_validate({"user": "relay", "password": "p", "database": "shop"})


def raised(code: int) -> Exception:
    """As PyMySQL makes it of the server's error packet."""
    packet = b"\xff" + code.to_bytes(2, "little") + b"#HY000" + b"what it says"
    with pytest.raises(pymysql.MySQLError) as error:
        pymysql.err.raise_mysql_exception(packet)
    return error.value


@pytest.mark.parametrize(
    "code",
    [
        1020,  # record has changed since it was read
        1021,  # disk full
        1026,  # error writing a file (errno 28)
        1037,  # out of memory
        1040,  # too many connections
        1053,  # shutdown in progress
        1114,  # table full
        1205,
        1213,
        1290,  # read-only
        1317,  # query killed
        1836,  # read-only
        3100,  # a hook refused the commit
        3168,  # not enough disk in a group
    ],
)
def test_what_passes_by_itself_is_a_hold(code: int) -> None:
    meaning = mysql_trouble(raised(code), SETTINGS)
    assert isinstance(meaning, Hold)
    assert meaning.reason == "mysql"
    assert f"({code})" in meaning.message and "what it says" in meaning.message


@pytest.mark.parametrize("code", [1044, 1045, 1049, 1146, 1227])
def test_what_a_person_must_put_right_is_refused(code: int) -> None:
    assert isinstance(mysql_trouble(raised(code), SETTINGS), Refused)


@pytest.mark.parametrize("password", [b"plain", "pässwört €".encode(), b"\xff\xfe no UTF-8"])
def test_a_password_reaches_the_server_as_the_environment_has_it(
    monkeypatch: pytest.MonkeyPatch, password: bytes
) -> None:
    given: list[object] = []
    monkeypatch.setattr(session, "FlavouredConnection", lambda **options: given.append(options["password"]))
    session.connect(SETTINGS.model_copy(update={"password": SecretStr(os.fsdecode(password))}))
    assert given == [password]
