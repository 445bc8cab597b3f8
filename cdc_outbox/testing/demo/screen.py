"""What the demo shows: one live table on a terminal, one line an event anywhere else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cdc_outbox.testing.demo.board import Board, Line, Totals

FEWEST_ROWS = 3
AROUND = 12
"""Lines of the screen that neither events nor advice take."""
_STYLES = {"pending": "yellow", "sending": "cyan", "sent": "green", "failed": "red", "dead": "bold red"}
_NUMBERS = {"pending": 0, "sending": 1, "sent": 2, "failed": 3, "dead": 3}


@dataclass
class Scene:
    """What stands around the table. advice: (command, what it shows); troubles: what is amiss right now."""

    mysql: str
    kafka: str
    relay: str
    advice: Sequence[tuple[str, str]] = ()
    troubles: Sequence[str] = field(default=())


class TerminalScreen:
    """Redrawn in place."""

    def __init__(self, console: Console, board: Board) -> None:
        self._board = board
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> TerminalScreen:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def show(self, scene: Scene) -> None:
        rows = max(FEWEST_ROWS, self._live.console.height - len(scene.troubles) - 2 * len(scene.advice) - AROUND)
        self._live.update(_picture(scene, self._board, rows), refresh=True)


class PlainScreen:
    """For logs and pipes: every event once, when its outcome is known."""

    def __init__(self, console: Console, board: Board) -> None:
        self._console = console
        self._board = board
        self._told: set[str] = set()
        self._relay = ""
        self._troubles: Sequence[str] = ()

    def __enter__(self) -> PlainScreen:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def show(self, scene: Scene) -> None:
        if scene.relay != self._relay:
            self._relay = scene.relay
            self._print(f"relay {scene.relay}")
        if scene.troubles != self._troubles:
            self._troubles = scene.troubles
            for trouble in scene.troubles:
                self._print(f"! {trouble}")
        for line in self._board.latest(200):
            if line.copies and line.state == "sent" and line.written.event_id not in self._told:
                self._told.add(line.written.event_id)
                place = f"{line.topic}[{line.partition}]"
                row = f"{_NUMBERS[line.state]} {line.state}"
                self._print(
                    f"{line.written.event_type:<13} order {line.written.order}  row {row}  {place}  {_ms(line.latency)}"
                )

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def summary(totals: Totals) -> str:
    """What was written, what arrived, how fast."""
    return (
        f"{totals.written} events written, {totals.in_kafka} read from Kafka, {totals.missing} not yet, "
        f"{totals.duplicates} seen twice; latency of the last {len(totals.latencies)}: "
        f"p50 {_ms(totals.percentile(50))}, p99 {_ms(totals.percentile(99))}"
    )


def _picture(scene: Scene, board: Board, rows: int) -> RenderableType:
    totals = board.totals()
    head = Text.assemble(
        ("MySQL ", "bold"),
        f"{scene.mysql}   ",
        ("Kafka ", "bold"),
        f"{scene.kafka}   ",
        ("relay ", "bold"),
        scene.relay,
    )
    counts = Text("  ".join(f"{totals.states[state]} {state}" for state in _NUMBERS if totals.states[state]))
    parts: list[RenderableType] = [head, counts, _events(board.latest(rows)), Text(summary(totals), style="bold")]
    parts += [Text(f"! {trouble}", style="bold red") for trouble in scene.troubles]
    if scene.advice:
        parts.append(Text("\nTry in another terminal:", style="bold"))
    for command, effect in scene.advice:
        parts.append(Text.assemble((f"  {command}", "cyan"), f"\n      {effect}", overflow="fold"))
    return Group(*parts)


def _events(lines: Sequence[Line]) -> Table:
    table = Table(expand=False)
    for title in ("event", "order", "row", "topic", "partition", "latency"):
        table.add_column(title, no_wrap=True, justify="right" if title in ("partition", "latency") else "left")
    for line in lines:
        arrived = line.copies > 0
        table.add_row(
            line.written.event_type,
            line.written.order,
            Text(f"{_NUMBERS[line.state]} {line.state}", style=_STYLES[line.state]),
            line.topic or "…",
            str(line.partition) if arrived else "",
            _ms(line.latency) + (f"  x{line.copies}" if line.copies > 1 else "") if arrived else "",
        )
    return table


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.1f} ms"
