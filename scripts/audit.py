"""The installed versions against PyPI's advisories, by pip-audit, and what its report means: see scripts/audit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

CLEAN, FLAWED, NOT_AUDITED = 0, 1, 75
PIP_AUDIT = ["-m", "pip_audit", "--local", "--skip-editable", "--progress-spinner", "off", "--format", "json"]
ELSEWHERE = "Run scripts/audit where PyPI itself can be reached."


def judge(report: Mapping[str, Any]) -> tuple[int, list[str]]:
    """Exit code, and the lines to print, for pip-audit's JSON report."""
    packages = report["dependencies"]
    flaws = [
        f"{one['name']} {one['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no version yet'}"
        for one in packages
        for flaw in one.get("vulns", [])
    ]
    audited = [one for one in packages if "skip_reason" not in one]
    if flaws:
        return FLAWED, [f"{len(flaws)} known flaws in what is installed:", *flaws]
    if not audited:
        return NOT_AUDITED, [f"None of {len(packages)} packages could be audited: no advisories here. {ELSEWHERE}"]
    return CLEAN, [f"{len(audited)} of {len(packages)} packages audited, no known flaw"]


def main() -> int:
    done = subprocess.run([sys.executable, *PIP_AUDIT], capture_output=True, text=True, timeout=300, check=False)
    try:
        code, lines = judge(json.loads(done.stdout))
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        code, lines = NOT_AUDITED, [f"pip-audit could not do its work: {reason}. {ELSEWHERE}"]
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
