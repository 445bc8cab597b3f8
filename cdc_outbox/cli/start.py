"""`cdc-outbox start`: the relay itself, in the foreground."""

# ruff: noqa: PLC0415  (commands import what they need when they run)

from __future__ import annotations

import logging
from typing import Annotated

import typer

from cdc_outbox.errors import CdcOutboxError


def start(
    ctx: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="With `rows: transient`: start without a checkpoint.")] = False,
) -> None:
    """Relay events until SIGTERM or Ctrl-C, which drains and stops; a second one forces (exit 4)."""
    settings = ctx.obj.settings()
    from cdc_outbox.ops.log import configure_logging, log_event
    from cdc_outbox.relay.supervisor import Supervisor

    configure_logging(settings.log)
    try:
        code = Supervisor(settings, begin_anew=yes).run()
    except CdcOutboxError as error:
        if settings.log.format == "text":
            raise
        # Who reads the log as JSON must find its last word in it, too.
        logger = logging.getLogger(__name__)
        log_event(logger, logging.ERROR, "ended", error.message, hint=error.hint, exit_code=error.exit_code)
        code = error.exit_code
    raise typer.Exit(code)
