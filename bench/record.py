"""docs/benchmarks.json: what was measured last of each part, so that parts can be measured one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from bench.figures import FIGURES, Results


@dataclass(frozen=True)
class Part:
    """One part as one run has measured it, all sides together. machine: what -> its value."""

    made: date
    command: str
    machine: tuple[tuple[str, str], ...]
    figures: Sequence[Any]


def results(parts: Mapping[str, Part]) -> Results:
    return Results(**{name: part.figures for name, part in parts.items()})


def load(path: Path) -> dict[str, Part]:
    """Part -> its figures; none when there is no such file."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text())
    return {
        name: Part(
            date.fromisoformat(stored[name]["made"]),
            stored[name]["command"],
            tuple((what, value) for what, value in stored[name]["machine"]),
            [kind(**figure) for figure in stored[name]["figures"]],
        )
        for name, kind in FIGURES.items()
        if name in stored
    }


def save(path: Path, parts: Mapping[str, Part]) -> None:
    stored = {
        name: {
            "made": parts[name].made.isoformat(),
            "command": parts[name].command,
            "machine": parts[name].machine,
            "figures": [asdict(figure) for figure in parts[name].figures],
        }
        for name in FIGURES
        if name in parts
    }
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")
    unfinished.replace(path)
