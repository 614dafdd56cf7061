"""The inventory of a shutdown: the pods at its signal, the pods of a second look, and late pods.

The warm table needs no call between the signal and the first stop. While the runtime does not answer, the
inventory is its last known state, seen by this daemon or the one before it in this boot.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import NamedTuple

import trio

from ebbtide.actors.edges.cri.cri_client import Lost, RuntimeReach
from ebbtide.actors.edges.cri.cri_pods import (
    BootFile,
    InventoryContainer,
    PodEntry,
    PodTable,
    found_gone,
    known_pod_of,
    pod_view,
    view_of_known,
    view_with_containers,
)
from ebbtide.actors.edges.kubernetes.known_pods import FINAL_PHASES, KnownPod, PodStore
from ebbtide.actors.interfaces import Ending, Outlet
from ebbtide.events import bounds
from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import FROM_TABLE, ContainerExited, InventoryTaken, PodJoined
from ebbtide.events.values import Pod

#: The wait for a runtime that is away: without one nothing can be done.
LISTING_SECONDS_MAX = 60.0
FIRST_WORD_SECONDS_MAX = d.FIRST_WORD_NS / NS_PER_SECOND
#: Only memory is read.
FIRST_WORD_POLL_SECONDS = 0.02
NOTHING_NEWER = "the runtime does not answer, so nothing newer is known of its pods"
NOT_LISTED = "the runtime does not answer, so its pods are not known"


ContainerOrder = d.SendSignal | d.KillContainer | d.TakeAutopsy | d.RunHook


class Inventory:
    """``warm`` is set once the table is filled. ``look`` compares it with the runtime now, and ``as_of`` is
    the last such time (Trio's). ``starts``: may a pod of this node start now?
    """

    def __init__(
        self,
        table: PodTable,
        file: BootFile[InventoryContainer],
        lookup: PodStore | None,
        reach: RuntimeReach,
        warm: trio.Event,
        look: Callable[[], Awaitable[None]],
        as_of: Callable[[], float],
        starts: Callable[[], bool],
    ) -> None:
        self.late = LatePods()
        #: The table is filled, or the runtime is away and the kept table was read.
        self.settled = trio.Event()
        self.expected = ExpectedContainers(lookup)
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

    async def take(self, order: d.TakeInventory, outlet: Outlet) -> Ending:
        """Fails without a runtime: an unknown inventory is not an empty one."""
        # Until one succeeds: a shutdown whose first inventory failed begins with the second.
        self._anew = self._anew or not order.refresh
        first_word_seconds = FIRST_WORD_SECONDS_MAX
        if order.priorities_by_ns:
            left_seconds = (order.priorities_by_ns - time.monotonic_ns()) / NS_PER_SECOND
            first_word_seconds = min(first_word_seconds, left_seconds)
        first_word_by = trio.current_time() + first_word_seconds
        with trio.move_on_after(bounds.now.runtime_warm_seconds):
            await self._reach.known.wait()
            await self.settled.wait()
        if not order.refresh:
            await self._await_priorities(first_word_by)
        looked = False
        if not (self._reach.away and self._warm.is_set()):
            seconds = LISTING_SECONDS_MAX if order.refresh else bounds.now.runtime_warm_seconds
            with trio.move_on_after(seconds):
                await self._warm.wait()
                if order.refresh and self._anew:
                    await self._look()
                elif order.refresh and not await self._look_closer(outlet):
                    # The end of a shutdown waits for this. A later look still adds what it finds.
                    self.late.note(order, ())
                    return Ending("failed", NOTHING_NEWER)
                looked = order.refresh
        if not self._warm.is_set():
            return Ending("failed", NOT_LISTED)
        self.late.note(order, ())
        # Before all that runs joins the inventory. A new shutdown has it in its inventory.
        joined = [] if self._anew else self._started_since()
        views = self._give_all(order)
        self.late.add(pod.uid for pod in views)
        source = FROM_TABLE if order.refresh and not looked else "cri"
        is_told = self._lookup is None or all(pod.priority is not None for pod in views)
        untold = "" if is_told or self._lookup is None else self._lookup.untold
        listed = InventoryTaken.in_parts(order.key, time.monotonic_ns(), source, views, untold)
        # Together: the pods are known before the order ends.
        await outlet.put(*joined, *listed)
        await self.report_settled(outlet)
        self.save()
        self._anew = False
        return Ending()

    async def _await_priorities(self, until: float) -> None:
        """Without priorities a plan has all pods in one wave. After Trio's time ``until`` it is made without
        them.
        """
        while self._lookup is not None and self._lookup.expecting and trio.current_time() < until:
            pods = self.views()
            if (pods or self._warm.is_set()) and all(pod.priority is not None for pod in pods):
                return
            await trio.sleep(FIRST_WORD_POLL_SECONDS)

    async def _look_closer(self, outlet: Outlet) -> bool:
        """False: the runtime does not answer."""
        looked = False

        async def doubt() -> None:
            while True:
                await trio.sleep(bounds.now.runtime_doubt_seconds)
                try:
                    await self._reach.confirm(outlet, bounds.now.runtime_doubt_seconds)
                except Lost:
                    nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(doubt)
            await self._look()
            looked = True
            nursery.cancel_scope.cancel()
        return looked

    def _give_all(self, order: d.TakeInventory) -> list[Pod]:
        """The pods that the runtime shows. At the signal this includes pods that started since the last look,
        if the runtime confirms them. Later it includes pods that are about to start: only then the daemon
        knows whether a kubelet goes on.
        """
        pods = self._table.active()
        self._table.give(pods, anew=self._anew)
        if self._anew:
            self.expected.forget()
        views = {pod.uid: self._view(pod) for pod in pods}
        if order.refresh:
            return [*views.values(), *self._coming(views)]
        if self._reach.away:
            return list(views.values())
        for uid, ids in unseen_containers(self._lookup, self._table).items():
            if known := self._lookup.find(uid) if self._lookup is not None else None:
                views[uid] = (
                    view_with_containers(views[uid], ids, known)
                    if uid in views
                    else view_of_known(known, ids)
                )
                self.expected.expect(uid, ids)
        return list(views.values())

    def _coming(self, but: Collection[str]) -> list[Pod]:
        if not self._starts():
            return []
        found = starting_pods(self._lookup, self._table, but)
        for known in found:
            self.expected.expect(known.uid, dict.fromkeys(unended_containers(known), ""), coming=True)
        return [view_of_known(known, unended_containers(known)) for known in found]

    def behind(self) -> bool:
        """Does the API server show a running container that no look has found?"""
        return self._warm.is_set() and bool(unseen_containers(self._lookup, self._table))

    def _view(self, pod: PodEntry) -> Pod:
        return pod_view(pod, known_pod_of(pod, self._lookup))

    def _started_since(self) -> list[PodJoined]:
        """Pods of the inventory with containers that started since."""
        found = self._table.give_started(self.expected.expects) if self.late.open else []
        return [PodJoined(pod=self._view(pod)) for pod in found]

    async def report_late(self, outlet: Outlet) -> None:
        """Report pods that no inventory of this shutdown has, and pods that the kubelet has started again."""
        # Before the report: an order may follow it at once.
        found = self.late.find(self._table.active())
        self._table.give(found)
        joined = [self._view(pod) for pod in found]
        if self.late.open:
            joined += self._coming(self.late.listed)
        self.late.add(pod.uid for pod in joined)
        facts = [*(PodJoined(pod=pod) for pod in joined), *self._started_since()]
        if facts:
            await outlet.put(*facts)
        self.save()

    async def report_settled(self, outlet: Outlet) -> None:
        """After a look: report ends of containers that only the API server had shown."""
        ends = self.expected.settle(self._table, self._as_of())
        if ends:
            await outlet.put(*ends)

    async def catch_up(self, uid: str, container: str, outlet: Outlet) -> bool:
        """Look for a container that only the API server had shown. False: no answer."""
        if not self.expected.expects(uid, container):
            return True
        asked = trio.current_time()
        # One look is enough for a whole wave.
        async with self._turn:
            if not self._reach.away and self._as_of() < asked:
                with trio.move_on_after(bounds.now.runtime_warm_seconds):
                    await self._look()
                await self.report_settled(outlet)
        return not self._reach.away and self._as_of() >= asked

    async def follow_expected(self, outlet: Outlet) -> None:
        """Until cancelled, report ends that only the API server shows."""
        while True:
            await self.expected.wait()
            ends = self.expected.ended()
            if ends:
                await outlet.put(*ends)

    def views(self) -> list[Pod]:
        return [self._view(pod) for pod in self._table.active()]

    def save(self) -> None:
        self._file.store(list(self._table.given.values()))


# The table is as old as the last look; the watch has newer pods. A pod that has not started cannot be
# stopped, but with a running kubelet it may start at any time. In mode api it has to be deleted, or it starts
# after all others have ended.


def unseen_containers(lookup: PodStore | None, table: PodTable) -> dict[str, dict[str, str]]:
    """By UID, the running containers that no look has found, with their ids by name. Only what the API server
    has shown since this daemon's start counts.
    """
    if lookup is None or not lookup.version:
        return {}
    found = {
        each.uid: {name: key for name, key in each.running.items() if not table.has_seen(key)}
        for each in lookup.pods()
        if _is_ours(each, table)
    }
    return {uid: ids for uid, ids in found.items() if ids}


def starting_pods(lookup: PodStore | None, table: PodTable, but: Collection[str]) -> list[KnownPod]:
    """Pods without a running container that may start soon. A static pod's object is only its mirror."""
    if lookup is None or not lookup.version:
        return []
    here = {pod.uid for pod in table.active()}
    return [
        each
        for each in lookup.pods()
        if each.uid not in here
        and each.uid not in but
        and _is_ours(each, table)
        and not (each.running or each.static or each.deleting)
        and unended_containers(each)
    ]


def _is_ours(known: KnownPod, table: PodTable) -> bool:
    return bool(known.uid) and known.uid not in table.own and known.phase not in FINAL_PHASES


def unended_containers(known: KnownPod) -> tuple[str, ...]:
    """In the manifest's order."""
    return tuple(name for name in known.sidecars + known.containers if name not in known.ended)


# Containers of the inventory that only the API server has shown, running or about to run. It also shows their
# end, until a look finds them.


#: Between two looks for ends. A kubelet reports one within some 100 ms.
API_POLL_SECONDS = 0.25


class ExpectedEnd(NamedTuple):
    """``id`` may be empty. ``coming``: it did not run yet, so its absence in a look says nothing. ``since``:
    Trio's time.
    """

    id: str
    coming: bool
    since: float


class ExpectedContainers:
    def __init__(self, lookup: PodStore | None) -> None:
        self._lookup = lookup
        #: By UID and name, those without an end so far.
        self._waiting: dict[tuple[str, str], ExpectedEnd] = {}
        self._more = trio.Event()

    def forget(self) -> None:
        """A new shutdown begins."""
        self._waiting = {}

    def expect(self, uid: str, ids: dict[str, str], *, coming: bool = False) -> None:
        """``ids``: by container."""
        now = trio.current_time()
        self._waiting |= {(uid, name): ExpectedEnd(key, coming, now) for name, key in ids.items()}
        self._more.set()
        self._more = trio.Event()

    def expects(self, uid: str, container: str) -> bool:
        return (uid, container) in self._waiting

    def id_of(self, uid: str, container: str) -> str:
        """Empty: unknown, or not expected."""
        each = self._waiting.get((uid, container))
        return "" if each is None else each.id

    def drop(self, uid: str, container: str) -> None:
        """Its end was reported."""
        self._waiting.pop((uid, container), None)

    async def wait(self) -> None:
        """Return when `ended` should be asked; never without expected containers."""
        while not self._waiting:
            await self._more.wait()
        await trio.sleep(API_POLL_SECONDS)

    def ended(self) -> list[ContainerExited]:
        """What has ended according to the API server."""
        over = []
        for uid, container in self._waiting:
            known = self._known(uid)
            # An object goes once its kubelet has ended the pod. A final phase follows the last end.
            if known is None or container in known.ended or known.phase in FINAL_PHASES:
                over.append((uid, container))
        for each in over:
            del self._waiting[each]
        return [self._exited(*each) for each in over]

    def settle(self, table: PodTable, as_of: float) -> list[ContainerExited]:
        """After a look, as of Trio's time ``as_of``: the table follows what the runtime shows; what it does
        not show has ended.
        """
        ends = []
        for (uid, name), each in list(self._waiting.items()):
            entry = table.find(uid, name)
            if entry is not None and entry.running:
                table.give_one(entry)
            # The look began before the wait did, or it only shows that the container runs.
            elif each.coming or each.since >= as_of or each.id in (table.listed or ()):
                continue
            elif entry is not None and each.id in ("", entry.id):
                ends.append(entry.exited())
            else:
                ends.append(self._exited(uid, name))
            del self._waiting[uid, name]
        return ends

    def _exited(self, uid: str, container: str) -> ContainerExited:
        code = None if self._lookup is None else self._lookup.exit_code(uid, container)
        return found_gone(uid, container, code)

    def _known(self, uid: str) -> KnownPod | None:
        return self._lookup.find(uid) if self._lookup is not None else None


class LatePods:
    """Reports each pod that is in no inventory once, until its time is over."""

    def __init__(self) -> None:
        self._until_ns = 0
        #: The UIDs of this shutdown's pods.
        self.listed: dict[str, None] = {}

    @property
    def open(self) -> bool:
        return time.monotonic_ns() < self._until_ns

    def note(self, order: d.TakeInventory, uids: Iterable[str]) -> None:
        if not order.refresh:
            self.listed, self._until_ns = {}, 0
        self.add(uids)
        self._until_ns = max(self._until_ns, order.late_until_ns)

    def add(self, uids: Iterable[str]) -> None:
        self.listed |= dict.fromkeys(uids)

    def find(self, pods: list[PodEntry]) -> list[PodEntry]:
        return [pod for pod in pods if pod.uid not in self.listed] if self.open else []
