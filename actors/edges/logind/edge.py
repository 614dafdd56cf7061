"""The edge to systemd-logind: carries out what `LogindActor` orders, reports what logind says.

It decides nothing. A signal becomes a fact after at most one bounded question (its kind, below systemd
255); everything slower comes after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import trio

from actors.edges.bus import Bus, BusError, Refused, ask_once, system_bus_address
from actors.edges.logind import reader
from actors.edges.logind.desk import Desk
from actors.edges.logind.dropins import FOLDER_DEFAULT, DropIns
from actors.edges.logind.limit import Limit
from actors.edges.logind.link import Link
from actors.edges.logind.lock import DelayLock
from actors.edges.logind.names import IN_PROGRESS, MANAGER, WHO, WHY
from actors.edges.logind.schedule import Schedule
from actors.edges.logind.watch import Watch
from actors.edges.service import ServiceManager
from actors.edges.start_state import StartState
from actors.interfaces import Effect, Ending, Outlet
from events.base import Order
from events.decisions import Arm, Disarm, ReleaseLock, RemoveDropIn, WriteDropIn

#: The state that a start begins with is worth this much waiting, not more.
START_SECONDS_MAX = 0.3


class LogindEdge:
    """The real logind, on the bus at ``address`` (default: the system bus).

    ``lock_fds`` are locks that the service manager kept; the edge owns them from now on. ``root`` is where
    logind's files are found, ``drop_in_folder`` which of its folders gets ours (ValueError for another).
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        service: ServiceManager | None = None,
        lock_fds: Sequence[int] = (),
        root: Path = Path("/"),
        drop_in_folder: str = FOLDER_DEFAULT,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._lock = DelayLock(service or ServiceManager(""), lock_fds)
        self._link = Link(address or system_bus_address())
        self._desk = Desk(self._link, self._lock, DropIns(root, drop_in_folder), Schedule(root, wall_ns))
        self._watch = Watch(self._desk, root)
        limit = Limit(self._desk)
        self.effects: Mapping[type[Order], Effect] = {
            Arm: self._arm,
            Disarm: self._give_back,
            ReleaseLock: self._give_back,
            WriteDropIn: limit.write,
            RemoveDropIn: limit.remove,
        }

    @property
    def lock_held(self) -> bool:
        return self._lock.held

    async def run(self, outlet: Outlet) -> None:
        """Report until cancelled. The lock stays held: it goes with the process, or by order."""
        try:
            async with trio.open_nursery() as nursery:
                self._link.open(nursery)
                nursery.start_soon(self._watch.follow_files, outlet)
                await self._watch.listen(outlet)
        finally:
            self._link.close()

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """Every order here may be repeated, so nothing needs to be followed: how it ended is not known."""
        return None

    async def read_start_state(self) -> StartState:
        """What `DaemonStarted` says of logind: asked before there is a loop, and for 0.3 s at most."""
        with trio.move_on_after(START_SECONDS_MAX):
            try:
                found = await ask_once(self._link.address, reader.read_all)
                return StartState(found.preparing, found.kind, found.grant_ns)
            except BusError:
                pass
        return StartState()

    def prewarm(self) -> None:
        """Arming has used all that a release needs."""

    def detach(self) -> None:
        """The lock goes with the process; the service manager keeps its copy."""
        self.hand_over()

    def hand_over(self) -> list[int]:
        """The lock's descriptors, no longer ours: for who execs anew, or closes them."""
        return self._lock.hand_over()

    # --- effects -------------------------------------------------------------------------------

    async def _arm(self, order: Arm, outlet: Outlet) -> Ending:
        """Subscribe, lock, read, in this order: what happens in between is then either heard or read."""
        try:
            bus = await self._link.bus()
            refused = await self._take_lock(bus) if order.lock else ""
            await self._desk.report_state(outlet)
        except BusError as error:
            return Ending("failed", str(error))
        await self._desk.report_files(outlet, always=True)
        return Ending("failed", refused) if refused else Ending()

    async def _take_lock(self, bus: Bus) -> str:
        """Empty when a lock is held, else the name of logind's refusal. Raises BusError."""
        if self._lock.held and await self._lock_is_good(bus):
            return ""
        try:
            (lock,) = await bus.method(MANAGER, "Inhibit", "ssss", "shutdown", WHO, WHY, "delay")
        except Refused as error:
            if error.name != IN_PROGRESS:
                raise
            await self._lock.give_back()
            return IN_PROGRESS.rpartition(".")[2]
        await self._lock.take(lock.to_raw_fd())
        return ""

    async def _lock_is_good(self, bus: Bus) -> bool:
        """An answer proves that logind has started, and with that opened again what it knows of."""
        await bus.method(MANAGER, "ListInhibitors")
        return self._lock.alive()

    async def _give_back(self, order: Disarm | ReleaseLock, outlet: Outlet) -> Ending:
        reason = await self._lock.give_back()
        return Ending("failed", reason) if reason else Ending()
