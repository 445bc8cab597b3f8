"""Every block of code in the pages, and what becomes of it: run by a test, read by one, or marked `not run here`.

`python -m tests.docs.blocks` lists them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "README.zh-CN.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]

STATED = {"docs/benchmarks.md", "docs/benchmarks-operate.md", "docs/soak.md", "docs/soak-memory.md", "docs/long-run.md"}
"""Pages that a command made; their shell says which."""

TRANSLATED = {name.replace(".md", ".zh-CN.md"): name for name in ("README.md", "docs/tutorial.md", "docs/runbook.md")}
"""A test holds these to have the same blocks as their originals, which are run."""

RUN = {
    "docs/tutorial.md": "tests/acceptance/test_tutorial.py",
    **dict.fromkeys(
        (
            "README.md",
            "docs/how-to.md",
            "docs/migrate.md",
            "docs/deploy.md",
            "docs/reference.md",
            "docs/runbook.md",
            "docs/consumer.md",
        ),
        "tests/acceptance/test_pages.py",
    ),
}
"""Pages whose shell and SQL is run against real servers, and by which test."""

_READ = {
    "yaml": "loaded as settings",
    "ini": "a server is started with it",
    "json": "no command",
    "text": "no command",
}
_FENCE = re.compile(r"^( *)```(\w*)( fragment)?\s*$")
_MARK = re.compile(r"^ *<!-- not run here(?:: (.*?))? -->$")
_COMMANDS = "cdc-outbox curl scripts pip python python3 docker kubectl mysql export install systemctl"
_SHELL = re.compile(rf"^(?:{'|'.join(_COMMANDS.split())})\b")
_SQL = re.compile(r"^(?:SELECT|INSERT|UPDATE|DELETE|ALTER|CREATE|GRANT|DROP|CALL|SET)\b")


@dataclass(frozen=True)
class Block:
    """kind: sh, sql, yaml, python, ini, json or text; line: where it begins; why: not run, and the reason given."""

    page: Path
    line: int
    kind: str
    fragment: bool
    text: str
    marked: bool
    why: str

    @property
    def status(self) -> str:
        """What becomes of it, as a person reads it; "" where nobody looks at it."""
        page = str(self.page.relative_to(ROOT))
        if self.marked:
            return f"not run here{': ' + self.why if self.why else ''}; parsed"
        if page in TRANSLATED:
            return f"as in {TRANSLATED[page]}"
        if self.kind in {"sh", "sql"}:
            return "says what made the page" if page in STATED else f"run by {RUN[page]}" if page in RUN else ""
        return _READ.get(self.kind, "")


def blocks(page: Path) -> Iterator[Block]:
    """In their order; fenced ones, and those that are indented by four spaces or more."""
    lines = page.read_text("utf-8").splitlines()
    mark: re.Match[str] | None = None
    at, before = 0, ""
    while at < len(lines):
        line = lines[at]
        end, kind, text = at + 1, "", ""
        fence = _FENCE.match(line)
        if fence:
            while not re.match(r"^ *```\s*$", lines[end]):
                end += 1
            text, kind, end = _dedented(lines[at + 1 : end]), fence[2] or "text", end + 1
        elif line.startswith("    ") and not before.strip():
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            text = _dedented(lines[at:end])
            kind = _kind(text)
        if text:
            yield Block(page, at + 1, kind, bool(fence and fence[3]), text, mark is not None, (mark and mark[1]) or "")
            mark, before = None, ""
        else:
            mark = _MARK.match(line) or (mark if not line.strip() else None)
            before = line
        at = end


def _kind(text: str) -> str:
    first = next((line for line in text.splitlines() if line and not line.startswith("#")), "")
    if _SHELL.match(first):
        return "sh"
    if first.startswith("["):
        return "ini"
    return "sql" if _SQL.match(first) else "json" if first.startswith("{") else "text"


def _dedented(lines: list[str]) -> str:
    least = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[least:] for line in lines).rstrip() + "\n"


def main() -> None:
    for page in PAGES:
        for block in blocks(page):
            first = block.text.splitlines()[0][:50]
            print(f"{page.relative_to(ROOT)}:{block.line}: {block.kind:6} {block.status or 'NOBODY':50} {first}")


if __name__ == "__main__":
    main()
