"""The compiled decoder as tests use it: built from the sources that are tested, whatever is installed."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cdc_outbox.binlog.accelerator import MODULE

BUILDER = Path(__file__).parents[2] / "scripts" / "build_accelerator.py"


def loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def built(folder: Path, options: list[str] | None = None) -> Path:
    """The compiled module's file. Where there is no compiler the test is skipped, except in CI."""
    builder: Any = loaded("build_accelerator", BUILDER)
    try:
        path: Path = builder.build(folder, ["-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", *(options or [])])
    except builder.NotBuilt as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"the compiled decoder cannot be built here: {error}")
    return path


def accelerator(folder: Path) -> ModuleType:
    return loaded(MODULE, built(folder))
