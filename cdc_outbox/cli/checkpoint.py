"""`cdc-outbox checkpoint show | set | reset`: where reading goes on, and how to move that by hand."""

# ruff: noqa: PLC0415  (commands import what they need when they run)

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

app = typer.Typer(help="Show or move the position that reading goes on from.", no_args_is_help=True)

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


class Target(StrEnum):
    """Where `reset` puts the position."""

    now = "now"
    earliest = "earliest"


@app.command()
def show(ctx: typer.Context) -> None:
    """Show the checkpoint."""
    from cdc_outbox.ops import reposition

    settings = ctx.obj.settings()
    shown = reposition.show(settings)
    typer.echo(f"relay      {settings.name}")
    typer.echo(f"leader     {'none' if shown.leader is None else f'MySQL connection {shown.leader}'}")
    row = shown.row
    if row is None:
        typer.echo("position   none: this relay has never been started")
        return
    typer.echo(f"position   {'none yet' if shown.position is None else shown.position}")
    typer.echo(f"server     {row.server_uuid}")
    typer.echo(f"epoch      {row.epoch}")
    typer.echo(f"state      {row.state or 'unknown'}")
    typer.echo(f"paused     {'yes, until `cdc-outbox resume`' if row.paused else 'no'}")
    typer.echo(f"updated    {row.updated_at}")
    if row.last_error:
        typer.echo(f"last error {row.last_error}")


@app.command(name="set")
def set_position(
    ctx: typer.Context,
    position: Annotated[str, typer.Argument(metavar="FILE:POS|GTIDSET", help="The new position.")],
    yes: Yes = False,
) -> None:
    """Move the position; rows that are stepped over are found by the sweep."""
    from cdc_outbox.ops import reposition

    target = reposition.parse_position(position)
    settings = ctx.obj.settings()
    reposition.refuse_while_led(settings)
    ctx.obj.confirm(f"Move the checkpoint of relay {settings.name!r} to {target}?", yes=yes)
    reposition.move(settings, target)
    typer.echo(f"relay {settings.name!r} will read on from {target}")


@app.command()
def reset(
    ctx: typer.Context,
    to: Annotated[Target, typer.Option("--to", help="The binlog's end, or its first file still there.")] = Target.now,
    yes: Yes = False,
) -> None:
    """Begin anew: the next start publishes everything pending, in id order, then reads the binlog."""
    from cdc_outbox.ops import reposition

    settings = ctx.obj.settings()
    reposition.refuse_while_led(settings)
    ctx.obj.confirm(f"Reset the checkpoint of relay {settings.name!r} to {to.value}?", yes=yes)
    position = reposition.reset(settings, to.value)
    before = "" if settings.outbox.transient else "sweep everything pending, then "
    typer.echo(f"relay {settings.name!r} will {before}read on from {position}")
