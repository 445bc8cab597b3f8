"""The dump and the assembler that most tests of the binlog begin with."""

from __future__ import annotations

import pytest

from cdc_outbox.binlog.transactions import Assembler
from tests.unit.binlog.wire import OUTBOX, SECOND, Dump


@pytest.fixture
def dump() -> Dump:
    return Dump(offset=1000).begins()


@pytest.fixture
def assembler() -> Assembler:
    return Assembler([OUTBOX, SECOND], "binlog.000001", 1000, chunk_events=100)
