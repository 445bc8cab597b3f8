"""python -m tests.long_run [FOLDER…]: the folders of tests with --long, and with --page the page of all reports.

What has a report of this commit is not run again unless it is named, so that an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from pathlib import Path

from tests.long_run.report import newest, page

REPOSITORY = Path(__file__).parents[2]
TESTS = REPOSITORY / "tests"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.long_run", description=__doc__)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="of tests, `crash` for example; none: all")
    parser.add_argument("--into", type=Path, default=REPOSITORY / "build/long-run", help="where the reports are kept")
    parser.add_argument("--page", type=Path, default=None, help="where the page goes, docs/long-run.md for example")
    parser.add_argument("--only-page", action="store_true", help="run nothing")
    parser.add_argument("--workers", type=int, default=1, help="files of tests that run at once")
    wanted = parser.parse_args()
    there = sorted({file.parent.name for file in TESTS.glob("*/test_*.py")} | {"unit"})
    unknown = sorted(set(wanted.folders) - set(there))
    if unknown:
        parser.error(f"no such folder of tests: {', '.join(unknown)}; there are: {', '.join(there)}")
    reports, code = wanted.into / commit(), 0
    if not wanted.only_page:
        for folder in wanted.folders or there:
            if folder in wanted.folders or not (reports / f"{folder}.xml").exists():
                code = max(code, run(folder, reports / f"{folder}.xml", wanted.workers))
    if wanted.page is not None:
        arguments = [one for one in sys.argv[1:] if one != "--only-page" and one not in wanted.folders]
        parts = newest(wanted.into)
        without = [folder for folder in there if folder not in {part.folder for part in parts}]
        wanted.page.write_text(page(parts, shlex.join(["python", "-m", "tests.long_run", *arguments]), without))
    return code


def commit() -> str:
    """The commit of main that is run, `+n` where n commits more lie on it, with a mark where files differ from it."""
    base = _git("merge-base", "HEAD", "main")
    more = int(_git("rev-list", "--count", f"{base}..HEAD"))
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return base[:7] + (f"+{more}" if more else "") + ("-changed" if changed else "")


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.strip()


def run(folder: str, report: Path, workers: int) -> int:
    """0 when every test passed. The report is there once the run has ended, whatever came of it."""
    report.parent.mkdir(parents=True, exist_ok=True)
    begun = report.with_suffix(".begun")
    command = [sys.executable, "-m", "pytest", "-q", "--long", f"--junit-xml={begun}", f"tests/{folder}"]
    if workers > 1:
        command += ["-n", str(workers), "--dist", "loadfile"]
    print(f"-- {folder}", flush=True)
    started = time.monotonic()
    ended = subprocess.run(command, cwd=REPOSITORY, check=False).returncode
    print(f"-- {folder}: pytest ended with {ended} after {time.monotonic() - started:.0f} s", flush=True)
    if ended not in (0, 1):  # interrupted, or not begun: no report of anything
        return ended
    begun.rename(report)
    return ended


if __name__ == "__main__":
    sys.exit(main())
