"""Go durations (``30s``, ``1m30s``, ``1.5h``) to integer nanoseconds and back, exactly.

The kubelet's configuration is written in them. No float is involved: a fraction is cut, not rounded, to
whole nanoseconds.
"""

from __future__ import annotations

import re

#: Nanoseconds of every unit that Go knows; both micro signs, as in Go.
UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}

#: A duration is an int64 of nanoseconds, some 292 years.
DURATION_NS_MAX = 2**63 - 1

#: Longer than any sensible duration; keeps a hostile one from costing anything.
TEXT_LENGTH_MAX = 100

_TERM = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<unit>[^0-9.]+)")
_DIGITS = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_EXAMPLES = "write it like 30s, 1m30s or 500ms"


def parse_duration(text: str) -> int:
    """Nanoseconds of a Go duration; a sign is allowed, and a bare ``0``.

    Raises ValueError with one line that says what is wrong and how to write it.
    """
    if len(text) > TEXT_LENGTH_MAX:
        raise ValueError(f"a duration of {len(text)} characters: {_EXAMPLES}")
    sign = -1 if text.startswith("-") else 1
    body = text[1:] if text[:1] in ("-", "+") else text
    if body == "0":
        return 0
    position = total_ns = 0
    while position < len(body):
        term = _TERM.match(body, position)
        if term is None:
            raise ValueError(
                f"duration {text!r} has no unit: {_EXAMPLES}"
                if _DIGITS.fullmatch(body[position:])
                else f"{text!r} is not a duration: {_EXAMPLES}"
            )
        whole, fraction, unit = term["whole"], term["fraction"] or "", term["unit"]
        if not whole and not fraction:
            raise ValueError(f"{text!r} is not a duration: {_EXAMPLES}")
        if unit not in UNITS_NS:
            raise ValueError(f"duration {text!r} has the unknown unit {unit!r}: use ns, us, ms, s, m or h")
        # Term by term, as Go does: the fraction of one is cut, whatever the next one adds.
        scale: int = 10 ** len(fraction)
        total_ns += int(whole or "0") * UNITS_NS[unit] + int(fraction or "0") * UNITS_NS[unit] // scale
        position = term.end()
    if not body:
        raise ValueError(f"{text!r} is not a duration: {_EXAMPLES}")
    total_ns *= sign
    # Only at the end: Python's numbers have no end that a longer text could cross unseen.
    if not -DURATION_NS_MAX - 1 <= total_ns <= DURATION_NS_MAX:
        raise ValueError(f"duration {text!r} is out of range: at most about 292 years")
    return total_ns


def format_duration(duration_ns: int) -> str:
    """As Go prints it: ``0s``, ``1ms``, ``2s``, ``1m30s``, ``1h0m0.5s``."""
    sign, size_ns = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    # Below a second in the largest unit that gives a whole number before the point.
    for unit, digits in (("ms", 6), ("\u00b5s", 3), ("ns", 0)):
        if UNITS_NS[unit] <= size_ns < UNITS_NS["s"]:
            return sign + _decimal(*divmod(size_ns, UNITS_NS[unit]), digits) + unit
    seconds, rest_ns = divmod(size_ns, UNITS_NS["s"])
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    large = (f"{hours}h" if hours else "") + (f"{minute}m" if minutes else "")
    return f"{sign}{large}{_decimal(second, rest_ns, 9)}s"


def _decimal(whole: int, rest: int, digits: int) -> str:
    return f"{whole}.{rest:0{digits}d}".rstrip("0") if rest else str(whole)
