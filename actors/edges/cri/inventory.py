"""The inventory of a shutdown: the pods at its signal, the pods of a second look, and late pods.

The warm table needs no call between the signal and the first stop. While the runtime does not answer, the
inventory is its last known state.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable

import trio

from ebbtide.actors.edges.cri.cri_client import RuntimeReach
from ebbtide.actors.edges.cri.cri_pods import (
    InventoryFile,
    PodEntry,
    PodTable,
    coming_view,
    found_gone,
    known_pod_of,
    pod_view,
)
from ebbtide.actors.edges.kubernetes.known_pods import FINAL_PHASES, KnownPod, PodStore
from ebbtide.actors.interfaces import Ending, Outlet
from ebbtide.events import bounds
from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND, Fact
from ebbtide.events.facts import FROM_TABLE, ContainerExited, InventoryTaken, PodJoined
from ebbtide.events.values import Pod

#: The wait for a runtime that is away: without one nothing can be done.
LISTING_SECONDS_MAX = 60.0
FIRST_WORD_SECONDS_MAX = d.FIRST_WORD_NS / NS_PER_SECOND
#: Only memory is read.
FIRST_WORD_POLL_SECONDS = 0.02
NOT_LISTED = "the runtime does not answer, so its pods are not known"


class Inventory:
    """``warm`` is set once the table is filled. ``look`` compares it with the runtime now. ``starts``: may a
    pod of this node start now?
    """

    def __init__(
        self,
        table: PodTable,
        file: InventoryFile,
        lookup: PodStore | None,
        reach: RuntimeReach,
        warm: trio.Event,
        look: Callable[[], Awaitable[bool]],
        starts: Callable[[], bool],
    ) -> None:
        self.late = LatePods()
        self._coming = ComingPods(table, lookup)
        self._table = table
        self._file = file
        self._lookup = lookup
        self._reach = reach
        self._warm = warm
        self._look = look
        self._starts = starts
        self._anew = False

    async def take(self, order: d.TakeInventory, outlet: Outlet) -> Ending:
        """Fails without a runtime: an unknown inventory is not an empty one."""
        # Until one succeeds: a shutdown whose first inventory failed begins with the second.
        self._anew = self._anew or not order.refresh
        left_seconds = FIRST_WORD_SECONDS_MAX
        if order.priorities_by_ns:
            left_seconds = min(left_seconds, (order.priorities_by_ns - time.monotonic_ns()) / NS_PER_SECOND)
        priorities_by = trio.current_time() + left_seconds
        with trio.move_on_after(bounds.now.runtime_warm_seconds):
            await self._reach.known.wait()
        if not order.refresh:
            await self._await_priorities(priorities_by)
        if not self._warm.is_set():
            with trio.move_on_after(
                LISTING_SECONDS_MAX if order.refresh else bounds.now.runtime_warm_seconds
            ):
                await self._warm.wait()
        if not self._warm.is_set():
            return Ending("failed", NOT_LISTED)
        looked = not order.refresh or await self._reach.while_it_answers(self._look)
        self.late.note(order)
        await self._report(order, "cri" if looked else FROM_TABLE, outlet)
        self._anew = False
        return Ending()

    async def _report(self, order: d.TakeInventory, source: str, outlet: Outlet) -> None:
        # Before all that runs joins the inventory. A new shutdown has it in its inventory.
        before: list[Fact] = [] if self._anew else [*self._coming.settle(), *self._started_since()]
        pods = self._table.active()
        self._table.give(pods, anew=self._anew)
        if self._anew:
            self._coming.forget()
        views = [self._view(pod) for pod in pods]
        if order.refresh:
            # Only then the daemon knows whether a kubelet goes on.
            views += self._about_to_start({pod.uid for pod in pods})
        self.late.add(pod.uid for pod in views)
        untold = ""
        if self._lookup is not None and any(pod.priority is None for pod in views):
            untold = self._lookup.untold
        # Together: the pods are known before the order ends.
        await outlet.put(
            *before, *InventoryTaken.in_parts(order.key, time.monotonic_ns(), source, views, untold)
        )
        self._save()

    async def _await_priorities(self, until: float) -> None:
        """Without priorities a plan has all pods in one wave. After Trio's time ``until`` it is made without
        them.
        """
        while self._lookup is not None and self._lookup.expecting and trio.current_time() < until:
            pods = self.views()
            if (pods or self._warm.is_set()) and all(pod.priority is not None for pod in pods):
                return
            await trio.sleep(FIRST_WORD_POLL_SECONDS)

    def _about_to_start(self, but: Collection[str]) -> list[Pod]:
        return self._coming.find(but) if self._starts() else []

    def _view(self, pod: PodEntry) -> Pod:
        return pod_view(pod, known_pod_of(pod, self._lookup))

    def _started_since(self) -> list[PodJoined]:
        """Pods of the inventory with containers that started since."""
        found = self._table.give_started() if self.late.open else []
        return [PodJoined(pod=self._view(pod)) for pod in found]

    async def report_late(self, outlet: Outlet) -> None:
        """Report pods that no inventory of this shutdown has, and pods that the kubelet has started again."""
        facts: list[Fact] = [*self._coming.settle()]
        found = self.late.find(self._table.active())
        # Before the report: an order may follow it at once.
        self._table.give(found)
        joined = [self._view(pod) for pod in found]
        if self.late.open:
            joined += self._about_to_start(self.late.listed)
        self.late.add(pod.uid for pod in joined)
        facts += [*(PodJoined(pod=pod) for pod in joined), *self._started_since()]
        if facts:
            await outlet.put(*facts)
        self._save()

    def views(self) -> list[Pod]:
        return [self._view(pod) for pod in self._table.active()]

    def _save(self) -> None:
        self._file.store(self._table.given.values())


def _is_ours(known: KnownPod, table: PodTable) -> bool:
    return bool(known.uid) and known.uid not in table.own and known.phase not in FINAL_PHASES


# A pod that has not started cannot be stopped, but with a running kubelet it may start at any time. In mode
# api it has to be deleted, or it starts after all others have ended. Until it runs, only the API server shows
# its end.


class ComingPods:
    """Pods of the inventory that may start soon."""

    def __init__(self, table: PodTable, lookup: PodStore | None) -> None:
        self._table, self._lookup = table, lookup
        #: UID and name of their containers that neither run nor have ended.
        self._waiting: dict[tuple[str, str], None] = {}

    def forget(self) -> None:
        """A new shutdown begins."""
        self._waiting = {}

    def find(self, but: Collection[str]) -> list[Pod]:
        """Pods without a running container, except those with these UIDs. Only what the API server has shown
        since this daemon's start counts. A static pod's object is only its mirror.
        """
        if self._lookup is None or not self._lookup.version:
            return []
        here = {pod.uid for pod in self._table.active()}
        views = []
        for each in self._lookup.pods():
            names = [name for name in each.sidecars + each.containers if name not in each.ended]
            over = not names or each.running or each.static or each.deleting
            if not over and each.uid not in here and each.uid not in but and _is_ours(each, self._table):
                views.append(coming_view(each, names))
                self._waiting |= dict.fromkeys((each.uid, name) for name in names)
        return views

    def settle(self) -> list[ContainerExited]:
        """The runtime shows the end of a container that has started, else the API server does."""
        ends = []
        for uid, name in list(self._waiting):
            entry = self._table.find(uid, name)
            known = self._lookup.find(uid) if self._lookup is not None else None
            if entry is not None and entry.running:
                self._table.give_one(entry)
            elif entry is not None:
                ends.append(entry.exited())
            # An object goes once its kubelet has ended the pod. A final phase follows the last end.
            elif known is None or name in known.ended or known.phase in FINAL_PHASES:
                code = self._lookup.exit_code(uid, name) if self._lookup is not None else None
                ends.append(found_gone(uid, name, code))
            else:
                continue
            del self._waiting[uid, name]
        return ends


class LatePods:
    """Each pod that is in no inventory is reported once, until its time is over."""

    def __init__(self) -> None:
        self._until_ns = 0
        #: The UIDs of this shutdown's pods.
        self.listed: dict[str, None] = {}

    @property
    def open(self) -> bool:
        return time.monotonic_ns() < self._until_ns

    def note(self, order: d.TakeInventory) -> None:
        if not order.refresh:
            self.listed, self._until_ns = {}, 0
        self._until_ns = max(self._until_ns, order.late_until_ns)

    def add(self, uids: Iterable[str]) -> None:
        self.listed |= dict.fromkeys(uids)

    def find(self, pods: list[PodEntry]) -> list[PodEntry]:
        return [pod for pod in pods if pod.uid not in self.listed] if self.open else []
