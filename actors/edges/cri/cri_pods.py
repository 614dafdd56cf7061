"""The pods that the container runtime has, warm in memory: what an inventory is read from without any call.

The table holds ready sandboxes and their containers. An inventory shows a pod as the runtime has it, and
over that what the API server told of it; it is put together when it is looked at, so that what is learned
of a pod later counts. Labels and annotations are all that a runtime knows of Kubernetes (kubelet,
``kuberuntime/labels.go``). Which containers a shutdown was given is kept in a file for the daemon's next
life.

Nothing here needs gRPC: it is loaded with the edge, and by whoever only looks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import trio
from msgspec.structs import replace

from ebbtide.actors.edges.kubernetes.known_pods import KnownPod, PodLookup
from ebbtide.actors.edges.linux.exits import ExitStatus
from ebbtide.actors.edges.pod_spec import (
    ContainerSpec,
    ExecAction,
    HookAction,
    HttpGetAction,
    Int64,
    SleepAction,
    TcpSocketAction,
    hook_of,
)
from ebbtide.actors.interfaces import NOTICE, WARNING, Tell
from ebbtide.events.facts import ContainerExited
from ebbtide.events.files import read_own, write_atomically
from ebbtide.events.values import Container, Hook, Pod

#: The API server tells of a container for some seconds after its end: more than a node ends in that time.
SEEN_CONTAINERS_MAX = 4096


class ContainerEntry:
    """One running container, or one that ran a moment ago. ``pid`` 0: its runtime shows no process here."""

    __slots__ = (
        "end",
        "ended",
        "id",
        "kept_hook",
        "pid",
        "pidfd",
        "pod",
        "spec",
        "start_ticks",
        "stop_signal",
        "stopping",
    )

    def __init__(self, pod: PodEntry, container_id: str, spec: ContainerSpec) -> None:
        self.pod = pod
        self.id = container_id
        self.spec = spec
        self.pid = 0
        self.pidfd = -1
        self.start_ticks = 0
        #: What its runtime would send it; empty: only the runtime knows.
        self.stop_signal = ""
        #: That it has one is known from before the daemon's start; what it does is the runtime's to tell.
        self.kept_hook: Hook | None = None
        self.end = ExitStatus()
        self.ended = trio.Event()
        #: Somebody asked for its end.
        self.stopping = False

    @property
    def running(self) -> bool:
        return not self.ended.is_set()

    @property
    def hook(self) -> Hook | None:
        """As the core may know of it."""
        return self.kept_hook or hook_of(self.spec.pre_stop)

    @property
    def key(self) -> tuple[str, str]:
        """As orders name it."""
        return self.pod.uid, self.spec.name

    def finish(self, end: ExitStatus) -> None:
        if self.pidfd >= 0:
            os.close(self.pidfd)
        self.pidfd = -1
        self.end = end
        self.ended.set()

    def exited(self) -> ContainerExited:
        return ContainerExited(
            uid=self.pod.uid, container=self.spec.name, exit_code=self.end.exit_code, signal=self.end.signal
        )


def found_gone(uid: str, container: str, exit_code: int | None) -> ContainerExited:
    """The end of one that was looked for and no longer there; None: nor does anybody know how it ended."""
    return ContainerExited(uid=uid, container=container, exit_code=exit_code, gone=exit_code is None)


class PodEntry:
    """One sandbox that is ready. ``pod_ip`` empty: it shares the node's network (``host_network``), or its
    address is not known.
    """

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


class InventoryContainer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A container of an inventory that a shutdown was given. ``stopping``: its end was asked for."""

    uid: str
    container: str
    id: str
    stopping: bool = False


class PodTable:
    """Every ready sandbox by its id, in the order in which they became known. ``own``: never in a wave."""

    def __init__(self, own: frozenset[str] = frozenset()) -> None:
        self.own = own
        self.pods: dict[str, PodEntry] = {}
        #: The ids of all containers that the runtime's last list had as running, also of those that are not
        #: in the table. None: no list has come.
        self.listed: frozenset[str] | None = None
        #: By UID and name, the containers that a shutdown was given: what its orders mean.
        self.given: dict[tuple[str, str], InventoryContainer] = {}
        #: Containers that any shutdown was given, by their ids: their ends are reported. None: known to the
        #: daemon before, and not found yet.
        self.followed: dict[str, ContainerEntry | None] = {}
        #: Of them those under whose names others have been started since.
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
        # A kubelet may start a container again under its name while the shutdown's orders still mean the one
        # before.
        before = entry.pod.containers.get(entry.spec.name)
        if before is not None and before.id in self.followed:
            self._replaced[before.id] = before
        given = self.given.get(entry.key)
        entry.stopping = given is not None and given.id == entry.id and given.stopping
        entry.pod.containers[entry.spec.name] = entry
        if entry.id in self.followed:
            self.followed[entry.id] = entry
        self._seen[entry.id] = None
        if len(self._seen) > SEEN_CONTAINERS_MAX:
            del self._seen[next(iter(self._seen))]

    def find(self, uid: str, container: str) -> ContainerEntry | None:
        """The container that a shutdown was given under this name, and no other that was started since. Was
        none given, what runs under this name, else what ran last.
        """
        given = self.given.get((uid, container))
        if given is not None:
            return self._replaced.get(given.id) or next(
                (entry for entry in self._named(uid, container) if entry.id == given.id), None
            )
        found = self._named(uid, container)
        return next((entry for entry in found if entry.running), found[-1] if found else None)

    def _named(self, uid: str, container: str) -> list[ContainerEntry]:
        return [
            pod.containers[container]
            for pod in self.pods.values()
            if pod.uid == uid and container in pod.containers
        ]

    def active(self) -> list[PodEntry]:
        """The pods that a shutdown has to end: those of which something runs, but our own."""
        return [pod for pod in self.pods.values() if pod.running and pod.uid not in self.own]

    def give(self, pods: list[PodEntry], *, anew: bool = False) -> None:
        """A shutdown is given these: from now on its orders mean their containers, and the ends of these are
        reported. ``anew``: it is another shutdown than before.
        """
        if anew:
            self.given = {}
            self._forget_ended()
        for pod in pods:
            for entry in pod.containers.values():
                if entry.running:
                    self.give_one(entry)

    def give_one(self, entry: ContainerEntry) -> None:
        """The same of one container that runs."""
        made = InventoryContainer(
            uid=entry.pod.uid, container=entry.spec.name, id=entry.id, stopping=entry.stopping
        )
        # The first that was given under a name stays meant: an order that was for it must not hit its
        # successor.
        self.given.setdefault(entry.key, made)
        # Also of former shutdowns, since a pod that a cancelled one began to stop is still waited for.
        self.followed[entry.id] = entry

    def give_started(self, expects: Callable[[str, str], bool]) -> list[PodEntry]:
        """Pods that a shutdown was given, in which something runs that it was not: under the name of what has
        ended, as has been reported, or of what did not run. From now on orders mean what runs now.
        ``expects``: by UID and name, those that it was given without a look.
        """
        uids = {uid for uid, _ in self.given}
        found = [
            entry
            for entry in self.entries()
            if entry.running and entry.pod.uid in uids and self._is_new(entry, expects)
        ]
        for entry in found:
            self.given[entry.key] = InventoryContainer(
                uid=entry.pod.uid, container=entry.spec.name, id=entry.id
            )
            self.followed[entry.id] = entry
        return list(dict.fromkeys(entry.pod for entry in found))

    def _is_new(self, entry: ContainerEntry, expects: Callable[[str, str], bool]) -> bool:
        given = self.given.get(entry.key)
        # It did not run at the signal: it was to be started for the first time, or after one more pause.
        if given is None:
            return not expects(*entry.key)
        if given.id == entry.id:
            return False
        # No more followed: its end was found out after a start of the daemon. Not found yet: nobody has.
        before = self.followed.get(given.id, given)
        return before is given or (isinstance(before, ContainerEntry) and not before.running)

    def _forget_ended(self) -> None:
        """What former shutdowns were given and has ended has been reported; a node that stays up through many
        of them must not keep it all.
        """
        self.followed = {key: entry for key, entry in self.followed.items() if entry is None or entry.running}
        self._replaced = {key: entry for key, entry in self._replaced.items() if key in self.followed}

    def restore(self, given: tuple[InventoryContainer, ...]) -> None:
        """What the daemon before was given."""
        self.given = {(each.uid, each.container): each for each in given}
        self.followed |= {each.id: None for each in given}

    def stop(self, entry: ContainerEntry) -> None:
        """Somebody asked for its end."""
        entry.stopping = True
        given = self.given.get(entry.key)
        if given is not None and given.id == entry.id and not given.stopping:
            self.given[entry.key] = replace(given, stopping=True)

    def close(self) -> None:
        """Give back every descriptor; ends no process."""
        for entry in (*self.entries(), *self._replaced.values()):
            if entry.pidfd >= 0:
                os.close(entry.pidfd)
                entry.pidfd = -1


# A container that has ended well adds nothing to a pod that goes down. One that ended badly, or nobody knows
# how, is shown as not running: with it the pod's end is no success, whatever its other containers do.


def known_pod_of(pod: PodEntry, lookup: PodLookup | None) -> KnownPod | None:
    """By its UID; a static pod also by its name, since nobody but the runtime may know its UID. A mirror that
    the API server has of no static pod here, or under another name, is none that this node's kubelet made.
    """
    if lookup is None:
        return None
    found = lookup.find(pod.uid)
    named = pod.static, pod.namespace, pod.name
    if found is not None and found.static and (True, found.namespace, found.name) != named:
        found = None
    return lookup.find_named(pod.namespace, pod.name) if found is None and pod.static else found


def pod_view(pod: PodEntry, known: KnownPod | None = None) -> Pod:
    """What is known wins over what the runtime's labels and annotations say."""
    sidecars: Sequence[str] = tuple(pod.sidecars)
    ended: dict[str, int] = {}
    priority, grace_seconds = pod.priority, pod.grace_seconds
    if known is not None:
        sidecars, ended = known.sidecars, known.ended
        priority = priority if known.priority is None else known.priority
        grace_seconds = grace_seconds if known.grace_seconds is None else known.grace_seconds
    made = [
        Container(
            name=name,
            hook=entry.hook if entry.running else None,
            stop_signal=entry.spec.stop_signal,
            sidecar=name in sidecars,
            running=entry.running,
        )
        for name, entry in pod.containers.items()
        if entry.running or entry.end.exit_code != 0
    ]
    made += _failed_containers(ended, pod.containers)
    if known is not None:
        # Behind init containers, or not pulled yet: a pod that ends without it has not succeeded.
        unstarted = (name for name in known.containers if name not in pod.containers and name not in ended)
        made += [Container(name=name, running=False) for name in unstarted]
    order = known.sidecars + known.containers if known is not None else ()
    return Pod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        priority=priority,
        grace_seconds=grace_seconds,
        containers=_in_manifest_order(made, order),
        static=pod.static or (known is not None and known.static),
        daemon=known is not None and known.daemon,
        tolerates_all=known is not None and known.tolerates_all,
        volumes=known is not None and known.volumes,
        owner=known.owner if known is not None else "",
    )


def _failed_containers(ended: dict[str, int], but: Iterable[str]) -> list[Container]:
    return [Container(name=name, running=False) for name, code in ended.items() if code and name not in but]


def _in_manifest_order(made: Sequence[Container], order: Sequence[str]) -> tuple[Container, ...]:
    """Sidecars first, then as in the manifest; what is not in it stays behind, in the order of its making."""
    position = {name: index for index, name in enumerate(order)}
    return tuple(sorted(made, key=lambda each: (not each.sidecar, position.get(each.name, len(position)))))


def view_of_known(known: KnownPod, names: Iterable[str]) -> Pod:
    """A pod of which the runtime shows nothing, with these containers."""
    made = [Container(name=name, sidecar=name in known.sidecars) for name in names]
    made += _failed_containers(known.ended, ())
    return Pod(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        priority=known.priority,
        grace_seconds=known.grace_seconds,
        containers=tuple(made),
        static=known.static,
        daemon=known.daemon,
        tolerates_all=known.tolerates_all,
        volumes=known.volumes,
        owner=known.owner,
    )


def view_with_containers(pod: Pod, names: Collection[str], known: KnownPod) -> Pod:
    """The pod as the runtime shows it, and these containers of it that run as well (with unknown hooks)."""
    kept = [each for each in pod.containers if each.name not in names]
    more = [Container(name=name, sidecar=name in known.sidecars) for name in names]
    return replace(pod, containers=_in_manifest_order([*kept, *more], known.sidecars + known.containers))


# Priority and which init containers are sidecars are not among the kubelet's labels and annotations: both are
# read from annotations of the pod, which reach its sandbox, where somebody sets them; else they are unknown.


POD_UID_LABEL = "io.kubernetes.pod.uid"
POD_NAME_LABEL = "io.kubernetes.pod.name"
POD_NAMESPACE_LABEL = "io.kubernetes.pod.namespace"
CONTAINER_NAME_LABEL = "io.kubernetes.container.name"
GRACE_ANNOTATION = "io.kubernetes.pod.terminationGracePeriod"
PRE_STOP_ANNOTATION = "io.kubernetes.container.preStopHandler"
PORTS_ANNOTATION = "io.kubernetes.container.ports"
#: On a pod: where its kubelet has it from; anything but the API server makes it a static one.
CONFIG_SOURCE_ANNOTATION = "kubernetes.io/config.source"
CONFIG_SOURCE_API = "api"
#: On a pod: its priority as a number, and the names of its restartable init containers, with commas.
PRIORITY_ANNOTATION = "ebbtide/priority"
SIDECARS_ANNOTATION = "ebbtide/sidecars"


class _Exec(msgspec.Struct):
    command: list[str] = []


class _Header(msgspec.Struct):
    name: str = ""
    value: str = ""


class _HttpGet(msgspec.Struct):
    port: Int64 | str = 0
    path: str = ""
    host: str = ""
    scheme: str = ""
    headers: list[_Header] = msgspec.field(default_factory=list, name="httpHeaders")


class _Sleep(msgspec.Struct):
    seconds: Int64 = 0


class _Handler(msgspec.Struct):
    """A LifecycleHandler, as encoding/json writes it."""

    exec: _Exec | None = None
    http_get: _HttpGet | None = msgspec.field(default=None, name="httpGet")
    sleep: _Sleep | None = None
    tcp_socket: dict[str, Any] | None = msgspec.field(default=None, name="tcpSocket")


class _Port(msgspec.Struct):
    name: str = ""
    number: Int64 = msgspec.field(default=0, name="containerPort")


def pre_stop_of(annotations: Mapping[str, str]) -> HookAction | None:
    """The preStop handler of a container. One that cannot be read is no hook that could be run: None."""
    try:
        handler = msgspec.json.decode(annotations.get(PRE_STOP_ANNOTATION, "{}"), type=_Handler)
    except (ValueError, RecursionError):  # no JSON, another's, no UTF-8, nested deeper than a stack
        return None
    if handler.exec is not None and handler.exec.command:
        return ExecAction(argv=tuple(handler.exec.command))
    if handler.http_get is not None:
        headers = tuple((header.name, header.value) for header in handler.http_get.headers)
        return HttpGetAction(
            port=handler.http_get.port,
            host=handler.http_get.host,
            scheme=handler.http_get.scheme or "HTTP",
            path=handler.http_get.path,
            headers=headers,
        )
    if handler.sleep is not None:
        return SleepAction(seconds=handler.sleep.seconds)
    return TcpSocketAction() if handler.tcp_socket is not None else None


def ports_of(annotations: Mapping[str, str]) -> dict[str, int]:
    """A container's ports by name; those without one need no entry."""
    try:
        found = msgspec.json.decode(annotations.get(PORTS_ANNOTATION, "[]"), type=list[_Port])
    except (ValueError, RecursionError):  # no JSON, another's, no UTF-8, nested deeper than a stack
        return {}
    return {port.name: port.number for port in found if port.name}


def grace_seconds_of(annotations: Mapping[str, str]) -> int | None:
    """The pod's terminationGracePeriodSeconds, from one of its containers; None: it has none."""
    return parse_number(annotations.get(GRACE_ANNOTATION, ""))


def parse_number(text: str) -> int | None:
    """A decimal number, or None for what is none."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= 10 else None


def is_static(annotations: Mapping[str, str]) -> bool:
    """Did a kubelet make this pod of a file (or a URL) of its own?"""
    return annotations.get(CONFIG_SOURCE_ANNOTATION, CONFIG_SOURCE_API) != CONFIG_SOURCE_API


def sidecars_of(annotations: Mapping[str, str]) -> frozenset[str]:
    """The names of the restartable init containers, as far as somebody says."""
    return frozenset(
        name.strip() for name in annotations.get(SIDECARS_ANNOTATION, "").split(",") if name.strip()
    )


# What has ended while no daemon ran is reported by the next one, and nothing else is. The file means nothing
# after a reboot, so it is not synced, and its folder belongs on a file system that goes with the boot.


#: As earlier versions have named it, and its field.
INVENTORY_FILE_NAME = "told"


class InventoryRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the file holds."""

    boot_id: str
    told: tuple[InventoryContainer, ...]


class InventoryFile:
    """One file in ``folder``, which is made if need be. Raises OSError when it cannot be made."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / INVENTORY_FILE_NAME
        self._boot_id = boot_id
        self._stored = b""

    def store(self, given: list[InventoryContainer]) -> None:
        """Only a change is written. Without it a restart learns later of what has ended: that may be."""
        record = msgspec.msgpack.encode(InventoryRecord(boot_id=self._boot_id, told=tuple(given)))
        # Inventories come with every look, and most are as the one before.
        if record == self._stored:
            return
        with suppress(OSError):
            write_atomically(self._path, record)
            self._stored = record

    def load(self) -> tuple[InventoryContainer, ...]:
        """Empty for another boot, or when there is nothing of use."""
        try:
            record = msgspec.msgpack.decode(read_own(self._path), type=InventoryRecord)
        except (OSError, ValueError, RecursionError):  # damaged: as good as none
            return ()
        return record.told if record.boot_id == self._boot_id else ()


# What the table showed last is kept as well: nobody else tells a daemon that starts while the runtime hangs
# which container is whose, and what it is stopped with. Where its first process still runs, so does it. Of a
# hook no more is kept than the journal may have: what it runs, and sends, may be secret.


#: Of an image that names none, with containerd as with CRI-O.
DEFAULT_STOP_SIGNAL = "SIGTERM"
#: Of this version: another reads nothing of it, and asks the runtime.
TABLE_FILE_NAME = "table-1"


class KeptContainer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``pid`` 0: its runtime shows no process here."""

    id: str
    name: str
    hook: Hook | None = None
    pid: int = 0
    start_ticks: int = 0
    stop_signal: str = ""


class KeptPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A sandbox of which something ran."""

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
    containers: tuple[KeptContainer, ...] = ()


class _TableRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    boot_id: str
    pods: tuple[KeptPod, ...]


class TableFile:
    """One file in ``folder``, which is there."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._path = folder / TABLE_FILE_NAME
        self._boot_id = boot_id
        self._stored = b""

    def store(self, table: PodTable) -> None:
        """What runs. Only a change is written."""
        pods = tuple(_kept_pod(pod) for pod in table.pods.values() if pod.running)
        record = msgspec.msgpack.encode(_TableRecord(boot_id=self._boot_id, pods=pods))
        if record == self._stored:
            return
        with suppress(OSError):
            write_atomically(self._path, record)
            self._stored = record

    def load(self) -> tuple[KeptPod, ...]:
        """Empty for another boot, or when there is nothing of use."""
        try:
            record = msgspec.msgpack.decode(read_own(self._path), type=_TableRecord)
        except (OSError, ValueError, RecursionError):  # damaged: as good as none
            return ()
        return record.pods if record.boot_id == self._boot_id else ()


def _kept_pod(pod: PodEntry) -> KeptPod:
    made = (
        KeptContainer(
            id=entry.id,
            name=entry.spec.name,
            hook=entry.hook,
            pid=entry.pid,
            start_ticks=entry.start_ticks,
            stop_signal=entry.stop_signal,
        )
        for entry in pod.containers.values()
        if entry.running
    )
    return KeptPod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        sandbox=pod.sandbox,
        pod_ip=pod.pod_ip,
        host_network=pod.host_network,
        priority=pod.priority,
        grace_seconds=pod.grace_seconds,
        sidecars=tuple(sorted(pod.sidecars)),
        static=pod.static,
        containers=tuple(made),
    )


def restored_pod(kept: KeptPod) -> PodEntry:
    """As the table had it, without its containers."""
    pod = PodEntry(kept.uid, kept.namespace, kept.name, kept.sandbox)
    pod.pod_ip, pod.host_network = kept.pod_ip, kept.host_network
    pod.priority, pod.grace_seconds = kept.priority, kept.grace_seconds
    pod.sidecars, pod.static = frozenset(kept.sidecars), kept.static
    return pod


def restored_container(pod: PodEntry, kept: KeptContainer) -> ContainerEntry:
    """As the table had it, without its process."""
    spec = ContainerSpec(name=kept.name, argv=(), stop_signal=kept.stop_signal or DEFAULT_STOP_SIGNAL)
    entry = ContainerEntry(pod, kept.id, spec)
    entry.stop_signal, entry.kept_hook = kept.stop_signal, kept.hook
    return entry


#: Pods that one line names.
NAMED_PODS_MAX = 5


class OperatorNotes:
    """Remembers what was said."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._away = False
        self._direct = False

    def away(self, error: Exception) -> None:
        """The runtime does not answer."""
        if not self._away:
            self._tell(WARNING, f"container runtime: {error}; pods that appear are not seen")
        self._away = True

    def back(self) -> None:
        """It answers."""
        if self._away:
            self._tell(NOTICE, "container runtime: it answers again")
        self._away = self._direct = False

    def direct(self) -> None:
        """A stop signal went without it."""
        if not self._direct:
            self._tell(WARNING, "container runtime: away; stop signals go to the containers' first processes")
        self._direct = True

    def without_priority(self, pods: list[Pod], *, informed: bool) -> None:
        """Priorities are not in CRI: whoever relies on waves has to know which pods have none. ``informed``:
        the API server, or what is kept of it, was asked.
        """
        unknown = [pod.label for pod in pods if pod.priority is None]
        if not unknown:
            return
        more = f" and {len(unknown) - NAMED_PODS_MAX} more" if len(unknown) > NAMED_PODS_MAX else ""
        names = ", ".join(unknown[:NAMED_PODS_MAX]) + more
        why = (
            f"known priority (nor an annotation {PRIORITY_ANNOTATION})"
            if informed
            else f"annotation {PRIORITY_ANNOTATION}"
        )
        of = f"{len(unknown)} of {len(pods)} pods have no {why} and count as priority 0"
        self._tell(WARNING, f"{of}: {names}")
