"""Durations, offsets and sizes, as people are shown them and as programs are: the place that knows units.

A duration reads ``3 s``, ``10.006 s``, ``12 min 5 s``: a number, a space, a unit of the SI, as in the
reasons that are on record. It is cut off, never rounded up: what says 3 s took at least 3 s. Up to ten
minutes it is in seconds alone, because what it is compared with is: Kubernetes' grace periods, logind's
InhibitDelayMaxSec, the periods of the waves.

Not from here: the configuration's durations, which are Go's (`ebbtide.config.durations`); the reasons that
the deterministic core puts on record, and the texts of the trace's spans, which are data: an old journal must
give the same bytes.
"""

from __future__ import annotations

from ebbtide.events.base import NS_PER_MS, NS_PER_SECOND

NS_PER_US = 1_000

#: From here on seconds alone are hard to read.
MINUTES_FROM_NS = 600 * NS_PER_SECOND

#: An age is compared with nothing: earlier. As kubectl has it.
MINUTES_OF_AGE_FROM_SECONDS = 120

#: Below, a millisecond is too coarse for what a measurement or a hook takes.
HUNDREDTHS_BELOW_NS = 10 * NS_PER_MS

#: Larger units, largest first.
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def span(duration_ns: int) -> str:
    """``0 s``, ``40 µs``, ``8.98 ms``, ``705 ms``, ``10.006 s``, ``90 s``, ``12 min 5 s``; cut off."""
    if duration_ns < 0:
        return f"-{span(-duration_ns)}"
    if duration_ns < NS_PER_US:
        return "0 s"
    # Below a second one unit is enough: nobody compares hooks by microseconds that took milliseconds.
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
    """The same of what is set or measured in seconds, to the microsecond; of None ``not known``."""
    return "not known" if seconds is None else span(round(seconds * 1_000_000) * NS_PER_US)


def bound_text(seconds: float) -> str:
    """Of a call's bound, which may be what was left of a larger one: to the tenth, so that the errors of many
    calls are the same text, and are counted as one cause.
    """
    return span_s(round(seconds, 1))


def short_span(seconds: float) -> str:
    """Of an age or a long wait: ``0 s``, ``119 s``, ``2 min 3 s``, ``3 d 2 h``: whole seconds, two units."""
    whole = max(0, int(seconds))
    return f"{whole} s" if whole < MINUTES_OF_AGE_FROM_SECONDS else " ".join(_in_units(whole * 1000)[:2])


def offset(since_ns: int) -> str:
    """``+3.070 s``, ``-0.001 s``: a moment, counted from another; three digits, for a column."""
    # Cut as all durations, and of the size, or -0.5 ms would become -1.
    millis = abs(since_ns) // NS_PER_MS
    return f"{'-' if since_ns < 0 else '+'}{millis // 1000}.{millis % 1000:03d} s"


def size_text(count: int) -> str:
    """Of bytes: ``1 byte``, ``512 bytes``, ``64 KiB``, ``1.5 MiB``; cut off."""
    if count < 1024:
        return f"{count} byte{'' if count == 1 else 's'}"
    unit, of_unit = next(
        (name, factor) for name, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)) if count >= factor
    )
    return f"{_decimal(count * 10 // of_unit, 1)} {unit}"


def json_seconds(duration_ns: int | None) -> float | None:
    """For programs, where every time is in seconds and its key says so; null for what did not happen."""
    return None if duration_ns is None else duration_ns / NS_PER_SECOND


def _in_units(millis: int) -> list[str]:
    seconds, millis = divmod(millis, 1000)
    parts: list[str] = []
    for name, length in _UNITS:
        count, seconds = divmod(seconds, length)
        parts += [f"{count} {name}"] if count else []
    return [*parts, f"{_decimal(seconds * 1000 + millis, 3)} s"] if seconds or millis else parts


def _decimal(number: int, digits: int) -> str:
    """Of a number in 10 ** -``digits``; no digits where they are all zero."""
    whole, rest = divmod(number, 10**digits)
    return f"{whole}.{rest:0{digits}d}" if rest else str(whole)
