"""systemd's time spans ("1min 30s"), as its configuration files write them; to integer nanoseconds."""

from __future__ import annotations

import re
from fractions import Fraction

from events.base import NS_PER_SECOND

#: logind's limit may be "infinity"; what we record stays inside every integer format.
GRANT_NS_MAX = 366 * 24 * 3600 * NS_PER_SECOND

#: systemd.time(7). "m" is minutes, "M" months.
UNITS_NS = {
    "": NS_PER_SECOND,
    **dict.fromkeys(("us", "usec", "µs", "μs"), 1_000),
    **dict.fromkeys(("ms", "msec"), 1_000_000),
    **dict.fromkeys(("s", "sec", "second", "seconds"), NS_PER_SECOND),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60 * NS_PER_SECOND),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600 * NS_PER_SECOND),
    **dict.fromkeys(("d", "day", "days"), 86_400 * NS_PER_SECOND),
    **dict.fromkeys(("w", "week", "weeks"), 604_800 * NS_PER_SECOND),
    **dict.fromkeys(("M", "month", "months"), 2_629_800 * NS_PER_SECOND),
    **dict.fromkeys(("y", "year", "years"), 31_557_600 * NS_PER_SECOND),
}
PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Zµμ]*)\s*", re.ASCII)
TEXT_CHARACTERS_MAX = 256


def parse_timespan_ns(text: str) -> int | None:
    """Nanoseconds, at most `GRANT_NS_MAX`; None where systemd would ignore the line as well."""
    text = text.strip()
    if text == "infinity":
        return GRANT_NS_MAX
    if not text or len(text) > TEXT_CHARACTERS_MAX:
        return None
    total, at = Fraction(0), 0
    while at < len(text):
        part = PART.match(text, at)
        if part is None or part[2] not in UNITS_NS:
            return None
        total += Fraction(part[1]) * UNITS_NS[part[2]]
        at = part.end()
    return min(int(total), GRANT_NS_MAX)


def grant_ns(microseconds: int) -> int:
    """The property ``InhibitDelayMaxUSec`` as nanoseconds; all bits set means infinity."""
    return min(microseconds * 1_000, GRANT_NS_MAX)
