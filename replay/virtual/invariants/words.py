"""How a breach is told: containers by their names, moments in seconds of world time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from events.base import NS_PER_SECOND
from replay.virtual.pods import Box
from replay.virtual.trail import Seen

#: What an invariant yields: one sentence for each breach.
Breaches = Iterator[str]


def name(box: Box) -> str:
    return f"{box.uid}/{box.name}"


def seconds(at_ns: int) -> str:
    """With four digits, cut."""
    whole, rest_ns = divmod(abs(at_ns), NS_PER_SECOND)
    return f"{'-' if at_ns < 0 else ''}{whole}.{rest_ns // 100_000:04d} s"


def times(seen: Sequence[Seen]) -> str:
    return ", ".join(seconds(each.at_ns) for each in seen)
