"""What a shutdown is given: the pods at its signal, those that a closer look finds, and those that come late.

From the warm table there is no call between the signal and the first stop. While the runtime is away, what
the API server told of the pods is better than nothing.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection

import trio

from actors.edges.cri.cached import Cached
from actors.edges.cri.calling import WARM_SECONDS_MAX
from actors.edges.cri.late import Late
from actors.edges.cri.reach import Reach
from actors.edges.cri.record import ToldFile
from actors.edges.cri.table import PodEntry, Table
from actors.edges.cri.unseen import coming, missed, waiting
from actors.edges.cri.views import known_of, told_of, view, with_more
from actors.edges.kubernetes.calling import Followed
from actors.interfaces import Ending, Outlet
from events.decisions import TakeInventory
from events.facts import INVENTORY_PODS_MAX, InventoryTaken, PodJoined
from events.model import Pod

#: How long a listing waits for a runtime that is away: without one nothing can be done in any case.
LISTING_SECONDS_MAX = 60.0
NOT_LISTED = "the runtime does not answer, so its pods are not known"


class Inventory:
    """``warm`` is set once the table is filled, ``look`` returns when it is as the runtime has it now, and
    ``as_of`` gives the time, Trio's, that it shows. ``starts``: may a pod that is here start now?
    """

    def __init__(
        self,
        table: Table,
        file: ToldFile,
        lookup: Followed | None,
        reach: Reach,
        warm: trio.Event,
        look: Callable[[], Awaitable[None]],
        as_of: Callable[[], float],
        starts: Callable[[], bool],
    ) -> None:
        self.late = Late()
        self.cached = Cached(lookup)
        self._table = table
        self._file = file
        self._lookup = lookup
        self._reach = reach
        self._warm = warm
        self._look = look
        self._as_of = as_of
        self._starts = starts
        self._anew = False
        self._turn = trio.Lock()

    async def take(self, order: TakeInventory, outlet: Outlet) -> Ending:
        """Fails where nobody knows: an inventory without a runtime is not an empty one."""
        self._anew = self._anew or not order.refresh
        await self._prepare(order)
        if self._warm.is_set():
            views = self._tell_all(order)
            await self._put(order, "cri", views, outlet)
            await self.report_settled(outlet)
            self.save()
        elif views := self.cached.pods(self._table.own):
            self._tell([])
            self.cached.tell(views)
            await self._put(order, "cache", views, outlet)
        else:
            return Ending("failed", NOT_LISTED)
        self._anew = False
        return Ending()

    async def _prepare(self, order: TakeInventory) -> None:
        """Wait for what is worth waiting for."""
        with trio.move_on_after(WARM_SECONDS_MAX):
            await self._reach.known.wait()
        if self._reach.away and (self._warm.is_set() or self.cached.pods(self._table.own)):
            return
        with trio.move_on_after(LISTING_SECONDS_MAX if order.refresh else WARM_SECONDS_MAX):
            await self._warm.wait()
            if order.refresh:
                await self._look()

    def _tell(self, pods: list[PodEntry]) -> None:
        self._table.tell(pods, anew=self._anew)
        if self._anew:
            self.cached.forget()

    def _tell_all(self, order: TakeInventory) -> list[Pod]:
        """What the runtime shows; at the signal also what runs since the last look, and later what is about
        to start: sooner it is not known whether a kubelet goes on.
        """
        pods = self._table.active()
        self._tell(pods)
        views = {pod.uid: view(pod, known_of(pod, self._lookup)) for pod in pods}
        if order.refresh:
            return [*views.values(), *self._coming(views)]
        for uid, ids in missed(self._lookup, self._table).items():
            if known := self._lookup.find(uid) if self._lookup is not None else None:
                views[uid] = with_more(views[uid], ids, known) if uid in views else told_of(known, ids)
                self.cached.expect(uid, ids)
        return list(views.values())

    def _coming(self, but: Collection[str]) -> list[Pod]:
        if not self._starts():
            return []
        found = coming(self._lookup, self._table, but)
        for known in found:
            self.cached.expect(known.uid, dict.fromkeys(waiting(known), ""), coming=True)
        return [told_of(known, waiting(known)) for known in found]

    def behind(self) -> bool:
        """Does the API server tell of something that runs and that no look has shown?"""
        return self._warm.is_set() and bool(missed(self._lookup, self._table))

    async def _put(self, order: TakeInventory, source: str, views: list[Pod], outlet: Outlet) -> None:
        self.late.note(order, (pod.uid for pod in views))
        starts = range(0, max(1, len(views)), INVENTORY_PODS_MAX)
        facts = [
            InventoryTaken(
                key=order.key,
                as_of_ns=time.monotonic_ns(),
                source=source,
                part=part,
                parts=len(starts),
                pods=tuple(views[start : start + INVENTORY_PODS_MAX]),
            )
            for part, start in enumerate(starts, 1)
        ]
        await outlet.put(*facts)

    async def report_late(self, outlet: Outlet) -> None:
        """After a look, or when the API server has told something: pods that were in no inventory of this
        shutdown.
        """
        found = self.late.find(self._table.active())
        self._table.tell(found)
        joined = [view(pod, known_of(pod, self._lookup)) for pod in found]
        if self.late.open:
            joined += self._coming(self.late.listed)
        self.late.add(pod.uid for pod in joined)
        if joined:
            await outlet.put(*(PodJoined(pod=pod) for pod in joined))
        self.save()

    async def report_settled(self, outlet: Outlet) -> None:
        """After a look: what an inventory had without the runtime, and has ended."""
        ends = self.cached.settle(self._table, self._as_of())
        if ends:
            await outlet.put(*ends)

    async def catch_up(self, uid: str, container: str, outlet: Outlet) -> None:
        """Somebody acts on a container that the runtime had not shown: by now it may."""
        if not self.cached.expects(uid, container) or not self._warm.is_set():
            return
        asked = trio.current_time()
        # A whole wave may ask at once: one look, or the one that began since, is for all of them.
        async with self._turn:
            if self._as_of() < asked:
                with trio.move_on_after(WARM_SECONDS_MAX):
                    await self._look()
                await self.report_settled(outlet)

    async def follow_cached(self, outlet: Outlet) -> None:
        """Until cancelled: ends that only the API server tells of."""
        while True:
            await self.cached.wait()
            ends = self.cached.ended()
            if ends:
                await outlet.put(*ends)

    def views(self) -> list[Pod]:
        """The pods that a shutdown would have to end."""
        if not self._warm.is_set():
            return self.cached.pods(self._table.own)
        return [view(pod, known_of(pod, self._lookup)) for pod in self._table.active()]

    def save(self) -> None:
        """For the next daemon of this boot: what was given, and what was asked to end."""
        self._file.store(list(self._table.told.values()))
