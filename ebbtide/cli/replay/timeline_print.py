"""Prints a timeline: columns that fit the screen, lines in colour or as JSON."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

from ebbtide.cli.common.output import json_line, painter
from ebbtide.events.record.format import json_object, rfc3339, utc_text, visible
from ebbtide.events.units import offset
from ebbtide.replay.timeline import Line, LineKind, sentence

GLYPHS: dict[LineKind, str] = {"fact": "<", "decision": ".", "order": ">", "mark": "#", "unknown": "?"}
BAD_GLYPH = "!"
LEVEL_NAMES = {3: "error", 4: "warning", 5: "notice", 6: "info", 7: "debug"}
LINE_STYLES: dict[str, dict[str, Any]] = {
    "heading": {"bold": True},
    BAD_GLYPH: {"fg": "red"},
    "<": {"fg": "cyan"},
    ">": {"fg": "magenta"},
    "#": {"dim": True},
    "?": {"fg": "yellow"},
}


class Column(NamedTuple):
    """``spare``: the order in which columns go on a narrow terminal; 0: it stays."""

    heading: str
    width: int
    right: bool = False
    spare: int = 0


#: The date is the first heading.
COLUMNS = (
    Column("", 12, spare=3),
    Column("SINCE", 10, right=True),
    Column("SEQ", 7, right=True, spare=1),
    Column("", 1),
    Column("ACTOR", 8, spare=2),
    Column("W", 2, right=True, spare=4),
    Column("POD", 28),
)
WORDS_HEADING = "WHAT (times are UTC)"
#: Two cut names may look alike: in a pipe they stay whole.
TIME, POD = 0, len(COLUMNS) - 1
#: Below this width of words, columns go.
WORDS_WIDTH_MIN = 38
#: ``namespace/web-7d9f…x2x4z`` is still recognisable.
POD_WIDTH_MIN = 18
#: Below this width lines are as long as in a pipe, and the terminal breaks them.
SCREEN_WIDTH_MIN = 50


def screen_width() -> int:
    """0: no terminal, or too narrow."""
    if not sys.stdout.isatty():
        return 0
    width = shutil.get_terminal_size().columns
    return width if width >= SCREEN_WIDTH_MIN else 0


def fitting_columns(width: int) -> dict[int, int]:
    """The widths of the shown `COLUMNS`, by place; all of them for ``width`` 0."""
    kept = {at: column.width for at, column in enumerate(COLUMNS)}

    def room() -> int:
        return width - sum(kept.values()) - len(kept)

    spare = sorted((column.spare, at) for at, column in enumerate(COLUMNS) if column.spare)
    for _, at in spare if width else ():
        if room() < WORDS_WIDTH_MIN:
            del kept[at]
    if width and room() < WORDS_WIDTH_MIN:
        kept[POD] = max(POD_WIDTH_MIN, kept[POD] + room() - WORDS_WIDTH_MIN)
    return kept


def shortened(name: str, width: int) -> str:
    """``shop/checko…9-x2x4z``: names differ at their begin and end."""
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"


def hanging(prefix: str, text: str, width: int) -> list[str]:
    """A long text continues below itself. ``width`` 0: on one line."""
    if not width or len(prefix) + len(text) <= width:
        return [f"{prefix}{text}"]
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=prefix,
        subsequent_indent=" " * len(prefix),
        break_on_hyphens=False,
        drop_whitespace=True,
    )
    return lines or [prefix]


class LinePrinter:
    """The date is the first column's heading, repeated when it changes."""

    def __init__(self) -> None:
        self._paint = painter(LINE_STYLES)
        self._date = ""
        self._width = screen_width()
        self._columns = fitting_columns(self._width)

    def __call__(self, line: Line) -> str:
        date, _, clock = rfc3339(line.wall_ns).partition("T")
        heading = ""
        if date != self._date:
            names = [date, *(column.heading for column in COLUMNS[1:])]
            words = WORDS_HEADING if TIME in self._columns else f"WHAT, on {date} UTC"
            heading = self._paint("heading", self._prefix(names) + words) + "\n"
            self._date = date
        glyph = BAD_GLYPH if line.bad else GLYPHS[line.kind]
        cells = (
            clock[:12],
            # One word for each column, so that a pipe can cut them.
            offset(line.since_ns).removesuffix(" s"),
            str(line.seq),
            glyph,
            line.short,
            "" if line.wave is None else str(line.wave),
            visible(line.pod),
        )
        lines = hanging(self._prefix(cells), visible(line.text), self._width)
        return heading + self._paint(glyph, "\n".join(each.rstrip() for each in lines))

    def _prefix(self, cells: Sequence[str]) -> str:
        made = ""
        for at, width in self._columns.items():
            cell = shortened(cells[at], width) if self._width and at == POD else cells[at]
            made += f"{cell:>{width}} " if COLUMNS[at].right else f"{cell:<{width}} "
        return made


class StoryPrinter:
    """A line as a sentence, under its pod's name, which several namespaces may have."""

    def __init__(self) -> None:
        self._paint = painter(LINE_STYLES)
        self._pod = ""
        self._width = screen_width()

    def __call__(self, line: Line) -> str:
        heading = ""
        if line.pod != self._pod:
            when = f"{utc_text(line.wall_ns)} is {offset(line.since_ns)}"
            heading = self._paint("heading", f"{visible(line.pod)} ({when})") + "\n"
            self._pod = line.pod
        lines = hanging(f"{offset(line.since_ns):>12}  ", visible(sentence(line)), self._width)
        return heading + self._paint(BAD_GLYPH if line.bad else "", "\n".join(lines))


JSON_FIELDS = (
    *("seq", "wall_ns", "since_ns", "episode", "cause", "actor", "kind"),
    *("type", "pod", "container", "wave", "level", "text"),
)
#: Null where they are empty or 0.
JSON_NULLS = ("episode", "cause", "pod", "container")


def line_json(line: Line) -> str:
    """``actor`` as in ``journal show``."""
    fields = {name: getattr(line, name) for name in JSON_FIELDS}
    fields |= {name: fields[name] or None for name in JSON_NULLS} | {"level": LEVEL_NAMES[line.level]}
    return json_line(json_object(fields))
