"""The command line: one file per command, each a thin front of something in ops, mysql or relay.

Commands import what they need when they run: `--help` must not wait for a Kafka client to load.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, TextIO

import typer

from cdc_outbox import __version__
from cdc_outbox.cli import archive, checkpoint, doctor, emit, events, init, pause, replay, start, status, tail
from cdc_outbox.cli.invocation import Invocation
from cdc_outbox.errors import EXIT_REFUSED, CdcOutboxError, Hold

EXIT_INTERRUPTED = 130
"""What a shell gives for Ctrl-C; `start` does not end this way, it drains and exits 0."""

app = typer.Typer(
    help="Relay the outbox tables of a MySQL database to Kafka.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cdc-outbox {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    ctx: typer.Context,
    config: Annotated[
        str,
        typer.Option("--config", "-c", metavar="FILE", envvar="CDC_OUTBOX_CONFIG", help="The settings, YAML."),
    ] = "",
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    ctx.obj = Invocation(config)


app.command()(init.init)
app.command()(doctor.doctor)
app.command()(start.start)
app.command()(status.status)
app.add_typer(checkpoint.app, name="checkpoint")
app.command()(emit.emit)
app.command()(pause.pause)
app.command()(pause.resume)
events.app.command()(replay.replay)
app.add_typer(events.app, name="events")
app.command()(archive.archive)
app.command()(tail.tail)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (None: the process' own arguments) and exit; errors become one message."""
    for stream in (sys.stdout, sys.stderr):
        _survive_any_text(stream)
    try:
        app(args=None if arguments is None else list(arguments), prog_name="cdc-outbox")
    except CdcOutboxError as error:
        _complain(error.message, error.hint or (_AWAY if isinstance(error, Hold) else None))
        # An outage is a reason to wait for a relay, but not for a command.
        sys.exit(EXIT_REFUSED if isinstance(error, Hold) else error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _survive_any_text(stream: TextIO) -> None:
    """A terminal that cannot show Chinese comments shows escapes instead of ending the command."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


_AWAY = "see that it runs and that the settings have its address; `cdc-outbox doctor` looks at all of it at once"


def _complain(message: str, hint: str | None) -> None:
    typer.secho("Error: ", fg=typer.colors.RED, bold=True, err=True, nl=False)
    typer.echo(message, err=True)
    if hint:
        typer.secho("Hint: ", fg=typer.colors.CYAN, err=True, nl=False)
        typer.echo(hint.replace("\n", "\n      "), err=True)
