"""The edge once it is awake: the connection, the warm table, the ends of containers, and the orders.

Imported by `actors.edges.cri.edge` when the node is armed, with gRPC and all that it brings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from actors.edges.cri.autopsy import autopsy
from actors.edges.cri.errors import CallFailed
from actors.edges.cri.hooks import Context, Hooks
from actors.edges.cri.link import Link
from actors.edges.cri.listing import Listing, cgroups_of, end_of, own_pods
from actors.edges.cri.notes import Notes, Tell
from actors.edges.cri.record import ToldFile
from actors.edges.cri.sandboxes import Sandboxes
from actors.edges.cri.stops import Stops
from actors.edges.cri.table import ContainerEntry, Table, Told
from actors.edges.process.endings import End, reap_soon, told
from actors.interfaces import Ending, Outlet
from events.base import Order
from events.decisions import KillContainer, RunHook, SendSignal, TakeAutopsy, TakeInventory
from events.facts import INVENTORY_PODS_MAX, AutopsyTaken, ContainerExited, InventoryTaken

UNKNOWN = "no such container is known here"
#: Between two looks, idle and in a shutdown. An inventory is at most so old; its ends are always fresh.
IDLE_SECONDS = 5.0
BUSY_SECONDS = 0.5
#: Looks of 20 ms each for what the kernel tells of an end.
SHIM_LOOKS_MAX = 5
#: A runtime notices an end a moment after the kernel; a wave does not wait longer for an exit code.
NOTICE_SECONDS_MAX = 0.5
NOTICE_AGAIN_SECONDS = 0.02
#: How long an order waits for the first look.
WARM_SECONDS_MAX = 5.0
#: How long a listing waits for a runtime that is away: without one nothing can be done in any case.
LISTING_SECONDS_MAX = 60.0
NOT_LISTED = "the runtime does not answer, so its pods are not known"


class Runtime:
    """Lives as long as `run`. Effects may be called once `run` has told that it is up."""

    def __init__(self, endpoint: str, file: ToldFile, own_uid: str, context: Context, tell: Tell) -> None:
        self.table = Table(frozenset({own_uid} if own_uid else ()))
        self._link = Link(endpoint)
        self._context = context
        self._notes = Notes(tell)
        self._file = file
        self._warm = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._outlet: Outlet | None = None
        self._listing = Listing(self._link, self.table, self._follow, self._gone)
        self._looking = trio.Lock()
        self._hooks = Hooks(self._link)
        self._stops = Stops(self._link, self._start)
        self._sandboxes = Sandboxes(self._link, self.table)
        self._handlers: Mapping[type[Order], Callable[[Any, Outlet], Awaitable[Ending]]] = {
            SendSignal: self._send_signal,
            KillContainer: self._kill_container,
            TakeAutopsy: self._take_autopsy,
            RunHook: self._run_hook,
            TakeInventory: self._take_inventory,
        }

    # --- life ------------------------------------------------------------------------------------

    async def run(self, outlet: Outlet, task_status: trio.TaskStatus[None]) -> None:
        """Until cancelled. Cancelling ends no container: calls under way are given up."""
        self._outlet = outlet
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await nursery.start(self._link.run)
                nursery.start_soon(self._sandboxes.run)
                nursery.start_soon(self._keep_warm)
                task_status.started()
        finally:
            self.table.close()

    def _start(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(work, *arguments)

    async def _keep_warm(self) -> None:
        before = self._file.load()
        self.table.told = frozenset(each.id for each in before)
        while True:
            await self._look_until_done()
            if not self._warm.is_set():
                self.table.own |= own_pods(self.table.entries(), cgroups_of(os.getpid()))
                await self._report_missed(before)
                self._warm.set()
                self._notes.without_priority(self.table.active())
            busy = any(entry.stopping and entry.running for entry in self.table.entries())
            await trio.sleep(BUSY_SECONDS if busy else IDLE_SECONDS)

    async def _look(self) -> None:
        async with self._looking:
            await self._listing.refresh()

    async def _look_until_done(self) -> None:
        while True:
            try:
                await self._look()
            except CallFailed as error:
                self._notes.away(error)
                await trio.sleep(BUSY_SECONDS)
            else:
                self._notes.back()
                return

    async def _report_missed(self, told: tuple[Told, ...]) -> None:
        """What has ended while no daemon ran."""
        running = {entry.id for entry in self.table.entries()}
        for each in told:
            if each.id not in running and self._outlet is not None:
                end = await end_of(self._link, each.id) or End()
                await self._outlet.put(
                    ContainerExited(uid=each.uid, container=each.container, exit_code=end.exit_code)
                )

    # --- ends ------------------------------------------------------------------------------------

    def _follow(self, entry: ContainerEntry) -> None:
        if entry.pidfd >= 0:
            self._start(self._watch, entry)

    async def _watch(self, entry: ContainerEntry) -> None:
        await trio.lowlevel.wait_readable(entry.pidfd)
        await self._ended(entry, await self._waited_for(entry) or await self._noticed(entry))

    async def _waited_for(self, entry: ContainerEntry) -> End | None:
        """The kernel tells how a process ended once its own parent, the shim, has taken notice."""
        for _ in range(SHIM_LOOKS_MAX):
            if (end := await reap_soon(entry.pidfd)) != End():
                return end
        return None

    async def _noticed(self, entry: ContainerEntry) -> End:
        """Older kernels tell no exit code of another's child: the runtime does, soon."""
        with trio.move_on_after(NOTICE_SECONDS_MAX):
            while True:
                end = await end_of(self._link, entry.id)
                if end is not None:
                    return end
                await trio.sleep(NOTICE_AGAIN_SECONDS)
        return told(entry.pidfd) if entry.pidfd >= 0 else End()

    def _gone(self, entry: ContainerEntry) -> None:
        self._start(self._lost_sight, entry)

    async def _lost_sight(self, entry: ContainerEntry) -> None:
        end = await self._noticed(entry)
        if entry.running:
            await self._ended(entry, end)

    async def _ended(self, entry: ContainerEntry, end: End) -> None:
        entry.finish(end)
        self._sandboxes.stir()
        self._sandboxes.look(entry.pod)
        if entry.id in self.table.told and self._outlet is not None:
            await self._outlet.put(entry.exited())

    # --- orders ----------------------------------------------------------------------------------

    async def carry_out(self, order: Order, outlet: Outlet) -> Ending:
        """One order, once the table is filled."""
        with trio.move_on_after(WARM_SECONDS_MAX):
            await self._warm.wait()
        return await self._handlers[type(order)](order, outlet)

    async def _send_signal(self, order: SendSignal, outlet: Outlet) -> Ending:
        entry = self.table.find(order.uid, order.container)
        if entry is None:
            return await self._nobody(order.uid, order.container, outlet)
        if entry.running:
            self._sandboxes.stir()
            return await self._stops.signal(entry, self._context(order.key))
        await outlet.put(entry.exited())
        return Ending()

    async def _nobody(self, uid: str, container: str, outlet: Outlet) -> Ending:
        """With a full table, what is not in it does not run: whoever stops it has not heard of its end."""
        if not self._warm.is_set():
            return Ending("failed", UNKNOWN)
        await outlet.put(ContainerExited(uid=uid, container=container))
        return Ending()

    async def _kill_container(self, order: KillContainer, outlet: Outlet) -> Ending:
        entry = self.table.find(order.uid, order.container)
        if entry is None:
            return await self._nobody(order.uid, order.container, outlet)
        if entry.running:
            self._sandboxes.stir()
            return await self._stops.kill(entry, self._context(order.key))
        await outlet.put(entry.exited())
        return Ending()

    async def _take_autopsy(self, order: TakeAutopsy, outlet: Outlet) -> Ending:
        entry = self.table.find(order.uid, order.container)
        if entry is None or not entry.running:
            return Ending("failed", UNKNOWN)
        processes = await autopsy(entry)
        await outlet.put(AutopsyTaken(uid=order.uid, container=order.container, processes=processes))
        return Ending()

    async def _run_hook(self, order: RunHook, outlet: Outlet) -> Ending:
        entry = self.table.find(order.uid, order.container)
        if entry is None:
            return Ending("failed", UNKNOWN)
        return await self._hooks.run(entry, order, self._context(order.key))

    async def _take_inventory(self, order: TakeInventory, outlet: Outlet) -> Ending:
        if order.refresh:
            with trio.move_on_after(LISTING_SECONDS_MAX):
                await self._warm.wait()
                await self._look_until_done()
        if not self._warm.is_set():
            return Ending("failed", NOT_LISTED)
        now_ns, pods = time.monotonic_ns(), self.table.active()
        views = tuple(pod.view() for pod in pods)
        told = self.table.tell(pods)
        starts = range(0, max(1, len(views)), INVENTORY_PODS_MAX)
        facts = [
            InventoryTaken(
                key=order.key,
                as_of_ns=now_ns,
                source="cri",
                part=part,
                parts=len(starts),
                pods=views[start : start + INVENTORY_PODS_MAX],
            )
            for part, start in enumerate(starts, 1)
        ]
        await outlet.put(*facts)
        self._file.store(told)
        return Ending()
