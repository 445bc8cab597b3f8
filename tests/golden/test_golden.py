"""Recorded binlog events give the transactions written down beside them, see record.py."""

from __future__ import annotations

import json

import pytest

from cdc_outbox.model import Position
from tests.golden.replay import FOLDER, assemble, described, extra_columns, recorded

pytestmark = pytest.mark.usefixtures("each_decoder")


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.sql")))
def test_recorded_events(name: str) -> None:
    expected = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    extra = extra_columns((FOLDER / f"{name}.sql").read_text(encoding="utf-8"))
    transactions, error = assemble(recorded(name), Position(*expected["start"]), extra)
    assert [described(transaction) for transaction in transactions] == expected["transactions"]
    assert error == expected["error"]
