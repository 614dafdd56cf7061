"""The CRI edge once the node is armed (`cri_edge` imports it).

`Listing` and `ContainerEnds` keep the table warm, so neither an inventory nor a stop has to call the runtime.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import trio
from google.protobuf.message import Message
from msgspec.structs import replace

from ebbtide.actors.edges import http_request as http
from ebbtide.actors.edges import pod_spec
from ebbtide.actors.edges.cri import api_pb2 as api
from ebbtide.actors.edges.cri import cri_client
from ebbtide.actors.edges.cri.cri_client import exit_of_container
from ebbtide.actors.edges.cri.cri_pods import (
    CONTAINER_NAME_LABEL,
    POD_NAME_LABEL,
    POD_NAMESPACE_LABEL,
    POD_UID_LABEL,
    PRIORITY_ANNOTATION,
    ContainerEntry,
    InventoryContainer,
    InventoryFile,
    PodEntry,
    PodTable,
    coming_view,
    first_processes,
    found_gone,
    grace_seconds_of,
    is_static,
    known_pod_of,
    open_first_process,
    parse_number,
    pod_view,
    ports_of,
    pre_stop_of,
    sidecars_of,
    without_exec,
)
from ebbtide.actors.edges.kubernetes.known_pods import FINAL_PHASES, KnownPod, PodStore
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.proc import signal_name, signal_number
from ebbtide.actors.edges.linux.processes import ExitStatus, TreeRoot, examine_tree, reap_soon
from ebbtide.actors.interfaces import WARNING, Ending, Outlet, Tell, TraceContext
from ebbtide.events import bounds
from ebbtide.events import decisions as d
from ebbtide.events.base import FLOOR_SECONDS, NS_PER_SECOND, Fact, Order
from ebbtide.events.facts import (
    FROM_TABLE,
    AutopsyTaken,
    ContainerExited,
    InventoryTaken,
    PodAppeared,
    PodJoined,
)
from ebbtide.events.messages import shortened_list
from ebbtide.events.units import bound_text, size_text
from ebbtide.events.values import Pod

#: Between two looks. Ends are reported at once.
IDLE_SECONDS = 5.0
BUSY_SECONDS = 0.5
NAMED_PODS_MAX = 5


class Runtime:
    def __init__(
        self,
        endpoint: str,
        file: InventoryFile,
        own_uid: str,
        lookup: PodStore | None,
        starts: Callable[[], bool],
        context: TraceContext,
        tell: Tell,
        outlet: Outlet,
    ) -> None:
        self.table = PodTable(frozenset({own_uid} if own_uid else ()))
        self._file = file
        self._outlet = outlet
        self._lookup = lookup
        self._tell = tell
        self._nursery: trio.Nursery | None = None
        self._client = cri_client.CriClient(endpoint)
        self._reach = cri_client.RuntimeReach(self._client, outlet, tell)
        self._warm = trio.Event()
        self._stirred, self._stirring = trio.open_memory_channel[None](1)
        self._looking = trio.Lock()
        self._ends = ContainerEnds(self._client, self.table, self._start, outlet, lookup)
        self._listing = Listing(self._client, self.table, self._ends.follow, self._ends.miss, tell)
        self._inventory = Inventory(
            self.table, file, lookup, self._reach, self._warm, self._look_anew, starts
        )
        self._orders = ContainerOrders(
            self._client, self._reach, self.table, self._warm, self._start, context, self._ends.code_in_api
        )

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await nursery.start(self._client.run)
                nursery.start_soon(self._reach.follow, self._stirred)
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
        self._ends.owed = list(before)
        await self._look_until_done()
        self.table.own |= pods_of_cgroups(self.table.entries(), proc.cgroups_of(os.getpid()))
        # A shutdown that begins now does not wait for reports about an earlier one.
        self._warm.set()
        await self._ends.catch_up()
        self._start(self._note_priorities)
        while True:
            # A look beside the first stops would cost them time.
            if not self._busy:
                with trio.move_on_after(IDLE_SECONDS):
                    await self._stirring.receive()
            if self._busy:
                await trio.sleep(BUSY_SECONDS)
            await self._look_anew()
            await self._inventory.report_late(self._outlet)

    @property
    def _busy(self) -> bool:
        stopping = any(entry.stopping and entry.running for entry in self.table.entries())
        return stopping or self._inventory.takes_late or self._ends.fresh

    async def _note_priorities(self) -> None:
        if self._lookup is not None:
            await trio.sleep(bounds.now.priorities_seconds)
        pods = self._inventory.views()
        unset = f"no known priority (nor an annotation {PRIORITY_ANNOTATION}) and count as priority 0"
        # Also where Ebbtide ends the pods: one day the kubelet may.
        assigned = "a priorityClassName and no number: a kubelet that ends the pods itself counts them as 0"
        for why, labels in (
            (unset, [pod.label for pod in pods if pod.priority is None]),
            (assigned, [pod.label for pod in pods if pod.static and pod.priority_assigned]),
        ):
            if labels:
                named = shortened_list(labels, NAMED_PODS_MAX)
                self._tell(WARNING, f"{len(labels)} of {len(pods)} pods have {why}: {named}")

    async def _look_anew(self) -> bool:
        """Reports old ends too: without them no restart by the kubelet is seen."""
        await self._look_until_done()
        await self._ends.catch_up()
        return True

    async def _look_until_done(self) -> None:
        while True:
            since, failure = trio.current_time(), None
            async with self._looking, trio.open_nursery() as nursery:
                nursery.start_soon(self._reach.doubt)
                try:
                    await self._listing.refresh()
                except cri_client.CallFailed as error:
                    failure = error
                nursery.cancel_scope.cancel()
            if failure is None:
                await self._reach.answers()
                return
            await self._reach.fails(failure, since)
            await trio.sleep(BUSY_SECONDS)

    def active(self) -> list[Pod]:
        return self._inventory.views()

    async def carry_out(self, order: Order, outlet: Outlet) -> Ending:
        if not isinstance(order, d.TakeInventory):
            return await self._orders.carry_out(order, outlet)
        if not order.refresh:
            # A runtime may hang already: the next look would show that 4 s later.
            self._start(self._reach.ask, bounds.now.runtime_signal_seconds)
        ending = await self._inventory.take(order, outlet)
        if self._busy:
            with suppress(trio.WouldBlock):  # A look is due already.
                self._stirred.send_nowait(None)
        return ending


#: The wait for a runtime that is away.
LISTING_SECONDS_MAX = 60.0
FIRST_WORD_SECONDS_MAX = d.FIRST_WORD_NS / NS_PER_SECOND
FIRST_WORD_POLL_SECONDS = 0.02
NOT_LISTED = "the runtime does not answer, so its pods are not known"


class Inventory:
    """The pods at the signal, of a second look, and late ones. ``warm`` is set once the table is filled;
    ``look`` compares it with the runtime. ``starts``: may a pod of this node start now?
    """

    def __init__(
        self,
        table: PodTable,
        file: InventoryFile,
        lookup: PodStore | None,
        reach: cri_client.RuntimeReach,
        warm: trio.Event,
        look: Callable[[], Awaitable[bool]],
        starts: Callable[[], bool],
    ) -> None:
        self._late_until_ns = 0
        #: UIDs of this shutdown's pods, and of pods bound here at its signal (None: not known).
        self._listed: dict[str, None] = {}
        self._bound: set[str] | None = None
        self._coming = ComingPods(table, lookup)
        self._table = table
        self._file = file
        self._lookup = lookup
        self._reach = reach
        self._warm = warm
        self._look = look
        self._starts = starts
        self._anew = False

    @property
    def takes_late(self) -> bool:
        return time.monotonic_ns() < self._late_until_ns

    async def take(self, order: d.TakeInventory, outlet: Outlet) -> Ending:
        """Fails without a runtime: an unknown inventory is not an empty one."""
        # A shutdown whose first inventory failed begins with the second.
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
        if not order.refresh:
            self._listed, self._late_until_ns = {}, 0
            known = self._lookup.pods() if self._lookup is not None and self._lookup.version else None
            self._bound = None if known is None else {each.uid for each in known}
        self._late_until_ns = max(self._late_until_ns, order.late_until_ns)
        await self._report(order, "cri" if looked else FROM_TABLE, outlet)
        self._anew = False
        return Ending()

    async def _report(self, order: d.TakeInventory, source: str, outlet: Outlet) -> None:
        # Before the table's pods join the inventory. A new shutdown needs no such facts.
        before: list[Fact] = [] if self._anew else [*self._coming.settle(), *self._started_since()]
        pods = self._table.active()
        over = await trio.to_thread.run_sync(without_exec, ids) if (ids := self._begun_hooks(pods)) else set()
        self._table.give(pods, anew=self._anew)
        if self._anew:
            self._coming.forget()
        views = [pod_view(pod, known_pod_of(pod, self._lookup), over) for pod in pods]
        but = {pod.uid for pod in pods}
        if self._starts():
            views += self._coming.find(but)
        elif order.refresh and source != FROM_TABLE:
            before += self._rejected(but)
            views += self._coming.left({*but, *self._listed})
        self._listed |= dict.fromkeys(pod.uid for pod in views)
        untold = ""
        if self._lookup is not None and any(pod.priority is None for pod in views):
            untold = self._lookup.untold
        # Together: the pods are known before the order ends.
        await outlet.put(
            *before, *InventoryTaken.in_parts(order.key, time.monotonic_ns(), source, views, untold)
        )
        self._save()

    def _begun_hooks(self, pods: Iterable[PodEntry]) -> list[str]:
        """Containers of deleted pods: the kubelet has begun their exec hooks."""
        known = ((pod, known_pod_of(pod, self._lookup)) for pod in pods)
        deleted = (pod for pod, found in known if found is not None and found.deletion is not None)
        return [
            entry.id
            for pod in deleted
            for entry in pod.containers.values()
            if entry.running and isinstance(entry.spec.pre_stop, pod_spec.ExecAction)
        ]

    async def _await_priorities(self, until: float) -> None:
        """Without priorities a plan has all pods in one wave."""
        while self._lookup is not None and self._lookup.expecting and trio.current_time() < until:
            pods = self.views()
            if (pods or self._warm.is_set()) and all(pod.priority is not None for pod in pods):
                return
            await trio.sleep(FIRST_WORD_POLL_SECONDS)

    def _rejected(self, but: Collection[str]) -> list[Fact]:
        """Pods that were bound here after the signal: a stopped kubelet rejects none."""
        if self._bound is None:
            return []
        pods = self._coming.left({*but, *self._listed, *self._bound})
        self._listed |= dict.fromkeys(pod.uid for pod in pods)
        return [PodAppeared(pod=pod) for pod in pods]

    def _view(self, pod: PodEntry) -> Pod:
        return pod_view(pod, known_pod_of(pod, self._lookup))

    def _started_since(self) -> list[PodJoined]:
        found = self._table.give_started(self._listed) if self.takes_late else []
        return [PodJoined(pod=self._view(pod)) for pod in found]

    async def report_late(self, outlet: Outlet) -> None:
        """Report late pods, and pods that the kubelet has started again."""
        facts: list[Fact] = [*self._coming.settle()]
        joined: list[Pod] = []
        if self.takes_late:
            found = [pod for pod in self._table.active() if pod.uid not in self._listed]
            # An order may follow the report at once.
            self._table.give(found)
            joined = [*map(self._view, found)]
            if self._starts():
                joined += self._coming.find({*self._listed, *(pod.uid for pod in joined)})
            else:
                facts += self._rejected([pod.uid for pod in joined])
        self._listed |= dict.fromkeys(pod.uid for pod in joined)
        facts += [*(PodJoined(pod=pod) for pod in joined), *self._started_since()]
        if facts:
            await outlet.put(*facts)
        self._save()

    def views(self) -> list[Pod]:
        return [self._view(pod) for pod in self._table.active()]

    def _save(self) -> None:
        self._file.store(self._table.given.values())


class ComingPods:
    """A running kubelet may start these pods at any time, so mode api deletes them. Until such a pod runs,
    only the API server shows its end.
    """

    def __init__(self, table: PodTable, lookup: PodStore | None) -> None:
        self._table, self._lookup = table, lookup
        #: UID and name of their containers that neither run nor have ended.
        self._waiting: dict[tuple[str, str], None] = {}

    def forget(self) -> None:
        self._waiting = {}

    def find(self, but: Collection[str]) -> list[Pod]:
        """Pods without a running container. A static pod's object is only its mirror."""
        views = []
        for each in self._without_process(but):
            names = [name for name in each.sidecars + each.containers if name not in each.ended]
            if names and not (each.running or each.static or each.deleting):
                views.append(coming_view(each, names))
                self._waiting |= dict.fromkeys((each.uid, name) for name in names)
        return views

    def left(self, but: Collection[str]) -> list[Pod]:
        """With a stopped kubelet: no component starts these pods, or writes how they ended."""
        return [coming_view(each, ()) for each in self._without_process(but)]

    def _without_process(self, but: Collection[str]) -> Iterator[KnownPod]:
        """Empty before the API server's first list."""
        if self._lookup is None or not self._lookup.version:
            return
        others = {"", *but, *self._table.own, *(pod.uid for pod in self._table.active())}
        for each in self._lookup.pods():
            if each.phase not in FINAL_PHASES and each.uid not in others:
                yield each

    def settle(self) -> list[Fact]:
        """The runtime shows the ends of started containers, the API server all others."""
        ends = list[Fact]()
        for uid, name in list(self._waiting):
            entry = self._table.find(uid, name)
            known = self._lookup.find(uid) if self._lookup is not None else None
            if entry is not None and entry.running:
                self._table.give([entry.pod])
                ends.append(PodJoined(pod=pod_view(entry.pod, known_pod_of(entry.pod, self._lookup))))
            elif entry is not None:
                ends.append(entry.exited())
            # The kubelet removes an object, and writes a final phase, after the last end.
            elif known is None or name in known.ended or known.phase in FINAL_PHASES:
                code = self._lookup.exit_code(uid, name) if self._lookup is not None else None
                # Not here, and without a known end: no component has seen it run.
                ends.append(ContainerExited(uid=uid, container=name, exit_code=code, never_ran=code is None))
            else:
                continue
            del self._waiting[uid, name]
        return ends


UNKNOWN_CONTAINER = "no such container is known here"
RUNTIME_AWAY = "the runtime does not answer"
NOWHERE = "no process of it is found here, and the runtime does not answer"
NOT_KNOWN = "the runtime reports no process of this container"


class ContainerOrders:
    """``start`` runs a task that may outlive its order.

    An order means the container of its shutdown's inventory. If the kubelet has started another one since,
    the order only reports that the first has ended.

    Without a first process ``StopContainer`` sends the stop. Its timeout is later than the core's SIGKILL,
    because the core may shorten the grace. A lost stop is not sent again, a lost SIGKILL is.
    """

    def __init__(
        self,
        client: cri_client.CriClient,
        reach: cri_client.RuntimeReach,
        table: PodTable,
        warm: trio.Event,
        start: Callable[..., None],
        context: TraceContext,
        code_in_api: Callable[[str, str], Awaitable[int | None]],
    ) -> None:
        self._client = client
        self._reach = reach
        self._code_in_api = code_in_api
        self._table = table
        self._warm = warm
        self._start = start
        self._context = context

    async def carry_out(self, order: Order, outlet: Outlet) -> Ending:
        assert isinstance(order, d.SendSignal | d.KillContainer | d.TakeAutopsy | d.RunHook)
        key = order.uid, order.container
        meant = self._table.given.get(key)
        with trio.move_on_after(bounds.now.runtime_warm_seconds):
            await self._reach.known.wait()
            if not self._reach.away:
                await self._warm.wait()
        given = self._table.given.get(key)
        unknown = Ending("failed", UNKNOWN_CONTAINER if self._warm.is_set() else RUNTIME_AWAY)
        if meant is not None and given is not None and given.id != meant.id:
            return Ending() if isinstance(order, d.SendSignal | d.KillContainer) else unknown
        entry = self._table.find(*key)
        if isinstance(order, d.SendSignal | d.KillContainer):
            if entry is None or not entry.running:
                return await self._report_end(order, entry, outlet)
            entry.stopping = True
            if isinstance(order, d.KillContainer):
                return await self._kill(entry, self._context(order.key))
            return await self._signal(entry, order.signal, self._context(order.key))
        if entry is None or not entry.running:
            return unknown
        if isinstance(order, d.RunHook):
            return await self._run_hook(entry, order)
        processes = await examine_tree(TreeRoot(entry.pid, entry.start_ticks))
        await outlet.put(AutopsyTaken(uid=order.uid, container=order.container, processes=processes))
        return Ending()

    async def _report_end(
        self, order: d.SendSignal | d.KillContainer, entry: ContainerEntry | None, outlet: Outlet
    ) -> Ending:
        if entry is not None:
            await outlet.put(entry.exited())
            return Ending()
        # It ended while no daemon ran, or the daemon was paused. Without an answer the last list counts.
        given, listed = self._table.given.get((order.uid, order.container)), self._table.listed
        runs, seen = None if listed is None else given is not None and given.id in listed, ExitStatus()
        if given is not None and not self._reach.away:
            with trio.move_on_after(bounds.now.exit_code_seconds), suppress(cri_client.CallFailed):
                end = await exit_of_container(self._client, given.id)
                runs, seen = end is None, end or seen
        if runs is not False:
            ending = None if given is None else await self._end_untabled(order, given)
            return ending or Ending("failed", NOT_KNOWN if runs else NOWHERE)
        if given is not None and seen.exit_code is None:
            seen = ExitStatus(exit_code=await self._code_in_api(order.uid, order.container))
        # Without an id the inventory only expected it to start.
        gone = found_gone(order.uid, order.container, seen)
        await outlet.put(replace(gone, never_ran=given is None))
        return Ending()

    async def _end_untabled(
        self, order: d.SendSignal | d.KillContainer, given: InventoryContainer
    ) -> Ending | None:
        """The runtime has not described it, but its process may be found. None: no process."""
        signal_of_order = order.signal if isinstance(order, d.SendSignal) else "SIGKILL"
        spec = pod_spec.ContainerSpec(name=given.container, argv=(), stop_signal=signal_of_order)
        entry = ContainerEntry(PodEntry(given.uid, "", "", ""), given.id, spec)
        processes = await trio.to_thread.run_sync(first_processes, [given.id])
        if given.id not in processes or not open_first_process(entry, *processes[given.id]):
            return None
        try:
            if isinstance(order, d.KillContainer):
                return await self._kill(entry, self._context(order.key))
            return await self._signal(entry, order.signal, self._context(order.key))
        finally:
            entry.close()

    async def _signal(self, entry: ContainerEntry, name: str, traceparent: str) -> Ending:
        """``name``: the core's stop signal. The image's may have been read since."""
        wanted = entry.spec.stop_signal
        if entry.pidfd >= 0:
            if failure := _signal_first_process(entry, wanted):
                return Ending("failed", failure)
            return Ending(reason="" if wanted == name else f"{wanted} was sent, as its image asks")
        stopped = _Outcome()
        self._start(self._stop_by_runtime, entry, traceparent, stopped)
        # Only this call's answer counts: a runtime that answers others may still refuse or lose it.
        with trio.move_on_after(bounds.now.stop_heard_seconds):
            await stopped.known.wait()
            return stopped.ending
        return Ending(
            "timed-out", f"{NOT_CONFIRMED}: no answer in {bound_text(bounds.now.stop_heard_seconds)}"
        )

    async def _stop_by_runtime(self, entry: ContainerEntry, traceparent: str, stopped: _Outcome) -> None:
        timeout = backstop_seconds(entry.pod.grace_seconds)
        request = api.StopContainerRequest(container_id=entry.id, timeout=timeout)
        seconds = timeout + bounds.now.runtime_past_seconds
        try:
            await self._client.call(request, seconds, traceparent=traceparent)
        except cri_client.NotFound:
            pass  # It has ended.
        except cri_client.Unsent as error:
            stopped.ending = Ending("failed", str(error))
        except cri_client.Lost as error:
            # Many programs stop at once on a second signal.
            stopped.ending = Ending("timed-out", f"{NOT_CONFIRMED}: {error}")
        except cri_client.CallFailed as error:
            stopped.ending = Ending("failed", str(error))
        stopped.known.set()

    async def _kill(self, entry: ContainerEntry, traceparent: str) -> Ending:
        """SIGKILL to the first process ends its process namespace. If that fails, the runtime kills."""
        error = _signal_first_process(entry, "SIGKILL")
        if error == "" and await _has_ended(entry):
            return Ending()
        request = api.StopContainerRequest(container_id=entry.id, timeout=0)
        try:
            if self._reach.away:
                raise cri_client.Unsent(cri_client.ON_RECORD_AS_AWAY)
            await self._client.repeat(request, bounds.now.runtime_kill_seconds, traceparent=traceparent)
        except cri_client.CallFailed as failure:
            if not entry.running or isinstance(failure, cri_client.NotFound):
                return Ending()
            if error == "":
                return Ending(reason=f"its first process has not ended, and the runtime: {failure}")
            unanswered = isinstance(failure, cri_client.Lost) and not isinstance(failure, cri_client.Unsent)
            return Ending("timed-out" if unanswered else "failed", str(failure))
        return Ending()

    async def _run_hook(self, entry: ContainerEntry, order: d.RunHook) -> Ending:
        action, traceparent = entry.spec.pre_stop, self._context(order.key)
        if action is None or isinstance(action, pod_spec.SleepAction):
            return Ending("failed", "no hook that has to be run")
        with trio.move_on_after(order.timeout_ns / NS_PER_SECOND):
            if isinstance(action, pod_spec.ExecAction):
                seconds = -(-order.timeout_ns // NS_PER_SECOND)
                request = api.ExecSyncRequest(container_id=entry.id, cmd=action.argv, timeout=seconds)
                if self._reach.away:
                    return Ending("failed", f"it was not begun: {cri_client.ON_RECORD_AS_AWAY}")
                answered = await self._reach.while_it_answers(lambda: self._exec(request, traceparent))
                return answered or Ending("unknown", f"{WHETHER_IT_RAN}: {cri_client.ON_RECORD_AS_AWAY}")
            if isinstance(action, pod_spec.HttpGetAction):
                # A broken sandbox has no address: its request must not go to another pod of this node.
                address = entry.pod.pod_ip or (node_address() if entry.pod.host_network else "")
                if not (action.host or address):
                    return Ending("failed", "its address is not known")
                try:
                    await http.request_of(action, entry.spec, address, traceparent).send()
                except http.RequestFailed as error:
                    return Ending("failed", str(error))
                return Ending()
            return Ending("failed", "invalid handler")
        return Ending("timed-out", pod_spec.HOOK_TIMED_OUT)

    async def _exec(self, request: api.ExecSyncRequest, traceparent: str) -> Ending:
        try:
            seconds = request.timeout + bounds.now.runtime_past_seconds
            found = await self._client.call(request, seconds, traceparent=traceparent)
        except cri_client.Unsent as error:
            return Ending("failed", f"it was not begun: {error}")
        except cri_client.Lost as error:
            return Ending("unknown", f"{WHETHER_IT_RAN}: {error}")
        except cri_client.TooLarge:
            return Ending("unknown", EXEC_TOO_LOUD)
        except cri_client.CallFailed as error:
            return Ending("failed", f"cannot run: {error}")
        code = found.exit_code
        return Ending("failed", f"exit code {code}", code) if code else Ending(exit_code=0)


class _Outcome:
    """A call may outlive its order."""

    def __init__(self) -> None:
        self.known = trio.Event()
        self.ending = Ending()


#: Later than any SIGKILL of the core.
BEHIND_SECONDS = 1
#: For a pod without a grace, since its wave's is not known here.
NO_GRACE_SECONDS = 3600
NOT_CONFIRMED = "whether it was sent is not known: the runtime was given the stop"


def backstop_seconds(grace_seconds: int | None) -> int:
    grace = NO_GRACE_SECONDS if grace_seconds is None else grace_seconds
    return max(grace, FLOOR_SECONDS) + BEHIND_SECONDS


async def _has_ended(entry: ContainerEntry) -> bool:
    if not entry.running or entry.pidfd < 0:
        return True
    pidfd = os.dup(entry.pidfd)
    try:
        with trio.move_on_after(bounds.now.killed_seconds):
            await trio.lowlevel.wait_readable(pidfd)
            return True
        return not entry.running
    finally:
        os.close(pidfd)


def _signal_first_process(entry: ContainerEntry, name: str) -> str:
    """Returns why it failed."""
    if not entry.running:
        return ""
    if entry.pidfd < 0:
        return "no process of it is known here"
    try:
        signal.pidfd_send_signal(entry.pidfd, signal_number(name))
    except ProcessLookupError:
        return ""
    except (OSError, ValueError) as error:
        return str(error)
    return ""


EXEC_TOO_LOUD = (
    f"it ran; its output is over {size_text(cri_client.EXEC_BYTES_MAX)}, so its exit code is not known"
)
WHETHER_IT_RAN = "whether it ran, and how it ended, is not known"
LOOPBACK = "127.0.0.1"
#: No host has these (RFC 5737, RFC 3849): the default route leads there. No packet is sent.
ROUTED_ADDRESSES = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
ANY_PORT = 9


def node_address() -> str:
    """As in the kubelet: the address of the interface with the default route."""
    for family, elsewhere in ROUTED_ADDRESSES:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, ANY_PORT))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return LOOPBACK


#: Between two questions for a missing state: they may cost the runtime all its time.
BROKEN_AGAIN_SECONDS = 10.0
#: containerd's and CRI-O's, for an image that names none.
DEFAULT_STOP_SIGNAL = "SIGTERM"
OnContainer = Callable[[ContainerEntry], None]


class _ImageConfig(msgspec.Struct, frozen=True):
    stop_signal: str = msgspec.field(default="", name="StopSignal")


class _ImageSpec(msgspec.Struct, frozen=True):
    config: _ImageConfig = _ImageConfig()


class _VerboseImage(msgspec.Struct, frozen=True):
    spec: _ImageSpec = msgspec.field(name="imageSpec")


class Listing:
    """Compares the table with the runtime's lists, and asks for new states.

    It asks for all states side by side: a hung or dead shim delays no other container. A container without a
    state in time is taken as it is listed, or left out if the runtime refuses the state and no process is
    found here. Only a silent runtime fails the whole look. ``on_gone`` gets a container that left the list
    without an end.
    """

    def __init__(
        self,
        client: cri_client.CriClient,
        table: PodTable,
        on_new: OnContainer,
        on_gone: OnContainer,
        tell: Tell = lambda level, line: None,
    ) -> None:
        self._client = client
        self._table = table
        self._on_new = on_new
        self._on_gone = on_gone
        self._tell = tell
        #: Sandboxes and containers with a known state.
        self._told: set[str] = set()
        #: By id, the time of the next question for a missing state.
        self._broken: dict[str, float] = {}

    async def refresh(self) -> None:
        """Raises CallFailed; the table keeps what was learned until then."""
        ready = api.PodSandboxFilter(state=api.PodSandboxStateValue(state=api.SANDBOX_READY))
        running = api.ContainerFilter(state=api.ContainerStateValue(state=api.CONTAINER_RUNNING))
        # Taken before the lists: a container found during them is in none and has not ended.
        followed = filter(None, self._table.followed.values())
        before = list(dict.fromkeys([*self._table.entries(), *followed]))
        seconds = bounds.now.runtime_look_seconds
        sandboxes = await self._client.repeat(api.ListPodSandboxRequest(filter=ready), seconds)
        containers = await self._client.repeat(api.ListContainersRequest(filter=running), seconds)
        # By age, as in an inventory.
        for item in sorted(sandboxes.items, key=lambda each: each.created_at):
            if item.id not in self._table.pods and POD_UID_LABEL in item.labels:
                labels, notes = item.labels, item.annotations
                self._table.pods[item.id] = PodEntry(
                    labels[POD_UID_LABEL],
                    labels[POD_NAMESPACE_LABEL],
                    labels[POD_NAME_LABEL],
                    item.id,
                    priority=parse_number(notes.get(PRIORITY_ANNOTATION, "")),
                    sidecars=sidecars_of(notes),
                    static=is_static(notes),
                )
        ready_ids = {item.id for item in sandboxes.items}
        running_ids = self._table.listed = frozenset(item.id for item in containers.containers)
        self._told &= ready_ids | running_ids
        self._broken = {key: at for key, at in self._broken.items() if key in ready_ids | running_ids}
        # By age: a restarted container replaces the one before.
        listed = sorted(containers.containers, key=lambda each: each.created_at)
        lost = await self._learn(ready_ids, {item.id: item for item in listed})
        for entry in before:
            if entry.running and entry.pidfd < 0 and entry.id not in running_ids:
                self._on_gone(entry)
        for key in [key for key, pod in self._table.pods.items() if key not in ready_ids and not pod.running]:
            del self._table.pods[key]
        if lost is not None:
            raise lost

    async def _learn(
        self, ready: Collection[str], listed: Mapping[str, api.Container]
    ) -> cri_client.Lost | None:
        """Ask for new states. Returns the runtime's own failure."""
        found, failed = await self._ask(
            {
                key: api.ContainerStatusRequest(container_id=key)
                for key, item in listed.items()
                if item.pod_sandbox_id in self._table.pods
            }
            | {
                key: api.PodSandboxStatusRequest(pod_sandbox_id=key)
                for key in self._table.pods
                if key in ready
            }
        )
        silence: cri_client.Lost | None = None
        if any(isinstance(error, cri_client.Lost) for error in failed.values()):
            try:
                await cri_client.ask_version(self._client, bounds.now.runtime_state_seconds)
            except cri_client.Lost as error:
                failed, silence = {}, error
        states = {
            key: found[key].status
            for key in listed
            if key in found and found[key].status.state == api.CONTAINER_RUNNING
        }
        signals, unsigned = await self._signals_of(states, silence)
        new = [key for key in listed if key in states or key in failed]
        processes = await trio.to_thread.run_sync(first_processes, new) if new else {}
        entries = {entry.id: entry for entry in self._table.entries()}
        for key in new:
            self._take(
                listed[key], entries.get(key), processes.get(key), signals.get(key, ""), failed.get(key)
            )
        places = [key for key in self._table.pods if key in found]
        for key in places:
            pod, place = self._table.pods[key], found[key].status
            pod.pod_ip = place.network.ip
            pod.host_network = place.linux.namespaces.options.network == api.NODE
        self._told |= {*states, *places} - unsigned.keys()
        self._broken = {key: at for key, at in self._broken.items() if key not in self._told}
        for key, failure in (failed | unsigned if silence is None else failed).items():
            self._note(key, failure, listed.get(key))
        return silence

    async def _ask(
        self, questions: Mapping[str, Message], *, again: bool = False
    ) -> tuple[dict[str, Any], dict[str, cri_client.CallFailed]]:
        """Answers and failures by key; a vanished container has none. ``again``: a question was lost."""
        found: dict[str, Any] = {}
        failed: dict[str, cri_client.CallFailed] = {}
        bound = bounds.now

        async def ask(key: str, request: Message) -> None:
            hurried = again or key in self._broken
            seconds = bound.runtime_state_seconds if hurried else bound.runtime_look_seconds
            try:
                found[key] = await self._client.repeat(request, seconds)
            except cri_client.NotFound:
                pass
            except cri_client.CallFailed as error:
                failed[key] = error

        async with trio.open_nursery() as nursery:
            for key, request in questions.items():
                if key not in self._told and trio.current_time() >= self._broken.get(key, -math.inf):
                    nursery.start_soon(ask, key, request)
        return found, failed

    async def _signals_of(
        self, states: Mapping[str, api.ContainerStatus], silence: cri_client.Lost | None
    ) -> tuple[dict[str, str], dict[str, cri_client.CallFailed]]:
        """Stop signals by container, and why an image gave no answer. ``silence``: ask for no image."""
        signals = {key: signal_of_status(state.stop_signal) for key, state in states.items()}
        images = {
            key: state.image_ref for key, state in states.items() if state.image_ref and not signals[key]
        }
        if silence is not None:
            return signals, dict.fromkeys(images, silence)
        requests = {
            each: api.ImageStatusRequest(image=api.ImageSpec(image=each), verbose=True)
            for each in sorted({*images.values()})
        }
        found, failed = await self._ask(requests, again=not self._broken.keys().isdisjoint(images))
        signals |= {
            key: signal_of_image(found[image].info.get("info", ""))
            for key, image in images.items()
            if image in found
        }
        lost = {image: error for image, error in failed.items() if isinstance(error, cri_client.Lost)}
        return signals, {key: lost[image] for key, image in images.items() if image in lost}

    def _take(
        self,
        item: api.Container,
        known: ContainerEntry | None,
        process: tuple[int, int] | None,
        stop_signal: str,
        error: cri_client.CallFailed | None,
    ) -> None:
        """``error``: why it has no state."""
        pod = self._table.pods.get(item.pod_sandbox_id)
        if pod is None or (known is not None and not known.running):
            return
        entry = known or ContainerEntry(
            pod,
            item.id,
            pod_spec.ContainerSpec(
                name=item.labels.get(CONTAINER_NAME_LABEL, item.metadata.name),
                argv=(),
                pre_stop=pre_stop_of(item.annotations),
                ports=ports_of(item.annotations),
            ),
        )
        if stop_signal:
            entry.spec = replace(entry.spec, stop_signal=stop_signal)
        opened = entry.pidfd < 0 and process is not None and open_first_process(entry, *process)
        if entry.pidfd < 0 and isinstance(error, cri_client.RuntimeRefused):
            return
        pod.grace_seconds = grace_seconds_of(item.annotations)
        if known is None:
            self._table.put(entry)
        if known is None or opened:
            self._on_new(entry)

    def _note(self, key: str, error: cri_client.CallFailed, item: api.Container | None) -> None:
        before, self._broken[key] = self._broken.get(key), trio.current_time() + BROKEN_AGAIN_SECONDS
        pod = self._table.pods.get(key if item is None else item.pod_sandbox_id)
        if pod is None or before is not None:
            return
        what = f"no address is known of the pod {pod.namespace}/{pod.name}"
        if item is not None:
            taken = any(entry.id == key for entry in self._table.entries())
            how = "taken as it is listed" if taken else "left out"
            what = f"a container of {pod.namespace}/{pod.name} is {how}"
        self._tell(WARNING, f"container runtime: {what}: {error}")


def signal_of_status(number: int) -> str:
    """Empty: not specified."""
    if not number or number not in api.Signal.values():
        return ""
    return api.Signal.Name(number).replace("PLUS", "+").replace("MINUS", "-")


def signal_of_image(info: str) -> str:
    """From the verbose status of an image, as containerd and CRI-O write it."""
    try:
        found = msgspec.json.decode(info, type=_VerboseImage).spec.config.stop_signal or DEFAULT_STOP_SIGNAL
        return signal_name(signal_number(found))
    except (ValueError, RecursionError):  # no JSON, nested deeper than a stack, no signal of this machine
        return ""


def pods_of_cgroups(entries: Iterable[ContainerEntry], cgroups: str) -> frozenset[str]:
    """UIDs of the pods to which these cgroups belong."""
    ids = proc.container_ids(cgroups)
    return frozenset(entry.pod.uid for entry in entries if entry.id in ids)


#: One question costs the runtime a millisecond.
NOTICE_AGAIN_SECONDS = 0.02
#: Look more often after an end: the kubelet may start the container again.
RESTART_SECONDS = 5.0


class ContainerEnds:
    """Sees an end at once through the first process; the lists find other ends.

    The exit code comes from the kernel (Linux 6.15, once the shim has waited), else from the runtime. The
    wait is short: the next wave's time is worth more than an exit code.
    """

    def __init__(
        self,
        client: cri_client.CriClient,
        table: PodTable,
        start: Callable[..., None],
        outlet: Outlet,
        lookup: PodStore | None = None,
    ) -> None:
        self._client = client
        self._table = table
        self._start = start
        self._outlet = outlet
        self._lookup = lookup
        self._quiet_at = 0.0
        #: The inventory of the daemon before, without ends so far.
        self.owed: list[InventoryContainer] = []
        self._turn = trio.Lock()

    @property
    def fresh(self) -> bool:
        return trio.current_time() < self._quiet_at

    def follow(self, entry: ContainerEntry) -> None:
        if entry.pidfd >= 0:
            self._start(self._watch, entry)

    def miss(self, entry: ContainerEntry) -> None:
        """A container without a descriptor left the list."""
        self._start(self._ask_end, entry)

    async def catch_up(self) -> None:
        """Report ends since the daemon before."""
        async with self._turn:
            self.owed = [each for each in self.owed if self._table.followed.get(each.id) is None]
            listed = self._table.listed or ()
            async with trio.open_nursery() as nursery:
                for each in self.owed:
                    if each.id not in listed:
                        nursery.start_soon(self._report_over, each)

    async def _report_over(self, given: InventoryContainer) -> None:
        # The list shows that it does not run.
        end: ExitStatus | None = ExitStatus()
        with suppress(cri_client.CallFailed):
            end = await exit_of_container(self._client, given.id)
        if end is None:
            return  # The runtime has lost its shim.
        # A new shutdown may have its successor.
        if self._table.given.get((given.uid, given.container), given).id == given.id:
            if end.exit_code is None:
                end = ExitStatus(exit_code=await self.code_in_api(given.uid, given.container))
            await self._outlet.put(found_gone(given.uid, given.container, end))
        self.owed.remove(given)
        self._table.followed.pop(given.id, None)

    async def code_in_api(self, uid: str, container: str) -> int | None:
        """A kubelet removes a deleted pod's container and object soon after the end."""
        lookup, code = self._lookup, None
        if lookup is not None:
            with trio.move_on_after(bounds.now.exit_code_seconds):
                while (code := lookup.exit_code(uid, container)) is None:
                    if lookup.version and lookup.find(uid) is None:
                        break
                    await lookup.changed(lookup.version)
        return code

    async def _watch(self, entry: ContainerEntry) -> None:
        await trio.lowlevel.wait_readable(entry.pidfd)
        end, stood_still = ExitStatus(), True
        while stood_still:
            due = trio.current_time() + bounds.now.runtime_notice_seconds
            with trio.move_on_at(due) as looking:
                end = await self._exit_of(entry)
            # If the wait ends this late, the daemon stood still and could not look: look again.
            late = trio.current_time() - due
            stood_still = looking.cancelled_caught and late > bounds.now.runtime_notice_seconds
        await self._finish(entry, end)

    async def _ask_end(self, entry: ContainerEntry) -> None:
        """No end: the runtime has lost its shim. The next list asks again."""
        with suppress(cri_client.CallFailed):
            if (end := await self._end_of(entry)) is not None:
                await self._finish(entry, end)

    async def _end_of(self, entry: ContainerEntry) -> ExitStatus | None:
        """None: it has not ended. Raises CallFailed."""
        end = await exit_of_container(self._client, entry.id)
        if end == ExitStatus():  # removed
            end = ExitStatus(exit_code=await self.code_in_api(*entry.key))
        return end

    async def _finish(self, entry: ContainerEntry, end: ExitStatus) -> None:
        if not entry.running:
            return
        entry.finish(end)
        self._quiet_at = trio.current_time() + RESTART_SECONDS
        if entry.id in self._table.followed:
            await self._outlet.put(entry.exited())

    async def _exit_of(self, entry: ContainerEntry) -> ExitStatus:
        while True:
            if entry.pidfd >= 0 and (end := await reap_soon(entry.pidfd)) != ExitStatus():
                return end
            with suppress(cri_client.CallFailed):
                if (found := await self._end_of(entry)) is not None:
                    return found
            await trio.sleep(NOTICE_AGAIN_SECONDS)
