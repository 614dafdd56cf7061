"""The world log: what really happened on a modelled node, seen from outside, in world time.

World time is nanoseconds that run on over crashes and boots. The log outlives every daemon, and nothing in it
comes from the daemon's own records: the invariants compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

MS = 1_000_000


class Happening(NamedTuple):
    """One happening. ``late``: the effect began before its order was as durable as it has to be."""

    at_ns: int
    boot: int
    life: int
    what: str
    uid: str = ""
    container: str = ""
    detail: str = ""
    late: bool = False


class WorldLog:
    """Happenings in their order. ``life`` is the daemon that caused one, 0 for the world itself."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.seen: list[Happening] = []
        self.boot = 0
        self.listeners: list[Callable[[Happening], object]] = []

    def note(
        self,
        what: str,
        uid: str = "",
        container: str = "",
        detail: str = "",
        *,
        life: int = 0,
        late: bool = False,
    ) -> None:
        seen = Happening(self.now_ns(), self.boot, life, what, uid, container, detail, late)
        self.seen.append(seen)
        for listen in self.listeners:
            listen(seen)

    def of(self, *whats: str) -> Iterator[Happening]:
        return (seen for seen in self.seen if seen.what in whats)
