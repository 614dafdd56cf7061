"""World time under Trio's mock clock; the trail itself is every simulation's (`replay.virtual.trail`)."""

from __future__ import annotations

from collections.abc import Callable

import trio

from replay.virtual import trail
from replay.virtual.trail import MS, NEVER_NS, NS_PER_SECOND, Seen

__all__ = ["MS", "NEVER_NS", "NS_PER_SECOND", "Seen", "Tasks", "Trail", "sleep_ns", "world_ns"]


def world_ns() -> int:
    """World time. The mock clock counts in float seconds, exact to the nanosecond for the first 50 days."""
    return round(trio.current_time() * NS_PER_SECOND)


async def sleep_ns(duration_ns: int) -> None:
    """At least one checkpoint, also for 0."""
    await trio.sleep(max(0, duration_ns) / NS_PER_SECOND)


class Trail(trail.Trail):
    """Happenings in their order, at the mock clock's times."""

    def __init__(self) -> None:
        super().__init__(world_ns)


class Tasks:
    """A timer whose waits are tasks of a nursery: they end with it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    def later(self, after_ns: int, do: Callable[[], object]) -> Callable[[], object]:
        scope = trio.CancelScope()
        self._nursery.start_soon(self._wait, scope, after_ns, do)
        return scope.cancel

    @staticmethod
    async def _wait(scope: trio.CancelScope, after_ns: int, do: Callable[[], object]) -> None:
        with scope:
            await sleep_ns(after_ns)
            do()
