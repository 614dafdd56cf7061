"""The runtime's pods, warm in memory: an inventory needs no call.

The runtime has only labels and annotations of Kubernetes (kubelet, ``kuberuntime/labels.go``); the API
server's data complete them. Works without gRPC: `cri_edge` and the doctor load it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import trio
from msgspec.structs import replace

from ebbtide.actors.edges import pod_spec
from ebbtide.actors.edges.kubernetes.known_pods import KnownPod, PodStore
from ebbtide.actors.edges.linux import proc
from ebbtide.actors.edges.linux.proc import signal_number
from ebbtide.actors.edges.linux.processes import ExitStatus, open_child
from ebbtide.events.facts import ContainerExited
from ebbtide.events.files import read_own, write_atomically
from ebbtide.events.values import Container, Pod


class ContainerEntry(msgspec.Struct, eq=False):
    """``pid`` 0: this machine shows no process of it."""

    pod: PodEntry
    id: str
    spec: pod_spec.ContainerSpec
    pid: int = 0
    pidfd: int = -1
    start_ticks: int = 0
    end: ExitStatus = ExitStatus()
    ended: trio.Event = msgspec.field(default_factory=trio.Event)
    #: A shutdown asked for its end.
    stopping: bool = False

    @property
    def running(self) -> bool:
        return not self.ended.is_set()

    @property
    def key(self) -> tuple[str, str]:
        return self.pod.uid, self.spec.name

    def finish(self, end: ExitStatus) -> None:
        self.close()
        self.end = end
        self.ended.set()

    def close(self) -> None:
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.pidfd = -1

    def exited(self) -> ContainerExited:
        end, code = self.end, self.end.exit_code
        if code is None and end.signal:
            # The pod's status has no signal.
            code = SIGNALLED_EXIT_CODE + signal_number(end.signal)
        return ContainerExited(
            uid=self.pod.uid, container=self.spec.name, exit_code=code, signal=end.signal, lost=end.lost
        )


SIGNALLED_EXIT_CODE = 128


def found_gone(uid: str, container: str, end: ExitStatus) -> ContainerExited:
    code = end.exit_code
    return ContainerExited(uid=uid, container=container, exit_code=code, gone=code is None, lost=end.lost)


class PodEntry(msgspec.Struct, eq=False):
    """A ready sandbox. ``containers`` by name and age. ``pod_ip`` empty: the pod has the node's network, or
    the address is unknown.
    """

    uid: str
    namespace: str
    name: str
    sandbox: str
    pod_ip: str = ""
    host_network: bool = False
    priority: int | None = None
    grace_seconds: int | None = None
    sidecars: tuple[str, ...] = ()
    static: bool = False
    containers: dict[str, ContainerEntry] = {}

    @property
    def running(self) -> bool:
        return any(entry.running for entry in self.containers.values())


class InventoryContainer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    uid: str
    container: str
    id: str


class PodTable:
    """Every ready sandbox by its id, as discovered. ``own``: pods in no wave."""

    def __init__(self, own: frozenset[str] = frozenset()) -> None:
        self.own = own
        self.pods: dict[str, PodEntry] = {}
        #: The running containers of the last list, in the table or not. None: no list yet.
        self.listed: frozenset[str] | None = None
        #: By UID and name: the current inventory. Orders mean these containers.
        self.given: dict[tuple[str, str], InventoryContainer] = {}
        #: By id, the containers of any shutdown, whose ends are reported. None: the daemon before knew this
        #: one, and it is not found yet.
        self.followed: dict[str, ContainerEntry | None] = {}
        #: By id, followed containers that newer ones of their names have replaced.
        self._replaced: dict[str, ContainerEntry] = {}

    def entries(self) -> Iterator[ContainerEntry]:
        return (entry for pod in self.pods.values() for entry in pod.containers.values())

    def put(self, entry: ContainerEntry) -> None:
        """Orders may still mean an earlier container of the same name: keep one that a shutdown follows."""
        before = entry.pod.containers.get(entry.spec.name)
        if before is not None and before.id in self.followed:
            self._replaced[before.id] = before
        entry.pod.containers[entry.spec.name] = entry
        if entry.id in self.followed:
            self.followed[entry.id] = entry

    def find(self, uid: str, container: str) -> ContainerEntry | None:
        """The inventory's container, never one that was started since; without an inventory the running one,
        else the last.
        """
        pods = (pod for pod in self.pods.values() if pod.uid == uid)
        found = [pod.containers[container] for pod in pods if container in pod.containers]
        if (given := self.given.get((uid, container))) is not None:
            same = (entry for entry in found if entry.id == given.id)
            return self._replaced.get(given.id) or next(same, None)
        return next((entry for entry in found if entry.running), found[-1] if found else None)

    def active(self) -> list[PodEntry]:
        return [pod for pod in self.pods.values() if pod.running and pod.uid not in self.own]

    def give(self, pods: Iterable[PodEntry], *, anew: bool = False) -> None:
        """Add their running containers to the inventory. ``anew``: of a new shutdown."""
        if anew:
            self.given = {}
            # A node that stays up through many shutdowns must not keep all ended containers.
            self.followed = {key: entry for key, entry in self.followed.items() if not entry or entry.running}
            self._replaced = {key: entry for key, entry in self._replaced.items() if key in self.followed}
        for pod in pods:
            for entry in pod.containers.values():
                if entry.running:
                    self.give_one(entry)

    def give_one(self, entry: ContainerEntry) -> None:
        """The first container of a name stays: its orders must not hit a successor."""
        uid, name = entry.key
        self.given.setdefault(entry.key, InventoryContainer(uid=uid, container=name, id=entry.id))
        # Also after a cancel, which still waits for pods that are being stopped.
        self.followed[entry.id] = entry

    def give_started(self, listed: Collection[str] = ()) -> list[PodEntry]:
        """Pods of the inventory (and ``listed``) with newer containers. From now on orders mean these."""
        uids = {*listed, *(uid for uid, _ in self.given)}
        found = [
            entry
            for entry in self.entries()
            if entry.running and entry.pod.uid in uids and self._is_new(entry)
        ]
        for entry in found:
            self.given.pop(entry.key, None)
            self.give_one(entry)
        return list(dict.fromkeys(entry.pod for entry in found))

    def _is_new(self, entry: ContainerEntry) -> bool:
        given = self.given.get(entry.key)
        if given is None or given.id == entry.id:
            return given is None
        # No longer followed: its end is known. None: the daemon before knew it, and it is not found yet.
        before = self.followed.get(given.id, given)
        return before is given or (isinstance(before, ContainerEntry) and not before.running)

    def restore(self, given: Iterable[InventoryContainer]) -> None:
        """``given``: the inventory of the daemon before."""
        self.given = {(each.uid, each.container): each for each in given}
        self.followed |= {each.id: None for each in given}

    def close(self) -> None:
        """Ends no process."""
        for entry in (*self.entries(), *self._replaced.values()):
            entry.close()


def open_first_process(entry: ContainerEntry, pid: int, start_ticks: int) -> bool:
    """False: the process has ended, or belongs to another container."""
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


def _processes(ids: Collection[str]) -> dict[str, dict[int, proc.ProcessStat]]:
    """By container id, which each runtime and driver has in the cgroup's name. A virtual machine has none."""
    members: dict[str, dict[int, proc.ProcessStat]] = {}
    for pid in proc.all_pids():
        groups = "\n".join(line for line in proc.cgroups_of(pid).splitlines() if HELPER not in line)
        for key in proc.container_ids(groups).intersection(ids):
            if (stat := proc.read_stat(pid)) is not None:
                members.setdefault(key, {})[pid] = stat
    return members


def without_exec(ids: Collection[str]) -> set[str]:
    """The containers without a running exec hook, whose process would have its parent outside the cgroup."""
    return {
        key
        for key, stats in _processes(ids).items()
        if sum(each.parent_pid not in stats for each in stats.values()) == 1
    }


def first_processes(ids: Collection[str]) -> dict[str, tuple[int, int]]:
    """By container id, the pid and start of the oldest process whose parent is outside the cgroup. By age
    alone, a reused pid could make a child the first.
    """
    found: dict[str, tuple[int, int]] = {}
    for key, stats in _processes(ids).items():
        first = min(stats.values(), key=lambda each: (each.parent_pid in stats, each.start_ticks, each.pid))
        found[key] = (first.pid, first.start_ticks)
    return found


def known_pod_of(pod: PodEntry, lookup: PodStore | None) -> KnownPod | None:
    """A static pod also by name: the API server may not know its UID. A mirror without a static pod here is
    forged.
    """
    if lookup is None:
        return None
    found = lookup.find(pod.uid)
    named = pod.static, pod.namespace, pod.name
    if found is not None and found.static and (True, found.namespace, found.name) != named:
        found = None
    if found is None and pod.static:
        found = lookup.find_named(pod.namespace, pod.name)
    # The API server's number is the mirror's: only the manifest has the kubelet's view.
    if found is not None and found.static and not lookup.has_number(pod.namespace, pod.name):
        found = replace(found, priority_assigned=True)
    return found


def pod_view(pod: PodEntry, known: KnownPod | None = None, over: Collection[str] = ()) -> Pod:
    """``known`` wins over labels and annotations. ``over``: ids of containers whose exec hook has ended.

    A container that ended badly or unknown is shown as not running: with it the pod does not succeed.
    """
    if known is None:
        known = KnownPod(uid=pod.uid, api_uid="", namespace="", name="", sidecars=pod.sidecars)
    made = [
        Container(
            name=name,
            hook=pod_spec.hook_of(entry.spec.pre_stop) if entry.running else None,
            stop_signal=entry.spec.stop_signal,
            sidecar=name in known.sidecars,
            running=entry.running,
            exit_code=None if entry.running else entry.exited().exit_code,
            hook_over=entry.id in over,
        )
        for name, entry in pod.containers.items()
        if entry.running or entry.end.exit_code != 0
    ]
    made += [
        Container(name=name, running=False, exit_code=code)
        for name, code in known.ended.items()
        if code and name not in pod.containers
    ]
    # Behind init containers, or not pulled yet: without it the pod does not succeed.
    started = {**pod.containers, **known.ended}
    made += [Container(name=name, running=False) for name in known.containers if name not in started]
    # Sidecars first, then as in the manifest, then by age.
    order = known.sidecars + known.containers if known.containers else ()
    position = {name: index for index, name in enumerate(order)}
    made.sort(key=lambda each: (not each.sidecar, position.get(each.name, len(position))))
    return Pod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        priority=pod.priority if known.priority is None else known.priority,
        grace_seconds=pod.grace_seconds if known.grace_seconds is None else known.grace_seconds,
        containers=tuple(made),
        static=pod.static or known.static,
        priority_assigned=known.priority_assigned,
        daemon=known.daemon,
        tolerates_all=known.tolerates_all,
        volumes=known.volumes,
        owner=known.owner,
        deletion=None if pod.static else known.deletion,
    )


def coming_view(known: KnownPod, names: Sequence[str]) -> Pod:
    """A pod that the runtime does not show yet. ``names``: its containers that may start soon."""
    shown = pod_view(PodEntry(known.uid, known.namespace, known.name, ""), known)
    coming = [Container(name=name, sidecar=name in known.sidecars) for name in names]
    return replace(
        shown, containers=(*coming, *(each for each in shown.containers if each.name not in names))
    )


POD_UID_LABEL = "io.kubernetes.pod.uid"
POD_NAME_LABEL = "io.kubernetes.pod.name"
POD_NAMESPACE_LABEL = "io.kubernetes.pod.namespace"
CONTAINER_NAME_LABEL = "io.kubernetes.container.name"
GRACE_ANNOTATION = "io.kubernetes.pod.terminationGracePeriod"
PRE_STOP_ANNOTATION = "io.kubernetes.container.preStopHandler"
PORTS_ANNOTATION = "io.kubernetes.container.ports"
#: Every source but the API server makes a pod static.
CONFIG_SOURCE_ANNOTATION = "kubernetes.io/config.source"
CONFIG_SOURCE_API = "api"
#: The kubelet passes on neither: users annotate a number, and names with commas.
PRIORITY_ANNOTATION = "ebbtide/priority"
SIDECARS_ANNOTATION = "ebbtide/sidecars"


class _Exec(msgspec.Struct):
    command: list[str] = []


class _Header(msgspec.Struct):
    name: str = ""
    value: str = ""


class _HttpGet(msgspec.Struct):
    port: pod_spec.Int64 | str = 0
    path: str = ""
    host: str = ""
    scheme: str = ""
    headers: list[_Header] = msgspec.field(default_factory=list, name="httpHeaders")


class _Sleep(msgspec.Struct):
    seconds: pod_spec.Int64 = 0


class _Handler(msgspec.Struct):
    """A LifecycleHandler, as encoding/json writes it."""

    exec: _Exec | None = None
    http_get: _HttpGet | None = msgspec.field(default=None, name="httpGet")
    sleep: _Sleep | None = None
    tcp_socket: dict[str, Any] | None = msgspec.field(default=None, name="tcpSocket")


class _Port(msgspec.Struct):
    name: str = ""
    number: pod_spec.Int64 = msgspec.field(default=0, name="containerPort")


def pre_stop_of(annotations: Mapping[str, str]) -> pod_spec.HookAction | None:
    """None also for a handler that cannot be read."""
    try:
        handler = msgspec.json.decode(annotations.get(PRE_STOP_ANNOTATION, "{}"), type=_Handler)
    except (ValueError, RecursionError):  # no JSON, no handler, no UTF-8, nested deeper than a stack
        return None
    if handler.exec is not None and handler.exec.command:
        return pod_spec.ExecAction(argv=tuple(handler.exec.command))
    if (get := handler.http_get) is not None:
        headers = tuple((header.name, header.value) for header in get.headers)
        scheme = get.scheme or "HTTP"
        return pod_spec.HttpGetAction(
            port=get.port, host=get.host, scheme=scheme, path=get.path, headers=headers
        )
    if handler.sleep is not None:
        return pod_spec.SleepAction(seconds=handler.sleep.seconds)
    return pod_spec.TcpSocketAction() if handler.tcp_socket is not None else None


def ports_of(annotations: Mapping[str, str]) -> dict[str, int]:
    try:
        found = msgspec.json.decode(annotations.get(PORTS_ANNOTATION, "[]"), type=list[_Port])
    except (ValueError, RecursionError):  # no JSON, no ports, no UTF-8, nested deeper than a stack
        return {}
    return {port.name: port.number for port in found if port.name}


def grace_seconds_of(annotations: Mapping[str, str]) -> int | None:
    return parse_number(annotations.get(GRACE_ANNOTATION, ""))


def parse_number(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= 10 else None


def is_static(annotations: Mapping[str, str]) -> bool:
    return annotations.get(CONFIG_SOURCE_ANNOTATION, CONFIG_SOURCE_API) != CONFIG_SOURCE_API


def sidecars_of(annotations: Mapping[str, str]) -> tuple[str, ...]:
    names = (name.strip() for name in annotations.get(SIDECARS_ANNOTATION, "").split(","))
    return tuple(name for name in names if name)


#: Change the name with the content's form.
INVENTORY_FILE_NAME = "inventory-1"


class InventoryFile:
    """The next daemon reports with it what ended while no daemon ran.

    Not synced: a reboot makes it void. Makes the folder. Raises OSError.
    """

    def __init__(self, folder: Path, boot_id: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path, self._boot_id = folder / INVENTORY_FILE_NAME, boot_id
        self._stored = b""

    def store(self, items: Iterable[InventoryContainer]) -> None:
        """A failure is no loss: the next daemon only learns later what has ended."""
        record = msgspec.msgpack.encode((self._boot_id, tuple(items)))
        if record == self._stored:
            return
        with suppress(OSError):
            write_atomically(self._path, record)
            self._stored = record

    def load(self) -> tuple[InventoryContainer, ...]:
        """Empty for another boot."""
        kind = tuple[str, tuple[InventoryContainer, ...]]
        try:
            boot_id, items = msgspec.msgpack.decode(read_own(self._path), type=kind)
        except (OSError, ValueError, RecursionError):  # a damaged file counts as none
            return ()
        return items if boot_id == self._boot_id else ()
