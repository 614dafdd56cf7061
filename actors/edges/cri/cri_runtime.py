"""The awake CRI edge: the connection, the warm table, the ends of containers, and the orders.

`cri_edge` imports it when the node is armed.

`Listing` compares the table with the runtime's lists, and asks for the process and the address of a new
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
    ask_version,
    exit_of_container,
)
from ebbtide.actors.edges.cri.cri_pods import (
    CONTAINER_NAME_LABEL,
    DEFAULT_STOP_SIGNAL,
    POD_NAME_LABEL,
    POD_NAMESPACE_LABEL,
    POD_UID_LABEL,
    PRIORITY_ANNOTATION,
    BootFile,
    ContainerEntry,
    InventoryContainer,
    KeptPod,
    OperatorNotes,
    PodEntry,
    PodTable,
    found_gone,
    grace_seconds_of,
    is_static,
    kept_pods,
    parse_number,
    ports_of,
    pre_stop_of,
    restored_container,
    restored_pod,
    sidecars_of,
)
from ebbtide.actors.edges.cri.inventory import Inventory
from ebbtide.actors.edges.cri.orders import (
    ContainerHooks,
    ContainerOrders,
    ContainerStops,
    SandboxCleanup,
)
from ebbtide.actors.edges.kubernetes.known_pods import PodStore
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.exits import ExitStatus, exit_of_pidfd, open_child, reap_soon
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
#: Between two looks at what the API server reports: a node that fills up reports ten pods a second.
NEWS_SECONDS = 0.2


class Runtime:
    """Lives as long as `run`."""

    def __init__(
        self,
        endpoint: str,
        file: BootFile[InventoryContainer],
        kept: BootFile[KeptPod],
        own_uid: str,
        lookup: PodStore | None,
        starts: Callable[[], bool],
        context: TraceContext,
        tell: Tell,
        outlet: Outlet,
    ) -> None:
        self.table = PodTable(frozenset({own_uid} if own_uid else ()))
        self._file = file
        self._kept = kept
        self._outlet = outlet
        self._lookup = lookup
        self._nursery: trio.Nursery | None = None
        self._client = CriClient(endpoint)
        self._notes = OperatorNotes(tell)
        self._reach = RuntimeReach(self._client, self._notes)
        self._warm = trio.Event()
        self._stirred, self._stirring = trio.open_memory_channel[None](1)
        self._looking = trio.Lock()
        self._sandboxes = SandboxCleanup(self._client, self.table, starts)
        self._ends = ContainerEnds(self._client, self.table, self._sandboxes, self._start, outlet, lookup)
        self._listing = Listing(self._client, self.table, self._ends.follow, self._ends.miss, tell)
        self._inventory = Inventory(
            self.table,
            file,
            lookup,
            self._reach,
            self._warm,
            self._look_anew,
            lambda: self._listing.as_of,
            starts,
        )
        stops = ContainerStops(self._client, self._reach, self._start, self._notes)
        hooks = ContainerHooks(self._client, self._reach)
        self._orders = ContainerOrders(
            self.table, self._warm, self._inventory, hooks, stops, self._sandboxes, context, self._client
        )

    # --- life ------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Until cancelled. Cancelling ends no container."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await nursery.start(self._client.run)
                nursery.start_soon(self._reach.follow, self._outlet, self._stirred)
                nursery.start_soon(self._sandboxes.run)
                nursery.start_soon(self._inventory.follow_expected, self._outlet)
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
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._do_without)
            await self._look_until_done()
            nursery.cancel_scope.cancel()
        self._leave_out_own()
        # A shutdown that begins now does not wait for reports about an earlier one.
        self._warm.set()
        self._inventory.settled.set()
        await self._ends.catch_up()
        await self._inventory.report_settled(self._outlet)
        self._start(self._note_priorities)
        if self._lookup is not None:
            self._start(self._follow_news, self._lookup)
        while True:
            # A look beside the first stops would cost them time.
            if not self._busy:
                with trio.move_on_after(IDLE_SECONDS):
                    await self._stirring.receive()
            if self._busy:
                await trio.sleep(BUSY_SECONDS)
            await self._look_until_done()
            await self._ends.catch_up()
            await self._inventory.report_settled(self._outlet)
            if self._busy:
                await self._inventory.report_late(self._outlet)

    async def _do_without(self) -> None:
        """The runtime hangs from the start: use the table of the daemon before, as far as it still runs."""
        with suppress(Lost):
            await self._reach.confirm(self._outlet)
        await self._reach.gone()
        over = set[str]()
        for kept in self._kept.load():
            pod = restored_pod(kept)
            if (shown := self.table.pods.get(kept.sandbox)) is not None:
                shown.pod_ip = shown.pod_ip or pod.pod_ip
                shown.host_network = shown.host_network or pod.host_network
                shown.grace_seconds = (
                    pod.grace_seconds if shown.grace_seconds is None else shown.grace_seconds
                )
                pod = shown
            for container in kept.containers:
                if self.table.has_seen(container.id):
                    continue
                entry = restored_container(pod, container)
                if container.pid and not open_first_process(entry, container.pid, container.start_ticks):
                    over.add(container.id)
                    continue  # A container without a process here may run.
                self.table.pods[pod.sandbox] = pod
                self.table.put(entry)
                self._ends.follow(entry)
        # If all of it has ended, nothing is known now.
        if any(pod.running for pod in self.table.pods.values()):
            self._leave_out_own()
            self._warm.set()
        self._inventory.settled.set()
        await self._ends.catch_up(over)

    def _leave_out_own(self) -> None:
        self.table.own |= pods_of_cgroups(self.table.entries(), proc.cgroups_of(os.getpid()))

    async def _follow_news(self, lookup: PodStore) -> None:
        """Look soon at what the API server reports."""
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
        """Is a container being stopped, or may a new one come soon?"""
        stopping = any(entry.stopping and entry.running for entry in self.table.entries())
        return stopping or self._inventory.late.open or self._ends.fresh

    async def _note_priorities(self) -> None:
        if self._lookup is not None:
            await trio.sleep(bounds.now.priorities_seconds)
        self._notes.without_priority(self._inventory.views(), informed=self._lookup is not None)

    async def _look_until_done(self) -> None:
        while True:
            since, failure = trio.current_time(), None
            async with self._looking, trio.open_nursery() as nursery:
                nursery.start_soon(self._doubt)
                try:
                    await self._listing.refresh()
                except CallFailed as error:
                    failure = error
                nursery.cancel_scope.cancel()
            if failure is None:
                await self._reach.answers(self._outlet)
                self._kept.store(kept_pods(self.table))
                return
            await self._reach.fails(failure, since, self._outlet)
            await trio.sleep(BUSY_SECONDS)

    async def _look_anew(self) -> None:
        """Also reports what ended since the daemon before: without it a restart by the kubelet cannot be
        seen.
        """
        await self._look_until_done()
        await self._ends.catch_up()

    async def _doubt(self) -> None:
        """The lists do not come: a runtime that answers nothing else either is soon on record as away."""
        await trio.sleep(bounds.now.runtime_doubt_seconds)
        with suppress(Lost):
            await self._reach.confirm(self._outlet)

    # --- what is asked of it ---------------------------------------------------------------------

    def active(self) -> list[Pod]:
        return self._inventory.views()

    async def rest(self) -> None:
        await self._sandboxes.rest()

    async def carry_out(self, order: Order, outlet: Outlet) -> Ending:
        if not isinstance(order, TakeInventory):
            return await self._orders.carry_out(order, outlet)
        ending = await self._inventory.take(order, outlet)
        if self._busy:
            self._wake()
        return ending

    def _wake(self) -> None:
        try:
            self._stirred.send_nowait(None)
        except trio.WouldBlock:
            pass  # It was told already.


# A sandbox or container without a state (its shim hangs or is dead) delays no other: all states are asked for
# side by side. A container that is listed without a state in time is taken with the process in its cgroup;
# without a process only the runtime can stop it. One whose state the runtime refuses, without a process here,
# is left out. Both are asked for again, and reported once they stay so. Only a runtime that answers nothing
# fails the whole look.


#: Before the next question for a missing state: it may cost the runtime all its time.
BROKEN_AGAIN_SECONDS = 30.0
#: Earlier than any time of Trio's.
NEXT_LOOK = -math.inf
#: Takes a new container, or one that left the list without an end.
OnContainer = Callable[[ContainerEntry], None]
# The exit code comes from the kernel (Linux 6.15, once the shim has waited for the process), else from the
# runtime, for a moment only: an exit code is worth less than the next wave's time. An unknown exit code is
# never guessed.


#: Each waits 20 ms for the kernel's exit code.
SHIM_LOOKS_MAX = 5
#: One question costs the runtime a millisecond.
NOTICE_AGAIN_SECONDS = 0.02
#: So long after an end the table is compared more often: the kubelet may start the container again.
RESTART_SECONDS = 5.0


class _VerboseInfo(msgspec.Struct):
    pid: int = 0


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
        #: By container, the reference of an image whose stop signal is still unknown.
        self._unsigned: dict[str, str] = {}
        #: By id or reference, when a missing state is asked for again, in Trio's time; `NEXT_LOOK` after the
        #: first delay.
        self._broken: dict[str, float] = {}
        self._failed: dict[str, CallFailed] = {}
        #: When the last successful look began, in Trio's time.
        self.as_of = -math.inf

    async def refresh(self) -> None:
        """Raises CallFailed; the table keeps what was learned until then."""
        began, self._failed = trio.current_time(), {}
        ready = api.PodSandboxFilter(state=api.PodSandboxStateValue(state=api.SANDBOX_READY))
        running = api.ContainerFilter(state=api.ContainerStateValue(state=api.CONTAINER_RUNNING))
        # Before the lists: a container found meanwhile is in none of them and has not ended.
        before = list(self._table.entries())
        seconds = bounds.now.runtime_look_seconds
        sandboxes = await self._client.repeat(api.ListPodSandboxRequest(filter=ready), seconds)
        containers = await self._client.repeat(api.ListContainersRequest(filter=running), seconds)
        # By age: the order of pods in an inventory.
        for item in sorted(sandboxes.items, key=lambda each: each.created_at):
            if item.id not in self._table.pods and POD_UID_LABEL in item.labels:
                self._table.pods[item.id] = _listed_pod(item)
        running_ids = self._table.listed = frozenset(item.id for item in containers.containers)
        ready_ids = {item.id for item in sandboxes.items}
        self._told &= ready_ids | running_ids
        self._unsigned = {key: image for key, image in self._unsigned.items() if key in running_ids}
        here = ready_ids | running_ids | set(self._unsigned.values())
        self._broken = {key: at for key, at in self._broken.items() if key in here}
        lost = await self._learn(ready_ids, containers.containers)
        for entry in before:
            if entry.running and entry.pidfd < 0 and entry.id not in running_ids:
                self._on_gone(entry)
        for key in [key for key, pod in self._table.pods.items() if key not in ready_ids and not pod.running]:
            del self._table.pods[key]
        if lost is not None:
            raise lost
        self.as_of = began

    async def _learn(self, ready: Collection[str], listed: Iterable[api.Container]) -> Lost | None:
        """Ask for the states of new sandboxes and containers. Returns the runtime's own failure: then no
        object is to blame, and the next look asks again.
        """
        until = trio.current_time() + bounds.now.runtime_look_seconds
        # By age: a restarted container replaces the one before.
        items = {item.id: item for item in sorted(listed, key=lambda each: each.created_at)}
        known = {entry.id: entry for entry in self._table.entries()}
        states = await self._ask(
            {
                key: api.ContainerStatusRequest(container_id=key, verbose=True)
                for key, item in items.items()
                if key not in self._told and self._fits(item, known.get(key))
            },
            until,
        )
        places = await self._ask(
            {
                key: api.PodSandboxStatusRequest(pod_sandbox_id=key)
                for key in self._table.pods
                if key in ready and key not in self._told
            },
            until,
        )
        for key, place in places.items():
            pod = self._table.pods[key]
            pod.pod_ip = place.status.network.ip
            pod.host_network = place.status.linux.namespaces.options.network == api.NODE
        lost: Lost | None = None
        if any(isinstance(error, Lost) for error in self._failed.values()):
            # A state is missing. Does the runtime answer anything?
            try:
                await ask_version(self._client, bounds.now.runtime_state_seconds)
            except Lost as silence:
                lost = silence
        signals = await self._learn_signals(states, until, ask=lost is None)
        failed = self._failed if lost is None else {}
        unknown = [key for key in items if key in failed and key not in known]
        processes = await trio.to_thread.run_sync(first_processes, unknown) if unknown else {}
        # They may have changed meanwhile.
        known = {entry.id: entry for entry in self._table.entries()}
        for key, item in items.items():
            entry = known.get(key)
            if self._fits(item, entry):
                if key in states or (entry is None and key in failed):
                    entry = self._take(item, entry, states.get(key), processes.get(key))
                elif entry is not None and entry.kept_hook is not None:
                    entry.spec, entry.kept_hook = _listed_spec(item, entry), None
            if entry is not None and key in signals:
                entry.stop_signal = signals[key]
                entry.spec = replace(entry.spec, stop_signal=signals[key])
        running = {key for key, each in states.items() if each.status.state == api.CONTAINER_RUNNING}
        self._told |= running | places.keys()
        taken = {entry.id for entry in self._table.entries()}
        for key, error in failed.items():
            self._note(key, error, items.get(key), taken=key in taken)
        return lost

    def _fits(self, item: api.Container, entry: ContainerEntry | None) -> bool:
        """Does it belong to a pod here, and match the known container of this id?"""
        pod = self._table.pods.get(item.pod_sandbox_id)
        if pod is None:
            return False
        return entry is None or (entry.running and entry.key == (pod.uid, _name_of(item)))

    async def _ask(self, questions: Mapping[str, Message], until: float) -> dict[str, Any]:
        """Ask the questions that are due, side by side, until Trio's time ``until`` and for at least
        `runtime_state_seconds`. A key without an answer failed, or its object is gone.
        """
        found: dict[str, Any] = {}

        async def ask(key: str, request: Message) -> None:
            left = 0.0 if key in self._broken else until - trio.current_time()
            try:
                seconds = max(left, bounds.now.runtime_state_seconds)
                found[key] = await self._client.repeat(request, seconds)
                self._broken.pop(key, None)
            except CallFailed as error:
                self._failed[key] = error

        async with trio.open_nursery() as nursery:
            for key, request in questions.items():
                if trio.current_time() >= self._broken.get(key, NEXT_LOOK):
                    nursery.start_soon(ask, key, request)
        return found

    async def _learn_signals(
        self, states: Mapping[str, api.ContainerStatusResponse], until: float, *, ask: bool
    ) -> dict[str, str]:
        """By container, the signal that the runtime would send: the container's, else its image's. Until an
        image's is known, the runtime stops its containers. ``ask``: for images.
        """
        signals = {}
        for key, found in states.items():
            if signal := signal_of_status(found.status.stop_signal):
                signals[key] = signal
            elif found.status.image_ref:
                self._unsigned[key] = found.status.image_ref
        questions = {
            each: api.ImageStatusRequest(image=api.ImageSpec(image=each), verbose=True)
            for each in dict.fromkeys(self._unsigned.values() if ask else ())
        }
        images = await self._ask(questions, until)
        for key in [key for key, image in self._unsigned.items() if image in images]:
            if signal := signal_of_image(images[self._unsigned.pop(key)].info.get("info", "")):
                signals[key] = signal
        return signals

    def _take(
        self,
        item: api.Container,
        kept: ContainerEntry | None,
        found: api.ContainerStatusResponse | None,
        process: tuple[int, int] | None,
    ) -> ContainerEntry | None:
        """Put it into the table if it runs. ``found`` None: it has no state, and this ``process``, if any."""
        if found is not None and found.status.state != api.CONTAINER_RUNNING:
            return kept
        pod = self._table.pods[item.pod_sandbox_id]
        # The same entry: other tasks wait for its end.
        entry = kept or ContainerEntry(pod, item.id, _listed_spec(item))
        entry.spec, entry.kept_hook = _listed_spec(item, entry), None
        watched = entry.pidfd >= 0
        if found is not None and not watched:
            _open_named_process(entry, found.info.get("info", ""))
        elif process is not None and not watched:
            open_first_process(entry, *process)
        if found is None and entry.pidfd < 0 and not isinstance(self._failed[item.id], Lost):
            return None
        pod.grace_seconds = grace_seconds_of(item.annotations)
        if entry.pod is not pod:
            del entry.pod.containers[entry.spec.name]
            entry.pod = pod
        if pod.containers.get(entry.spec.name) is not entry:
            self._table.put(entry)
        if kept is None or (entry.pidfd >= 0 and not watched):
            self._on_new(entry)
        return entry

    def _note(self, key: str, error: CallFailed, item: api.Container | None, *, taken: bool) -> None:
        """Its state is missing. Plan the next question, and warn once. Images get no warning."""
        if isinstance(error, NotFound) and key not in self._unsigned.values():
            return  # It has gone since the list.
        before = self._broken.get(key)
        if isinstance(error, Lost) and before is None:
            self._broken[key] = NEXT_LOOK
            return
        self._broken[key] = trio.current_time() + BROKEN_AGAIN_SECONDS
        pod = self._table.pods.get(key if item is None else item.pod_sandbox_id)
        if pod is None or before not in (None, NEXT_LOOK):
            return
        whose = f"{pod.namespace}/{pod.name}"
        what = f"no address is known of the pod {whose}"
        if item is not None:
            how = "taken as it is listed" if taken else "left out"
            what = f"the container {_name_of(item)} of {whose} is {how}"
        self._tell(WARNING, f"container runtime: {what}: {error}")


def _listed_pod(item: api.PodSandbox) -> PodEntry:
    labels = item.labels
    pod = PodEntry(labels[POD_UID_LABEL], labels[POD_NAMESPACE_LABEL], labels[POD_NAME_LABEL], item.id)
    pod.priority = parse_number(item.annotations.get(PRIORITY_ANNOTATION, ""))
    pod.sidecars = sidecars_of(item.annotations)
    pod.static = is_static(item.annotations)
    return pod


def _name_of(item: api.Container) -> str:
    return item.labels.get(CONTAINER_NAME_LABEL, item.metadata.name)


def _listed_spec(item: api.Container, kept: ContainerEntry | None = None) -> ContainerSpec:
    """Keeps the known stop signal."""
    made = ContainerSpec(
        name=_name_of(item),
        argv=(),
        pre_stop=pre_stop_of(item.annotations),
        ports=ports_of(item.annotations),
    )
    return made if kept is None else replace(made, stop_signal=kept.spec.stop_signal)


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


def _open_named_process(entry: ContainerEntry, info: str) -> None:
    """From the verbose status, where containerd and CRI-O name the first process in JSON.

    The number may mean another process in our namespace, so the process must be in the container's cgroup:
    with every runtime and driver its name contains the container's id.
    """
    try:
        pid = msgspec.json.decode(info, type=_VerboseInfo).pid
    except (ValueError, RecursionError):  # no JSON, or nested deeper than a stack
        return
    stat = proc.read_stat(pid) if pid else None
    if stat is not None:
        open_first_process(entry, pid, stat.start_ticks)


def open_first_process(entry: ContainerEntry, pid: int, start_ticks: int) -> bool:
    """Keep the process open if it still runs and belongs to the container."""
    child = open_child(pid, start_ticks)
    if child is None:
        return False
    if entry.id not in proc.container_ids(proc.cgroups_of(pid)):
        os.close(child.pidfd)
        return False
    entry.pid, entry.pidfd, entry.start_ticks = child
    return True


#: CRI-O's helper process: its cgroup has the container's id in its name too.
HELPER = "conmon"


def first_processes(ids: Collection[str]) -> dict[str, tuple[int, int]]:
    """By container id, the number and start of the oldest process in its cgroup; a virtual machine has none.
    Reads all processes once.
    """
    found: dict[str, tuple[int, int]] = {}
    for pid in proc.all_pids():
        groups = "\n".join(line for line in proc.cgroups_of(pid).splitlines() if HELPER not in line)
        for key in proc.container_ids(groups).intersection(ids):
            stat = proc.read_stat(pid)
            if stat is not None and (key not in found or (stat.start_ticks, pid) < found[key][::-1]):
                found[key] = (pid, stat.start_ticks)
    return found


def pods_of_cgroups(entries: Iterable[ContainerEntry], cgroups: str) -> frozenset[str]:
    """The UIDs of the pods to which a process with these cgroups (``/proc/self/cgroup``) belongs."""
    ids = proc.container_ids(cgroups)
    return frozenset(entry.pod.uid for entry in entries if entry.id in ids)


class ContainerEnds:
    """``start`` runs a task as long as the edge lives."""

    def __init__(
        self,
        client: CriClient,
        table: PodTable,
        sandboxes: SandboxCleanup,
        start: Callable[..., None],
        outlet: Outlet,
        lookup: PodStore | None = None,
    ) -> None:
        self._client = client
        self._table = table
        self._sandboxes = sandboxes
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
        self._start(self._report_missed, entry)

    async def catch_up(self, over: Collection[str] | None = None) -> None:
        """After a look: report what ended since the daemon before, and clean up. ``over``: no look succeeded;
        the ids of containers whose processes are gone.
        """
        async with self._turn:
            await self._catch_up(over)

    async def _catch_up(self, over: Collection[str] | None) -> None:
        self.owed = [each for each in self.owed if self._table.followed.get(each.id) is None]
        listed = self._table.listed or ()
        ended = [each for each in self.owed if (each.id not in listed if over is None else each.id in over)]
        # A runtime that lists but gives no states costs the time of one question.
        async with trio.open_nursery() as nursery:
            for each in ended:
                nursery.start_soon(self._report_over, each, over is None)
        stopped = {each.uid for each in ended if each.stopping and each not in self.owed}
        for pod in self._table.pods.values():
            if pod.uid in stopped:
                self._sandboxes.add(pod)

    async def _report_over(self, given: InventoryContainer, ask: bool) -> None:
        """``ask``: the runtime for the exit code."""
        end: ExitStatus | None = ExitStatus()
        if ask:
            # The list has shown already that it does not run.
            with suppress(CallFailed):
                end = await exit_of_container(self._client, given.id)
        if end is None:
            return  # Nobody knows, such as of one whose shim the runtime has lost.
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
        # The kernel has the exit code once the shim has waited for the process.
        for _ in range(SHIM_LOOKS_MAX):
            if (end := await reap_soon(entry.pidfd)) != ExitStatus():
                break
        else:
            end = await self._noticed(entry)
        await self._ended(entry, end)

    async def _noticed(self, entry: ContainerEntry) -> ExitStatus:
        """Older kernels have no exit code of another process's child. The runtime has it soon."""
        with trio.move_on_after(bounds.now.runtime_notice_seconds):
            while True:
                with suppress(CallFailed):
                    end = await exit_of_container(self._client, entry.id)
                    if end is not None:
                        return end
                await trio.sleep(NOTICE_AGAIN_SECONDS)
        return exit_of_pidfd(entry.pidfd) if entry.pidfd >= 0 else ExitStatus()

    async def _report_missed(self, entry: ContainerEntry) -> None:
        end = await self._noticed(entry)
        if entry.running:
            await self._ended(entry, end)

    async def _ended(self, entry: ContainerEntry, end: ExitStatus) -> None:
        entry.finish(end)
        self._quiet_at = trio.current_time() + RESTART_SECONDS
        self._sandboxes.stir()
        self._sandboxes.look(entry.pod)
        if entry.id in self._table.followed:
            await self._outlet.put(entry.exited())
