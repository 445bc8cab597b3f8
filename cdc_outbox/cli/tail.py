"""`cdc-outbox tail`: events as they arrive in Kafka."""

# ruff: noqa: PLC0415  (commands import what they need when they run)

from __future__ import annotations

import json
import sys
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdc_outbox.cli.arguments import age, printable

if TYPE_CHECKING:
    from cdc_outbox.ops.tail import Arrival


def tail(
    ctx: typer.Context,
    *,
    aggregate: Annotated[
        str | None, typer.Option("--aggregate", metavar="TYPE[/ID]", help="Only of this aggregate.")
    ] = None,
    event_type: Annotated[
        str | None, typer.Option("--type", metavar="EVENT_TYPE", help="Only of this event type.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Only this topic; may be given several times.", show_default="all of this relay"),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="AGE", help="Begin so long ago: 10m, 1d.", show_default="now")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="End after so many.")] = None,
    payload: Annotated[bool, typer.Option("--payload", help="Print the records' values, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Follow the topics and print each event with its latency, from commit to here, until Ctrl-C."""
    begin = None if since is None else age(since, "--since")
    settings = ctx.obj.settings()
    from cdc_outbox.ops.tail import Topics, Wanted, follow

    def on_trouble(text: str | None) -> None:
        typer.echo("Kafka answers again" if text is None else f"{text}; waiting", err=True)

    def on_topics(names: list[str]) -> None:
        if not names and not topic:
            typer.echo("none of this relay's topics is there yet: it has published nothing; waiting", err=True)
        elif names and sys.stderr.isatty():
            typer.echo(f"following {', '.join(names)}; Ctrl-C ends", err=True)

    chosen, wanted = Topics(settings, topic or []), Wanted(aggregate, event_type)
    arrivals = follow(settings, chosen, wanted, since=begin, on_trouble=on_trouble, on_topics=on_topics)
    try:
        with closing(arrivals):
            for number, arrival in enumerate(arrivals, start=1):
                shown = _as_json(arrival, payload=payload)
                typer.echo(json.dumps(shown, ensure_ascii=False) if as_json else _line(arrival, payload=payload))
                sys.stdout.flush()
                if number == count:
                    return
    except KeyboardInterrupt:
        raise typer.Exit from None


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")


def _as_json(one: Arrival, *, payload: bool) -> dict[str, Any]:
    record = one.record
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": _text(record.key),
        "timestamp": record.timestamp,
        "latency_seconds": round(one.latency, 3),
        "event_id": one.event_id,
        "event_type": one.event_type,
        "aggregate_type": one.aggregate_type,
        "aggregate_id": one.aggregate_id,
        "error_class": one.error_class,
        **({"value": _text(record.value)} if payload else {}),
    }


def _line(one: Arrival, *, payload: bool) -> str:
    record = one.record
    at = datetime.fromtimestamp(record.timestamp / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
    latency = f"{one.latency * 1000:,.0f} ms" if one.latency < 10 else f"{one.latency:,.0f} s"
    parts = [
        f"{at}Z",
        f"{latency:>9}",
        f"{one.aggregate_type}/{one.aggregate_id}",
        one.event_type,
        one.event_id,
        f"{record.topic}[{record.partition}]@{record.offset}",
    ]
    if one.error_class is not None:
        parts.append(f"DEAD {one.error_class}")
    if payload:
        parts.append(_text(record.value) or "-")
    return "  ".join(printable(part) for part in parts)
