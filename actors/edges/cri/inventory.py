"""What a shutdown is given: the pods at its signal, those that a closer look finds, and those that come late.

From the warm table there is no call between the signal and the first stop. While the runtime does not answer,
the pods are the last that it has shown: to this daemon, or to the one before it in this boot.
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
from ebbtide.actors.edges.kubernetes.known_pods import FINAL_PHASES, FollowedPods, KnownPod, PodLookup
from ebbtide.actors.interfaces import Ending, Outlet
from ebbtide.events import bounds
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import (
    FIRST_WORD_NS,
    KillContainer,
    RunHook,
    SendSignal,
    TakeAutopsy,
    TakeInventory,
)
from ebbtide.events.facts import FROM_TABLE, ContainerExited, InventoryTaken, PodJoined
from ebbtide.events.values import Pod

#: How long a listing waits for a runtime that is away: without one nothing can be done in any case.
LISTING_SECONDS_MAX = 60.0
FIRST_WORD_SECONDS_MAX = FIRST_WORD_NS / NS_PER_SECOND
#: Nothing is asked of anybody, only looked at in memory.
FIRST_WORD_POLL_SECONDS = 0.02
NOTHING_NEWER = "the runtime does not answer, so nothing newer is known of its pods"
NOT_LISTED = "the runtime does not answer, so its pods are not known"


def _first_word_seconds(order: TakeInventory) -> float:
    if not order.priorities_by_ns:
        return FIRST_WORD_SECONDS_MAX
    return min(FIRST_WORD_SECONDS_MAX, (order.priorities_by_ns - time.monotonic_ns()) / NS_PER_SECOND)


ContainerOrder = SendSignal | KillContainer | TakeAutopsy | RunHook


class Inventory:
    """``warm`` is set once the table is filled, ``look`` returns when it is as the runtime has it now, and
    ``as_of`` gives the time, Trio's, that it shows. ``starts``: may a pod that is here start now?
    """

    def __init__(
        self,
        table: PodTable,
        file: BootFile[InventoryContainer],
        lookup: FollowedPods | None,
        reach: RuntimeReach,
        warm: trio.Event,
        look: Callable[[], Awaitable[None]],
        as_of: Callable[[], float],
        starts: Callable[[], bool],
    ) -> None:
        self.late = LatePods()
        #: The table is filled, or the runtime is away and what was kept of it has been read.
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

    async def take(self, order: TakeInventory, outlet: Outlet) -> Ending:
        """Fails where nobody knows: an inventory without a runtime is not an empty one."""
        # Kept until one succeeds: a shutdown whose first listing failed begins with the second.
        self._anew = self._anew or not order.refresh
        first_word_by = trio.current_time() + _first_word_seconds(order)
        with trio.move_on_after(bounds.now.runtime_warm_seconds):
            await self._reach.known.wait()
            await self.settled.wait()
        if not order.refresh:
            await self._await_priorities(first_word_by)
        looked = False
        # Of a runtime that is away nothing is waited for where it has shown its pods.
        if not (self._reach.away and self._warm.is_set()):
            seconds = LISTING_SECONDS_MAX if order.refresh else bounds.now.runtime_warm_seconds
            with trio.move_on_after(seconds):
                await self._warm.wait()
                if order.refresh and self._anew:
                    await self._look()
                elif order.refresh and not await self._look_closer(outlet):
                    # The end of a shutdown waits for this. What a later look finds joins all the same.
                    self.late.note(order, ())
                    return Ending("failed", NOTHING_NEWER)
                looked = order.refresh
        if not self._warm.is_set():
            return Ending("failed", NOT_LISTED)
        self.late.note(order, ())
        # Before all that runs is given. Another shutdown than before has it in its inventory.
        joined = [] if self._anew else self._started_since()
        views = self._give_all(order)
        await self._put(order, FROM_TABLE if order.refresh and not looked else "cri", joined, views, outlet)
        await self.report_settled(outlet)
        self.save()
        self._anew = False
        return Ending()

    async def _await_priorities(self, until: float) -> None:
        """A plan that is made without them has all pods in one wave. Later than Trio's time ``until`` it is
        made all the same, and what is told by then counts for nobody but pods that come late.
        """
        while self._lookup is not None and self._lookup.expecting and trio.current_time() < until:
            pods = self.views()
            if (pods or self._warm.is_set()) and all(pod.priority is not None for pod in pods):
                return
            await trio.sleep(FIRST_WORD_POLL_SECONDS)

    def _untold(self, views: Iterable[Pod]) -> str:
        if self._lookup is None or all(pod.priority is not None for pod in views):
            return ""
        return self._lookup.untold

    async def _look_closer(self, outlet: Outlet) -> bool:
        """False: the runtime shows nothing, and answers nothing else either."""
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

    def _give_all(self, order: TakeInventory) -> list[Pod]:
        """What the runtime shows. At the signal also what runs since the last look, if the runtime can be
        looked at for it; later what is about to start: sooner it is not known whether a kubelet goes on.
        """
        pods = self._table.active()
        self._table.give(pods, anew=self._anew)
        if self._anew:
            self.expected.forget()
        views = {pod.uid: pod_view(pod, known_pod_of(pod, self._lookup)) for pod in pods}
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
        """Does the API server tell of something that runs and that no look has shown?"""
        return self._warm.is_set() and bool(unseen_containers(self._lookup, self._table))

    async def _put(
        self, order: TakeInventory, source: str, joined: list[PodJoined], views: list[Pod], outlet: Outlet
    ) -> None:
        self.late.add(pod.uid for pod in views)
        now_ns = time.monotonic_ns()
        listed = InventoryTaken.in_parts(order.key, now_ns, source, views, self._untold(views))
        # Together: by the listing's end nobody is waited for whom it has not brought to light.
        await outlet.put(*joined, *listed)

    def _started_since(self) -> list[PodJoined]:
        """Pods that this shutdown was given, of which something runs that it was not: it has been started
        again, or only now.
        """
        found = self._table.give_started(self.expected.expects) if self.late.open else []
        return [PodJoined(pod=pod_view(pod, known_pod_of(pod, self._lookup))) for pod in found]

    async def report_late(self, outlet: Outlet) -> None:
        """After a look, or when the API server has told something: pods that were in no inventory of this
        shutdown, and such as its kubelet has started again.
        """
        # Given to the table before it is reported: the order that follows the report has to find it.
        found = self.late.find(self._table.active())
        self._table.give(found)
        joined = [pod_view(pod, known_pod_of(pod, self._lookup)) for pod in found]
        if self.late.open:
            joined += self._coming(self.late.listed)
        self.late.add(pod.uid for pod in joined)
        facts = [*(PodJoined(pod=pod) for pod in joined), *self._started_since()]
        if facts:
            await outlet.put(*facts)
        self.save()

    async def report_settled(self, outlet: Outlet) -> None:
        """After a look: what an inventory had without the runtime, and has ended."""
        ends = self.expected.settle(self._table, self._as_of())
        if ends:
            await outlet.put(*ends)

    async def catch_up(self, uid: str, container: str, outlet: Outlet) -> bool:
        """Somebody acts on a container that the runtime had not shown: by now it may. False: nobody told."""
        if not self.expected.expects(uid, container):
            return True
        asked = trio.current_time()
        # A whole wave may ask at once: one look, or the one that began since, is for all of them.
        async with self._turn:
            if not self._reach.away and self._as_of() < asked:
                with trio.move_on_after(bounds.now.runtime_warm_seconds):
                    await self._look()
                await self.report_settled(outlet)
        return not self._reach.away and self._as_of() >= asked

    async def follow_expected(self, outlet: Outlet) -> None:
        """Until cancelled: ends that only the API server tells of."""
        while True:
            await self.expected.wait()
            ends = self.expected.ended()
            if ends:
                await outlet.put(*ends)

    def views(self) -> list[Pod]:
        """The pods that a shutdown would have to end."""
        return [pod_view(pod, known_pod_of(pod, self._lookup)) for pod in self._table.active()]

    def save(self) -> None:
        """For the next daemon of this boot: what was given, and what was asked to end."""
        self._file.store(list(self._table.given.values()))


# The table is as old as the last look, and what became ready since is in the watch a moment later, so an
# inventory asks both. A pod that is here and has not started is nobody's to stop yet, but while a kubelet
# runs it may start at any time: whoever ends the pods by way of the API has to know of it, or it starts when
# all else has ended.


def unseen_containers(lookup: FollowedPods | None, table: PodTable) -> dict[str, dict[str, str]]:
    """Containers that run and that no look has seen: by UID, each one's id by its name.

    What is known from before a restart only says nothing of now.
    """
    if lookup is None or not lookup.version:
        return {}
    found = {
        each.uid: {name: key for name, key in each.running.items() if not table.has_seen(key)}
        for each in lookup.pods()
        if _is_ours(each, table)
    }
    return {uid: ids for uid, ids in found.items() if ids}


def starting_pods(lookup: FollowedPods | None, table: PodTable, but: Collection[str]) -> list[KnownPod]:
    """Pods of which nothing runs, and something may soon. A static one's object is only its mirror."""
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
    """The containers that have not ended, in the manifest's order."""
    return tuple(name for name in known.sidecars + known.containers if name not in known.ended)


# What an inventory has that no look had shown, running or about to: the API server tells of its end until a
# look shows it.


#: Between two looks for ends. A kubelet needs some 100 ms to tell the API server of one.
API_POLL_SECONDS = 0.25


class ExpectedEnd(NamedTuple):
    """``id`` of the container where it is known. ``coming``: it does not run yet, so a look that does not
    show it says nothing. ``since``: Trio's time.
    """

    id: str
    coming: bool
    since: float


class ExpectedContainers:
    """``lookup`` None: nothing is known but by the runtime."""

    def __init__(self, lookup: PodLookup | None) -> None:
        self._lookup = lookup
        #: By UID and name, containers of an inventory whose end nobody has seen.
        self._waiting: dict[tuple[str, str], ExpectedEnd] = {}
        self._more = trio.Event()

    def forget(self) -> None:
        """It is another shutdown than before."""
        self._waiting = {}

    def expect(self, uid: str, ids: dict[str, str], *, coming: bool = False) -> None:
        """The same for some containers of one pod, with their ids."""
        now = trio.current_time()
        self._waiting |= {(uid, name): ExpectedEnd(key, coming, now) for name, key in ids.items()}
        self._more.set()
        self._more = trio.Event()

    def expects(self, uid: str, container: str) -> bool:
        """Was a shutdown given it though the runtime had not shown it?"""
        return (uid, container) in self._waiting

    def id_of(self, uid: str, container: str) -> str:
        """The runtime's id of an expected container that has not ended yet; empty if it is unknown."""
        each = self._waiting.get((uid, container))
        return "" if each is None else each.id

    def drop(self, uid: str, container: str) -> None:
        """Its end was said."""
        self._waiting.pop((uid, container), None)

    async def wait(self) -> None:
        """Return when it is time to ask for `ended`; never while nobody is waited for."""
        while not self._waiting:
            await self._more.wait()
        await trio.sleep(API_POLL_SECONDS)

    def ended(self) -> list[ContainerExited]:
        """What has ended as the API server has it, each once."""
        over = []
        for uid, container in self._waiting:
            known = self._known(uid)
            # An object is gone once its kubelet has ended it; a final phase is set when all have ended.
            if known is None or container in known.ended or known.phase in FINAL_PHASES:
                over.append((uid, container))
        for each in over:
            del self._waiting[each]
        return [self._exited(*each) for each in over]

    def settle(self, table: PodTable, as_of: float) -> list[ContainerExited]:
        """The runtime has told all that runs, as of Trio's time ``as_of``: ``table`` follows what it shows of
        them, and what it does not show has ended.
        """
        ends = []
        for (uid, name), each in list(self._waiting.items()):
            entry = table.find(uid, name)
            if entry is not None and entry.running:
                table.give_one(entry)
            # The look is from before we began to wait, or before it was to run: it says nothing of this one.
            # Or it shows that it runs, and no more.
            elif each.coming or each.since >= as_of or each.id in (table.listed or ()):
                continue
            elif entry is not None and each.id in ("", entry.id):
                ends.append(entry.exited())
            else:
                ends.append(self._exited(uid, name))
            del self._waiting[uid, name]
        return ends

    def _exited(self, uid: str, container: str) -> ContainerExited:
        known, code = self._known(uid), None
        if known is not None:
            code = known.ended.get(container)
        elif self._lookup is not None:
            code = self._lookup.last_ends(uid).get(container)
        return found_gone(uid, container, code)

    def _known(self, uid: str) -> KnownPod | None:
        return self._lookup.find(uid) if self._lookup is not None else None


class LatePods:
    """Until its time is over, each pod that was not listed is found once."""

    def __init__(self) -> None:
        self._until_ns = 0
        #: The UIDs of all pods that this shutdown was given.
        self.listed: dict[str, None] = {}

    @property
    def open(self) -> bool:
        return time.monotonic_ns() < self._until_ns

    def note(self, order: TakeInventory, uids: Iterable[str]) -> None:
        """An inventory of these: the first of a shutdown, or a refreshed one."""
        if not order.refresh:
            self.listed, self._until_ns = {}, 0
        self.add(uids)
        self._until_ns = max(self._until_ns, order.late_until_ns)

    def add(self, uids: Iterable[str]) -> None:
        self.listed |= dict.fromkeys(uids)

    def find(self, pods: list[PodEntry]) -> list[PodEntry]:
        return [pod for pod in pods if pod.uid not in self.listed] if self.open else []
