"""World time under Trio's mock clock, and a boot's two clocks."""

from __future__ import annotations

import trio

from ebbtide.events.base import NS_PER_SECOND

#: Any time after 1970; decisions must not depend on it.
WALL_BASE_NS = 1_700_000_000 * NS_PER_SECOND


def world_ns() -> int:
    """World time. The mock clock's float seconds are exact to the nanosecond for 50 days."""
    return round(trio.current_time() * NS_PER_SECOND)


async def sleep_ns(duration_ns: int) -> None:
    """At least one checkpoint, also for 0."""
    await trio.sleep(max(0, duration_ns) / NS_PER_SECOND)


class Clock:
    """A boot's clocks. The monotonic one starts with the boot; the wall clock may step."""

    def __init__(self, uptime_ns: int, wall_step_ns: int = 0) -> None:
        self._since_ns = world_ns() - uptime_ns
        self.wall_step_ns = wall_step_ns

    def mono_ns(self) -> int:
        return world_ns() - self._since_ns

    def wall_ns(self) -> int:
        return WALL_BASE_NS + world_ns() + self.wall_step_ns

    def world_ns(self, mono_ns: int) -> int:
        """A monotonic time of this boot as world time."""
        return mono_ns + self._since_ns
