"""What a replica and its primary together say of a position."""

from __future__ import annotations

import pytest

from cdc_outbox.config import Settings
from cdc_outbox.errors import BinlogLost, CdcOutboxError, Hold
from cdc_outbox.gtid import GtidSet
from cdc_outbox.mysql.source import History, is_of_source, of_source

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


def test_a_hold_of_the_replica_is_known_by_its_text() -> None:
    chosen = Settings.model_validate(
        {
            "name": "orders",
            "mysql": {"user": "relay", "password": "x", "database": "shop"},
            "kafka": {"bootstrap_servers": "kafka:9092"},
            "binlog": {"source": {"host": "replica"}},
        }
    )
    text = of_source(chosen, "it is away")
    assert text == "binlog.source replica:3306: it is away"
    assert is_of_source(text) and not is_of_source("no broker answers") and not is_of_source(None)
