"""The pods that the runtime has, warm in memory: what an inventory is read from without any call."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
import trio

from actors.edges.process.endings import End
from actors.edges.process.spec import ContainerSpec
from events.facts import ContainerExited

#: The API server tells of a container for some seconds after its end: more than a node ends in that time.
SEEN_MAX = 4096


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

    @property
    def key(self) -> tuple[str, str]:
        """As orders name it."""
        return self.pod.uid, self.spec.name

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
        "static",
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
        #: Made by the kubelet from a file.
        self.static = False
        #: By name, in the order in which they were created.
        self.containers: dict[str, ContainerEntry] = {}

    @property
    def running(self) -> bool:
        return any(entry.running for entry in self.containers.values())


class Told(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A container of an inventory that a shutdown was given. ``stopping``: its end was asked for."""

    uid: str
    container: str
    id: str
    stopping: bool = False


class Table:
    """Every ready sandbox by its id, in the order in which they became known. ``own``: never in a wave."""

    def __init__(self, own: frozenset[str] = frozenset()) -> None:
        self.own = own
        self.pods: dict[str, PodEntry] = {}
        #: By UID and name, the containers that a shutdown was given: what its orders mean.
        self.told: dict[tuple[str, str], Told] = {}
        #: The ids of all containers that any shutdown was given: their ends are reported.
        self.followed: frozenset[str] = frozenset()
        self._replaced: dict[str, ContainerEntry] = {}
        #: The ids of containers that a look has found, the latest last.
        self._seen: dict[str, None] = {}

    def has_seen(self, container_id: str) -> bool:
        """Has a look found it, whatever became of it since?"""
        return container_id in self._seen

    def entries(self) -> Iterator[ContainerEntry]:
        return (entry for pod in self.pods.values() for entry in pod.containers.values())

    def put(self, entry: ContainerEntry) -> None:
        """A container runs. One that ran under its name is only kept if a shutdown was given it."""
        before = entry.pod.containers.get(entry.spec.name)
        if before is not None and before.id in self.followed:
            self._replaced[before.id] = before
        told = self.told.get(entry.key)
        entry.stopping = told is not None and told.id == entry.id and told.stopping
        entry.pod.containers[entry.spec.name] = entry
        self._seen[entry.id] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]

    def find(self, uid: str, container: str) -> ContainerEntry | None:
        """The container that a shutdown was given under this name, and no other that was started since. Was
        none given, what runs under this name, else what ran last.
        """
        told = self.told.get((uid, container))
        if told is not None:
            return self._replaced.get(told.id) or self._of_id(told.id, uid, container)
        found = self._named(uid, container)
        return next((entry for entry in found if entry.running), found[-1] if found else None)

    def _named(self, uid: str, container: str) -> list[ContainerEntry]:
        return [
            pod.containers[container]
            for pod in self.pods.values()
            if pod.uid == uid and container in pod.containers
        ]

    def _of_id(self, key: str, uid: str, container: str) -> ContainerEntry | None:
        return next((entry for entry in self._named(uid, container) if entry.id == key), None)

    def active(self) -> list[PodEntry]:
        """The pods that a shutdown has to end: those of which something runs, but our own."""
        return [pod for pod in self.pods.values() if pod.running and pod.uid not in self.own]

    def tell(self, pods: list[PodEntry], *, anew: bool = False) -> None:
        """A shutdown is given these: from now on its orders mean their containers, and the ends of these are
        reported. ``anew``: it is another shutdown than before.
        """
        given = [entry for pod in pods for entry in pod.containers.values() if entry.running]
        if anew:
            self.told = {}
        for entry in given:
            made = Told(uid=entry.pod.uid, container=entry.spec.name, id=entry.id, stopping=entry.stopping)
            self.told.setdefault(entry.key, made)
        self.followed |= {entry.id for entry in given}

    def restore(self, told: tuple[Told, ...]) -> None:
        """What the daemon before was given."""
        self.told = {(each.uid, each.container): each for each in told}
        self.followed |= {each.id for each in told}

    def stop(self, entry: ContainerEntry) -> None:
        """Somebody asked for its end."""
        entry.stopping = True
        told = self.told.get(entry.key)
        if told is not None and told.id == entry.id and not told.stopping:
            self.told[entry.key] = msgspec.structs.replace(told, stopping=True)

    def close(self) -> None:
        """Give back every descriptor; ends no process."""
        for entry in self.entries():
            if entry.pidfd >= 0:
                os.close(entry.pidfd)
                entry.pidfd = -1
