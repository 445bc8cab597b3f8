"""What errors mean, and what counts as a connection; no server."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest
import sqlalchemy.exc

from cdc_outbox.app.consumer_connections import AlchemyWork, DbApiWork, error_code, is_again, is_away, work_on


def caused_by(cause: Exception) -> Exception:
    try:
        raise RuntimeError("wrapped") from cause
    except RuntimeError as error:
        return error


DEADLOCK = pymysql.err.OperationalError(1213, "Deadlock found")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DEADLOCK, 1213),
        (sqlalchemy.exc.OperationalError("UPDATE …", {}, DEADLOCK), 1213),
        (caused_by(DEADLOCK), 1213),
        (pymysql.err.InterfaceError(0, ""), 2006),
        (pymysql.err.IntegrityError(1062, "Duplicate entry"), 1062),
        (KeyError(1213), 0),
        (OSError(2006, "not a driver's"), 0),
        (ValueError("no stock"), 0),
    ],
)
def test_the_number_is_found_where_a_driver_put_it(error: Exception, code: int) -> None:
    assert error_code(error) == code


def test_what_may_be_tried_again_and_what_is_an_outage() -> None:
    def classes(code: int) -> tuple[bool, bool]:
        error = pymysql.err.OperationalError(code, "")
        return is_again(error), is_away(error)

    assert classes(1213) == classes(1205) == (True, False)
    assert classes(2013) == classes(2003) == classes(1290) == (False, True)
    assert classes(1062) == classes(1146) == (False, False)


class Cursorful:
    def cursor(self) -> Any: ...
    def commit(self) -> None: ...


class Sessionlike:
    def flush(self) -> None: ...
    def connection(self) -> Any: ...
    def commit(self) -> None: ...


def test_a_connection_shows_by_its_methods() -> None:
    assert isinstance(work_on(Cursorful()), DbApiWork)
    assert isinstance(work_on(Sessionlike()), AlchemyWork)
    with pytest.raises(TypeError, match="no connection that is known"):
        work_on(object())
