"""What a replica and its primary together say of a position."""

from __future__ import annotations

import pytest
from pymysql.err import OperationalError

from cdc_outbox.config import Settings
from cdc_outbox.errors import BinlogLost, CdcOutboxError, Hold
from cdc_outbox.gtid import GtidSet
from cdc_outbox.mysql import session, source
from cdc_outbox.mysql.session import Session
from cdc_outbox.mysql.source import (
    SOURCE,
    History,
    binlog_session,
    connect_to_read,
    first_position,
    is_of_source,
    of_source,
)
from cdc_outbox.relay.incarnation import JOIN_TIMEOUT

A = "aaaaaaaa-71ca-11e1-9e33-c80aa9429562"
B = "bbbbbbbb-71ca-11e1-9e33-c80aa9429562"
"""The primary is A; the replica is B, which was the primary once."""


def gtids(text: str) -> GtidSet:
    return GtidSet.parse(text)


@pytest.mark.parametrize(
    ("executed", "purged", "position"),
    [
        (f"{A}:1-9,{B}:1-3", "", f"{A}:1-9,{B}:1-3"),
        (f"{A}:1-5,{B}:1-3", "", f"{A}:1-9,{B}:1-3"),
        (f"{A}:1-5,{B}:1-3", f"{A}:1-5", f"{A}:1-9,{B}:1-3"),
        ("", "", f"{A}:1-9"),
    ],
    ids=["abreast", "behind", "behind, and purged what was read", "empty"],
)
def test_a_replica_may_be_behind(executed: str, purged: str, position: str) -> None:
    """The server leaves out what the position has, also where that comes later."""
    History(B, gtids(executed), gtids(purged)).check(gtids(position), gtids(f"{A}:1-20,{B}:1-3"))


@pytest.mark.parametrize(
    ("executed", "purged", "position", "meaning", "said"),
    [
        (f"{A}:1-5,{B}:1-4", "", f"{A}:1-5", Hold, f"has transactions that the primary has not, {B}:4"),
        (f"{A}:1-9", f"{A}:1-6", f"{A}:1-5", BinlogLost, "purged"),
        (f"{A}:1-9,{B}:1-2", "", f"{A}:1-5,{B}:1-3", Hold, f"behind: it has not got {B}:3"),
        (f"{A}:1-9,{B}:1-3", "", f"{A}:1-5,{B}:1-4", BinlogLost, "neither server has"),
    ],
    ids=["more than the primary", "purged", "restored", "a transaction that is gone"],
)
def test_what_it_must_not_be(
    executed: str, purged: str, position: str, meaning: type[CdcOutboxError], said: str
) -> None:
    with pytest.raises(meaning, match=said):
        History(B, gtids(executed), gtids(purged)).check(gtids(position), gtids(f"{A}:1-20,{B}:1-3"))


def test_a_uuid_written_in_capitals_is_the_same_server() -> None:
    """As auto.cnf may have it; GTIDs have small letters."""
    with pytest.raises(Hold, match="it is behind"):
        History(B.upper(), gtids(f"{A}:1-9"), GtidSet()).check(gtids(f"{B}:1"), gtids(f"{A}:1-20,{B}:1"))


def settings(**more: object) -> Settings:
    return Settings.model_validate(
        {
            "name": "orders",
            "mysql": {"user": "relay", "password": "x", "database": "shop"},
            "kafka": {"bootstrap_servers": "kafka:9092"},
            "binlog": {"source": {"host": "replica"}},
            **more,
        }
    )


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that connections to a replica that swallows everything waited: for each, to connect and to be greeted."""
    waited: list[float] = []

    def away(*, connect_timeout: float, read_timeout: float, **_: object) -> None:
        waited.append(connect_timeout + read_timeout)
        raise OperationalError(2003, "timed out")

    monkeypatch.setattr(session, "FlavouredConnection", away)
    return waited


@pytest.mark.parametrize("timeout", ["3s", "10s", "1h"])
def test_a_replica_that_swallows_everything_costs_nobody_his_session_on_the_primary(
    waits: list[float], timeout: str
) -> None:
    """The poller's is silent while the replica is asked, and the server ends it after leadership_timeout."""
    chosen = settings(leadership_timeout=timeout)
    with pytest.raises(Hold, match="timed out"), binlog_session(chosen, Session.__new__(Session)):
        pass
    assert sum(waits) < chosen.leadership_timeout


def test_a_replica_that_swallows_everything_does_not_keep_the_reader_from_ending(waits: list[float]) -> None:
    """It is one of the two: no connection, or no greeting on it."""
    with pytest.raises(OperationalError):
        connect_to_read(settings())
    assert sum(waits) / 2 < JOIN_TIMEOUT - 1


class _Replica:
    """A replica with a binlog and without GTIDs."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def query(self, sql: str) -> list[tuple[object, ...]]:
        return [("gtid_mode", "ON_PERMISSIVE")] if "gtid_mode" in sql else [("binlog.000001", 157)]

    def close(self) -> None: ...


def test_a_replicas_file_and_offset_never_become_a_position(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be read from on the primary; and its reader would wait for GTIDs that its position never gets."""
    monkeypatch.setattr(source, "Session", _Replica)
    with pytest.raises(Hold, match=r"binlog.source replica:3306: its gtid_mode is not ON") as caught:
        first_position(settings(), Session.__new__(Session))
    assert caught.value.reason == SOURCE


def test_a_hold_of_the_replica_is_known_by_its_text() -> None:
    chosen = settings()
    text = of_source(chosen, "it is away")
    assert text == "binlog.source replica:3306: it is away"
    assert is_of_source(text) and not is_of_source("no broker answers") and not is_of_source(None)
