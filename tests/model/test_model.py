"""The relay's protocol as a model, searched through every state; each rule taken out must break what it stands for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.model.runs import RUNS, Run
from tests.model.spin import FOLDER, search

SECONDS = 600.0
"""After which a search is given up."""

PROPERTIES = {
    "P1": r"^\(\(st\[i\]==2\)\|\|dead\[i\]\)$|^letter",
    "P2": r"sent\[i\]",
    "P6": r"cur==r|lock==r",
    "P7": r"exc\[|!=2|cur!=r",
    "P8": r"endless",
}
"""What the assertion of each promise looks like."""


def promise_of(violated: str) -> str:
    return next((name for name, looks in PROPERTIES.items() if re.search(looks, violated)), violated)


def check(run: Run, folder: Path) -> None:
    verdict = search(run.model, run.switches.split(), folder, endless=run.endless, seconds=SECONDS)
    broken = None if verdict.violated is None else promise_of(verdict.violated)
    assert broken == run.breaks, f"{run.name} ({run.switches}): {verdict}"


def named(runs: list[Run]) -> list[object]:
    return [pytest.param(run, id=run.name) for run in runs]


@pytest.mark.parametrize("run", named([run for run in RUNS if run.short]))
def test_the_model(run: Run, tmp_path: Path) -> None:
    check(run, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("run", named([run for run in RUNS if not run.short]))
def test_the_model_in_every_setting(run: Run, tmp_path: Path) -> None:
    check(run, tmp_path)


def test_every_switch_is_used() -> None:
    """A switch that no run sets takes out a rule that nobody tries."""
    text = "".join(path.read_text("utf-8") for path in FOLDER.glob("*.pml"))
    switches = set(re.findall(r"#\s*if(?:n?def)?\s+(\w+)|defined\((\w+)\)", text))
    known = {one or other for one, other in switches} - {"defined"}
    used = set(re.findall(r"-D(\w+)", " ".join(run.switches for run in RUNS)))
    assert not used - known, f"set by a run, not in the models: {used - known}"
    assert known - used <= {"MAXR", "AT1"}, f"in the models, set by no run: {known - used}"
