"""The pods that the runtime has, warm in memory: what an inventory is read from without any call."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
import trio

from actors.edges.cri.annotations import hook_of
from actors.edges.process.endings import End
from actors.edges.process.spec import ContainerSpec
from events.facts import ContainerExited
from events.model import Container, Pod


class ContainerEntry:
    """One running container, or one that ran a moment ago. ``pid`` 0: its runtime shows no process here."""

    __slots__ = ("end", "ended", "id", "pid", "pidfd", "pod", "spec", "start_ticks", "stopping")

    def __init__(self, pod: PodEntry, container_id: str, spec: ContainerSpec) -> None:
        self.pod = pod
        self.id = container_id
        self.spec = spec
        self.pid = 0
        self.pidfd = -1
        self.start_ticks = 0
        self.end = End()
        self.ended = trio.Event()
        #: Somebody asked for its end.
        self.stopping = False

    @property
    def running(self) -> bool:
        return not self.ended.is_set()

    def finish(self, end: End) -> None:
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.pidfd = -1
        self.end = end
        self.ended.set()

    def exited(self) -> ContainerExited:
        return ContainerExited(
            uid=self.pod.uid, container=self.spec.name, exit_code=self.end.exit_code, signal=self.end.signal
        )


class PodEntry:
    """One sandbox that is ready. ``pod_ip`` empty: it shares the node's network."""

    __slots__ = (
        "containers",
        "grace_seconds",
        "host_network",
        "name",
        "namespace",
        "pod_ip",
        "priority",
        "sandbox",
        "sidecars",
        "uid",
    )

    def __init__(self, uid: str, namespace: str, name: str, sandbox: str) -> None:
        self.uid = uid
        self.namespace = namespace
        self.name = name
        self.sandbox = sandbox
        self.pod_ip = ""
        self.host_network = False
        self.priority: int | None = None
        self.grace_seconds: int | None = None
        self.sidecars: frozenset[str] = frozenset()
        #: By name, in the order in which they were created.
        self.containers: dict[str, ContainerEntry] = {}

    @property
    def running(self) -> bool:
        return any(entry.running for entry in self.containers.values())

    def view(self) -> Pod:
        """The pod as an inventory shows it: what runs of it, sidecars first."""
        running = [entry for entry in self.containers.values() if entry.running]
        ordered = [entry for entry in running if entry.spec.sidecar]
        ordered += [entry for entry in running if not entry.spec.sidecar]
        return Pod(
            uid=self.uid,
            namespace=self.namespace,
            name=self.name,
            priority=self.priority,
            grace_seconds=self.grace_seconds,
            containers=tuple(_view(entry.spec) for entry in ordered),
        )


def _view(spec: ContainerSpec) -> Container:
    return Container(
        name=spec.name, hook=hook_of(spec.pre_stop), stop_signal=spec.stop_signal, sidecar=spec.sidecar
    )


class Told(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A container of an inventory that a shutdown was given."""

    uid: str
    container: str
    id: str


class Table:
    """Every ready sandbox by its id, in the order in which they became known. ``own``: never in a wave."""

    def __init__(self, own: frozenset[str] = frozenset()) -> None:
        self.own = own
        self.pods: dict[str, PodEntry] = {}
        #: The ids of the containers whose end a shutdown waits for.
        self.told: frozenset[str] = frozenset()

    def entries(self) -> Iterator[ContainerEntry]:
        return (entry for pod in self.pods.values() for entry in pod.containers.values())

    def find(self, uid: str, container: str) -> ContainerEntry | None:
        """What runs under this name, else what ran last."""
        found = [
            pod.containers[container]
            for pod in self.pods.values()
            if pod.uid == uid and container in pod.containers
        ]
        return next((entry for entry in found if entry.running), found[-1] if found else None)

    def active(self) -> list[PodEntry]:
        """The pods that a shutdown has to end: those of which something runs, but our own."""
        return [pod for pod in self.pods.values() if pod.running and pod.uid not in self.own]

    def tell(self, pods: list[PodEntry]) -> list[Told]:
        """A shutdown is given these: from now on the ends of their containers are reported."""
        told = [
            Told(uid=pod.uid, container=entry.spec.name, id=entry.id)
            for pod in pods
            for entry in pod.containers.values()
            if entry.running
        ]
        self.told |= {each.id for each in told}
        return told

    def close(self) -> None:
        """Give back every descriptor; ends no process."""
        for entry in self.entries():
            if entry.pidfd >= 0:
                os.close(entry.pidfd)
                entry.pidfd = -1
