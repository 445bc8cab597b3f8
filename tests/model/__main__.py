"""python -m tests.model [NAME…]: search the models, and write what came of it into the table of docs/model.md.

Without names, what is not in the table yet: an interrupted search of all goes on where it was.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.model.page import PAGE, Row, rows, with_rows
from tests.model.runs import RUNS, outcome, searched


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of runs.py")
    names = parser.parse_args().names
    unknown = sorted(set(names) - {run.name for run in RUNS})
    if unknown:
        parser.error(f"no such run: {', '.join(unknown)}")
    there = rows(PAGE.read_text("utf-8"))
    code = 0
    for run in RUNS:
        if run.name not in names if names else run.name in there:
            continue
        begun = time.monotonic()
        try:
            with tempfile.TemporaryDirectory() as folder:
                broken, verdict = searched(run, Path(folder))
        except (AssertionError, subprocess.TimeoutExpired) as unfinished:
            print(f"{run.name} ({run.switches}) did not end: {unfinished}", file=sys.stderr)
            code = 1
            continue
        seconds = round(time.monotonic() - begun)
        found = Row(outcome(broken), verdict.states, verdict.depth, verdict.mebibytes, seconds)
        print(f"{run.name}: {found}", flush=True)
        if broken != run.breaks:
            print(f"{run.name} ({run.switches}) was to be: {run.outcome}", file=sys.stderr)
            code = 1
        text = PAGE.read_text("utf-8")
        table = {**rows(text), run.name: found}
        PAGE.write_text(with_rows(text, {one.name: table[one.name] for one in RUNS if one.name in table}))
    return code


if __name__ == "__main__":
    sys.exit(main())
