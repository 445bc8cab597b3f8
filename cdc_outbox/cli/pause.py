"""`cdc-outbox pause` and `cdc-outbox resume`: publish nothing for now, whoever leads, and go on where it stood."""

# ruff: noqa: PLC0415  (commands import what they need when they run)

from __future__ import annotations

import typer


def pause(ctx: typer.Context) -> None:
    """Publish nothing until `resume`; what is on its way is finished. Restarts and take-overs keep it."""
    from cdc_outbox.ops import pause as pausing

    settings = ctx.obj.settings()
    leader = pausing.pause(settings)
    when = f"within {settings.retry.poll_interval:g} s" if leader is not None else "and will be so when it starts"
    typer.echo(f"relay {settings.name!r} is paused {when}; `cdc-outbox resume` lets it go on")


def resume(ctx: typer.Context) -> None:
    """Publish again what came meanwhile, in its order."""
    from cdc_outbox.ops import pause as pausing

    settings = ctx.obj.settings()
    leader = pausing.resume(settings)
    when = f"goes on within {settings.retry.poll_interval:g} s" if leader is not None else "goes on when it is started"
    typer.echo(f"relay {settings.name!r} {when}")
