"""`cdc-outbox status`: how a relay and its tables are, once or again and again."""

# ruff: noqa: PLC0415  (commands import what they need when they run)

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_outbox.cli.arguments import ago, counted
from cdc_outbox.errors import Hold

if TYPE_CHECKING:
    from cdc_outbox.config import Settings

AGAIN = 2.0
"""Seconds between two looks of --watch."""

_DAY = 86_400


def status(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every 2 s, until Ctrl-C.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Count all rows instead of stopping at 100,000 sent ones.")
    ] = False,
) -> None:
    """Show leader, position, lag, counts, blocked aggregates, holds, the last error, and what to do."""
    settings = ctx.obj.settings()
    from cdc_outbox.ops.status import read_status

    if watch:
        _watch(settings, lambda: read_status(settings, full=full), as_json=as_json)
        return
    found = read_status(settings, full=full)
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False, default=str) if as_json else _screen(found))


def _watch(settings: Settings, read: Callable[[], dict[str, Any]], *, as_json: bool) -> None:
    """One object a line, or one screen after the other; an outage is shown and waited through."""
    screen = sys.stdout.isatty() and not as_json
    try:
        while True:
            try:
                found = read()
                text = json.dumps(found, ensure_ascii=False, default=str) if as_json else _screen(found)
            except Hold as away:
                error = {"relay": settings.name, "error": away.message}
                text = json.dumps(error, ensure_ascii=False) if as_json else f"relay {settings.name}\n{away.message}"
            typer.echo(f"\x1b[H\x1b[2J{text}" if screen else text if as_json else text + "\n")
            sys.stdout.flush()
            time.sleep(AGAIN)
    except KeyboardInterrupt:
        raise typer.Exit from None


def _screen(found: dict[str, Any]) -> str:
    return "\n".join(f"{name:<10} {value}".rstrip() for name, value in [*_lines(found), *_advice(found)])


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    position, lag, counts = found["position"] or {}, found["lag"] or {}, found["counts"]
    where = position.get("gtid_set") or (
        f"{position['file']}:{position['pos']}" if position.get("file") else "none yet"
    )
    more = set(counts.get("lower_bounds", ())) | ({"sent"} if counts.get("sent_is_lower_bound") else set())

    def rows(state: str) -> str:
        return f"{counts[state]:,}{'+' if state in more else ''} {state}"

    left = found["binlog_retention_left_seconds"]
    kept = "retention unknown" if left is None else f"{ago(left)} until it may be purged"
    read_from = f", read from {found['source']}" if found["source"] else ""
    blocked = _number(found["blocked_aggregates"]) + ("+" if found.get("blocked_aggregates_is_lower_bound") else "")
    lines = [
        ("relay", found["relay"]),
        ("state", found["state"]),
        ("leader", found["leader"] or "none"),
        ("position", where),
        ("lag", f"{_number(lag.get('seconds'))} s, {counted(lag.get('events') or 0, 'event')}"),
        ("rows", ", ".join(rows(state) for state in ("pending", "sending", "sent"))),
        ("", ", ".join(rows(state) for state in ("failed", "parked", "dead"))),
        ("blocked", f"{blocked} aggregate{'' if blocked == '1' else 's'}"),
        ("in flight", _number(found["in_flight"])),
        ("holds", ", ".join(found["holds"] or []) or "none"),
        ("decoder", found["decoder"] or "unknown: no leader answers on http.listen"),
        ("binlog", kept + read_from),
    ]
    if found["last_error"]:
        lines.append(("last error", found["last_error"]))
    return lines


def _advice(found: dict[str, Any]) -> list[tuple[str, str]]:
    """What is wrong in plain words, and what to do."""
    counts, left = found["counts"], found["binlog_retention_left_seconds"]
    told: list[str] = []
    if found["state"] == "stopped":
        told.append("no relay leads: nothing is published; `cdc-outbox start`, and `doctor` where that fails")
    if found["paused"]:
        told.append("paused by a person: nothing is published until `cdc-outbox resume`, whoever leads")
    if found["state"] == "holding":
        told.append("the relay waits for what `holds` names and goes on by itself; no event is lost by it")
    if counts["dead"]:
        dead = counted(counts["dead"], "event", "is")
        told.append(f"{dead} dead: `cdc-outbox events list --state dead` says which, and why or where to see that")
    if counts["failed"]:
        failed = counted(counts["failed"], "event", "has", verbs="have")
        told.append(f"{failed} failed, to be retried: `cdc-outbox events list --state failed` says when")
    if left is not None and left < _DAY:
        told.append("within a day the server may purge binlog still to be read: raise binlog_expire_logs_seconds")
    return [("" if at else "to do", text) for at, text in enumerate(told)]


def _number(value: float | None) -> str:
    if value is None:
        return "?"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
