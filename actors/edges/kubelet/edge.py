"""The kubelet's edge: its unit is stopped, started and watched, and its mounts are read.

It needs neither the API server nor the runtime, only the bus and ``/proc``, so it is complete from the start
of the process on. It decides nothing: what a kubelet that comes back means is the core's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import trio

from actors.edges.bus import system_bus_address
from actors.edges.kubelet import mounts
from actors.edges.kubelet.changes import MountChanges
from actors.edges.kubelet.mounts import Mounted
from actors.edges.kubelet.unit import Unit
from actors.interfaces import Effect, Ending, Outlet
from events.base import NS_PER_SECOND, Order
from events.decisions import AwaitUnmounts, CheckMounts, StartKubelet, StopKubelet
from events.facts import KubeletRead, MountsRead, VolumesUnmounted

#: How old `KubeletRead` may be: a kubelet that dies is started again by its unit in ten.
LOOK_SECONDS = 5.0
#: How soon one that somebody started while it was being stopped is told of: the order's end comes first.
AGAIN_SECONDS = 0.5
#: Between two looks at the mounts while somebody waits for them: after a change, so that a hundred at once
#: are not read a hundred times; without one, should the kernel say nothing. The kubelet looks every 300 ms.
UNMOUNT_SECONDS_MIN = 0.05
UNMOUNT_SECONDS_MAX = 1.0
#: The kernel answers from memory; only the way to the kubelet's folder touches a disk.
READ_SECONDS_MAX = 2.0
WARNING = 4

ROOT = Path("/var/lib/kubelet")
MOUNT_TABLE = Path("/proc/self/mountinfo")


class KubeletEdge:
    """``unit`` as the service manager names it, ``root`` the kubelet's folder.

    ``mount_table`` is the node's: ``/proc/1/mountinfo`` in a container that shares the node's processes.
    ``tell`` takes what an operator has to know, with its sd-daemon(3) level. ``address`` is the bus's, by
    default the system's.
    """

    def __init__(
        self,
        unit: str,
        root: Path = ROOT,
        *,
        tell: Callable[[int, str], None] = lambda level, line: None,
        address: str | None = None,
        mount_table: Path = MOUNT_TABLE,
    ) -> None:
        self._unit = Unit(address or system_bus_address(), unit)
        self._root = root
        self._mount_table = mount_table
        self._tell = tell
        self._stopped = self._stopping = False
        self._reported: tuple[bool | None] | None = None
        self._turn = trio.Lock()
        self._returned = trio.Event()
        self.effects: Mapping[type[Order], Effect] = {
            StopKubelet: self._stop,
            StartKubelet: self._start,
            CheckMounts: self._check_mounts,
            AwaitUnmounts: self._await_unmounts,
        }

    async def run(self, outlet: Outlet) -> None:
        """Report the unit's state at the start and when it has changed, until cancelled."""
        while True:
            await self._look(outlet)
            with trio.move_on_after(LOOK_SECONDS):
                await self._returned.wait()
            if self._returned.is_set():
                self._returned = trio.Event()
                await trio.sleep(AGAIN_SECONDS)
                self._reported = None

    def prewarm(self) -> None:
        """Nothing more is needed in a shutdown than what runs already."""

    def detach(self) -> None:
        """A kubelet that is stopped stays stopped: the next daemon knows of it from the journal."""

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """Every order here may be repeated. `AwaitUnmounts` then has all its time once more, as no order
        tells when it was given: the wave that waits for it ends at its own deadline.
        """
        ending = self.effects[type(order)](order, outlet)
        return ending if isinstance(ending, Ending) else await ending

    @property
    def starts_pods(self) -> bool:
        """May a pod that is here start now? Not once we have begun to stop the kubelet."""
        return not self._stopping and self._reported != (False,)

    async def _look(self, outlet: Outlet) -> None:
        """One at a time, so that an older look is never reported after a newer one."""
        async with self._turn:
            active = await self._unit.active()
            if self._reported == (active,):
                return
            self._reported = (active,)
            if active and self._stopped:
                self._tell(WARNING, f"{self._unit.name} was stopped for a shutdown, and somebody started it")
                self._stopped = False
            unit, stoppable = self._unit.name, self._unit.stoppable
            await outlet.put(KubeletRead(unit=unit, active=active, stoppable=stoppable))

    # --- effects ---------------------------------------------------------------------------------

    async def _stop(self, order: StopKubelet, outlet: Outlet) -> Ending:
        self._stopping = True
        ending = await self._unit.stop()
        self._stopped = ending.result == "done"
        await self._look(outlet)
        if ending.result == "done" and self._reported == (True,):
            self._returned.set()
        return ending

    async def _start(self, order: StartKubelet, outlet: Outlet) -> Ending:
        self._stopped = self._stopping = False
        ending = await self._unit.start()
        await self._look(outlet)
        return ending

    async def _check_mounts(self, order: CheckMounts, outlet: Outlet) -> Ending:
        try:
            found = await self._mounted()
        except OSError as error:
            return Ending("failed", f"cannot read {self._mount_table}: {error.strerror or error}")
        await outlet.put(MountsRead(key=order.key, mounted=found))
        return Ending()

    async def _await_unmounts(self, order: AwaitUnmounts, outlet: Outlet) -> Ending:
        waiting = list(order.uids)
        with trio.move_on_after(order.timeout_ns / NS_PER_SECOND):
            try:
                with MountChanges(self._mount_table) as changes:
                    await self._report_unmounted(waiting, changes, outlet)
            except OSError as error:
                return Ending("failed", f"cannot read {self._mount_table}: {error.strerror or error}")
            return Ending()
        return Ending("timed-out", f"{len(waiting)} of {len(order.uids)} pods have volumes mounted")

    async def _report_unmounted(self, waiting: list[str], changes: MountChanges, outlet: Outlet) -> None:
        """Takes out of ``waiting`` what it has reported; returns when none is left."""
        while True:
            used = {uid for uid, _ in await self._mounted()}
            for uid in [each for each in waiting if each not in used]:
                await outlet.put(VolumesUnmounted(uid=uid))
                waiting.remove(uid)
            if not waiting:
                return
            await trio.sleep(UNMOUNT_SECONDS_MIN)
            await changes.wait(UNMOUNT_SECONDS_MAX)

    async def _mounted(self) -> tuple[Mounted, ...]:
        """In a thread, and bounded: a root on a disk that hangs holds nobody up. Raises OSError."""
        work = mounts.read
        with trio.move_on_after(READ_SECONDS_MAX):
            return await trio.to_thread.run_sync(work, self._mount_table, self._root, abandon_on_cancel=True)
        raise OSError(f"no answer in {READ_SECONDS_MAX:g} s")
