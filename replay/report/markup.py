"""HTML that cannot be broken out of: whatever is not `Markup` already is text, and is escaped.

A pod may carry any name, and a process any last words. There is one way to make an element, and it escapes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from ebbtide.events.decisions import PodOutcome
from ebbtide.events.record.format import span as systemd_span
from ebbtide.events.record.format import visible
from ebbtide.events.record.model import DAMAGED_ENDS, PodRecord, ShutdownRecord

#: Elements without an end.
VOID_ELEMENTS = ("col", "br", "wbr")

NS_PER_US = 1000

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
    opened = name
    for key, value in attributes.items():
        if value is not None and value is not False:
            key = key.rstrip("_").replace("_", "-")
            opened += f" {key}" if value is True else f' {key}="{escaped(value)}"'
    # A void element with an end tag is a parse error, and a browser makes a second one of ``</br>``.
    if name in VOID_ELEMENTS:
        return Markup(f"<{opened}>")
    return Markup(f"<{opened}>{''.join(map(escaped, children))}</{name}>")


def join(*parts: Markup) -> Markup:
    return Markup("".join(parts))


def table(caption: str, headings: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> Markup:
    """A captioned table in a frame that scrolls by itself where it is too wide.

    A row's first cell names it. Each carries its heading, for a screen on which a row stands as a block.
    """
    head = tag("thead", tag("tr", *(tag("th", each, scope="col") for each in headings)))
    body = []
    for first, *others in rows:
        cells = [tag("th", first, scope="row", data_l=headings[0])]
        for heading, value in zip(headings[1:], others, strict=True):
            shown = re.sub("<[^>]*>", "", value) if isinstance(value, Markup) else str(value)
            short = "short" if len(shown) <= SHORT_MAX else None
            cells.append(tag("td", value, class_=short, data_l=heading))
        body.append(tag("tr", *cells))
    # Of two columns, a name and its value, a phone's screen has room enough.
    blocks = "blocks" if len(headings) > 2 else None
    made = tag("table", tag("caption", caption), head, tag("tbody", *body), class_=blocks)
    return frame(made, caption, len(rows))


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
BAD_OUTCOMES: tuple[PodOutcome, ...] = ("killed", "failed", "unknown")


def outcome_seal(shutdown: ShutdownRecord) -> tuple[str, str]:
    """The sign before the headline, and its class: what became of the machine and of the pods."""
    # The machine went down as asked, and yet somebody lost work: a tick would hide that.
    if shutdown.outcome == "complete" and any(map(shutdown.count, BAD_OUTCOMES)):
        return "!", "mixed"
    return OUTCOME_SIGNS[shutdown.outcome], shutdown.outcome


def span(duration_ns: int) -> str:
    """As everywhere; only the sign of the microsecond is that of print."""
    return systemd_span(duration_ns).replace("us", "µs")


# The sign of a time is print's minus: beside a plus a hyphen is easily overlooked.
def moment(at_ns: int | None) -> str:
    """Time since the signal; a dash where it did not happen."""
    if at_ns is None:
        return "–"
    return f"−{span(-at_ns)}" if at_ns < 0 else f"+{span(at_ns)}"


def at(at_ns: int | None) -> Markup:
    """The same, for a clock that the reader chooses: the script shows it in another one."""
    return tag("span", moment(at_ns), data_us=None if at_ns is None else at_ns // NS_PER_US)


def counted(count: int, one: str, many: str = "") -> str:
    """``1 pod``, ``12 pods``."""
    return f"{grouped(count)} {one if count == 1 else many or one + 's'}"


def grouped(number: int) -> str:
    """Thousands apart."""
    return f"{number:,}".replace(",", " ")


def fate(pod: PodRecord) -> PodOutcome:
    """A pod whose fate is not on record counts as unknown, as everywhere."""
    return pod.outcome or "unknown"


def fates(shutdown: ShutdownRecord) -> str:
    """``11 pods ended by themselves, 1 was killed.``"""
    parts: list[str] = []
    for outcome, (one, many, _) in OUTCOME_TEXTS.items():
        count = shutdown.count(outcome)
        if count:
            noun = counted(count, "pod") if not parts else grouped(count)
            parts.append(f"{noun} {one if count == 1 else many}")
    sentence = ", ".join(parts)
    return f"{sentence}." if sentence else "There was no pod to end."


def verdict(shutdown: ShutdownRecord) -> str:
    """The whole shutdown in a sentence."""
    what = f"The {KIND_TEXTS[shutdown.kind]} of {visible(shutdown.node) or 'this node'}"
    if shutdown.damage is not None and shutdown.damage.here:
        end = DAMAGED_ENDS[shutdown.damage.state]
        return f"{what}, {_last_wave_text(shutdown)}: the record ends here: {end}."
    if shutdown.outcome == "complete":
        ended_ns = shutdown.ended_ns or shutdown.last_ns
        return f"{what} is complete: the machine was let go after {span(ended_ns)}."
    if shutdown.outcome == "cancelled":
        at_ns = shutdown.last_ns if shutdown.cancelled_ns is None else shutdown.cancelled_ns
        return f"{what} was cancelled after {span(at_ns)}."
    if shutdown.outcome == "running":
        return f"{what} is under way, {span(shutdown.last_ns)} after the signal."
    if shutdown.outcome == "never-begun":
        return f"{what} never began for the pods."
    return f"{what} was cut short {_last_wave_text(shutdown)}."


def _last_wave_text(shutdown: ShutdownRecord) -> str:
    where = f"in wave {shutdown.last_wave}" if shutdown.last_wave >= 0 else "before its first wave"
    return f"{where}, {span(shutdown.last_ns)} after the signal"
