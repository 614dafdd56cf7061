"""Places in a journal as people write them: a record's number, a time since the signal, or a wall time."""

from __future__ import annotations

from ebbtide.cli.events import parse_since
from ebbtide.cli.guard import Refused
from ebbtide.config.durations import parse_duration
from replay.timeline_wanted import Moment

METAVAR = "SEQ|+TIME|TIME"


def parse_moment(text: str, option: str) -> Moment:
    """``214``, ``+3.5s`` (since the signal), or RFC 3339. Raises Refused, with the option's name."""
    if text.isascii() and text.isdecimal():
        return Moment("seq", int(text))
    try:
        return Moment("since_ns", parse_duration(text))
    except ValueError:
        pass
    try:
        return Moment("wall_ns", parse_since(text, 0).wall_ns)
    except Refused:
        raise Refused(
            f"{option} {text!r} is neither a record's number (214), nor a time since the signal (+3.5s),"
            " nor a time (2026-03-01T12:00:00Z)"
        ) from None
