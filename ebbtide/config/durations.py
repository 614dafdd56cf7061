"""Go's durations (``30s``, ``1m30s``, ``1.5h``) as integer nanoseconds, exactly: no float is involved."""

from __future__ import annotations

import re

#: Nanoseconds of each of Go's units; Go accepts both micro signs.
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

#: A duration is an int64 of nanoseconds, about 292 years.
DURATION_NS_MAX = 2**63 - 1

#: A longer text is a mistake, and int() of it would take long.
DURATION_LENGTH_MAX = 100

_TERM = re.compile(rf"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)({'|'.join(UNITS_NS)})")
EXAMPLES = "write it like 30s, 1m30s or 500ms"


def parse_duration(text: str) -> int:
    """Nanoseconds of a Go duration. A sign and a bare ``0`` are allowed.

    Raises ValueError with one line: what is wrong, and how to write it.
    """
    if len(text) > DURATION_LENGTH_MAX:
        raise ValueError(f"a duration of {len(text)} characters: {EXAMPLES}")
    body = text[1:] if text[:1] in ("-", "+") else text
    if body == "0":
        return 0
    terms = _TERM.findall(body)
    if not terms or "".join(number + unit for number, unit in terms) != body:
        missing = " has no unit" if body.isascii() and body.isdecimal() else " is not a duration"
        raise ValueError(f"{text!r}{missing}: {EXAMPLES}")
    total_ns = 0
    for number, unit in terms:
        # Go cuts the fraction of each term alone.
        whole, _, fraction = number.partition(".")
        scale: int = 10 ** len(fraction)
        total_ns += int(whole or "0") * UNITS_NS[unit] + int(fraction or "0") * UNITS_NS[unit] // scale
    total_ns = -total_ns if text.startswith("-") else total_ns
    if not -DURATION_NS_MAX - 1 <= total_ns <= DURATION_NS_MAX:
        raise ValueError(f"duration {text!r} is out of range: at most about 292 years")
    return total_ns


def format_duration(duration_ns: int) -> str:
    """As Go prints it: ``0s``, ``1ms``, ``2s``, ``1m30s``, ``1h0m0.5s``."""
    sign, size_ns = ("-", -duration_ns) if duration_ns < 0 else ("", duration_ns)
    # Go prints less than a second in the largest unit with a whole number before the point.
    for unit, digits in (("ms", 6), ("\u00b5s", 3), ("ns", 0)):
        if UNITS_NS[unit] <= size_ns < UNITS_NS["s"]:
            return sign + _decimal_text(*divmod(size_ns, UNITS_NS[unit]), digits) + unit
    seconds, rest_ns = divmod(size_ns, UNITS_NS["s"])
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    large = (f"{hours}h" if hours else "") + (f"{minute}m" if minutes else "")
    return f"{sign}{large}{_decimal_text(second, rest_ns, 9)}s"


def _decimal_text(whole: int, rest: int, digits: int) -> str:
    return f"{whole}.{rest:0{digits}d}".rstrip("0") if rest else str(whole)
