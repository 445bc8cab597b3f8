"""What `scripts/bench decode` has measured, as a table and as docs/profile.md. Pure: text in, text out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date

from bench.decode import ROUNDS, Decode, ratio
from bench.tables import grid

_HEAD = """\
# Where a microsecond goes

Made by `scripts/bench decode --write`. Do not edit the figures: run it again. They are the CPU of the thread that reads
the binlog, in µs an event, the best of {rounds} runs over the same recorded bytes: other load on the machine makes a
run longer, never shorter. Read the ratios first.
"""

_PARTS = """\
## Reading the binlog

{events:,} transactions of one row each, {event_bytes:.0f} bytes of binlog an event in five binlog events,
{json_bytes:.0f} of them binary JSON (the payload of [the other benchmarks](../bench/backlog.py)).
"""

_WHAT = """\
- **socket**: `recv`, and cutting what it brought into single events ([stream.py](../cdc_outbox/binlog/stream.py));
  measured once, as it came.
- **cut**: the same bytes cut again: in pure Python into events ([packets.py](../cdc_outbox/binlog/packets.py)); by the
  compiled twin into whole transactions, with the CRC32 of every event and without what is of other tables.
- **rows**: a row image → `Event`, without its JSON, by the loop that
  [row_loop.py](../cdc_outbox/binlog/row_loop.py) makes for the table's layout.
- **JSON**: MySQL's binary JSON → the text of `CAST(payload AS CHAR)`, by
  [json_text.py](../cdc_outbox/binlog/json_text.py) or its compiled twin
  [accelerator.c](../cdc_outbox/binlog/accelerator.c).
- **the rest**: event headers, GTIDs, table maps, where a transaction begins and ends, positions, in pure Python the
  CRC32 of every event ([transactions.py](../cdc_outbox/binlog/transactions.py)).
- **another table's**: all but the socket for the same transactions, were they another table's.

Which decoder runs is told by `cdc-outbox doctor`, `cdc-outbox status` and the relay's first log line.
`CDC_OUTBOX_PURE=1` takes the pure one.
"""

_COLUMNS: list[tuple[str, Callable[[Decode], float]]] = [
    ("socket", lambda side: side.socket),
    ("cut", lambda side: side.cut),
    ("rows", lambda side: side.rows),
    ("JSON", lambda side: side.json),
    ("the rest", lambda side: side.rest),
    ("all but the socket", lambda side: side.whole),
    ("another table's", lambda side: side.another),
]


def decode_table(sides: Sequence[Decode]) -> str:
    rows = [[side.kind, *(f"{value(side):.1f}" for _, value in _COLUMNS)] for side in sides]
    table = grid(["µs an event", *(name for name, _ in _COLUMNS)], rows)
    times = ratio(sides)
    return table if times is None else f"{table}\n\nThe pure decoder takes {times:.2f} × the CPU of the compiled one."


def profile_page(sides: Sequence[Decode], *, machine: Sequence[tuple[str, str]], command: str, made: date) -> str:
    """The text of docs/profile.md. command: how it was made."""
    one = sides[0]
    facts = [["date", made.isoformat()], ["command", f"`{command}`"], *map(list, machine)]
    parts = [
        _HEAD.format(rounds=ROUNDS),
        grid(["", ""], facts),
        _PARTS.format(events=one.events, event_bytes=one.event_bytes, json_bytes=one.json_bytes),
        decode_table(sides),
        _WHAT,
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"
