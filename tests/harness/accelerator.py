"""The compiled decoder as tests use it: built from the sources that are tested, whatever is installed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cdc_outbox.binlog.accelerator import MODULE

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
