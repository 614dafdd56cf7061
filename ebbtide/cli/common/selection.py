"""What people select of a journal, understood in the same way by every verb: a moment, and an actor.

A moment (``--since``, ``--until``, ``--at``) is one of four things, told apart by their form alone:

- ``214``: a record's number;
- ``+3.5s``, ``-2s``: with a sign, a time since the shutdown's signal, or before it;
- ``10m``: without one, that long ago;
- ``2026-03-01T12:00:00Z``: a time (RFC 3339); without a zone, local time.
"""

from __future__ import annotations

import re
import time
from datetime import datetime

from ebbtide.cli.common.guard import Refused
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.replay.timeline import Moment, is_actor, short_name

MOMENT_METAVAR = "SEQ|+TIME|AGO|TIME"
#: For the help of an option.
MOMENT_FORMS = "214, +3.5s since the signal, 10m ago, or a time"


def parse_moment(text: str, option: str, now_ns: int | None = None) -> Moment:
    """``now_ns``: Unix time in nanoseconds. Raises Refused, with the option's name."""
    if text.isascii() and text.isdecimal():
        return Moment("seq", int(text))
    from ebbtide.config.durations import parse_duration

    try:
        duration_ns = parse_duration(text)
    except ValueError:
        duration_ns = None
    if duration_ns is not None:
        if text.lstrip().startswith(("+", "-")):
            return Moment("since_ns", duration_ns)
        return Moment("wall_ns", (time.time_ns() if now_ns is None else now_ns) - duration_ns)
    # Exact to the nanosecond: `datetime` keeps microseconds.
    fraction = re.search(r"\.(\d{1,9})\d*", text)
    try:
        whole = datetime.fromisoformat(text.replace(fraction[0], "") if fraction else text)
        seconds = int(whole.timestamp())
    except (ValueError, OverflowError):
        raise Refused(
            f"{option} {text!r} is neither a record's number (214), nor a time since the signal (+3.5s), nor"
            " a duration back from now (10m), nor a time (2026-03-01T12:00:00Z)"
        ) from None
    return Moment("wall_ns", seconds * NS_PER_SECOND + int(fraction[1].ljust(9, "0") if fraction else 0))


def known_actor(wanted: str) -> str:
    """``wanted``, if it names one that writes records. Raises Refused, naming those that there are."""
    from ebbtide.actors.system import ACTOR_TYPE_BY_NAME, EDGE, SYSTEM
    from ebbtide.events.writer import JOURNAL_ACTOR

    names = (*ACTOR_TYPE_BY_NAME, EDGE, SYSTEM, JOURNAL_ACTOR)
    if not any(is_actor(wanted.partition(":")[0], name, short_name(name)) for name in names):
        known = ", ".join(map(short_name, names))
        raise Refused(f"no actor is called {wanted!r}: name one of {known}, or NAME:SUBJECT")
    return wanted
