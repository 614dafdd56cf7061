"""HTML that cannot be broken out of: whatever is not `Markup` already is text, and is escaped.

A pod may carry any name, and a process any last words. There is one way to make an element, and it escapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from ebbtide.events.decisions import PodOutcome
from ebbtide.events.record.format import span as systemd_span
from ebbtide.events.record.model import DAMAGED_ENDS, PodRecord, ShutdownRecord

#: Elements without an end.
VOID_ELEMENTS = ("col", "br", "wbr")

#: A table with more rows scrolls in a frame of its own.
ROWS_MAX = 30

#: A cell of at most so many characters is never broken into lines.
SHORT_MAX = 14


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(value: object) -> Markup:
    """Escaped, with control characters and marks of direction spelt out."""
    return value if isinstance(value, Markup) else Markup(escape(visible(str(value))))


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element. ``class_`` is ``class``, ``data_x`` is ``data-x``; None and False leave one out."""
    opened = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in VOID_ELEMENTS:
        return Markup(f"<{name}{opened}>")
    return Markup(f"<{name}{opened}>{''.join(map(escaped, children))}</{name}>")


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    key = key.rstrip("_").replace("_", "-")
    return f" {key}" if value is True else f' {key}="{escaped(value)}"'


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


# How verdicts and moments read on the page: for people, without a guess.


KIND_TEXTS = {
    "poweroff": "power-off",
    "reboot": "reboot",
    "halt": "halt",
    "kexec": "kexec reboot",
    "soft-reboot": "soft reboot",
    "unknown": "shutdown",
}

#: A pod's fate: what is said of one pod and of many, and the sign that stands beside the colour.
OUTCOME_TEXTS: dict[PodOutcome, tuple[str, str, str]] = {
    "graceful": ("ended by itself", "ended by themselves", "✓"),
    "killed": ("was killed", "were killed", "✕"),
    "failed": ("could not be ended", "could not be ended", "!"),
    "spared": ("was spared", "were spared", "○"),
    "rejected": ("came late and was rejected", "came late and were rejected", "⊘"),
    "unknown": ("has no fate on record", "have no fate on record", "?"),
}

#: The sign of the whole shutdown.
OUTCOME_SIGNS = {"complete": "✓", "cancelled": "○", "running": "…", "truncated": "✕", "never-begun": "✕"}


#: Of a shutdown that is complete, although not every pod ended well.
WORST_FIRST: tuple[PodOutcome, ...] = ("killed", "failed", "unknown")


def outcome_seal(account: ShutdownRecord) -> tuple[str, str]:
    """The sign before the headline, and its class: what became of the machine and of the pods."""
    if account.outcome == "complete" and any(map(account.count, WORST_FIRST)):
        return "!", "mixed"
    return OUTCOME_SIGNS[account.outcome], account.outcome


def span(duration_ns: int) -> str:
    """As everywhere; only the sign of the microsecond is that of print."""
    return systemd_span(duration_ns).replace("us", "µs")


def visible(text: str) -> str:
    """``text`` with every character that is not printable spelt out: none can turn a line around."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def moment(at_ns: int | None) -> str:
    """Time since the signal; a dash where it did not happen."""
    if at_ns is None:
        return "–"
    return f"−{span(-at_ns)}" if at_ns < 0 else f"+{span(at_ns)}"


def counted(count: int, one: str, many: str = "") -> str:
    """``1 pod``, ``12 pods``."""
    return f"{grouped(count)} {one if count == 1 else many or one + 's'}"


def grouped(number: int) -> str:
    """Thousands apart."""
    return f"{number:,}".replace(",", " ")


def fate(pod: PodRecord) -> PodOutcome:
    """A pod whose fate is not on record counts as unknown, as everywhere."""
    return pod.outcome or "unknown"


def fates(account: ShutdownRecord) -> str:
    """``11 pods ended by themselves, 1 was killed.``"""
    parts: list[str] = []
    for outcome, (one, many, _) in OUTCOME_TEXTS.items():
        count = account.count(outcome)
        if count:
            noun = counted(count, "pod") if not parts else grouped(count)
            parts.append(f"{noun} {one if count == 1 else many}")
    sentence = ", ".join(parts)
    return f"{sentence}." if sentence else "There was no pod to end."


def verdict(account: ShutdownRecord) -> str:
    """The whole shutdown in a sentence."""
    what = f"The {KIND_TEXTS[account.kind]} of {visible(account.node) or 'this node'}"
    if account.damage is not None and account.damage.here:
        return (
            f"{what}, {_last_wave_text(account)}: the record ends here: {DAMAGED_ENDS[account.damage.state]}."
        )
    if account.outcome == "complete":
        return (
            f"{what} is complete: the machine was let go after {span(account.ended_ns or account.last_ns)}."
        )
    if account.outcome == "cancelled":
        at_ns = account.last_ns if account.cancelled_ns is None else account.cancelled_ns
        return f"{what} was cancelled after {span(at_ns)}."
    if account.outcome == "running":
        return f"{what} is under way, {span(account.last_ns)} after the signal."
    if account.outcome == "never-begun":
        return f"{what} never began for the pods."
    return f"{what} was cut short {_last_wave_text(account)}."


def _last_wave_text(account: ShutdownRecord) -> str:
    where = f"in wave {account.last_wave}" if account.last_wave >= 0 else "before its first wave"
    return f"{where}, {span(account.last_ns)} after the signal"
