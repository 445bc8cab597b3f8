"""The compiled decoder as tests use it: built from the sources that are tested, whatever is installed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from struct import error as StructError
from types import ModuleType
from typing import Any

import pytest

from cdc_outbox.binlog.accelerator import MODULE, Decoder
from cdc_outbox.binlog.json_text import json_text
from cdc_outbox.binlog.packets import cut
from cdc_outbox.binlog.row_loop import Add, RowLoop, row_loop
from cdc_outbox.binlog.table_map import Column
from cdc_outbox.model import Event, TableName

SANITIZE = "CDC_OUTBOX_TEST_SANITIZE"
"""Set where the tests run under the sanitizers' library: what they compile is to be watched by it."""

_WATCHED = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]

BUILDER = Path(__file__).parents[2] / "scripts" / "build_accelerator.py"


def loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(folder: Path) -> Path:
    """The compiled module's file. Where there is no compiler the test is skipped, except in CI; a warning fails it."""
    builder: Any = loaded("build_accelerator", BUILDER)
    options = ["-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", *(_WATCHED if os.environ.get(SANITIZE) else [])]
    try:
        path: Path = builder.build(folder, options)
    except builder.NotBuilt as error:
        if os.environ.get("CI") or isinstance(error, builder.CompilerFailed):
            raise
        pytest.skip(f"the compiled decoder cannot be built here: {error}")
    return path


def accelerator(folder: Path) -> ModuleType:
    return loaded(MODULE, built(folder))


PURE_PARTS = Decoder("pure", json_text, cut)


def row_loop_of_both(
    table: TableName, columns: Sequence[Column], image: bytes, nulls: bytes, *, extra: Sequence[str], parts: Decoder
) -> RowLoop:
    """row_loop's, read by both decoders: they must give the same events and stop at the same place."""
    assert parts.kind == "compiled"
    loops = [row_loop(table, columns, image, nulls, extra=extra, parts=each) for each in (PURE_PARTS, parts)]

    def rows(event: bytes, at: int, end: int, committed_at: int | None, add: Add) -> int:
        outcomes: list[object] = []
        for loop in loops:
            events: list[Event] = []
            try:
                stopped = loop(event, at, end, committed_at, events.append)
            except (ValueError, IndexError, StructError):
                stopped = None
            outcomes.append((stopped, [asdict(one) for one in events]))
        assert outcomes[0] == outcomes[1]
        return loops[-1](event, at, end, committed_at, add)

    return rows
