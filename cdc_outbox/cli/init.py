"""`cdc-outbox init`: the tables that are missing, and the grants a relay's user needs."""

# ruff: noqa: PLC0415  (commands import what they need when they run)

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Comments(StrEnum):
    """Language of the columns' comments."""

    zh = "zh"
    en = "en"


def init(
    ctx: typer.Context,
    *,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the SQL and the grants, connect to nothing.")
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="Also the tables of consumers, processed_event and consumer_offset.")
    ] = False,
    comments: Annotated[Comments, typer.Option("--comments", help="Language of the columns' comments.")] = Comments.zh,
    workers: Annotated[
        bool, typer.Option("--workers", help="Also cdc_outbox_worker, for applications that make Snowflake ids.")
    ] = False,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Also bring the checkpoint table of an older version to this one's.")
    ] = False,
) -> None:
    """Create what is missing of the outbox and checkpoint tables."""
    from cdc_outbox.mysql import schema
    from cdc_outbox.mysql import upgrade as upgrades
    from cdc_outbox.ops.command_session import command_session

    settings = ctx.obj.settings()
    if print_only:
        typer.echo(schema.script(settings, comments.value, consumer, workers=workers), nl=False)
        return
    with command_session(settings, needs=schema.create_grants(settings)) as session:
        created = schema.create(session, settings, comments.value, consumer, workers=workers)
        changed = upgrades.upgrade(session, settings) if upgrade else []
        version = session.server_version
    for line in [*(f"created {table}" for table in created), *changed]:
        typer.echo(line)
    if upgrade and not changed:
        typer.echo(f"nothing to upgrade: the checkpoint table is at schema version {upgrades.SCHEMA_VERSION}")
    if not created and not upgrade:
        typer.echo("nothing to do: all tables are there")
    typer.echo("\nThe relay's user needs, and a least-privilege user has no more than:")
    for grant in schema.grants(settings, version):
        typer.echo(f"  {grant};")
    if consumer:
        typer.echo("\nA consuming service needs, with its account in place of 'consumer':")
        for grant in schema.consumer_grants(settings):
            typer.echo(f"  {grant};")
