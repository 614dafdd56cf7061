"""The orders on containers: which container is meant, and who carries it out.

An order names a pod and a container; it means the one that its shutdown was given. What a kubelet has started
under the same name since is somebody else's: of the one that is meant it is only said that it has ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from actors.edges.cri.autopsy import autopsy
from actors.edges.cri.calling import WARM_SECONDS_MAX, Caller
from actors.edges.cri.hooks import Context, Hooks
from actors.edges.cri.inventory import Inventory
from actors.edges.cri.listing import end_of
from actors.edges.cri.sandboxes import Sandboxes
from actors.edges.cri.stops import Stops
from actors.edges.cri.table import ContainerEntry, Table
from actors.edges.process.endings import End
from actors.interfaces import Ending, Outlet
from events.base import Order
from events.decisions import KillContainer, RunHook, SendSignal, TakeAutopsy
from events.facts import AutopsyTaken, ContainerExited

UNKNOWN = "no such container is known here"
AWAY = "the runtime does not answer"
#: How a container has ended is worth a moment of its wave, and no more.
END_SECONDS_MAX = 0.5


class Orders:
    """``warm`` is set once the table is filled."""

    def __init__(
        self,
        table: Table,
        warm: trio.Event,
        inventory: Inventory,
        hooks: Hooks,
        stops: Stops,
        sandboxes: Sandboxes,
        context: Context,
        caller: Caller,
    ) -> None:
        self._caller = caller
        self._table = table
        self._warm = warm
        self._inventory = inventory
        self._hooks = hooks
        self._stops = stops
        self._sandboxes = sandboxes
        self._context = context
        self._handlers: Mapping[type[Order], Callable[[Any, Outlet], Awaitable[Ending]]] = {
            SendSignal: self._send_signal,
            KillContainer: self._kill_container,
            TakeAutopsy: self._take_autopsy,
            RunHook: self._run_hook,
        }

    async def carry_out(self, order: Order, outlet: Outlet) -> Ending:
        """One of them, once the table is filled."""
        with trio.move_on_after(WARM_SECONDS_MAX):
            await self._warm.wait()
        return await self._handlers[type(order)](order, outlet)

    async def _send_signal(self, order: SendSignal, outlet: Outlet) -> Ending:
        entry = await self._running(order, outlet)
        if isinstance(entry, Ending):
            return entry
        return await self._stops.signal(entry, order.signal, self._context(order.key))

    async def _kill_container(self, order: KillContainer, outlet: Outlet) -> Ending:
        entry = await self._running(order, outlet)
        if isinstance(entry, Ending):
            return entry
        return await self._stops.kill(entry, self._context(order.key))

    async def _running(self, order: SendSignal | KillContainer, outlet: Outlet) -> ContainerEntry | Ending:
        """What is to be stopped. Or the outcome: it has ended, and whoever stops it has not heard of it."""
        await self._inventory.catch_up(order.uid, order.container, outlet)
        entry = self._table.find(order.uid, order.container)
        if entry is not None and entry.running:
            self._table.stop(entry)
            self._sandboxes.stir()
            return entry
        if entry is None and not self._warm.is_set():
            return Ending("failed", AWAY)
        self._inventory.cached.drop(order.uid, order.container)
        await outlet.put(await self._gone(order) if entry is None else entry.exited())
        return Ending()

    async def _gone(self, order: SendSignal | KillContainer) -> ContainerExited:
        """It ended while no daemon ran: the runtime may still know how."""
        told = self._table.told.get((order.uid, order.container))
        end: End | None = None
        if told is not None:
            with trio.move_on_after(END_SECONDS_MAX):
                end = await end_of(self._caller, told.id)
        code = None if end is None else end.exit_code
        return ContainerExited(uid=order.uid, container=order.container, exit_code=code)

    async def _take_autopsy(self, order: TakeAutopsy, outlet: Outlet) -> Ending:
        entry = self._table.find(order.uid, order.container)
        if entry is None or not entry.running:
            return self._unknown()
        processes = await autopsy(entry)
        await outlet.put(AutopsyTaken(uid=order.uid, container=order.container, processes=processes))
        return Ending()

    async def _run_hook(self, order: RunHook, outlet: Outlet) -> Ending:
        entry = self._table.find(order.uid, order.container)
        if entry is None:
            return self._unknown()
        return await self._hooks.run(entry, order, self._context(order.key))

    def _unknown(self) -> Ending:
        return Ending("failed", UNKNOWN if self._warm.is_set() else AWAY)
