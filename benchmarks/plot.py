"""A small plot as SVG: lines over two axes that begin at zero, readable on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 76, 200, 44, 56
COLOURS = ("#0b6e99", "#d9730d", "#8a8a8a", "#448361")
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#37352f}.title{font-weight:600;font-size:15px}"
    ".grid{stroke:#37352f;stroke-opacity:.15}.line{fill:none;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#d4d4d4}.grid{stroke:#d4d4d4}}"
)

#: A tick is one of these shares of a decade: the smallest that needs no more than so many.
TICK_SHARES = (0.1, 0.2, 0.25, 0.5, 1.0, 2.0)
TICKS_MAX = 6

Points = Sequence[tuple[float, float]]


class Axis(NamedTuple):
    """From zero to ``high`` in steps of ``tick``, over pixels from ``start`` to ``end``."""

    high: float
    tick: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> Axis:
        decade = 10.0 ** math.floor(math.log10(max(values)))
        tick = next(share * decade for share in TICK_SHARES if max(values) <= TICKS_MAX * share * decade)
        return cls(math.ceil(max(values) / tick) * tick, tick, start, end)

    def at(self, value: float) -> float:
        return self.start + value / self.high * (self.end - self.start)

    def ticks(self) -> list[float]:
        return [step * self.tick for step in range(round(self.high / self.tick) + 1)]


def plot(title: str, across: str, up: str, series: Mapping[str, Points]) -> str:
    """The picture's text. ``across`` and ``up`` name the axes; no value may be negative."""
    points = [point for line in series.values() for point in line]
    x = Axis.over([point[0] for point in points], LEFT, WIDTH - RIGHT)
    y = Axis.over([point[1] for point in points], HEIGHT - BOTTOM, TOP)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>',
        *_grid(x, y),
        f'<text x="{(x.start + x.end) / 2}" y="{HEIGHT - 14}" text-anchor="middle">{escape(across)}</text>',
        f'<text transform="translate(18 {(y.start + y.end) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(up)}</text>",
    ]
    ends = _spread([y.at(line[-1][1]) for line in series.values()])
    for colour, (name, line), label_y in zip(COLOURS, series.items(), ends, strict=False):
        body += _line(colour, name, [(x.at(a), y.at(b)) for a, b in line], label_y)
    return "\n".join([*body, "</svg>", ""])


def _grid(x: Axis, y: Axis) -> list[str]:
    made = []
    for tick in x.ticks():
        at = x.at(tick)
        made.append(f'<path class="grid" d="M{at:.1f} {y.start}V{y.end}"/>')
        made.append(f'<text x="{at:.1f}" y="{y.start + 20}" text-anchor="middle">{tick:g}</text>')
    for tick in y.ticks():
        at = y.at(tick)
        made.append(f'<path class="grid" d="M{x.start} {at:.1f}H{x.end}"/>')
        made.append(f'<text x="{x.start - 8}" y="{at + 4:.1f}" text-anchor="end">{tick:g}</text>')
    return made


def _line(colour: str, name: str, points: Points, label_y: float) -> list[str]:
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
    dots = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{colour}"/>' for a, b in points)
    label = (
        f'<text x="{WIDTH - RIGHT + 14}" y="{label_y + 4:.1f}" style="fill:{colour}">{escape(name)}</text>'
    )
    return [f'<path class="line" stroke="{colour}" d="M{path}"/>', dots, label]


def _spread(heights: Sequence[float], gap: float = 18) -> list[float]:
    """Labels beside the ends of their lines, none over another."""
    placed: dict[int, float] = {}
    below = -math.inf
    for index in sorted(range(len(heights)), key=lambda at: heights[at]):
        below = placed[index] = max(heights[index], below + gap)
    return [placed[index] for index in range(len(heights))]
