"""Safe HTML: pods and processes may have any text, so every value but `Markup` is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import TypeVar

from ebbtide.events.record.format import visible
from ebbtide.events.record.shutdown_record import SIGNS
from ebbtide.events.units import size_text, span

#: Elements without an end tag.
VOID_ELEMENTS = ("col", "br", "wbr")

NS_PER_US = 1000

#: A longer table scrolls in its own frame.
ROWS_MAX = 30

#: So short a cell stays on one line.
SHORT_MAX = 14


#: Of a page, or a part of it: a browser shows no more, and several copies are in memory while it is made.
PAGE_BYTES_MAX = 32 << 20
#: Only these are searched for wide characters.
LONG_CHARACTERS = 1 << 20
TextT = TypeVar("TextT", str, bytes)


class PageTooLarge(Exception):
    def __init__(self) -> None:
        super().__init__(f"its page has more than {size_text(PAGE_BYTES_MAX)}, which no node's journal needs")


def size_of(text: str | bytes) -> int:
    """In memory: a dash makes each character of its text two bytes wide, an emoji four."""
    if isinstance(text, bytes) or text.isascii():
        return len(text)
    return len(text) * (4 if len(text) > LONG_CHARACTERS and max(text) > "\uffff" else 2)


def fitting(text: TextT) -> TextT:
    """Raises PageTooLarge."""
    if size_of(text) > PAGE_BYTES_MAX:
        raise PageTooLarge
    return text


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


def escaped(value: object) -> Markup:
    """With control characters and marks of direction spelt out."""
    return value if isinstance(value, Markup) else Markup(escape(visible(str(value))))


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """``class_`` is ``class``, ``data_x`` is ``data-x``; None and False leave an attribute out."""
    opened = name
    for key, value in attributes.items():
        if value is not None and value is not False:
            key = key.rstrip("_").replace("_", "-")
            opened += f" {key}" if value is True else f' {key}="{escaped(value)}"'
    # A void element with an end tag is a parse error: a browser makes ``</br>`` a second one.
    if name in VOID_ELEMENTS:
        return Markup(f"<{opened}>")
    return Markup(fitting(f"<{opened}>{''.join(map(escaped, children))}</{name}>"))


def join(*parts: Markup) -> Markup:
    return Markup("".join(parts))


def table(caption: str, headings: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> Markup:
    """A row's first cell names it. Each cell has its heading: narrow screens show rows as blocks."""
    head = tag("thead", tag("tr", *(tag("th", each, scope="col") for each in headings)))
    body = []
    for first, *others in rows:
        cells = [tag("th", first, scope="row", data_l=headings[0])]
        for heading, value in zip(headings[1:], others, strict=True):
            shown = re.sub("<[^>]*>", "", value) if isinstance(value, Markup) else str(value)
            short = "short" if len(shown) <= SHORT_MAX else None
            cells.append(tag("td", value, class_=short, data_l=heading))
        body.append(tag("tr", *cells))
    # Two columns fit on a phone's screen.
    blocks = "blocks" if len(headings) > 2 else None
    made = tag("table", tag("caption", caption), head, tag("tbody", *body), class_=blocks)
    return frame(made, caption, len(rows))


def frame(body: Markup, label: str, rows: int) -> Markup:
    """A scrolling region that the keyboard reaches."""
    return tag(
        "div",
        body,
        class_="frame tall" if rows > ROWS_MAX else "frame",
        tabindex=0,
        role="region",
        aria_label=label,
    )


def section(name: str, title: str, *children: object) -> Markup:
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, *children, id=name, aria_labelledby=f"{name}-title")


def page_head(
    kicker: str, seal: str, headline: str, lede: str, facts: Iterable[tuple[str, object]]
) -> Markup:
    pairs = [join(tag("dt", name), tag("dd", value)) for name, value in facts]
    return join(
        tag("p", kicker, class_="kicker"),
        tag("h1", sign_of(seal, "seal"), headline),
        tag("p", lede, class_="lede") if lede else Markup(""),
        tag("dl", *pairs, class_="facts"),
    )


def figures(rows: Iterable[tuple[str, str, str]]) -> Markup:
    """Each number with its name and a note."""
    boxes = [
        tag("div", tag("dt", name), tag("dd", value), tag("dd", note, class_="note") if note else "")
        for name, value, note in rows
    ]
    return tag("dl", *boxes, class_="figures")


def time_of(rfc3339: str, **attributes: object) -> Markup:
    """To the second."""
    return tag("time", f"{rfc3339[:10]} {rfc3339[11:19]} UTC", datetime=rfc3339, **attributes)


def sign_of(name: str, kind: str = "fate") -> Markup:
    """Hidden from screen readers: a word beside it says the same."""
    return tag("span", SIGNS[name], class_=f"{kind} {name}", aria_hidden="true")


# A real minus sign: beside a plus people overlook a hyphen.
def moment(at_ns: int | None) -> str:
    """Since the signal; a dash: it did not happen."""
    if at_ns is None:
        return "–"
    return f"−{span(-at_ns)}" if at_ns < 0 else f"+{span(at_ns)}"


def at(at_ns: int | None) -> Markup:
    """The script shows it on the clock that the reader chooses."""
    return tag("span", moment(at_ns), data_us=None if at_ns is None else at_ns // NS_PER_US)


def counted(count: int, one: str, many: str = "") -> str:
    """``1 pod``, ``12 pods``."""
    return f"{grouped(count)} {one if count == 1 else many or one + 's'}"


def grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")
