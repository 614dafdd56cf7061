"""The trail: what really happened on a modelled node, seen from outside, in world time.

World time is nanoseconds that run on over crashes and boots. The trail outlives every daemon, and nothing in
it comes from the daemon's own records: the invariants compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

NS_PER_SECOND = 1_000_000_000
MS = 1_000_000

#: Later than any world ends.
NEVER_NS = 1 << 60


class Timer(Protocol):
    """What lets a model go on by itself: an agenda in virtual time, or tasks under a mock clock."""

    def later(self, after_ns: int, do: Callable[[], object]) -> Callable[[], object]:
        """Call ``do`` so long from now; what is returned takes that back."""


class Seen(NamedTuple):
    """One happening. ``late``: the effect began before its order was as durable as it has to be."""

    at_ns: int
    boot: int
    life: int
    what: str
    uid: str = ""
    container: str = ""
    detail: str = ""
    late: bool = False


class Trail:
    """Happenings in their order. ``life`` is the daemon that caused one, 0 for the world itself."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.seen: list[Seen] = []
        self.boot = 0
        self.listeners: list[Callable[[Seen], object]] = []

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
        seen = Seen(self.now_ns(), self.boot, life, what, uid, container, detail, late)
        self.seen.append(seen)
        for listen in self.listeners:
            listen(seen)

    def of(self, *whats: str) -> Iterator[Seen]:
        return (seen for seen in self.seen if seen.what in whats)
