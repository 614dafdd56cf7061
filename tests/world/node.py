"""A node: one boot of the machine, with its clocks, its pods, its logind and its service manager's store.

The node outlives every daemon on it. It ends (`down`) when logind or somebody else has started the final unit
and the daemon's unit is stopped, or when the power goes.
"""

from __future__ import annotations

from typing import NamedTuple

import trio

from events.model import ShutdownKind
from events.retention import TOTAL_BYTES_MAX
from tests.world.logind import Logind
from tests.world.pods import Pods
from tests.world.trail import MS, NS_PER_SECOND, Trail, sleep_ns, world_ns

#: Between the stop of the last unit and the power being off.
HALT_NS = 50 * MS

#: Any moment after 1970; the daemon's decisions must not depend on it.
WALL_BASE_NS = 1_700_000_000 * NS_PER_SECOND


class Clock:
    """Both clocks of one boot. The monotonic one begins with the boot; the wall clock may be stepped."""

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


class Features(NamedTuple):
    """What this machine is like."""

    others_ns: int | None = None
    obeys_drop_in: bool = True
    #: Whether the service manager keeps the lock over a crash of the daemon.
    fd_store: bool = True
    #: How long the daemon's unit may take to stop.
    stop_time_ns: int = 10 * NS_PER_SECOND
    #: What the journal may hold.
    journal_bytes: int = TOTAL_BYTES_MAX


class Node:
    """One boot. ``nursery`` holds everything that runs on it but the daemon."""

    def __init__(
        self,
        trail: Trail,
        nursery: trio.Nursery,
        clock: Clock,
        features: Features,
        *,
        boot_id: str,
        userspace_id: str,
    ) -> None:
        self.trail = trail
        self.clock = clock
        self.features = features
        self.boot_id, self.userspace_id = boot_id, userspace_id
        self.pods = Pods(trail, nursery)
        self.logind = Logind(
            trail, nursery, self._final_unit, features.others_ns, obeys_drop_in=features.obeys_drop_in
        )
        self._nursery = nursery
        self.stopping = trio.Event()
        self.down = trio.Event()
        self.kind: ShutdownKind = "unknown"
        #: The next final unit fails so long after it was started.
        self.final_fails_ns: int | None = None
        self.powered_off = False
        self._stop_by_ns = 0
        #: What the cluster believes of this node.
        self.shown_ready = True

    def _final_unit(self, kind: ShutdownKind) -> None:
        """logind lets the machine go."""
        if self.final_fails_ns is None:
            self.stop(kind)
        else:
            fails_ns, self.final_fails_ns = self.final_fails_ns, None
            self._nursery.start_soon(self._fail_final, fails_ns)

    async def _fail_final(self, after_ns: int) -> None:
        await sleep_ns(after_ns)
        self.logind.withdraw("the final unit failed")

    def stop(self, kind: ShutdownKind) -> None:
        """The service manager stops all units: also without logind (``systemctl --force``)."""
        if not self.stopping.is_set():
            self.kind = kind
            self.trail.note("stopping", detail=kind)
            self.stopping.set()

    def extend_stop(self, needed_ns: int) -> None:
        """The daemon's unit asked for more time to stop (EXTEND_TIMEOUT_USEC)."""
        self._stop_by_ns = max(self._stop_by_ns, world_ns() + needed_ns)

    async def stop_time_over(self) -> None:
        """Until the daemon's unit has had all its time, extensions included. Call it once units stop."""
        self._stop_by_ns = max(self._stop_by_ns, world_ns() + self.features.stop_time_ns)
        while world_ns() < self._stop_by_ns:
            await sleep_ns(self._stop_by_ns - world_ns())

    async def halt(self) -> None:
        """All units are stopped; what still runs is killed, and everything written reaches the disk."""
        await sleep_ns(HALT_NS)
        if not self.down.is_set():
            self.trail.note("down", detail=self.kind)
            self.down.set()

    def cut_power(self) -> None:
        """Now, and without a word."""
        if not self.down.is_set():
            self.powered_off = True
            self.trail.note("down", detail="power cut")
            self.down.set()
