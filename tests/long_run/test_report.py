"""The page says what pytest reported."""

from __future__ import annotations

from pathlib import Path

from tests.long_run.report import newest, page

CASES = """<testcase classname="tests.crash.test_it" name="test_good[a]" time="61.0"/>
<testcase classname="tests.crash.test_it" name="test_bad" time="1.0"><failure message="no"/></testcase>
<testcase classname="tests.crash.test_it" name="test_torn" time="1.0"><error message="no"/></testcase>
<testcase classname="tests.crash.test_it" name="test_not_here" time="0"><skipped message="/usr/bin/nothing is missing"/>
</testcase>"""


def report(folder: Path, commit: str, when: str, cases: str) -> None:
    (folder / commit).mkdir()
    (folder / commit / "crash.xml").write_text(
        f'<testsuites><testsuite timestamp="{when}" time="63.0">{cases}</testsuite></testsuites>'
    )


def test_the_newest_report_is_what_the_page_says(tmp_path: Path) -> None:
    report(tmp_path, "aaa", "2026-01-01T10:00:00.000000+00:00", "")
    report(tmp_path, "bbb", "2026-01-02T10:00:00.000000+00:00", CASES)
    text = page(newest(tmp_path), "python -m tests.long_run")
    assert "| crash | bbb | 2026-01-02 10:00 | 1 | 2 | 1 | 1.1 |" in text
    assert "aaa" not in text
    assert "- crash: `test_it::test_bad`\n- crash: `test_it::test_torn`" in text
    assert "- crash, 1 ×: nothing is missing" in text
    assert "| 61 | crash | `test_it::test_good[a]` |" in text


def test_a_run_without_failures_says_so(tmp_path: Path) -> None:
    report(tmp_path, "bbb", "2026-01-02T10:00:00.000000+00:00", CASES.splitlines()[0])
    assert "## Failed\n\nNone.\n" in page(newest(tmp_path), "python -m tests.long_run")
