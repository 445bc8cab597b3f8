"""`cdc-outbox status`: how a relay and its tables are, read from the database."""

# ruff: noqa: PLC0415  (commands import what they need when they run)

from __future__ import annotations

import json
from typing import Annotated, Any

import typer


def status(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Count all sent rows instead of stopping at 100,000.")] = False,
) -> None:
    """Show leader, position, lag, counts, blocked aggregates, holds and the last error."""
    settings = ctx.obj.settings()
    from cdc_outbox.relay.status import read_status

    found = read_status(settings, full=full)
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False, default=str))
        return
    for name, value in _lines(found):
        typer.echo(f"{name:<10} {value}")


def _lines(found: dict[str, Any]) -> list[tuple[str, str]]:
    position, lag, counts = found["position"] or {}, found["lag"] or {}, found["counts"]
    where = position.get("gtid_set") or (
        f"{position['file']}:{position['pos']}" if position.get("file") else "none yet"
    )
    sent = f"{counts['sent']:,}" + ("+" if counts.get("sent_is_lower_bound") else "")
    left = found["binlog_retention_left_seconds"]
    lines = [
        ("relay", found["relay"]),
        ("state", found["state"]),
        ("leader", found["leader"] or "none"),
        ("position", where),
        ("lag", f"{_number(lag.get('seconds'))} s, {_number(lag.get('events'))} events"),
        ("rows", f"{counts['pending']:,} pending, {counts['sending']:,} sending, {sent} sent"),
        ("", f"{counts['failed']:,} failed, {counts['parked']:,} parked, {counts['dead']:,} dead"),
        ("blocked", f"{_number(found['blocked_aggregates'])} aggregates"),
        ("holds", ", ".join(found["holds"] or []) or "none"),
        ("binlog", "retention unknown" if left is None else f"{left / 3600:,.1f} h until it may be purged"),
    ]
    if found["last_error"]:
        lines.append(("last error", found["last_error"]))
    return lines


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:,}"
