"""How a breach is told: containers by their names, moments in seconds of world time."""

from __future__ import annotations

from collections.abc import Iterator

from events.base import NS_PER_SECOND
from tests.world.pods import Box
from tests.world.trail import Seen

#: What an invariant yields: one sentence for each breach.
Breaches = Iterator[str]


def name(box: Box) -> str:
    return f"{box.uid}/{box.name}"


def seconds(at_ns: int) -> str:
    return f"{at_ns / NS_PER_SECOND:.4f} s"


def times(seen: list[Seen]) -> str:
    return ", ".join(seconds(each.at_ns) for each in seen)
