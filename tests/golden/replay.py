"""What recorded events give, in a form that can be written down."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path

from cdc_outbox.binlog.transactions import Assembler
from cdc_outbox.errors import BinlogUnreadable
from cdc_outbox.model import Event, Position, TableName, Transaction

FOLDER = Path(__file__).parent
TABLE = TableName("shop", "outbox_event")


def extra_columns(sql: str) -> list[str]:
    """What a line `-- extra: a, b` in the SQL names."""
    found = re.search(r"^-- extra: (.*)$", sql, re.MULTILINE)
    return found[1].split(", ") if found else []


def recorded(name: str) -> list[bytes]:
    """The events in <name>.hex."""
    return [bytes.fromhex(line) for line in (FOLDER / f"{name}.hex").read_text(encoding="ascii").splitlines()]


def assemble(
    events: Iterable[bytes], start: Position, extra_columns: Sequence[str]
) -> tuple[list[Transaction], str | None]:
    """The transactions, and the message of the error that ended them."""
    assembler = Assembler([TABLE], start.file, start.offset, extra_columns=extra_columns)
    transactions: list[Transaction] = []
    try:
        for event in events:
            for given in assembler.feed([event]):
                transactions += given
    except BinlogUnreadable as error:
        return transactions, f"{error.message} | {error.hint}"
    return transactions, None


def described(transaction: Transaction) -> dict[str, object]:
    """Only what says something."""
    found: dict[str, object] = {
        "end": transaction.end and f"{transaction.end[0]}:{transaction.end[1]}",
        "gtids": [f"{gtid.source}:{gtid.first}-{gtid.last}" for gtid in transaction.gtids],
        "traffic": transaction.traffic,
        "rotated": transaction.rotated,
        "barrier": transaction.barrier,
        "events": [_event(event) for event in transaction.events],
    }
    return {name: value for name, value in found.items() if value}


def _event(event: Event) -> dict[str, object]:
    found = {field.name: getattr(event, field.name) for field in fields(event)}
    del found["table"]
    found["payload"] = event.payload.decode() if event.payload is not None else None
    return {name: value for name, value in found.items() if value}
