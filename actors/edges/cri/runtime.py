"""The edge once it is awake: the connection, the warm table, the ends of containers, and the orders.

Imported by `actors.edges.cri.edge` when the node is armed, with gRPC and all that it brings.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from actors.edges.cri.ends import Ends
from actors.edges.cri.errors import CallFailed
from actors.edges.cri.hooks import Context, Hooks
from actors.edges.cri.inventory import Inventory
from actors.edges.cri.link import Link
from actors.edges.cri.listing import Listing, cgroups_of, own_pods
from actors.edges.cri.notes import Notes, Tell
from actors.edges.cri.orders import Orders
from actors.edges.cri.reach import Reach
from actors.edges.cri.record import ToldFile
from actors.edges.cri.sandboxes import Sandboxes
from actors.edges.cri.stops import Stops
from actors.edges.cri.table import Table
from actors.edges.kubernetes.calling import Followed
from actors.interfaces import Ending, Outlet
from events.base import Order
from events.decisions import TakeInventory
from events.model import Pod

#: Between two looks, idle and in a shutdown. An inventory is at most so old; its ends are always fresh.
IDLE_SECONDS = 5.0
BUSY_SECONDS = 0.5
#: Between two questions what the API server has told: a node that fills up tells of ten pods a second.
NEWS_SECONDS = 0.2
#: An API server's answer to the first list comes within this; then it is known which pods have no priority.
INFORMED_SECONDS = 10.0


class Runtime:
    """Lives as long as `run`. Effects may be called once `run` has told that it is up."""

    def __init__(
        self,
        endpoint: str,
        file: ToldFile,
        own_uid: str,
        lookup: Followed | None,
        starts: Callable[[], bool],
        context: Context,
        tell: Tell,
        outlet: Outlet,
    ) -> None:
        self.table = Table(frozenset({own_uid} if own_uid else ()))
        self._file = file
        self._outlet = outlet
        self._lookup = lookup
        self._nursery: trio.Nursery | None = None
        self._link = Link(endpoint)
        self._notes = Notes(tell)
        self._reach = Reach(self._link, self._notes)
        self._warm = trio.Event()
        self._stirred, self._stirring = trio.open_memory_channel[None](1)
        self._looking = trio.Lock()
        self._sandboxes = Sandboxes(self._link, self.table)
        self._ends = Ends(self._link, self.table, self._sandboxes, self._start, outlet)
        self._listing = Listing(self._link, self.table, self._ends.follow, self._ends.miss, tell)
        self._inventory = Inventory(
            self.table,
            file,
            lookup,
            self._reach,
            self._warm,
            self._look_until_done,
            lambda: self._listing.as_of,
            starts,
        )
        stops, hooks = Stops(self._link, self._start, self._notes), Hooks(self._link)
        self._orders = Orders(
            self.table, self._warm, self._inventory, hooks, stops, self._sandboxes, context, self._link
        )

    # --- life ------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Until cancelled. Cancelling ends no container: calls under way are given up."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await nursery.start(self._link.run)
                nursery.start_soon(self._reach.follow, self._outlet, self._stirred)
                nursery.start_soon(self._sandboxes.run)
                nursery.start_soon(self._inventory.follow_cached, self._outlet)
                nursery.start_soon(self._keep_warm)
                task_status.started()
        finally:
            self.table.close()

    def _start(self, work: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(work, *arguments)

    async def _keep_warm(self) -> None:
        before = self._file.load()
        self.table.restore(before)
        await self._look_until_done()
        self.table.own |= own_pods(self.table.entries(), cgroups_of(os.getpid()))
        # A shutdown that begins now waits for no word on an earlier one.
        self._warm.set()
        await self._ends.catch_up(before)
        await self._inventory.report_settled(self._outlet)
        self._start(self._note_priorities)
        if self._lookup is not None:
            self._start(self._follow_news, self._lookup)
        while True:
            await self._pause()
            await self._look_until_done()
            await self._inventory.report_settled(self._outlet)
            if self._busy:
                await self._inventory.report_late(self._outlet)

    async def _follow_news(self, lookup: Followed) -> None:
        """What the API server tells of is looked at soon, in a shutdown or before it."""
        while True:
            version = lookup.version
            if self._inventory.late.open:
                await self._inventory.report_late(self._outlet)
            if self._inventory.behind():
                self._wake()
            await trio.sleep(NEWS_SECONDS)
            await lookup.changed(version)

    @property
    def _busy(self) -> bool:
        """Is something being stopped, or may something new come soon?"""
        stopping = any(entry.stopping and entry.running for entry in self.table.entries())
        return stopping or self._inventory.late.open or self._ends.fresh

    async def _pause(self) -> None:
        """Until it is time for another look. One that begins beside the first stops would cost them time."""
        if not self._busy:
            with trio.move_on_after(IDLE_SECONDS):
                await self._stirring.receive()
        if self._busy:
            await trio.sleep(BUSY_SECONDS)

    async def _note_priorities(self) -> None:
        if self._lookup is not None:
            await trio.sleep(INFORMED_SECONDS)
        self._notes.without_priority(self._inventory.views(), informed=self._lookup is not None)

    async def _look(self) -> None:
        async with self._looking:
            await self._listing.refresh()

    async def _look_until_done(self) -> None:
        while True:
            since = trio.current_time()
            try:
                await self._look()
            except CallFailed as error:
                await self._reach.fails(error, since, self._outlet)
                await trio.sleep(BUSY_SECONDS)
            else:
                await self._reach.answers(self._outlet)
                return

    # --- what is asked of it ---------------------------------------------------------------------

    def active(self) -> list[Pod]:
        """The pods that a shutdown would have to end."""
        return self._inventory.views()

    async def carry_out(self, order: Order, outlet: Outlet) -> Ending:
        """One order."""
        if not isinstance(order, TakeInventory):
            return await self._orders.carry_out(order, outlet)
        ending = await self._inventory.take(order, outlet)
        self._stir()
        return ending

    def _stir(self) -> None:
        """A shutdown begins: no idle pause any longer."""
        if self._busy:
            self._wake()

    def _wake(self) -> None:
        try:
            self._stirred.send_nowait(None)
        except trio.WouldBlock:
            pass  # It was told already.
