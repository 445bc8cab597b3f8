#!/usr/bin/env python3
"""Give a relay a new position to read on from, as `cdc-outbox checkpoint reset` does.

    scripts/reset_checkpoint.py --config relay.yaml [--to now|earliest] [--yes]

Rows that are pending are published either way. Refuses while a relay leads, and without --yes where nobody
can be asked.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    from cdc_outbox.cli import main
except ModuleNotFoundError as missing:
    sys.exit(f"{missing.name} is not installed here: run this with the Python that cdc-outbox is installed for")


def arguments(given: list[str]) -> list[str]:
    """The same, as the command line takes them: --config stands before the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--config", "-c", metavar="FILE", help="the settings; else CDC_OUTBOX_CONFIG")
    parser.add_argument("--to", choices=["now", "earliest"], default="now", help="default: now, the binlog's end")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    chosen = parser.parse_args(given)
    config = ["--config", chosen.config] if chosen.config else []
    return [*config, "checkpoint", "reset", "--to", chosen.to, *(["--yes"] if chosen.yes else [])]


if __name__ == "__main__":
    main(arguments(sys.argv[1:]))
