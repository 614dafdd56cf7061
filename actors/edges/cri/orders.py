"""Orders on containers: stop signal, SIGKILL, preStop hook and autopsy.

An order means the container of its shutdown's inventory. If a kubelet has started another one under the same
name since, the order only reports that the first has ended.

A stop is a signal to the container's first process, so it needs no runtime. A container without a process
here gets it through the runtime, whose one call, ``StopContainer``, is signal, timeout and SIGKILL. The
timeout is later than the core's own SIGKILL, because the grace is the core's, which may shorten it.

Every order ends with the outcome of its call: done, failed, or no answer in time. A stop is sent again only
if the runtime did not begin it; a SIGKILL also if its answer is lost.

A hook runs at most once: exec through the runtime, httpGet to the pod's address. (``sleep`` is a deadline in
the core.)
"""

from __future__ import annotations

import os
import signal
import socket
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
from ebbtide.actors.edges.cri.cri_pods import (
    ContainerEntry,
    InventoryContainer,
    PodEntry,
    PodTable,
    first_processes,
    found_gone,
    open_first_process,
)
from ebbtide.actors.edges.linux.kill_tree import TreeRoot, examine_tree
from ebbtide.actors.edges.linux.proc import signal_number
from ebbtide.actors.edges.pod_spec import ContainerSpec, ExecAction, HttpGetAction, SleepAction
from ebbtide.actors.edges.process.hooks import TIMED_OUT
from ebbtide.actors.interfaces import Ending, Outlet, TraceContext
from ebbtide.events import bounds
from ebbtide.events.base import FLOOR_SECONDS, NS_PER_SECOND, Order
from ebbtide.events.decisions import KillContainer, RunHook, SendSignal, TakeAutopsy
from ebbtide.events.facts import AutopsyTaken
from ebbtide.events.units import bound_text, size_text

UNKNOWN_CONTAINER = "no such container is known here"
RUNTIME_AWAY = "the runtime does not answer"
NOWHERE = "no process of it is found here, and the runtime does not answer"
NOT_KNOWN = "the runtime reports no process of this container"


class ContainerOrders:
    """``warm`` is set once the table is filled. ``start`` runs a task that may outlive its order."""

    def __init__(
        self,
        client: CriClient,
        reach: RuntimeReach,
        table: PodTable,
        warm: trio.Event,
        start: Callable[..., None],
        context: TraceContext,
    ) -> None:
        self._client = client
        self._reach = reach
        self._table = table
        self._warm = warm
        self._start = start
        self._context = context

    async def carry_out(self, order: Order, outlet: Outlet) -> Ending:
        """Waits for the table, for a bounded time. If the kubelet has started the container again meanwhile,
        it has ended.
        """
        assert isinstance(order, SendSignal | KillContainer | TakeAutopsy | RunHook)
        key = order.uid, order.container
        meant = self._table.given.get(key)
        with trio.move_on_after(bounds.now.runtime_warm_seconds):
            await self._reach.known.wait()
            if not self._reach.away:
                await self._warm.wait()
        given = self._table.given.get(key)
        unknown = Ending("failed", UNKNOWN_CONTAINER if self._warm.is_set() else RUNTIME_AWAY)
        if meant is not None and given is not None and given.id != meant.id:
            return Ending() if isinstance(order, SendSignal | KillContainer) else unknown
        entry = self._table.find(*key)
        if isinstance(order, SendSignal | KillContainer):
            if entry is None or not entry.running:
                return await self._report_end(order, entry, outlet)
            entry.stopping = True
            if isinstance(order, KillContainer):
                return await self._kill(entry, self._context(order.key))
            return await self._signal(entry, order.signal, self._context(order.key))
        if entry is None or not entry.running:
            return unknown
        if isinstance(order, RunHook):
            return await self._run_hook(entry, order)
        processes = await examine_tree(TreeRoot(entry.pid, entry.start_ticks))
        await outlet.put(AutopsyTaken(uid=order.uid, container=order.container, processes=processes))
        return Ending()

    async def _report_end(
        self, order: SendSignal | KillContainer, entry: ContainerEntry | None, outlet: Outlet
    ) -> Ending:
        if entry is not None:
            await outlet.put(entry.exited())
            return Ending()
        # It ended while no daemon ran. The runtime may still know how. Without an answer, see the last list.
        given, listed = self._table.given.get((order.uid, order.container)), self._table.listed
        runs, code = None if listed is None else given is not None and given.id in listed, None
        if given is not None and not self._reach.away:
            with trio.move_on_after(bounds.now.exit_code_seconds), suppress(CallFailed):
                end = await exit_of_container(self._client, given.id)
                runs, code = end is None, None if end is None else end.exit_code
        if runs is not False:
            ending = None if given is None else await self._end_untabled(order, given)
            return ending or Ending("failed", NOT_KNOWN if runs else NOWHERE)
        await outlet.put(found_gone(order.uid, order.container, code))
        return Ending()

    async def _end_untabled(
        self, order: SendSignal | KillContainer, given: InventoryContainer
    ) -> Ending | None:
        """The runtime has not described it to this daemon, but its process may be found. None: no process."""
        signal_of_order = order.signal if isinstance(order, SendSignal) else "SIGKILL"
        spec = ContainerSpec(name=given.container, argv=(), stop_signal=signal_of_order)
        entry = ContainerEntry(PodEntry(given.uid, "", "", ""), given.id, spec)
        processes = await trio.to_thread.run_sync(first_processes, [given.id])
        if given.id not in processes or not open_first_process(entry, *processes[given.id]):
            return None
        try:
            if isinstance(order, KillContainer):
                return await self._kill(entry, self._context(order.key))
            return await self._signal(entry, order.signal, self._context(order.key))
        finally:
            entry.close()

    # --- stop signal and SIGKILL -----------------------------------------------------------------

    async def _signal(self, entry: ContainerEntry, name: str, traceparent: str) -> Ending:
        """``name``: the core's stop signal. The image's may have been read since."""
        wanted = entry.spec.stop_signal
        if entry.pidfd >= 0:
            if failure := _signal_first_process(entry, wanted):
                return Ending("failed", failure)
            return Ending(reason="" if wanted == name else f"{wanted} was sent, as its image asks")
        stopped = _Outcome()
        self._start(self._stop_by_runtime, entry, traceparent, stopped)
        # Only its own answer counts: a runtime that answers other calls may refuse or lose this one later.
        with trio.move_on_after(bounds.now.stop_heard_seconds):
            await stopped.known.wait()
            return stopped.ending
        return Ending(
            "timed-out", f"{NOT_CONFIRMED}: no answer in {bound_text(bounds.now.stop_heard_seconds)}"
        )

    async def _stop_by_runtime(self, entry: ContainerEntry, traceparent: str, stopped: _Outcome) -> None:
        """Cancelled only with the edge: then the container keeps its signal."""
        timeout = backstop_seconds(entry.pod.grace_seconds)
        request = api.StopContainerRequest(container_id=entry.id, timeout=timeout)
        seconds = timeout + bounds.now.runtime_past_seconds
        try:
            await self._client.call(request, seconds, traceparent=traceparent)
        except NotFound:
            pass  # It has ended.
        except Unsent as error:
            stopped.ending = Ending("failed", str(error))
        except Lost as error:
            # A second signal would tell many programs to stop at once.
            stopped.ending = Ending("timed-out", f"{NOT_CONFIRMED}: {error}")
        except CallFailed as error:
            stopped.ending = Ending("failed", str(error))
        stopped.known.set()

    async def _kill(self, entry: ContainerEntry, traceparent: str) -> Ending:
        """SIGKILL to the first process, which ends its whole process namespace. The runtime kills what has no
        process here, or does not end.
        """
        error = _signal_first_process(entry, "SIGKILL")
        if error == "" and await _has_ended(entry):
            return Ending()
        request = api.StopContainerRequest(container_id=entry.id, timeout=0)
        try:
            if self._reach.away:
                raise Unsent(ON_RECORD_AS_AWAY)
            await self._client.repeat(request, bounds.now.runtime_kill_seconds, traceparent=traceparent)
        except CallFailed as failure:
            if not entry.running or isinstance(failure, NotFound):
                return Ending()
            if error == "":
                return Ending(reason=f"its first process has not ended, and the runtime: {failure}")
            unanswered = isinstance(failure, Lost) and not isinstance(failure, Unsent)
            return Ending("timed-out" if unanswered else "failed", str(failure))
        return Ending()

    # --- hooks -----------------------------------------------------------------------------------

    async def _run_hook(self, entry: ContainerEntry, order: RunHook) -> Ending:
        """Raises nothing but cancellation."""
        action, traceparent = entry.spec.pre_stop, self._context(order.key)
        if action is None or isinstance(action, SleepAction):
            return Ending("failed", "no hook that has to be run")
        with trio.move_on_after(order.timeout_ns / NS_PER_SECOND):
            if isinstance(action, ExecAction):
                seconds = -(-order.timeout_ns // NS_PER_SECOND)
                request = api.ExecSyncRequest(container_id=entry.id, cmd=action.argv, timeout=seconds)
                if self._reach.away:
                    return Ending("failed", f"it was not begun: {ON_RECORD_AS_AWAY}")
                answered = await self._reach.while_it_answers(lambda: self._exec(request, traceparent))
                return answered or Ending("unknown", f"{WHETHER_IT_RAN}: {ON_RECORD_AS_AWAY}")
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

    async def _exec(self, request: api.ExecSyncRequest, traceparent: str) -> Ending:
        try:
            seconds = request.timeout + bounds.now.runtime_past_seconds
            found = await self._client.call(request, seconds, traceparent=traceparent)
        except Unsent as error:
            return Ending("failed", f"it was not begun: {error}")
        except Lost as error:
            return Ending("unknown", f"{WHETHER_IT_RAN}: {error}")
        except TooLarge:
            return Ending("unknown", EXEC_TOO_LOUD)
        except CallFailed as error:
            return Ending("failed", f"cannot run: {error}")
        code = found.exit_code
        return Ending("failed", f"exit code {code}", code) if code else Ending(exit_code=0)


class _Outcome:
    """Of a call that goes on."""

    def __init__(self) -> None:
        self.known = trio.Event()
        self.ending = Ending()


#: Later than any SIGKILL of the core.
BEHIND_SECONDS = 1
#: For a pod without a grace: its wave's grace is not known here.
NO_GRACE_SECONDS = 3600
NOT_CONFIRMED = "whether it was sent is not known: the runtime was given the stop"


def backstop_seconds(grace_seconds: int | None) -> int:
    """The timeout of a stop: the runtime's SIGKILL must not come before the core's."""
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


#: Neither a failure nor a success of the hook.
EXEC_TOO_LOUD = f"it ran; its output is over {size_text(EXEC_BYTES_MAX)}, so its exit code is not known"
WHETHER_IT_RAN = "whether it ran, and how it ended, is not known"
#: The address of a node without a route.
LOOPBACK = "127.0.0.1"
#: Addresses behind every default route that no host has (RFC 5737, RFC 3849). Nothing is sent there.
ROUTED_ADDRESSES = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
ANY_PORT = 9


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
