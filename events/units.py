"""Durations, offsets and sizes, for people and for programs.

A duration is cut off, never rounded up: 3 s means at least 3 s. Up to ten minutes it is in seconds alone,
like Kubernetes' grace periods and logind's InhibitDelayMaxSec.

The configuration has Go's durations (`ebbtide.config.fields`). The core's reasons on record and the texts of
spans have their own, which must stay byte for byte.
"""

from __future__ import annotations

from ebbtide.events.base import NS_PER_MS, NS_PER_SECOND

NS_PER_US = 1_000

#: From here on, seconds alone are hard to read.
MINUTES_FROM_NS = 600 * NS_PER_SECOND

#: Like kubectl's ages.
MINUTES_OF_AGE_FROM_SECONDS = 120

#: Below, a millisecond is too coarse for measurements and hooks.
HUNDREDTHS_BELOW_NS = 10 * NS_PER_MS

#: Largest first.
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def span(duration_ns: int) -> str:
    """``0 s``, ``40 µs``, ``8.98 ms``, ``705 ms``, ``10.006 s``, ``90 s``, ``12 min 5 s``."""
    if duration_ns < 0:
        return f"-{span(-duration_ns)}"
    if duration_ns < NS_PER_US:
        return "0 s"
    if duration_ns < NS_PER_MS:
        return f"{duration_ns // NS_PER_US} µs"
    if duration_ns < HUNDREDTHS_BELOW_NS:
        return f"{_decimal(duration_ns // (NS_PER_MS // 100), 2)} ms"
    if duration_ns < NS_PER_SECOND:
        return f"{duration_ns // NS_PER_MS} ms"
    millis = duration_ns // NS_PER_MS
    if duration_ns < MINUTES_FROM_NS:
        return f"{_decimal(millis, 3)} s"
    return " ".join(_in_units(millis))


def span_s(seconds: float | None) -> str:
    """To the microsecond."""
    return "not known" if seconds is None else span(round(seconds * 1_000_000) * NS_PER_US)


def bound_text(seconds: float) -> str:
    """A call's bound, or the rest of a larger one: to the tenth, so that many calls' errors have one text."""
    return span_s(round(seconds, 1))


def short_span(seconds: float) -> str:
    """An age or a long wait: ``0 s``, ``119 s``, ``2 min 3 s``, ``3 d 2 h``."""
    whole = max(0, int(seconds))
    return f"{whole} s" if whole < MINUTES_OF_AGE_FROM_SECONDS else " ".join(_in_units(whole * 1000)[:2])


def offset(since_ns: int) -> str:
    """``+3.070 s``, ``-0.001 s``: for a column."""
    # Cut off the absolute value, or -0.5 ms would become -1.
    millis = abs(since_ns) // NS_PER_MS
    return f"{'-' if since_ns < 0 else '+'}{millis // 1000}.{millis % 1000:03d} s"


def size_text(count: int) -> str:
    """``1 byte``, ``512 bytes``, ``64 KiB``, ``1.5 MiB``; cut off."""
    if count < 1024:
        return f"{count} byte{'' if count == 1 else 's'}"
    unit, of_unit = next(
        (name, factor) for name, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)) if count >= factor
    )
    return f"{_decimal(count * 10 // of_unit, 1)} {unit}"


def json_seconds(duration_ns: int | None) -> float | None:
    """For programs. None: it did not happen."""
    return None if duration_ns is None else duration_ns / NS_PER_SECOND


def _in_units(millis: int) -> list[str]:
    seconds, millis = divmod(millis, 1000)
    parts: list[str] = []
    for name, length in _UNITS:
        count, seconds = divmod(seconds, length)
        parts += [f"{count} {name}"] if count else []
    return [*parts, f"{_decimal(seconds * 1000 + millis, 3)} s"] if seconds or millis else parts


def _decimal(number: int, digits: int) -> str:
    """``number`` in units of 10 ** -``digits``; without zeros alone."""
    whole, rest = divmod(number, 10**digits)
    return f"{whole}.{rest:0{digits}d}" if rest else str(whole)
