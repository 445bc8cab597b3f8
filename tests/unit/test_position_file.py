"""The position in a file: whole or not at all, and nobody else's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cdc_outbox.errors import Refused
from cdc_outbox.gtid import GtidSet
from cdc_outbox.model import Position
from cdc_outbox.mysql.position_file import PositionFile

HERE, ELSEWHERE = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.fixture
def file(tmp_path: Path) -> PositionFile:
    return PositionFile(str(tmp_path / "position.json"), "orders")


@pytest.mark.parametrize("position", [Position("binlog.000007", 1337), Position(gtid_set=GtidSet.parse(f"{HERE}:1-9"))])
def test_what_was_written_is_read(file: PositionFile, position: Position) -> None:
    assert file.read(HERE) is None
    assert not file.written_elsewhere(HERE)
    file.write(Position("binlog.000001", 4), HERE)
    file.write(position, HERE)
    assert file.read(HERE) == position
    assert list(file.path.parent.iterdir()) == [file.path]


def test_a_file_position_of_another_server_is_void(file: PositionFile) -> None:
    file.write(Position("binlog.000007", 1337), ELSEWHERE)
    assert file.read(HERE) == Position("binlog.000007", 0)


def test_a_gtid_set_holds_on_every_server(file: PositionFile) -> None:
    position = Position(gtid_set=GtidSet.parse(f"{HERE}:1-9"))
    file.write(position, ELSEWHERE)
    assert file.read(HERE) == position
    assert file.written_elsewhere(HERE)
    assert not file.written_elsewhere(ELSEWHERE)


def test_another_relays_file_is_refused(file: PositionFile) -> None:
    file.write(Position("binlog.000007", 1337), HERE)
    with pytest.raises(Refused, match="relay 'orders', not of 'bills'"):
        PositionFile(str(file.path), "bills").read(HERE)


@pytest.mark.parametrize("text", ["", "[]", "{}", json.dumps({"relay": "orders"}), "\ud800"])
def test_what_is_no_position_is_refused_and_says_what_to_do(file: PositionFile, text: str) -> None:
    file.path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(Refused, match="checkpoint_file") as refused:
        file.read(HERE)
    assert "remove this one" in str(refused.value.hint)


def test_a_failed_write_leaves_the_old_position(file: PositionFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write(Position("binlog.000007", 1337), HERE)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        file.write(Position("binlog.000008", 4), HERE)
    assert file.read(HERE) == Position("binlog.000007", 1337)
    assert list(file.path.parent.iterdir()) == [file.path]


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="its folder is missing"):
        PositionFile(str(tmp_path / "missing" / "position.json"), "orders").check_folder()
