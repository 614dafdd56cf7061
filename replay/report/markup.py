"""HTML that cannot be broken out of: whatever is not `Markup` already is text, and is escaped.

A pod may carry any name, and a process any last words. There is one way to make an element, and it escapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from replay.report.words import visible

#: Elements without an end.
VOID = ("col", "br", "wbr")

#: A table with more rows scrolls in a frame of its own.
ROWS_MAX = 30

#: A cell of at most so many characters is never broken into lines.
SHORT_MAX = 14


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Escaped, with control characters and marks of direction spelt out."""
    return value if isinstance(value, Markup) else Markup(escape(visible(str(value))))


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element. ``class_`` is ``class``, ``data_x`` is ``data-x``; None and False leave one out."""
    opened = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{opened}>")
    return Markup(f"<{name}{opened}>{''.join(map(text, children))}</{name}>")


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    key = key.rstrip("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{text(value)}"'


def join(*parts: Markup) -> Markup:
    return Markup("".join(parts))


class Row(NamedTuple):
    """The cells of a row; the first one names it."""

    cells: tuple[object, ...]


def row(*cells: object) -> Row:
    return Row(cells)


def table(caption: str, headings: tuple[str, ...], rows: list[Row], **attributes: object) -> Markup:
    """A captioned table in a frame that scrolls by itself where it is too wide.

    Each cell carries its heading, for a screen on which a row stands as a block.
    """
    head = tag("thead", tag("tr", *(tag("th", each, scope="col") for each in headings)))
    shown = tag("tbody", *(tag("tr", *_cells(headings, each.cells)) for each in rows))
    body = tag(
        "table",
        tag("caption", caption),
        head,
        shown,
        class_="blocks" if len(headings) > 2 else None,
        **attributes,
    )
    return frame(body, caption, len(rows))


def _cells(headings: tuple[str, ...], cells: tuple[object, ...]) -> Iterator[Markup]:
    yield tag("th", cells[0], scope="row", data_l=headings[0])
    for heading, value in zip(headings[1:], cells[1:], strict=True):
        short = len(str(value)) <= SHORT_MAX
        yield tag("td", value, class_="short" if short else None, data_l=heading)


def frame(body: Markup, label: str, rows: int) -> Markup:
    """What scrolls by itself is a region that the keyboard reaches."""
    return tag(
        "div",
        body,
        class_="frame tall" if rows > ROWS_MAX else "frame",
        tabindex=0,
        role="region",
        aria_label=label,
    )


def section(name: str, title: str, *children: object) -> Markup:
    """A landmark with its heading."""
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, *children, id=name, aria_labelledby=f"{name}-title")
