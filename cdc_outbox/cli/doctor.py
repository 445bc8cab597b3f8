"""`cdc-outbox doctor`: is everything as a relay needs it?"""

# ruff: noqa: PLC0415  (commands import what they need when they run)

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from cdc_outbox.errors import EXIT_CLEAN, EXIT_REFUSED

_COLORS = {"ok": typer.colors.GREEN, "warning": typer.colors.YELLOW, "error": typer.colors.RED}


def doctor(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Check server, grants, retention, tables, broker, topics and clock; exit 2 when anything is wrong."""
    settings = ctx.obj.settings()
    from cdc_outbox.ops.doctor import examine

    findings = examine(settings)
    healthy = all(finding.level != "error" for finding in findings)
    if as_json:
        report = {"ok": healthy, "findings": [{**asdict(finding), "docs": finding.docs} for finding in findings]}
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        for finding in findings:
            typer.secho(f"{finding.level:<8}", fg=_COLORS[finding.level], nl=False)
            typer.echo(f"{finding.check}: {finding.found}")
            if finding.why:
                typer.echo(f"{'':8}{finding.why}")
            if finding.fix:
                typer.echo(f"{'':8}fix: " + finding.fix.replace("\n", f"\n{'':13}"))
            if finding.level != "ok":
                typer.echo(f"{'':8}see: {finding.docs}")
    raise typer.Exit(EXIT_CLEAN if healthy else EXIT_REFUSED)
