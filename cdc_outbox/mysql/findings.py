"""What a check found: Finding, and what the findings of all checks mean for a start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from cdc_outbox.errors import CdcOutboxError, Hold, Refused

Level = Literal["ok", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One check and its outcome.

    check  stable id, kebab-case; those of the broker begin with `kafka-`
    found  what is there, naming the setting or table
    why    what it means for the relay; empty where nothing is wrong
    fix    the exact SQL or YAML that puts it right, None where nothing is to be done
    heals  an error that `start` waits out instead of refusing: it passes without anybody changing a setting
    """

    check: str
    level: Level
    found: str
    why: str = ""
    fix: str | None = None
    heals: bool = False

    @property
    def docs(self) -> str:
        """The page about this check, in the repository."""
        return f"docs/checks.md#{self.check}"


def refusal(findings: Iterable[Finding]) -> CdcOutboxError | None:
    """What `start` raises: Refused with each lasting error and its fix, Hold where all errors heal."""
    errors = [finding for finding in findings if finding.level == "error"]
    lasting = [finding for finding in errors if not finding.heals]
    if not errors:
        return None
    listed = lasting or errors
    lines = [f"{finding.found}: {finding.why}" if finding.why else finding.found for finding in listed]
    fixes = "\n".join(dict.fromkeys(finding.fix for finding in listed if finding.fix)) or None
    message = lines[0] if len(lines) == 1 else "\n  ".join([f"{len(lines)} things are not as they must be:", *lines])
    if lasting:
        return Refused(message, hint=fixes)
    kinds = {finding.check.partition("-")[0] for finding in errors}
    reason = kinds.pop() if len(kinds) == 1 and kinds <= {"kafka", "source"} else "mysql"
    return Hold(message, reason=reason, hint=fixes)
