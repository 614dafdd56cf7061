"""Durations in systemd's words, because ``systemd-analyze`` taught people to read them: ``1min 2.345s``."""

from __future__ import annotations

from events.base import NS_PER_SECOND

_NS_PER_MS = 1_000_000
_NS_PER_US = 1_000

#: Larger units, largest first.
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def span(duration_ns: int) -> str:
    """``0``, ``40us``, ``705ms``, ``10.006s``, ``1min 2.345s``, ``2h 5min``; cut off, never rounded up."""
    if duration_ns < 0:
        return f"-{span(-duration_ns)}"
    if duration_ns < NS_PER_SECOND:
        return _below_a_second(duration_ns)
    seconds, rest_ns = divmod(duration_ns, NS_PER_SECOND)
    parts: list[str] = []
    for name, size in _UNITS:
        count, seconds = divmod(seconds, size)
        parts += [f"{count}{name}"] if count else []
    millis = rest_ns // _NS_PER_MS
    if seconds or millis:
        parts.append(f"{seconds}.{millis:03d}s" if millis else f"{seconds}s")
    return " ".join(parts)


def _below_a_second(duration_ns: int) -> str:
    millis = duration_ns // _NS_PER_MS
    if millis:
        return f"{millis}ms"
    micros = duration_ns // _NS_PER_US
    return f"{micros}us" if micros else "0"


def plural(count: int, noun: str) -> str:
    """``1 pod``, ``2 pods``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
