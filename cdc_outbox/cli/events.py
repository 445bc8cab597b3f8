"""`cdc-outbox events list | show | retry | skip | purge`: single events, and many by what they have in common."""

# ruff: noqa: PLC0415  (commands import what they need when they run)

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_outbox.cli import event_text
from cdc_outbox.cli.arguments import age, counted, progress, tables_of
from cdc_outbox.model import State

if TYPE_CHECKING:
    from cdc_outbox.mysql.event_rows import Filter
    from cdc_outbox.ops.events import Action, Done, Selection

app = typer.Typer(help="Find events, try failed ones again, give them up, purge dead ones.", no_args_is_help=True)

SAMPLE = 5
"""Events shown before many are changed."""


_OPEN = [State.failed, State.dead, State.parked, State.sending, State.pending]

Names = Annotated[list[str] | None, typer.Argument(metavar="[EVENT]...", help="Event ids, or ids.")]
Table = Annotated[str | None, typer.Option("--table", help="One of outbox.tables.", show_default="all")]
Ids = Annotated[bool, typer.Option("--id", help="The names are ids, never event ids.")]
States = Annotated[list[State] | None, typer.Option("--state", help="Only in this state; may be given several times.")]
Aggregate = Annotated[str | None, typer.Option("--aggregate", metavar="TYPE[/ID]", help="Only of this aggregate.")]
EventType = Annotated[str | None, typer.Option("--type", metavar="EVENT_TYPE", help="Only of this event type.")]
OlderThan = Annotated[str | None, typer.Option("--older-than", metavar="AGE", help="Created so long ago: 90s, 7d.")]
Error = Annotated[str | None, typer.Option("--error", metavar="TEXT", help="Only where last_error contains this.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the log and for last_error.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]


def _filter(aggregate: str | None, event_type: str | None, older_than: str | None, error: str | None) -> Filter:
    from cdc_outbox.mysql.event_rows import Filter

    return Filter(aggregate, event_type, None if older_than is None else age(older_than, "--older-than"), error)


@app.command(name="list")
def list_events(
    ctx: typer.Context,
    *,
    state: States = None,
    aggregate: Aggregate = None,
    event_type: EventType = None,
    older_than: OlderThan = None,
    error: Error = None,
    table: Table = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="How many at most.")] = 50,
    full: Annotated[bool, typer.Option("--full", help="With a filter, look at every row of a state.")] = False,
    as_json: AsJson = False,
) -> None:
    """List events: failed, dead, parked, sending and pending ones, or those of the states given."""
    from cdc_outbox.mysql.event_rows import LOOKED_AT
    from cdc_outbox.ops import events

    chosen = _filter(aggregate, event_type, older_than, error)
    settings = ctx.obj.settings()
    found = events.find(settings, tables_of(settings, table), state or _OPEN, chosen, limit=limit, everything=full)
    if as_json:
        report = {
            "events": [event_text.as_json(one) for one in found.events],
            "more": found.more,
            "not_searched_whole": [str(one) for one in found.unseen],
        }
        typer.echo(json.dumps(report, indent=2, ensure_ascii=False))
        return
    for line in event_text.lines(found.events, tables=len(settings.table_names) > 1):
        typer.echo(line)
    if not found.events:
        typer.echo("no such event", err=True)
    elif any(event_text.untold(one) for one in found.events):
        typer.echo(event_text.REASON, err=True)
    if found.more:
        typer.echo(f"… and more; --limit N shows more than {limit}", err=True)
    if found.unseen:
        which = ", ".join(dict.fromkeys(found.unseen))
        typer.echo(f"of the {which} ones only the first {LOOKED_AT:,} were looked at; --full looks at all", err=True)


@app.command()
def show(
    ctx: typer.Context,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="Its event id, or its id.")],
    *,
    table: Table = None,
    ids: Ids = False,
    payload: Annotated[bool, typer.Option("--payload", help="Print the payload, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show all that the row of one event says."""
    from cdc_outbox.ops import events

    settings = ctx.obj.settings()
    (found,) = events.named(settings, tables_of(settings, table), [event], ids=ids)
    told = event_text.as_json(found)
    if payload:
        told["payload"] = events.payload_of(settings, found)
    if as_json:
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    for name, value in told.items():
        if value is not None:
            typer.echo(f"{name:<15} {value}")
    typer.echo(f"{'meaning':<15} {event_text.meaning(found)}")
    if event_text.untold(found):
        typer.echo(f"{'reason':<15} {event_text.REASON}")


def _change(name: str, what: str) -> None:
    """Make the command of one of `events.ACTIONS`: all take the same names, filters and options."""

    @app.command(name, help=what)
    def change(
        ctx: typer.Context,
        event: Names = None,
        *,
        state: States = None,
        aggregate: Aggregate = None,
        event_type: EventType = None,
        older_than: OlderThan = None,
        error: Error = None,
        table: Table = None,
        ids: Ids = False,
        reason: Reason = "",
        yes: Yes = False,
        as_json: AsJson = False,
    ) -> None:
        from cdc_outbox.ops.events import ACTIONS

        _act(
            ctx,
            ACTIONS[name],
            names=event or [],
            states=state or [],
            chosen=_filter(aggregate, event_type, older_than, error),
            table=table,
            ids=ids,
            reason=reason,
            yes=yes,
            as_json=as_json,
        )


_change("retry", "Try failed or dead events again now, with all their retries: by name, or all that the filters take.")
_change("skip", "Give failed or parked events up: the relay sends their dead letters and marks them dead.")
_change("purge", "Delete the rows of dead events; their dead letters stay in Kafka as long as its retention has them.")


def _act(
    ctx: typer.Context,
    action: Action,
    *,
    names: Sequence[str],
    states: Sequence[State],
    chosen: Filter,
    table: str | None,
    ids: bool,
    reason: str,
    yes: bool,
    as_json: bool,
) -> None:
    from cdc_outbox.mysql.event_rows import Filter
    from cdc_outbox.ops import events

    filtered = bool(states) or chosen != Filter()
    if bool(names) == filtered:
        raise typer.BadParameter("name events, or give filters such as --state or --aggregate; one of the two")
    wanted = states or action.states
    for one in wanted:
        if one not in action.states:
            raise typer.BadParameter(f"{action.name} is for {' and '.join(action.states)} events, not for {one} ones")
    settings = ctx.obj.settings()
    tables = tables_of(settings, table)
    if names:
        found = events.named(settings, tables, list(dict.fromkeys(names)), ids=ids)
        events.refuse_other_states(action, found)
        selection = events.Selection.of(found)
    else:
        with progress("looking for events"):
            selection = events.select(settings, tables, wanted, chosen, SAMPLE)
        _ask(ctx, action, selection, yes=yes, tables=len(settings.table_names) > 1)
    with progress(action.name) as tell:
        done = events.apply(settings, action, selection, reason, tell)
    _log(settings, action, done, reason)
    if as_json:
        told = {"matched": len(selection), "changed": done.changed, "locked": done.locked}
        typer.echo(json.dumps({**told, "moved_on": done.moved_on, "leader": done.led}))
    else:
        _tell(action, done)


def _ask(ctx: typer.Context, action: Action, selection: Selection, *, yes: bool, tables: bool) -> None:
    """Go on only where there is nothing to do, or somebody has seen how many there are and some of them."""
    if not len(selection):
        return
    if not yes:
        for line in event_text.lines(selection.sample, tables=tables):
            typer.echo(line, err=True)
        if len(selection) > len(selection.sample):
            typer.echo(f"… and {len(selection) - len(selection.sample):,} more", err=True)
    states = ", ".join(f"{count:,} {state}" for state, count in selection.counts.items())
    ctx.obj.confirm(f"{action.name.capitalize()} {counted(len(selection), 'event')} ({states})?", yes=yes)


def _log(settings: Any, action: Action, done: Done, reason: str) -> None:
    """Who reads the log later must find that a person did this, and why."""
    from cdc_outbox.ops.log import configure_logging, log_event

    if done.changed:
        configure_logging(settings.log)
        logger = logging.getLogger(__name__)
        message = f"{counted(done.changed, 'event', 'is')} {action.done}"
        log_event(logger, logging.INFO, f"events_{action.name}", message, relay=settings.name, reason=reason)


def _tell(action: Action, done: Done) -> None:
    then = f"; {action.then}" if action.then and done.led else ""
    typer.echo(f"{counted(done.changed, 'event', 'is')} {action.done}{then}")
    if action.then and not done.led and done.changed:
        typer.echo(f"no relay leads: {action.then} once one does", err=True)
    if done.moved_on:
        typer.echo(f"{done.moved_on:,} had changed meanwhile and were left as they are", err=True)
    if done.locked:
        typer.echo(f"{done.locked:,} are locked by another transaction; run the command again for them", err=True)
