"""`cdc-outbox archive`: sent rows out of the outbox."""

# ruff: noqa: PLC0415  (commands import what they need when they run)

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cdc_outbox.cli.arguments import age, counted, tables_of

if TYPE_CHECKING:
    from cdc_outbox.ops.archive import Progress


def archive(
    ctx: typer.Context,
    *,
    older_than: Annotated[str, typer.Option("--older-than", metavar="AGE", help="Created so long ago: 7d, 12h.")],
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="TABLE", help="Move them there.", show_default="the table's name and _archive"),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete them instead of moving them.")] = False,
    table: Annotated[str | None, typer.Option("--table", help="One of outbox.tables.", show_default="all")] = None,
    batch: Annotated[int, typer.Option("--batch", min=1, max=1000, help="Rows in a transaction.")] = 1000,
    pause: Annotated[
        str | None,
        typer.Option("--pause", metavar="TIME", help="Rest between two: 50ms, 0s.", show_default="4 times the batch"),
    ] = None,
    rate: Annotated[
        int | None,
        typer.Option("--rate", min=1, metavar="ROWS", help="At most so many a second.", show_default="no limit"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Move sent rows to an archive table, or delete them; may be interrupted anywhere and run again."""
    from cdc_outbox.ops import archive as archives

    seconds, rest = age(older_than, "--older-than"), None if pause is None else age(pause, "--pause")
    if delete and into is not None:
        raise typer.BadParameter("--into moves the rows, --delete deletes them; one of the two")
    settings = ctx.obj.settings()
    tables = tables_of(settings, table)
    if into is not None and len(tables) > 1:
        raise typer.BadParameter("--into is for one table: name it with --table")
    for one in tables:
        target = None if delete else archives.archive_name(one, into)
        moved = 0

        def tell(now: Progress) -> None:
            nonlocal moved
            moved = now.moved
            draw(now)

        with _bar(str(one)) as draw:
            try:
                end = archives.archive(
                    settings,
                    one,
                    target,
                    older_than=seconds,
                    batch=batch,
                    pause=rest,
                    rate=rate,
                    dry_run=dry_run,
                    on_progress=tell,
                )
            except KeyboardInterrupt:
                dealt = counted(moved, "row", "was", verbs="were")
                typer.echo(f"\ninterrupted: {dealt} dealt with in {one}; run it again to go on", err=True)
                raise
        done = "would be moved" if dry_run else "deleted" if delete else f"moved to {target}"
        if as_json:
            typer.echo(json.dumps({"table": str(one), "rows": end.moved, "locked": end.left, "dry_run": dry_run}))
            continue
        typer.echo(f"{counted(end.moved, 'row')} of {one} {done}")
        if end.left:
            typer.echo(f"{counted(end.left, 'row')} locked by another transaction; the next run takes them", err=True)


@contextlib.contextmanager
def _bar(table: str) -> Iterator[Callable[[Progress], None]]:
    """How far it is, how many rows, how many a second; nothing where nobody looks."""
    if not sys.stderr.isatty():
        yield lambda now: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[rows]:,} rows"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(table, total=1.0, rows=0)
        yield lambda now: bar.update(task, completed=now.share, rows=now.moved)
