"""The trail: what really happened on the node, seen from outside, in world time.

World time is Trio's mock clock in nanoseconds; it runs on over crashes and boots. The trail outlives every
daemon, and nothing in it comes from the daemon's own records: the invariants compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import trio

NS_PER_SECOND = 1_000_000_000
MS = 1_000_000

#: Later than any world ends.
NEVER_NS = 1 << 60


def world_ns() -> int:
    """World time. The mock clock counts in float seconds, exact to the nanosecond for the first 50 days."""
    return round(trio.current_time() * NS_PER_SECOND)


async def sleep_ns(duration_ns: int) -> None:
    """At least one checkpoint, also for 0."""
    await trio.sleep(max(0, duration_ns) / NS_PER_SECOND)


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

    def __init__(self) -> None:
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
        seen = Seen(world_ns(), self.boot, life, what, uid, container, detail, late)
        self.seen.append(seen)
        for listen in self.listeners:
            listen(seen)

    def of(self, *whats: str) -> Iterator[Seen]:
        return (seen for seen in self.seen if seen.what in whats)
