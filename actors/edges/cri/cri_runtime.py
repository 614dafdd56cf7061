"""The awake CRI edge: the connection, the warm table, the ends of containers, and the orders.

`cri_edge` imports it when the node is armed.

`Listing` compares the table with the runtime's lists, and asks for the state and the address of a new
container. `ContainerEnds` sees a container's end through a descriptor of its first process, at once and
without the runtime. The lists find new containers, and ends where this machine shows no process.
"""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import trio
from google.protobuf.message import Message
from msgspec.structs import replace

from ebbtide.actors.edges.cri import api_pb2 as api
from ebbtide.actors.edges.cri.cri_client import (
    CallFailed,
    CriClient,
    Lost,
    NotFound,
    RuntimeReach,
    RuntimeRefused,
    ask_version,
    exit_of_container,
)
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
    first_processes,
    found_gone,
    grace_seconds_of,
    is_static,
    open_first_process,
    parse_number,
    ports_of,
    pre_stop_of,
    sidecars_of,
)
from ebbtide.actors.edges.cri.inventory import Inventory
from ebbtide.actors.edges.cri.orders import ContainerOrders
from ebbtide.actors.edges.kubernetes.known_pods import PodStore
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.exits import ExitStatus, reap_soon
from ebbtide.actors.edges.linux.proc import signal_name, signal_number
from ebbtide.actors.edges.pod_spec import ContainerSpec
from ebbtide.actors.interfaces import WARNING, Ending, Outlet, Tell, TraceContext
from ebbtide.events import bounds
from ebbtide.events.base import Order
from ebbtide.events.decisions import TakeInventory
from ebbtide.events.values import Pod

#: Between two looks, idle and in a shutdown: the age of an inventory. Ends are always fresh.
IDLE_SECONDS = 5.0
BUSY_SECONDS = 0.5
#: Pods that one line for the operator names.
NAMED_PODS_MAX = 5


class Runtime:
    """Lives as long as `run`."""

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
        self._client = CriClient(endpoint)
        self._reach = RuntimeReach(self._client, outlet, tell)
        self._warm = trio.Event()
        self._stirred, self._stirring = trio.open_memory_channel[None](1)
        self._looking = trio.Lock()
        self._ends = ContainerEnds(self._client, self.table, self._start, outlet, lookup)
        self._listing = Listing(self._client, self.table, self._ends.follow, self._ends.miss, tell)
        self._inventory = Inventory(
            self.table, file, lookup, self._reach, self._warm, self._look_anew, starts
        )
        self._orders = ContainerOrders(
            self._client, self._reach, self.table, self._warm, self._start, context
        )

    # --- life ------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Until cancelled. Cancelling ends no container."""
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
        """Is a container being stopped, or may a new one come soon?"""
        stopping = any(entry.stopping and entry.running for entry in self.table.entries())
        return stopping or self._inventory.late.open or self._ends.fresh

    async def _note_priorities(self) -> None:
        """CRI has no priorities: users of waves have to know which pods have none."""
        if self._lookup is not None:
            await trio.sleep(bounds.now.priorities_seconds)
        pods = self._inventory.views()
        unknown = [pod.label for pod in pods if pod.priority is None]
        if unknown:
            more = f" and {len(unknown) - NAMED_PODS_MAX} more" if len(unknown) > NAMED_PODS_MAX else ""
            why = f"no known priority (nor an annotation {PRIORITY_ANNOTATION}) and count as priority 0"
            named = f"{', '.join(unknown[:NAMED_PODS_MAX])}{more}"
            self._tell(WARNING, f"{len(unknown)} of {len(pods)} pods have {why}: {named}")

    async def _look_anew(self) -> bool:
        """Also reports what ended since the daemon before: without it a restart by the kubelet cannot be
        seen.
        """
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
                except CallFailed as error:
                    failure = error
                nursery.cancel_scope.cancel()
            if failure is None:
                await self._reach.answers()
                return
            await self._reach.fails(failure, since)
            await trio.sleep(BUSY_SECONDS)

    # --- what is asked of it ---------------------------------------------------------------------

    def active(self) -> list[Pod]:
        return self._inventory.views()

    async def carry_out(self, order: Order, outlet: Outlet) -> Ending:
        if not isinstance(order, TakeInventory):
            return await self._orders.carry_out(order, outlet)
        ending = await self._inventory.take(order, outlet)
        if self._busy:
            self._wake()
        return ending

    def _wake(self) -> None:
        with suppress(trio.WouldBlock):  # It was told already.
            self._stirred.send_nowait(None)


# A sandbox or container without a state (its shim hangs or is dead) delays no other: all states are asked for
# side by side. A container that is listed without a state in time is taken as it is listed. One whose state
# the runtime refuses, without a process here, is left out. Both are asked for again later. Only a silent
# runtime fails the whole look.


#: Before the next question for a missing state: it may cost the runtime all its time.
BROKEN_AGAIN_SECONDS = 10.0
#: The stop signal of an image that names none, with containerd and CRI-O.
DEFAULT_STOP_SIGNAL = "SIGTERM"
#: Takes a new container, or one that left the list without an end.
OnContainer = Callable[[ContainerEntry], None]


class _ImageConfig(msgspec.Struct, frozen=True):
    stop_signal: str = msgspec.field(default="", name="StopSignal")


class _ImageSpec(msgspec.Struct, frozen=True):
    config: _ImageConfig = _ImageConfig()


class _VerboseImage(msgspec.Struct, frozen=True):
    spec: _ImageSpec = msgspec.field(name="imageSpec")


class Listing:
    def __init__(
        self,
        client: CriClient,
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
        #: By id, when a missing state is asked for again, in Trio's time.
        self._broken: dict[str, float] = {}

    async def refresh(self) -> None:
        """Raises CallFailed; the table keeps what was learned until then."""
        ready = api.PodSandboxFilter(state=api.PodSandboxStateValue(state=api.SANDBOX_READY))
        running = api.ContainerFilter(state=api.ContainerStateValue(state=api.CONTAINER_RUNNING))
        # Before the lists: a container found meanwhile is in none of them and has not ended.
        # One that a shutdown follows may have a successor already.
        followed = filter(None, self._table.followed.values())
        before = list(dict.fromkeys([*self._table.entries(), *followed]))
        seconds = bounds.now.runtime_look_seconds
        sandboxes = await self._client.repeat(api.ListPodSandboxRequest(filter=ready), seconds)
        containers = await self._client.repeat(api.ListContainersRequest(filter=running), seconds)
        # By age: the order of pods in an inventory.
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

    async def _learn(self, ready: Collection[str], listed: Mapping[str, api.Container]) -> Lost | None:
        """Ask for the states of new sandboxes and containers. Returns the runtime's own failure: then no
        object is to blame, and the next look asks again.
        """
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
        silence: Lost | None = None
        if any(isinstance(error, Lost) for error in failed.values()):
            try:
                await ask_version(self._client, bounds.now.runtime_state_seconds)
            except Lost as error:
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
    ) -> tuple[dict[str, Any], dict[str, CallFailed]]:
        """Asks all questions side by side. Returns the answers and the failures, by key; a container that the
        runtime no longer knows is in neither. ``again``: an earlier question was lost.
        """
        found: dict[str, Any] = {}
        failed: dict[str, CallFailed] = {}
        bound = bounds.now

        async def ask(key: str, request: Message) -> None:
            hurried = again or key in self._broken
            seconds = bound.runtime_state_seconds if hurried else bound.runtime_look_seconds
            try:
                found[key] = await self._client.repeat(request, seconds)
            except NotFound:
                pass
            except CallFailed as error:
                failed[key] = error

        async with trio.open_nursery() as nursery:
            for key, request in questions.items():
                if key not in self._told and trio.current_time() >= self._broken.get(key, -math.inf):
                    nursery.start_soon(ask, key, request)
        return found, failed

    async def _signals_of(
        self, states: Mapping[str, api.ContainerStatus], silence: Lost | None
    ) -> tuple[dict[str, str], dict[str, CallFailed]]:
        """By container, the signal that the runtime would send: the container's, else its image's. Then, by
        container, why its image gave no answer. ``silence``: asks for no image.
        """
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
        lost = {image: error for image, error in failed.items() if isinstance(error, Lost)}
        return signals, {key: lost[image] for key, image in images.items() if image in lost}

    def _take(
        self,
        item: api.Container,
        known: ContainerEntry | None,
        process: tuple[int, int] | None,
        stop_signal: str,
        error: CallFailed | None,
    ) -> None:
        """Put it into the table. ``error``: it has no state."""
        pod = self._table.pods.get(item.pod_sandbox_id)
        if pod is None or (known is not None and not known.running):
            return
        entry = known or ContainerEntry(
            pod,
            item.id,
            ContainerSpec(
                name=item.labels.get(CONTAINER_NAME_LABEL, item.metadata.name),
                argv=(),
                pre_stop=pre_stop_of(item.annotations),
                ports=ports_of(item.annotations),
            ),
        )
        if stop_signal:
            entry.spec = replace(entry.spec, stop_signal=stop_signal)
        opened = entry.pidfd < 0 and process is not None and open_first_process(entry, *process)
        if entry.pidfd < 0 and isinstance(error, RuntimeRefused):
            return
        pod.grace_seconds = grace_seconds_of(item.annotations)
        if known is None:
            self._table.put(entry)
        if known is None or opened:
            self._on_new(entry)

    def _note(self, key: str, error: CallFailed, item: api.Container | None) -> None:
        """Its state or image is missing. Plan the next question, and warn once."""
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
    """The name of CRI's number; empty: not specified."""
    if not number or number not in api.Signal.values():
        return ""
    return api.Signal.Name(number).replace("PLUS", "+").replace("MINUS", "-")


def signal_of_image(info: str) -> str:
    """From the verbose status of an image, as containerd and CRI-O write it. Empty: not specified."""
    try:
        found = msgspec.json.decode(info, type=_VerboseImage).spec.config.stop_signal or DEFAULT_STOP_SIGNAL
        return signal_name(signal_number(found))
    except (ValueError, RecursionError):  # no JSON, nested deeper than a stack, no signal of this machine
        return ""


def pods_of_cgroups(entries: Iterable[ContainerEntry], cgroups: str) -> frozenset[str]:
    """The UIDs of the pods to which a process with these cgroups (``/proc/self/cgroup``) belongs."""
    ids = proc.container_ids(cgroups)
    return frozenset(entry.pod.uid for entry in entries if entry.id in ids)


# The exit code comes from the kernel (Linux 6.15, once the shim has waited for the process), else from the
# runtime, for a moment only: an exit code is worth less than the next wave's time. An unknown exit code is
# never guessed.


#: One question costs the runtime a millisecond.
NOTICE_AGAIN_SECONDS = 0.02
#: So long after an end the table is compared more often: the kubelet may start the container again.
RESTART_SECONDS = 5.0


class ContainerEnds:
    """``start`` runs a task as long as the edge lives."""

    def __init__(
        self,
        client: CriClient,
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
        """After a look: report what ended since the daemon before."""
        async with self._turn:
            self.owed = [each for each in self.owed if self._table.followed.get(each.id) is None]
            listed = self._table.listed or ()
            # A runtime that lists but gives no states costs the time of one question.
            async with trio.open_nursery() as nursery:
                for each in self.owed:
                    if each.id not in listed:
                        nursery.start_soon(self._report_over, each)

    async def _report_over(self, given: InventoryContainer) -> None:
        # The list has shown already that it does not run.
        end: ExitStatus | None = ExitStatus()
        with suppress(CallFailed):
            end = await exit_of_container(self._client, given.id)
        if end is None:
            return  # Its shim is lost to the runtime, so its state is unknown.
        # Else a new shutdown has its successor.
        if self._table.given.get((given.uid, given.container), given).id == given.id:
            code = (
                await self._code_in_api(given.uid, given.container)
                if end.exit_code is None
                else end.exit_code
            )
            await self._outlet.put(found_gone(given.uid, given.container, code))
        self.owed.remove(given)
        self._table.followed.pop(given.id, None)

    async def _code_in_api(self, uid: str, container: str) -> int | None:
        """The exit code that the API server shows: a kubelet removes a deleted pod's container, and its
        object, a moment after the end.
        """
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
        end = ExitStatus()
        with trio.move_on_after(bounds.now.runtime_notice_seconds):
            end = await self._exit_of(entry)
        await self._finish(entry, end)

    async def _ask_end(self, entry: ContainerEntry) -> None:
        """Without an end it may run: the runtime has lost its shim. The next list asks again."""
        with suppress(CallFailed):
            if (end := await exit_of_container(self._client, entry.id)) is not None:
                await self._finish(entry, end)

    async def _finish(self, entry: ContainerEntry, end: ExitStatus) -> None:
        if not entry.running:
            return  # A second list missed it too.
        entry.finish(end)
        self._quiet_at = trio.current_time() + RESTART_SECONDS
        if entry.id in self._table.followed:
            await self._outlet.put(entry.exited())

    async def _exit_of(self, entry: ContainerEntry) -> ExitStatus:
        """Only known ones end this wait."""
        while True:
            if entry.pidfd >= 0 and (end := await reap_soon(entry.pidfd)) != ExitStatus():
                return end
            with suppress(CallFailed):
                found = await exit_of_container(self._client, entry.id)
                if found is not None:
                    return found
            await trio.sleep(NOTICE_AGAIN_SECONDS)
