"""Orders on containers: stop signal, SIGKILL, preStop hook and autopsy.

An order means the container of its shutdown's inventory. If a kubelet has started another one under the same
name since, the order only reports that the first has ended.

The core knows signal, kill and observe. The runtime knows one call, ``StopContainer``: signal, wait for the
timeout, kill. So a stop signal is a ``StopContainer`` with a timeout that is always later than the core's own
SIGKILL. The order ends when the call has been sent; the call goes on. SIGKILL is a ``StopContainer`` with a
timeout of 0, which overtakes the first. The grace stays the core's, which may shorten it. (containerd's
``waitContainerStop`` ends with its caller, so after a restart of the daemon it would send no SIGKILL.)

A dead runtime must not cost a pod its stop signal: if it certainly did not receive the call (`Unsent`, or
never connected), the signal goes to the container's first process. A call that it may have received is not
repeated by either way.

A hook runs at most once: exec through the runtime, httpGet to the pod's address. A lost call is not repeated.
(``sleep`` is a deadline in the core.)
"""

from __future__ import annotations

import math
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import trio

from ebbtide.actors.edges import http_request as http
from ebbtide.actors.edges.cri import api_pb2 as api
from ebbtide.actors.edges.cri.cri_client import (
    EXEC_BYTES_MAX,
    ON_RECORD_AS_AWAY,
    CallFailed,
    CriClient,
    Lost,
    NotFound,
    RuntimeReach,
    TooLarge,
    Unsent,
    exit_of_container,
)
from ebbtide.actors.edges.cri.cri_pods import ContainerEntry, OperatorNotes, PodEntry, PodTable, found_gone
from ebbtide.actors.edges.cri.inventory import ContainerOrder, Inventory
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.kill_tree import ScannedProcess, TreeRoot, tree_members
from ebbtide.actors.edges.linux.proc import examine_processes, signal_number
from ebbtide.actors.edges.pod_spec import ExecAction, HttpGetAction, SleepAction
from ebbtide.actors.edges.process.hooks import TIMED_OUT
from ebbtide.actors.interfaces import Ending, Outlet, TraceContext
from ebbtide.events import bounds
from ebbtide.events.base import FLOOR_SECONDS, NS_PER_SECOND, Order
from ebbtide.events.decisions import KillContainer, RunHook, SendSignal
from ebbtide.events.facts import AutopsyTaken
from ebbtide.events.units import size_text
from ebbtide.events.values import ProcessReport

UNKNOWN_CONTAINER = "no such container is known here"
RUNTIME_AWAY = "the runtime does not answer"
NOWHERE = "no process of it is found here, and the runtime does not answer"
NOT_KNOWN = "the runtime reports no process of this container"


class ContainerOrders:
    """``warm`` is set once the table is filled."""

    def __init__(
        self,
        table: PodTable,
        warm: trio.Event,
        inventory: Inventory,
        hooks: ContainerHooks,
        stops: ContainerStops,
        sandboxes: SandboxCleanup,
        context: TraceContext,
        client: CriClient,
    ) -> None:
        self._client = client
        self._table = table
        self._warm = warm
        self._inventory = inventory
        self._hooks = hooks
        self._stops = stops
        self._sandboxes = sandboxes
        self._context = context

    async def carry_out(self, order: Order, outlet: Outlet) -> Ending:
        """Waits for the table, for a bounded time. If the kubelet has started the container again meanwhile,
        it has ended.
        """
        assert isinstance(order, ContainerOrder)
        key = order.uid, order.container
        meant = self._table.given.get(key)
        with trio.move_on_after(bounds.now.runtime_warm_seconds):
            await self._inventory.settled.wait()
            await self._warm.wait()
        given = self._table.given.get(key)
        if meant is not None and given is not None and given.id != meant.id:
            return Ending() if isinstance(order, (SendSignal, KillContainer)) else self._unknown()
        context = self._context(order.key)
        if isinstance(order, SendSignal | KillContainer):
            entry = await self._running(order, outlet)
            if isinstance(entry, Ending):
                return entry
            if isinstance(order, KillContainer):
                return await self._stops.kill(entry, context)
            return await self._stops.signal(entry, order.signal, context, outlet)
        found = self._table.find(*key)
        if isinstance(order, RunHook) and found is not None:
            return await self._hooks.run(found, order, context, outlet)
        if found is None or not found.running:
            return self._unknown()
        processes = await examine_container(found)
        await outlet.put(AutopsyTaken(uid=order.uid, container=order.container, processes=processes))
        return Ending()

    async def _running(self, order: SendSignal | KillContainer, outlet: Outlet) -> ContainerEntry | Ending:
        """The container to stop, or the outcome: it has ended, and its end is reported."""
        # Only the API server may have shown it. By now the runtime may have it.
        told = await self._inventory.catch_up(order.uid, order.container, outlet)
        entry = self._table.find(order.uid, order.container)
        if entry is not None and entry.running:
            self._table.stop(entry)
            self._sandboxes.stir(entry.pod)
            return entry
        if entry is None and not (self._warm.is_set() and told):
            return Ending("failed", NOWHERE)
        if entry is not None:
            self._inventory.expected.drop(order.uid, order.container)
            await outlet.put(entry.exited())
            return Ending()
        # It ended while no daemon ran. The runtime may still know how.
        key = order.uid, order.container
        given, listed = self._table.given.get(key), self._table.listed
        container_id = self._inventory.expected.id_of(*key) if given is None else given.id
        # Without an answer the last list counts.
        runs, code = None if listed is None else container_id in listed, None
        if container_id:
            with trio.move_on_after(bounds.now.exit_code_seconds), suppress(CallFailed):
                end = await exit_of_container(self._client, container_id)
                runs, code = end is None, None if end is None else end.exit_code
        if runs is not False:
            return Ending("failed", NOT_KNOWN if runs else NOWHERE)
        self._inventory.expected.drop(*key)
        await outlet.put(found_gone(*key, code))
        return Ending()

    def _unknown(self) -> Ending:
        return Ending("failed", UNKNOWN_CONTAINER if self._warm.is_set() else RUNTIME_AWAY)


#: Later than any SIGKILL of the core.
BEHIND_SECONDS = 1
#: For a pod without a grace: its wave's grace is not known here.
NO_GRACE_SECONDS = 3600
#: A runtime sends the signal within milliseconds.
SENT_SECONDS = 0.1
NOT_HEARD = "whether it was sent is not known: the runtime was given the stop"
#: A restarted runtime is back within some hundred milliseconds, and each costs the pod's grace.
STOP_AGAIN_SECONDS = 0.05


def backstop_seconds(grace_seconds: int | None) -> int:
    """The timeout of a stop: the runtime's SIGKILL must not come before the core's."""
    grace = NO_GRACE_SECONDS if grace_seconds is None else grace_seconds
    return max(grace, FLOOR_SECONDS) + BEHIND_SECONDS


class ContainerStops:
    """``start`` runs a task that may outlive its order."""

    def __init__(
        self, client: CriClient, reach: RuntimeReach, start: Callable[..., None], notes: OperatorNotes
    ) -> None:
        self._client = client
        self._reach = reach
        self._start = start
        self._notes = notes

    async def signal(self, entry: ContainerEntry, name: str, traceparent: str, outlet: Outlet) -> Ending:
        """Ends when the signal is sent, or ``timed-out`` when that is unknown. ``name``: the signal where
        only the runtime knows the image's.
        """
        if entry.pidfd >= 0:
            if entry.stop_signal:
                sent = _signal_first_process(entry, entry.stop_signal)
                if sent == "":
                    of_image = f"{entry.stop_signal} was sent, as its image asks"
                    return Ending(reason="" if entry.stop_signal == name else of_image)
            else:
                try:
                    await self._reach.confirm(outlet, bounds.now.stop_direct_seconds)
                except Lost as error:
                    # The runtime has no call, so it sends nothing.
                    if not (sent := _signal_first_process(entry, name)):
                        self._notes.direct()
                        return Ending(reason=f"{name} was sent to the first process: {error}")
        progress = _StopProgress()
        self._start(self._stop, entry, traceparent, progress, outlet)
        await progress.sent.wait()
        return progress.ending

    async def _stop(
        self, entry: ContainerEntry, traceparent: str, progress: _StopProgress, outlet: Outlet
    ) -> None:
        """Through the runtime. Cancelled only with the edge: then the container keeps its signal."""
        timeout = backstop_seconds(entry.pod.grace_seconds)
        deadline = trio.current_time() + timeout
        try:
            while entry.running:
                await self._client.ready(max(0.0, deadline - trio.current_time()))
                try:
                    await self._stop_once(entry, timeout, traceparent, progress, outlet)
                    break
                except Unsent:
                    if trio.current_time() > deadline:
                        raise
                await trio.sleep(STOP_AGAIN_SECONDS)
        except Lost as error:
            progress.end(Ending("failed", str(error)))
        progress.end(Ending())

    async def _stop_once(
        self,
        entry: ContainerEntry,
        timeout: int,
        traceparent: str,
        progress: _StopProgress,
        outlet: Outlet,
    ) -> None:
        """One call. Raises Unsent if the runtime certainly did not receive it."""

        async def tell_soon() -> None:
            await trio.sleep(SENT_SECONDS)
            # On the same connection behind the call: an answer proves that the runtime read the call.
            try:
                await self._reach.confirm(outlet, bounds.now.stop_heard_seconds)
            except Lost as error:
                progress.end(Ending("timed-out", f"{NOT_HEARD}: {error}"))
            else:
                progress.end(Ending())

        request = api.StopContainerRequest(container_id=entry.id, timeout=timeout)
        failure: CallFailed | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell_soon)
            try:
                await self._client.call(
                    request,
                    timeout + bounds.now.runtime_past_seconds,
                    wait=False,
                    traceparent=traceparent,
                )
            except CallFailed as error:
                failure = error
            nursery.cancel_scope.cancel()
        if isinstance(failure, Unsent):
            raise failure
        if isinstance(failure, Lost):
            # A second signal would tell many programs to stop at once.
            progress.end(Ending("timed-out", f"{NOT_HEARD}, and is not given it again: {failure}"))
        elif failure is not None and not isinstance(failure, NotFound):
            progress.end(Ending("failed", str(failure)))

    async def kill(self, entry: ContainerEntry, traceparent: str) -> Ending:
        """SIGKILL to the first process, which ends its whole process namespace. The runtime kills what has no
        process here, or does not end.
        """
        error = _signal_first_process(entry, "SIGKILL")
        if error == "" and await _has_ended(entry):
            return Ending()
        request = api.StopContainerRequest(container_id=entry.id, timeout=0)
        try:
            if self._reach.away:
                raise Lost(ON_RECORD_AS_AWAY)
            seconds = bounds.now.runtime_kill_seconds
            await self._client.repeat(request, seconds, traceparent=traceparent)
        except NotFound:
            return Ending()
        except CallFailed as failure:
            if not entry.running:
                return Ending()
            if error == "":
                return Ending(reason=f"its first process has not ended, and the runtime: {failure}")
            return Ending("failed", str(failure))
        return Ending()


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
    """Through the descriptor, so never to another process of the same number. Empty: sent, or not needed;
    else why not.
    """
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


class _StopProgress:
    def __init__(self) -> None:
        self.sent = trio.Event()
        self.ending = Ending()

    def end(self, ending: Ending) -> None:
        """The first ending counts: an order has one outcome."""
        if not self.sent.is_set():
            self.ending = ending
        self.sent.set()


#: As `STOP_AGAIN_SECONDS`, for a hook.
EXEC_AGAIN_SECONDS = 0.05
#: Neither a failure nor a success of the hook.
EXEC_TOO_LOUD = f"it ran; its output is over {size_text(EXEC_BYTES_MAX)}, so its exit code is not known"
#: Between two looks for a hook's process while the runtime is away.
PROCESS_POLL_SECONDS = 0.1
HOOK_NOT_KNOWN = "only the runtime knows the hook, and it has not answered since the daemon's start"
#: The address of a node without a route.
LOOPBACK = "127.0.0.1"
#: Addresses behind every default route that no host has (RFC 5737, RFC 3849). Nothing is sent there.
ROUTED_ADDRESSES = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
ANY_PORT = 9


class ContainerHooks:
    def __init__(self, client: CriClient, reach: RuntimeReach) -> None:
        self._client = client
        self._reach = reach

    async def run(self, entry: ContainerEntry, order: RunHook, traceparent: str, outlet: Outlet) -> Ending:
        """Raises nothing but cancellation."""
        if entry.kept_hook is not None:
            return Ending("failed", f"it was not begun: {HOOK_NOT_KNOWN}")
        action = entry.spec.pre_stop
        if action is None or isinstance(action, SleepAction):
            return Ending("failed", "no hook that has to be run")
        if not entry.running:
            return Ending("failed", "the container does not run")
        with trio.move_on_after(order.timeout_ns / NS_PER_SECOND):
            if isinstance(action, ExecAction):
                seconds = -(-order.timeout_ns // NS_PER_SECOND)
                request = api.ExecSyncRequest(container_id=entry.id, cmd=action.argv, timeout=seconds)
                return await self._exec(entry, request, seconds, traceparent, outlet)
            if isinstance(action, HttpGetAction):
                # A broken sandbox has no address: a pod's request must not go to another pod of this node.
                address = entry.pod.pod_ip or (node_address() if entry.pod.host_network else "")
                if not (action.host or address):
                    return Ending("failed", "its address is not known")
                try:
                    await http.request_of(action, entry.spec, address, traceparent).send()
                except http.RequestFailed as error:
                    return Ending("failed", str(error))
                return Ending()
            return Ending("failed", "invalid handler")
        return TIMED_OUT

    async def _exec(
        self,
        entry: ContainerEntry,
        request: api.ExecSyncRequest,
        seconds: int,
        traceparent: str,
        outlet: Outlet,
    ) -> Ending:
        """Sent to a runtime that has just answered, and again only if it certainly did not receive the call.

        If the runtime goes away during the hook, the hook's process is followed here.
        """
        while True:
            try:
                # gRPC must not wait for a connection: a call that breaks then may have been sent.
                await self._reach.confirm(outlet)
                return await self._exec_followed(entry, request, seconds, traceparent)
            except Lost as error:
                if self._reach.away:
                    return Ending("failed", f"it was not begun: {error}")
            await trio.sleep(EXEC_AGAIN_SECONDS)

    async def _exec_followed(
        self, entry: ContainerEntry, request: api.ExecSyncRequest, seconds: int, traceparent: str
    ) -> Ending:
        """Raises Unsent."""
        ending = Ending("unknown", "the runtime does not answer: whether it ran, and how it ended")
        unsent: Unsent | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._give_up_once_away, entry, nursery.cancel_scope)
            try:
                found = await self._client.call(
                    request,
                    seconds + bounds.now.runtime_past_seconds,
                    wait=False,
                    traceparent=traceparent,
                )
            except Unsent as error:
                unsent = error
            except Lost as error:
                ending = Ending("unknown", f"the runtime went away in the middle: {error}")
            except TooLarge:
                ending = Ending("unknown", EXEC_TOO_LOUD)
            except CallFailed as error:
                ending = Ending("failed", f"cannot run: {error}")
            else:
                failed, code = bool(found.exit_code), found.exit_code
                ending = Ending("failed", f"exit code {code}", code) if failed else Ending(exit_code=0)
            nursery.cancel_scope.cancel()
        if unsent is not None:
            raise unsent
        return ending

    async def _give_up_once_away(self, entry: ContainerEntry, scope: trio.CancelScope) -> None:
        """Not while the container has a process that its first process did not start: that is the hook."""
        while True:
            await self._reach.gone()
            if not entry.running or not await trio.to_thread.run_sync(joined_processes, entry):
                break
            await trio.sleep(PROCESS_POLL_SECONDS)
        scope.cancel()


def joined_processes(entry: ContainerEntry) -> tuple[int, ...]:
    """Processes put into a container from outside, such as an exec's, found by the cgroup."""
    if not entry.pid:
        return ()
    members = {pid for pid in proc.all_pids() if entry.id in proc.container_ids(proc.cgroups_of(pid))}
    stats = (proc.read_stat(pid) for pid in members)
    return tuple(
        stat.pid
        for stat in stats
        if stat is not None
        and stat.pid != entry.pid
        and stat.parent_pid not in members
        and stat.state not in "ZX"
    )


def node_address() -> str:
    """The runtime has no address for a pod in the node's network. The kubelet takes the address of the
    interface with the default route. Only the kernel is asked.
    """
    for family, elsewhere in ROUTED_ADDRESSES:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, ANY_PORT))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return LOOPBACK


async def examine_container(entry: ContainerEntry) -> tuple[ProcessReport, ...]:
    """Empty where the runtime shows no process on this machine."""
    if not entry.pid:
        return ()
    deadline_ns = time.monotonic_ns() + round(bounds.now.autopsy_seconds * NS_PER_SECOND)
    root = TreeRoot(entry.pid, entry.start_ticks)

    def examine() -> tuple[ProcessReport, ...]:
        """Never waits for a process that hangs, since it reads no environment."""
        stats = (proc.read_stat(each) for each in proc.all_pids())
        look = [ScannedProcess(stat, None) for stat in stats if stat is not None]
        return examine_processes([item.stat for item in tree_members(look, {("", ""): root})], deadline_ns)

    return await trio.to_thread.run_sync(examine)


# Sandboxes and networks are cleaned up in lulls: a wave ends with its pods' processes, and beside a burst of
# stops the cleaning doubles the wave's time (105 pods, 2 cores: 5.8 s instead of 2.9 s). ``StopPodSandbox``
# kills what still runs and removes the network. So it comes after all containers of the pod have ended, and
# never where a kubelet has started one again. Pods in the node's network provide the network and come last.
# No task waits for this: the next boot has no sandbox in any case.


CLEANUP_WORKERS = 2
#: Stops of one burst, or of two waves in a row, are closer together.
LULL_SECONDS = 0.5
#: A kubelet first creates a container and then starts it.
COMING_OR_RUNNING = (api.CONTAINER_CREATED, api.CONTAINER_RUNNING)


class SandboxCleanup:
    """``failed`` counts sandboxes that could not be stopped. ``starts``: does a kubelet start pods here? It
    uses their sandboxes again, or removes them.
    """

    def __init__(
        self, client: CriClient, table: PodTable, starts: Callable[[], bool] = lambda: False
    ) -> None:
        self._client = client
        self._table = table
        self._starts = starts
        self._own: deque[PodEntry] = deque()
        self._shared: deque[PodEntry] = deque()
        self._busy: list[PodEntry] = []
        #: The sandboxes of the table that were taken.
        self._seen: set[str] = set()
        self._more = trio.Event()
        self._stirred = -math.inf
        self.failed = 0

    def stir(self, pod: PodEntry | None = None) -> None:
        """A stop of a container of ``pod`` was ordered, or a container has ended."""
        self._stirred = trio.current_time()
        if pod is not None:
            # After a cancel its sandbox was used again.
            self._seen.discard(pod.sandbox)

    def look(self, pod: PodEntry) -> None:
        """A container of this pod has ended. Only a pod that was told to stop is cleaned up."""
        if any(entry.stopping for entry in pod.containers.values()):
            self.add(pod)

    def add(self, pod: PodEntry) -> None:
        if pod.running or pod.sandbox in self._seen:
            return
        # Once in a shutdown, also after a failure.
        self._seen &= self._table.pods.keys()
        self._seen.add(pod.sandbox)
        (self._shared if pod.host_network else self._own).append(pod)
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = trio.Event()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(CLEANUP_WORKERS):
                nursery.start_soon(self._work)

    async def _work(self) -> None:
        while True:
            await trio.sleep_until(self._stirred + LULL_SECONDS)
            if trio.current_time() < self._stirred + LULL_SECONDS:
                continue
            # Some of these pods provide the others' networks.
            busy = any(not pod.host_network for pod in (*self._table.active(), *self._busy))
            if not self._own and (busy or not self._shared):
                await self._more.wait()
                continue
            pod = (self._own or self._shared).popleft()
            if self._starts():
                self._seen.discard(pod.sandbox)
                continue
            self._busy.append(pod)
            await self._stop(pod)
            self._busy.remove(pod)
            self._wake()

    async def rest(self) -> None:
        """Return once no sandbox is being stopped. Before it is called, ``starts`` must be true."""
        while self._busy:
            await self._more.wait()

    async def _stop(self, pod: PodEntry) -> None:
        """Not if a kubelet has created a container in it again: the table may be half a second old."""
        listing = api.ListContainersRequest(filter=api.ContainerFilter(pod_sandbox_id=pod.sandbox))
        request = api.StopPodSandboxRequest(pod_sandbox_id=pod.sandbox)
        try:
            found = await self._client.repeat(listing, bounds.now.runtime_look_seconds)
            made_anew = any(each.state in COMING_OR_RUNNING for each in found.containers)
            if not made_anew and not self._starts():
                await self._client.repeat(request, bounds.now.sandbox_seconds)
        except CallFailed:
            self.failed += 1
