"""`cdc-outbox emit`: a test event, put in as an application would."""

# ruff: noqa: PLC0415  (commands import what they need when they run)

from __future__ import annotations

from typing import Annotated

import typer

from cdc_outbox.cli.arguments import table_of


def emit(
    ctx: typer.Context,
    *,
    aggregate_type: Annotated[str, typer.Option("--aggregate-type", help="Names the topic.")] = "test",
    aggregate_id: Annotated[str, typer.Option("--aggregate-id", help="The record's key.")] = "test-1",
    event_type: Annotated[str, typer.Option("--event-type", help="Header event_type.")] = "TestEvent",
    payload: Annotated[str, typer.Option("--payload", metavar="JSON", help="The record's value.")] = '{"test": true}',
    count: Annotated[int, typer.Option("--count", min=1, help="How many events.")] = 1,
    table: Annotated[
        str | None, typer.Option("--table", help="One of outbox.tables.", show_default="the first")
    ] = None,
) -> None:
    """Put test events into an outbox table and print their event ids."""
    from cdc_outbox.ops import emit as events

    settings = ctx.obj.settings()
    for event in events.emit(
        settings,
        table_of(settings, table),
        aggregate_type=aggregate_type,
        aggregate_id=aggregate_id,
        event_type=event_type,
        payload=payload,
        count=count,
    ):
        typer.echo(event.event_id)
