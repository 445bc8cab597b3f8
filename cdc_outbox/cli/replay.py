"""`cdc-outbox events replay`: dead events back into the outbox from their dead letters."""

# ruff: noqa: PLC0415  (commands import what they need when they run)

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated

import typer

from cdc_outbox.cli.arguments import age, aligned, counted, progress, tables_of
from cdc_outbox.cli.events import SAMPLE, Aggregate, AsJson, EventType, Yes
from cdc_outbox.errors import Refused


def replay(
    ctx: typer.Context,
    event: Annotated[list[str] | None, typer.Argument(metavar="[EVENT_ID]...", help="Event ids.")] = None,
    *,
    aggregate: Aggregate = None,
    event_type: EventType = None,
    error_class: Annotated[
        str | None, typer.Option("--error-class", help="Only that died of this: MESSAGE_TOO_LARGE, skipped.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="AGE", help="Only letters not older than this: 90m, 7d.")
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", help="Where to put them.", show_default="the only one of outbox.tables")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Put dead events whose rows are gone back into the outbox, from the dead letter topic."""
    from cdc_outbox.ops import replay as letters

    chosen = letters.Chosen(
        tuple(event or ()), aggregate, event_type, error_class, None if since is None else age(since, "--since")
    )
    if chosen == letters.Chosen():
        raise typer.BadParameter("name events, or give filters such as --aggregate or --since")
    settings = ctx.obj.settings()
    tables = tables_of(settings, table)
    if len(tables) > 1:
        raise Refused("a dead letter does not say which of outbox.tables it is from", hint="name it with --table")
    with progress("reading dead letters"):
        found = letters.letters(settings, chosen)
    missing = [one for one in chosen.event_ids if one not in {letter.event_id for letter in found}]
    if missing:
        raise Refused(
            f"{settings.kafka.dead_letter_topic} has no letter of {', '.join(missing[:10])}; nothing was changed",
            hint="the topic's retention may have deleted it",
        )
    if not found and not as_json:
        typer.echo(f"{settings.kafka.dead_letter_topic} has no letter that these filters take; nothing was changed")
        return
    if not chosen.event_ids and found:
        if not yes:
            heads = ["EVENT ID", "AGGREGATE", "TYPE", "ERROR CLASS"]
            cells = [
                [one.event_id, f"{head['aggregate_type']}/{head['aggregate_id']}", head["event_type"], one.error_class]
                for one in found[:SAMPLE]
                for head in (one.headers,)
            ]
            typer.echo("\n".join(aligned([heads, *cells])), err=True)
        classes = ", ".join(f"{count:,} {name}" for name, count in Counter(one.error_class for one in found).items())
        ctx.obj.confirm(f"Put {counted(len(found), 'event')} ({classes}) back where the row is gone?", yes=yes)
    with progress("replay") as tell:
        done = letters.put_back(settings, tables[0], found, tell)
    if as_json:
        told = {"letters": len(found), "inserted": done.inserted, "there": done.there}
        typer.echo(json.dumps({**told, "without_payload": done.without_payload}))
        return
    typer.echo(f"{counted(done.inserted, 'event', 'is')} back in {tables[0]}, pending, with their old event ids")
    if done.there:
        there = counted(done.there, "event", "still has its row", verbs="still have their rows")
        typer.echo(f"{there}: `cdc-outbox events retry` is for such", err=True)
    if done.without_payload:
        which = ", ".join(done.without_payload[:10])
        lacking = counted(len(done.without_payload), "letter", "does", verbs="do")
        typer.echo(
            f"{lacking} not hold the payload (too large for the topic, or in a wrapper of its own), so only the"
            f" application can put it back: {which}",
            err=True,
        )
