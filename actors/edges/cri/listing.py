"""Keeps the table as the runtime has it: lists, and for what is new its process and its address.

A container's end is seen through a descriptor of its first process, at once and without the runtime; the
lists are there for what has appeared, and for runtimes whose containers have no process on this machine.
A sandbox or container of which the runtime cannot tell the state (its shim is dead) holds no other up.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable

import msgspec
import trio
from google.protobuf.message import Message

from actors.edges.cri import annotations as words
from actors.edges.cri import api_pb2 as api
from actors.edges.cri.calling import LOOK_SECONDS_MAX, AnswerT, Caller
from actors.edges.cri.errors import CallFailed, Lost, NotFound, RuntimeRefused
from actors.edges.cri.notes import WARNING, Tell
from actors.edges.cri.table import ContainerEntry, PodEntry, Table
from actors.edges.process import proc
from actors.edges.process.endings import End
from actors.edges.process.hooks import open_child
from actors.edges.process.spec import ContainerSpec

#: How soon the runtime is asked again for what it could not tell: it may need all its time to fail.
BROKEN_SECONDS = 30.0

#: Takes a container that has just become known, or one that no longer runs though nobody saw its end.
OnContainer = Callable[[ContainerEntry], None]


class _Info(msgspec.Struct):
    pid: int = 0


class Listing:
    """Compares the table with the runtime's lists."""

    def __init__(
        self,
        caller: Caller,
        table: Table,
        on_new: OnContainer,
        on_gone: OnContainer,
        tell: Tell = lambda level, line: None,
    ) -> None:
        self._caller = caller
        self._table = table
        self._on_new = on_new
        self._on_gone = on_gone
        self._tell = tell
        #: By id, what the runtime could not tell the state of, and Trio's time of the next question.
        self._broken: dict[str, float] = {}
        #: Trio's time that the table shows: when the last look that succeeded began.
        self.as_of = -math.inf

    async def refresh(self) -> None:
        """Bring the table up to date. Raises CallFailed; what was learned until then stays."""
        began = trio.current_time()
        ready = api.PodSandboxFilter(state=api.PodSandboxStateValue(state=api.SANDBOX_READY))
        running = api.ContainerFilter(state=api.ContainerStateValue(state=api.CONTAINER_RUNNING))
        before = list(self._table.entries())
        sandboxes = await self._caller.repeat(
            "ListPodSandbox",
            api.ListPodSandboxRequest(filter=ready),
            api.ListPodSandboxResponse,
            LOOK_SECONDS_MAX,
        )
        containers = await self._caller.repeat(
            "ListContainers",
            api.ListContainersRequest(filter=running),
            api.ListContainersResponse,
            LOOK_SECONDS_MAX,
        )
        await self._take_sandboxes(sandboxes.items)
        await self._take_containers(containers.containers)
        self._miss(before, {item.id for item in containers.containers})
        self._forget({item.id for item in sandboxes.items}, {item.id for item in containers.containers})
        self.as_of = began

    async def _take_sandboxes(self, items: Iterable[api.PodSandbox]) -> None:
        for item in sorted(items, key=lambda each: each.created_at):
            if item.id in self._table.pods:
                if item.id in self._broken:
                    await self._locate(self._table.pods[item.id])
            elif words.POD_UID in item.labels:
                pod = _pod(item)
                await self._locate(pod)
                self._table.pods[item.id] = pod

    async def _locate(self, pod: PodEntry) -> None:
        """One that is broken has no address yet, but what runs in it may be stopped all the same."""
        request = api.PodSandboxStatusRequest(pod_sandbox_id=pod.sandbox)
        what = f"no address is known of the pod {pod.namespace}/{pod.name}"
        found = await self._ask(pod.sandbox, what, "PodSandboxStatus", request, api.PodSandboxStatusResponse)
        if found is not None:
            pod.pod_ip = found.status.network.ip
            pod.host_network = found.status.linux.namespaces.options.network == api.NODE

    async def _ask(
        self, key: str, what: str, name: str, request: Message, answer: type[AnswerT]
    ) -> AnswerT | None:
        """One object's state. None: it is gone, or broken; ``what`` is said of that once. Raises Lost."""
        if trio.current_time() < self._broken.get(key, -math.inf):
            return None
        try:
            found = await self._caller.repeat(name, request, answer, LOOK_SECONDS_MAX)
        except NotFound:
            return None
        except (RuntimeRefused, Lost) as error:
            if isinstance(error, Lost):
                await self._caller.ready(0)  # Raises Lost: nothing is known, rather than one object broken.
            if key not in self._broken:
                self._tell(WARNING, f"container runtime: {what}: {error}")
            self._broken[key] = trio.current_time() + BROKEN_SECONDS
            return None
        self._broken.pop(key, None)
        return found

    async def _take_containers(self, items: Iterable[api.Container]) -> None:
        """In the order of their making, so that one that was started again replaces its forerunner."""
        known = {entry.id for entry in self._table.entries()}
        for item in sorted(items, key=lambda each: each.created_at):
            pod = self._table.pods.get(item.pod_sandbox_id)
            if pod is not None and item.id not in known:
                await self._new_container(pod, item)

    async def _new_container(self, pod: PodEntry, item: api.Container) -> None:
        name = item.labels.get(words.CONTAINER_NAME, item.metadata.name)
        spec = ContainerSpec(
            name=name,
            argv=(),
            pre_stop=words.pre_stop(item.annotations),
            ports=words.ports(item.annotations),
        )
        entry = ContainerEntry(pod, item.id, spec)
        request = api.ContainerStatusRequest(container_id=item.id, verbose=True)
        what = f"the container {name} of {pod.namespace}/{pod.name} is left out"
        found = await self._ask(item.id, what, "ContainerStatus", request, api.ContainerStatusResponse)
        if found is not None and found.status.state == api.CONTAINER_RUNNING:
            _open(entry, found.info.get("info", ""))
            pod.grace_seconds = words.grace_seconds(item.annotations)
            self._table.put(entry)
            self._on_new(entry)

    def _miss(self, before: Iterable[ContainerEntry], running: set[str]) -> None:
        for entry in before:
            if entry.running and entry.pidfd < 0 and entry.id not in running:
                self._on_gone(entry)

    def _forget(self, ready: set[str], running: set[str]) -> None:
        """A sandbox that is no longer there, once nothing runs in it."""
        self._broken = {key: at for key, at in self._broken.items() if key in ready or key in running}
        gone = [key for key, pod in self._table.pods.items() if key not in ready and not pod.running]
        for key in gone:
            del self._table.pods[key]


def _pod(item: api.PodSandbox) -> PodEntry:
    """As far as the list tells."""
    labels = item.labels
    pod = PodEntry(labels[words.POD_UID], labels[words.POD_NAMESPACE], labels[words.POD_NAME], item.id)
    pod.priority = words.number(item.annotations.get(words.PRIORITY, ""))
    pod.sidecars = words.sidecars(item.annotations)
    pod.static = words.static(item.annotations)
    return pod


def _open(entry: ContainerEntry, info: str) -> None:
    """Containerd and CRI-O both name the first process in their verbose state, as JSON.

    Its number is the machine's: in a process namespace of our own somebody else has it. So the process has
    to be in the container's cgroup, whose name holds the container's id with every runtime and driver.
    """
    try:
        pid = msgspec.json.decode(info, type=_Info).pid
    except (ValueError, msgspec.DecodeError):  # ValueError: bad UTF-8
        return
    stat = proc.read_stat(pid) if pid else None
    child = open_child(pid, stat.start_ticks) if stat is not None else None
    if child is None:
        return
    if entry.id not in cgroups_of(pid):
        os.close(child.pidfd)
        return
    entry.pid, entry.pidfd, entry.start_ticks = child


async def end_of(caller: Caller, container_id: str) -> End | None:
    """How a container ended, as the runtime has it; None: it does not say so (yet)."""
    request = api.ContainerStatusRequest(container_id=container_id)
    try:
        found = await caller.call("ContainerStatus", request, api.ContainerStatusResponse, LOOK_SECONDS_MAX)
    except NotFound:
        return End()
    except CallFailed:
        return None
    return End(exit_code=found.status.exit_code) if found.status.state == api.CONTAINER_EXITED else None


def own_pods(entries: Iterable[ContainerEntry], cgroups: str) -> frozenset[str]:
    """The UIDs of the pods that a process with these cgroups (``/proc/self/cgroup``) is part of. Pure."""
    return frozenset(entry.pod.uid for entry in entries if entry.id in cgroups)


def cgroups_of(pid: int) -> str:
    """The cgroups of a process; empty when it has gone."""
    return (proc.read_bytes(f"/proc/{pid}/cgroup") or b"").decode(errors="replace")
