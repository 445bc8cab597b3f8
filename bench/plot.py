"""Bars as SVG, readable on a light page and on a dark one. Pure: figures in, text out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bench.figures import Drain, Latency, grouped
from bench.tables import title

DRAIN_PLOT = "benchmarks-drain.svg"
LATENCY_PLOT = "benchmarks-latency.svg"

_WIDTH, _LEFT, _RIGHT, _TOP, _LINE, _BAR = 860, 270, 90, 44, 26, 16
_STYLE = """\
  <style>
    text { font: 13px system-ui, sans-serif; fill: #24292f; }
    .title { font-size: 15px; font-weight: 600; }
    .axis { fill: #57606a; font-size: 11px; }
    .grid { stroke: #57606a; stroke-opacity: 0.25; }
    .ours { fill: #0969da; }
    .theirs { fill: #8c959f; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3; }
      .axis { fill: #9198a1; }
      .grid { stroke: #9198a1; }
      .ours { fill: #4493f8; }
      .theirs { fill: #656c76; }
    }
  </style>"""


@dataclass(frozen=True)
class Bar:
    """From begin to end on the axis. name empty: a gap that carries `label` as a heading."""

    name: str
    begin: float
    end: float
    label: str
    ours: bool


def drain_plot(drains: Sequence[Drain]) -> str:
    """Events a second, the fastest side first."""
    rates = {
        side: statistics.median(one.rate for one in rounds)
        for side, rounds in grouped(drains, lambda one: one.side).items()
    }
    bars = [
        Bar(title(side), 0, rate, f"{rate:,.0f}", _ours(side))
        for side, rate in sorted(rates.items(), key=lambda one: -one[1])
    ]
    step = _step(max(rates.values()))
    ticks = [number * step for number in range(int(max(rates.values()) / step) + 1)]
    heading = f"A backlog of {drains[0].events:,} events: events/s"
    return _chart(heading, bars, ticks, lambda value: value / max(rates.values()))


def latency_plot(latencies: Sequence[Latency]) -> str:
    """p50 to p99 of each side at each rate, on a logarithmic axis."""
    bars: list[Bar] = []
    for rate, at_rate in grouped(latencies, lambda one: one.rate).items():
        bars.append(Bar("", 0, 0, f"{rate:,.0f} events/s", ours=False))
        for side, rounds in grouped(at_rate, lambda one: one.side).items():
            p50, p99 = (
                statistics.median(values) for values in zip(*((one.p50, one.p99) for one in rounds), strict=True)
            )
            bars.append(Bar(title(side), p50, p99, f"{p50:.1f} – {p99:.1f}", _ours(side)))
    seen = [value for bar in bars if bar.name for value in (bar.begin, bar.end)]
    low, high = math.floor(math.log10(min(seen))), math.ceil(math.log10(max(seen)))
    ticks = [10.0**power for power in range(low, high + 1)]
    return _chart(
        "From COMMIT to the consumer: ms, p50 – p99, logarithmic",
        bars,
        ticks,
        lambda value: (math.log10(value) - low) / max(1, high - low),
    )


def _ours(side: str) -> bool:
    return title(side).startswith("cdc-outbox")


def _step(highest: float) -> float:
    """A round number that goes some four times into `highest`."""
    power = 10.0 ** math.floor(math.log10(highest))
    return next(power * share for share in (0.1, 0.2, 0.25, 0.5, 1, 2, 2.5) if highest / (power * share) < 6)


def _chart(heading: str, bars: Sequence[Bar], ticks: Sequence[float], place: Callable[[float], float]) -> str:
    """place: a value -> 0 … 1, from the axis's begin to its end."""
    height = _TOP + _LINE * len(bars) + 30
    bottom, name_end = height - 24, _LEFT - 8

    def across(value: float) -> float:
        return _LEFT + place(value) * (_WIDTH - _LEFT - _RIGHT)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"  <title>{escape(heading)}</title>",
        _STYLE,
        f'  <text class="title" x="12" y="24">{escape(heading)}</text>',
    ]
    for tick in ticks:
        x = across(tick)
        lines += [
            f'  <line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 6}" y2="{bottom}"/>',
            f'  <text class="axis" x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{tick:,g}</text>',
        ]
    for number, bar in enumerate(bars):
        top = _TOP + number * _LINE
        base = top + _BAR - 3
        if not bar.name:
            lines.append(
                f'  <text class="axis" x="{_LEFT - 8}" y="{base}" text-anchor="end">{escape(bar.label)}</text>'
            )
            continue
        begin, end = (across(value) if value else float(_LEFT) for value in (bar.begin, bar.end))
        width = max(2.0, end - begin)
        name = escape(bar.name.replace("`", ""))
        kind = "ours" if bar.ours else "theirs"
        lines += [
            f'  <text x="{name_end}" y="{base}" text-anchor="end">{name}</text>',
            f'  <rect class="{kind}" x="{begin:.1f}" y="{top}" width="{width:.1f}" height="{_BAR}" rx="2"/>',
            f'  <text x="{end + 6:.1f}" y="{base}">{escape(bar.label)}</text>',
        ]
    return "\n".join([*lines, "</svg>"]) + "\n"
