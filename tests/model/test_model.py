"""The relay's protocol as a model, searched through every state; each rule taken out must break what it stands for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.model.page import PAGE, rows
from tests.model.runs import RUNS, Run, searched
from tests.model.spin import FOLDER


def check(run: Run, folder: Path) -> None:
    broken, verdict = searched(run, folder)
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


def test_the_page_says_of_each_run_what_must_come_of_it() -> None:
    """python -m tests.model writes it; searches that have changed are run by their names."""
    must = {run.name: run.outcome for run in RUNS}
    for name, row in rows(PAGE.read_text("utf-8")).items():
        assert row.outcome == must.get(name), f"{name}: run it again"
