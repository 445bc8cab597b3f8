"""What pytest wrote of its runs (JUnit XML, one file a folder), as a page."""

from __future__ import annotations

import platform
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

SLOWEST = 15
"""Tests in the table of the slowest."""


@dataclass(frozen=True)
class Case:
    """One test. outcome: "passed", "failed" or "skipped". seconds: set-up and tear-down included."""

    name: str
    outcome: str
    seconds: float
    reason: str = ""


@dataclass(frozen=True)
class Part:
    """The run of one folder of tests."""

    folder: str
    commit: str
    begun: datetime
    seconds: float
    cases: Sequence[Case]

    def count(self, outcome: str) -> int:
        return sum(case.outcome == outcome for case in self.cases)


def read(file: Path, commit: str) -> Part:
    """file: `<folder>.xml`, as `pytest --junit-xml` writes it."""
    suite = ET.parse(file).getroot().find("testsuite")
    assert suite is not None, f"{file} is no report of pytest"
    return Part(
        folder=file.stem,
        commit=commit,
        begun=datetime.fromisoformat(suite.attrib["timestamp"]),
        seconds=float(suite.attrib["time"]),
        cases=list(_cases(suite)),
    )


def _cases(suite: ET.Element) -> Iterator[Case]:
    for case in suite.iter("testcase"):
        name = case.attrib["classname"].rpartition(".")[2] + "::" + case.attrib["name"]
        seconds = float(case.attrib["time"])
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            yield Case(name, "failed", seconds)
        elif skipped is not None:
            yield Case(name, "skipped", seconds, " ".join(skipped.attrib["message"].split()))
        else:
            yield Case(name, "passed", seconds)


def newest(folder: Path) -> list[Part]:
    """folder/<commit>/<folder of tests>.xml: the newest run of each folder of tests."""
    found: dict[str, Part] = {}
    for file in folder.glob("*/*.xml"):
        part = read(file, file.parent.name)
        if part.folder not in found or found[part.folder].begun < part.begun:
            found[part.folder] = part
    return [found[name] for name in sorted(found)]


def page(parts: Sequence[Part], command: str, without: Sequence[str] = ()) -> str:
    """without: folders of tests that no report is there of."""
    rows = [
        f"| {part.folder} | {part.commit} | {part.begun:%Y-%m-%d %H:%M} | {part.count('passed')} |"
        f" {part.count('failed')} | {part.count('skipped')} | {part.seconds / 60:.1f} |"
        for part in parts
    ]
    cases = [(part.folder, case) for part in parts for case in part.cases]
    total = Counter(case.outcome for _, case in cases)
    minutes = sum(part.seconds for part in parts) / 60
    slowest = sorted(cases, key=lambda one: -one[1].seconds)[:SLOWEST]
    failed = [f"- {folder}: `{case.name}`" for folder, case in cases if case.outcome == "failed"]
    reasons = Counter((folder, case.reason) for folder, case in cases if case.outcome == "skipped")
    return "\n".join(
        [
            "# The long run",
            "",
            "Every test with `--long`, one folder after the other: what came of it the last time, and on which commit",
            "of main (`+2`: with two commits that were not there yet). This page is written by",
            "",
            f"    {command}",
            "",
            f"on {platform.system()} {platform.machine()}, Python {platform.python_version()}. What has a report of",
            "the same commit is not run again unless it is named: an interrupted run goes on where it was.",
            "",
            "| folder | commit | begun | passed | failed | skipped | minutes |",
            "|---|---|---|---|---|---|---|",
            *rows,
            f"| **all** | | | {total['passed']} | {total['failed']} | {total['skipped']} | {minutes:.0f} |",
            "",
            *([f"Not run to their end yet: {', '.join(without)}.", ""] if without else []),
            "## Failed",
            "",
            *(failed or ["None."]),
            "",
            "## Skipped",
            "",
            *(
                [f"- {folder}, {times} ×: {_plain(why)}" for (folder, why), times in sorted(reasons.items())]
                or ["None."]
            ),
            "",
            "## Slowest",
            "",
            "| seconds | folder | test |",
            "|---|---|---|",
            *(f"| {case.seconds:.0f} | {folder} | `{case.name}` |" for folder, case in slowest),
            "",
        ]
    )


def _plain(reason: str) -> str:
    """Without the folders of the machine."""
    return re.sub(r"(?<!\w)/[\w./@+-]*/([\w.@+-]+)", r"\1", reason)
