"""This node's pods, from the API server, the cache on disk and the static pods' manifests.

The cache outlives a reboot, so a start without the API server knows the pods' priorities. A pod object can be
1.5 MiB, most of it annotations: decoding skips every field that is not named here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import trio

from ebbtide.actors.edges.linux.proc import CONTAINER_ID
from ebbtide.actors.edges.pod_spec import (
    SYSTEM_PRIORITIES,
    Int64,
    deletion_of,
    deletion_seconds,
    wall_ns,
)
from ebbtide.actors.interfaces import WARNING, Tell
from ebbtide.events import bounds
from ebbtide.events import decisions as d
from ebbtide.events.base import Order
from ebbtide.events.files import read_own, write_atomically
from ebbtide.events.inotify import FolderWatch
from ebbtide.events.values import Deletion

#: Known before the writers are loaded.
API_ORDERS: tuple[type[Order], ...] = (
    d.AnnounceNode,
    d.AwaitStatuses,
    d.DeletePod,
    d.DeliverStatuses,
    d.PostEvent,
    d.PublishCertificate,
    d.PublishLastBoot,
    d.WithdrawPods,
)


#: Of an object's name. A pod's owners and volumes may have longer ones.
NAME_MAX = 253
#: A kubelet may write 1.5 MB as its volumes in use.
UNIQUE_MAX, IN_USE_MAX = 512, 500
#: A pod may have 200 000.
FINALIZERS_MAX = 4
FINAL_PHASES = ("Succeeded", "Failed")
#: In these phases only the creator has written the object.
CREATED_PHASES = ("", "Pending")


class KnownPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``uid``: the runtime's, or a mirror's claim (`mirrored_uid`). ``api_uid``: the object's own, for
    preconditions. ``static``: a mirror, even if its claim is false.
    """

    uid: str
    api_uid: str
    namespace: str
    name: str
    resource_version: str = ""
    phase: str = ""
    priority: int | None = None
    grace_seconds: int | None = None
    static: bool = False
    #: Of a manifest without a number.
    priority_assigned: bool = False
    daemon: bool = False
    tolerates_all: bool = False
    volumes: bool = False
    host_network: bool = False
    owner: str = ""
    #: In the manifest's order.
    sidecars: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    #: Known exit codes of terminated containers.
    ended: dict[str, int] = {}
    #: The runtime's ids of running containers, by name.
    running: dict[str, str] = {}
    #: Its deletionTimestamp (0: not being deleted).
    deleted_by_ns: int = 0
    deletion_seconds: int = 0
    #: On this boot's clock, set by the store. A mirror has none: its deletion ends no pod.
    deletion: Deletion | None = None

    @property
    def deleting(self) -> bool:
        return self.deleted_by_ns > 0


# The kubelet makes a mirror object for each static pod, but every user who may create pods can forge its
# annotations. So a real pod goes before a mirror. A mirror counts only for a static pod of the runtime with
# its name (`cri_pods.known_pod_of`). Of several, one with a status goes first: a status takes another right.


class Annotations(msgspec.Struct, gc=False):
    """``mirror`` None: it is no mirror."""

    mirror: str | None = msgspec.field(default=None, name="kubernetes.io/config.mirror")
    source: str = msgspec.field(default="", name="kubernetes.io/config.source")


class Owner(msgspec.Struct, rename="camel", gc=False):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Labels(msgspec.Struct, gc=False):
    template: str = msgspec.field(default="", name="pod-template-hash")


class Metadata(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: Int64 | None = None
    finalizers: tuple[str, ...] | None = None
    annotations: Annotations | None = None
    labels: _Labels | None = None
    owner_references: list[Owner] | None = None


STATIC_SOURCES = ("file", "http")


def controller_of(owners: Iterable[Owner] | None) -> Owner:
    """Empty for none, and for one that cannot exist."""
    found = next((each for each in owners or () if each.controller), Owner())
    words = found.kind, found.name, found.uid
    exists = all(len(each) <= NAME_MAX and each.isascii() for each in words) and "/" not in found.name
    return found if exists else Owner()


def shown_finalizers(found: Sequence[str] | None) -> tuple[str, ...]:
    shown = tuple(each[:NAME_MAX] for each in (found or ())[:FINALIZERS_MAX])
    more = len(found or ()) - len(shown)
    return (*shown, f"and {more} more") if more else shown


def mirrored_uid(name: str, annotations: Annotations | None, owners: Iterable[Owner] | None) -> str:
    """The static pod's UID, if the object looks like a kubelet's mirror."""
    if annotations is None or annotations.source not in STATIC_SOURCES:
        return ""
    owner = controller_of(owners)
    is_kubelets = owner.kind == "Node" and name.endswith(f"-{owner.name.lower()}")
    return annotations.mirror or "" if is_kubelets else ""


def by_runtime_uid(pods: Iterable[KnownPod]) -> dict[str, KnownPod]:
    """Without false mirrors."""
    found: dict[str, KnownPod] = {}
    for each in pods:
        before = found.get(each.uid)
        if before is None or _precedence(each) > _precedence(before):
            found[each.uid] = each
    return found


def _precedence(pod: KnownPod) -> tuple[bool, bool]:
    return pod.uid == pod.api_uid, pod.phase not in CREATED_PHASES


PodName = tuple[str, str]

NOT_LISTED_YET = "the API server has not listed this node's pods yet"
NO_LIST = "the API server gives no list of this node's pods"


#: A kubelet may remove 100 objects at once, then 50 a second.
LAST_ENDS_MAX = 256


class PodStore:
    """``version`` counts the API server's changes; 0: it has not reported yet."""

    def __init__(self) -> None:
        #: By the object's own UID.
        self._pods: dict[str, KnownPod] = {}
        self._by_uid: dict[str, KnownPod] = {}
        self._manifests: dict[PodName, KnownPod] = {}
        #: Of pods that are gone, the newest last.
        self._last_ends: dict[str, dict[str, int]] = {}
        self.resource_version = ""
        self.version = 0
        #: Why no first list can be expected now.
        self.why_no_list = ""
        self.manifests_known = True
        self._news = trio.Event()

    async def changed(self, since: int) -> None:
        while self.version == since:
            await self._news.wait()

    @property
    def untold(self) -> str:
        """Why the API server has not reported yet; empty: it has."""
        return "" if self.version else self.why_no_list or NOT_LISTED_YET

    @property
    def expecting(self) -> bool:
        """May more data come in a moment?"""
        return self.untold == NOT_LISTED_YET or not self.manifests_known

    def find(self, uid: str) -> KnownPod | None:
        """By the runtime's UID."""
        return self._by_uid.get(uid)

    def find_named(self, namespace: str, name: str) -> KnownPod | None:
        """A static pod by name: only the kubelet knows its UID."""
        named = (each for each in self._pods.values() if (each.namespace, each.name) == (namespace, name))
        return next((each for each in named if each.static), None) or self._manifests.get((namespace, name))

    def has_number(self, namespace: str, name: str) -> bool:
        """Does the static pod's manifest give a priority? True without a manifest."""
        manifest = self._manifests.get((namespace, name))
        return manifest is None or not manifest.priority_assigned

    def pods(self) -> list[KnownPod]:
        """The API's first, then static pods that it has not shown."""
        shown = {(each.namespace, each.name) for each in self._pods.values()}
        unseen = [each for name, each in self._manifests.items() if name not in shown]
        believed = [each for each in self._pods.values() if self._by_uid[each.uid] is each]
        return [*believed, *unseen]

    def exit_code(self, uid: str, container: str) -> int | None:
        """As the API server has shown it since this start, also of a removed object."""
        if not self.version:
            return None
        known = self.find(uid)
        return (self._last_ends.get(uid, {}) if known is None else known.ended).get(container)

    def watched(self) -> list[KnownPod]:
        return list(self._pods.values())

    def restore(self, pods: Iterable[KnownPod]) -> None:
        """From the cache, unless the watch was faster."""
        if not self.resource_version:
            self._set(pods)

    def replace(self, pods: Iterable[KnownPod], resource_version: str) -> None:
        self._set(pods)
        self.resource_version = resource_version
        self._tell()

    def put(self, pod: KnownPod) -> None:
        self._pods[pod.api_uid] = self._timed(pod, seen=pod.api_uid in self._pods)
        self._by_uid = by_runtime_uid(self._pods.values())
        self._tell()

    def remove(self, last: KnownPod) -> None:
        """``last``: its last state. A new mirror of the same pod is another object."""
        gone = self._pods.pop(last.api_uid, None)
        if gone is None:
            return
        # A kubelet removes the object right after the last status.
        if last.ended and self._by_uid[gone.uid] is gone:
            self._last_ends[gone.uid] = last.ended
            if len(self._last_ends) > LAST_ENDS_MAX:
                del self._last_ends[next(iter(self._last_ends))]
        self._by_uid = by_runtime_uid(self._pods.values())
        self._tell()

    def set_manifests(self, pods: Iterable[KnownPod]) -> None:
        self._manifests = {(each.namespace, each.name): each for each in pods}
        self.manifests_known = True

    def _tell(self) -> None:
        self.version += 1
        self._news.set()
        self._news = trio.Event()

    def _timed(self, pod: KnownPod, *, seen: bool = False) -> KnownPod:
        """``seen``: this change deletes it, so the wall clock does not matter."""
        if not pod.deleting or pod.static:
            return pod
        before = self._pods.get(pod.api_uid)
        seconds, now_ns = pod.deletion_seconds, time.monotonic_ns()
        if before is not None and before.deletion is not None:
            since_ns = before.deletion.since_ns
        else:
            left_ns = pod.deleted_by_ns - time.time_ns()
            since_ns = now_ns if seen else deletion_of(left_ns, seconds, now_ns).since_ns
        return msgspec.structs.replace(pod, deletion=Deletion(since_ns=since_ns, grace_seconds=seconds))

    def _set(self, pods: Iterable[KnownPod]) -> None:
        self._pods = {each.api_uid: self._timed(each) for each in pods}
        self._by_uid = by_runtime_uid(self._pods.values())


CACHE_FILE_NAME = "pods.json"
CACHE_FILE_VERSION = 1
#: 250 pods are 100 KiB.
CACHE_BYTES_MAX = 16 * 1024 * 1024
#: One write for pods that come and go together.
GATHER_SECONDS = 0.5
#: Between two writes.
REST_SECONDS = 5.0


class _CacheFile(msgspec.Struct, rename="camel", kw_only=True):
    version: int
    node: str
    resource_version: str = ""
    pods: list[KnownPod] = []


class PodCache:
    def __init__(self, folder: Path, node: str, tell: Tell) -> None:
        self.folder = folder
        self._path = folder / CACHE_FILE_NAME
        self._node = node
        self._tell = tell
        self._failed = False
        #: A thread on a hung disk must not write after a later one.
        self.threads = trio.CapacityLimiter(1)

    def load(self) -> list[KnownPod]:
        """For a thread."""
        try:
            found = msgspec.json.decode(read_own(self._path, CACHE_BYTES_MAX), type=_CacheFile)
        except (OSError, ValueError, RecursionError):
            return []
        return found.pods if (found.version, found.node) == (CACHE_FILE_VERSION, self._node) else []

    async def follow(self, store: PodStore) -> None:
        """Writes once more when cancelled."""
        written = store.version
        try:
            while True:
                await store.changed(written)
                await trio.sleep(GATHER_SECONDS)
                written = store.version
                await self._write(store)
                await trio.sleep(REST_SECONDS)
        finally:
            if store.version != written:
                with trio.move_on_after(bounds.now.last_write_seconds, shield=True):
                    await self._write(store)

    async def _write(self, store: PodStore) -> None:
        file = _CacheFile(
            version=CACHE_FILE_VERSION,
            node=self._node,
            resource_version=store.resource_version,
            pods=store.watched(),
        )
        data = msgspec.json.encode(file)
        try:
            await trio.to_thread.run_sync(self._store, data, abandon_on_cancel=True, limiter=self.threads)
        except OSError as error:
            if not self._failed:
                why = f"{error.strerror}; a start without the API server knows no priorities"
                self._tell(WARNING, f"Kubernetes API: {self._path}: {why}")
            self._failed = True
        else:
            self._failed = False

    def _store(self, data: bytes) -> None:
        os.makedirs(self._path.parent, mode=0o700, exist_ok=True)
        write_atomically(self._path, data, sync=True)


#: No other node waits for their unmount.
LOCAL_VOLUMES = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "gitRepo", "hostPath", "image", "projected", "secret"}
)
#: With NoSchedule and without a value.
TAINT_KEY = "ebbtide.dev/shutting-down"
TOLERATED_EFFECTS = ("", "NoSchedule")

# As in core/v1. Manifests may have null.


class Toleration(msgspec.Struct, rename="camel", gc=False):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: Int64 | None = None


class _Container(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    restart_policy: str | None = None


class PodSpec(msgspec.Struct, rename="camel", gc=False):
    node_name: str | None = None
    priority: Int64 | None = None
    priority_class_name: str | None = None
    termination_grace_period_seconds: Int64 | None = None
    host_network: bool | None = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    tolerations: list[Toleration] | None = None
    #: Keys: the name and the kind.
    volumes: list[dict[str, Any]] | None = None


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None


class _Phase(msgspec.Struct, rename="camel", gc=False):
    exit_code: Int64 = 0
    reason: str | None = None


#: The container never ran, or was lost: its exit code 137 means no SIGKILL.
UNKNOWN_REASON = "ContainerStatusUnknown"


class _State(msgspec.Struct, gc=False):
    waiting: _Phase | None = None
    running: _Phase | None = None
    terminated: _Phase | None = None


class _ContainerStatus(msgspec.Struct, rename="camel", gc=False):
    name: str = ""
    identity: str = msgspec.field(default="", name="containerID")
    state: _State | None = None


class _Status(msgspec.Struct, rename="camel", gc=False):
    phase: str | None = None
    reason: str | None = None
    conditions: list[_Condition] | None = None
    container_statuses: list[_ContainerStatus] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None

    @property
    def containers(self) -> tuple[_ContainerStatus, ...]:
        """Init containers first."""
        return (*(self.init_container_statuses or ()), *(self.container_statuses or ()))


class PodObject(msgspec.Struct, gc=False):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: _Status = msgspec.field(default_factory=_Status)


def project_pod(pod: PodObject) -> KnownPod:
    metadata, spec, status = pod.metadata, pod.spec, pod.status
    annotations, owner = metadata.annotations, controller_of(metadata.owner_references)
    statuses = status.containers
    return KnownPod(
        uid=mirrored_uid(metadata.name, annotations, metadata.owner_references) or metadata.uid,
        api_uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        resource_version=metadata.resource_version,
        phase=status.phase or "",
        priority=priority_of(spec),
        grace_seconds=spec.termination_grace_period_seconds,
        static=annotations is not None and annotations.mirror is not None,
        daemon=owner.kind == "DaemonSet",
        tolerates_all=any(map(_tolerates_ours, spec.tolerations or ())),
        volumes=any(
            kind != "name" and kind not in LOCAL_VOLUMES for volume in spec.volumes or () for kind in volume
        ),
        host_network=bool(spec.host_network),
        owner=_workload(owner, metadata),
        sidecars=tuple(each.name for each in spec.init_containers or () if each.restart_policy == "Always"),
        containers=tuple(each.name for each in spec.containers or ()),
        ended={
            each.name: each.state.terminated.exit_code
            for each in status.container_statuses or ()
            if each.state and each.state.terminated and each.state.terminated.reason != UNKNOWN_REASON
        },
        # ``containerd://<id>``. The id names processes of this machine, so other texts are left out.
        running={
            each.name: key
            for each in statuses
            if CONTAINER_ID.fullmatch(key := each.identity.rpartition("//")[2])
            and each.state
            and each.state.running
        },
        deleted_by_ns=_wall_ns(metadata.deletion_timestamp),
        deletion_seconds=deletion_seconds(
            metadata.deletion_grace_period_seconds, spec.termination_grace_period_seconds
        ),
    )


def _tolerates_ours(toleration: Toleration) -> bool:
    key, exists = toleration.key or "", toleration.operator == "Exists"
    if key not in ("", TAINT_KEY) or (toleration.effect or "") not in TOLERATED_EFFECTS:
        return False
    return exists or (
        key == TAINT_KEY and toleration.operator in (None, "", "Equal") and not toleration.value
    )


def _wall_ns(timestamp: str | None) -> int:
    """An unreadable one counts as past."""
    try:
        return 0 if timestamp is None else wall_ns(timestamp)
    except ValueError:
        return 1


def priority_of(spec: PodSpec) -> int | None:
    """None: only the cluster knows the class."""
    if spec.priority is not None:
        return spec.priority
    return SYSTEM_PRIORITIES.get(spec.priority_class_name or "")


def _workload(owner: Owner, metadata: Metadata) -> str:
    """``Kind/name``: the Deployment where the owner is its ReplicaSet."""
    template = metadata.labels.template if metadata.labels else ""
    if not owner.name or owner.kind == "Node":
        return ""
    if owner.kind == "ReplicaSet" and template and owner.name.endswith(f"-{template}"):
        return f"Deployment/{owner.name.removesuffix(f'-{template}')}"
    return f"{owner.kind}/{owner.name}"


#: A manifest is a few KiB; a folder holds a handful.
MANIFEST_BYTES_MAX = 1024 * 1024
MANIFESTS_MAX = 250


def read_manifests(path: Path, node: str) -> list[KnownPod]:
    """``path``: a manifest or a folder. Names the pods like their mirrors. Skips unreadable files, as the
    kubelet does. For a thread.
    """
    from ebbtide.actors.edges.documents import object_of_file  # late: nothing else here needs YAML

    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
    except OSError:
        return []
    found: list[KnownPod] = []
    for file in [file for file in files if not file.name.startswith(".")][:MANIFESTS_MAX]:
        try:
            found_object = msgspec.convert(object_of_file(file, MANIFEST_BYTES_MAX), PodObject)
            pod, has_number = project_pod(found_object), found_object.spec.priority is not None
        except (OSError, ValueError):  # what msgspec raises is a ValueError, and so is a DocumentError
            continue
        if pod.name:
            # Only the kubelet knows the UID. Static pods tolerate everything.
            mirror = msgspec.structs.replace(
                pod,
                namespace=pod.namespace or "default",
                name=f"{pod.name}-{node.lower()}",
                static=True,
                priority_assigned=not has_number,
                tolerates_all=True,
                uid="",
                api_uid="",
            )
            found.append(mirror)
    return found


async def follow_manifests(path: Path, node: str, take: Callable[[list[KnownPod]], None]) -> None:
    """Raises OSError."""
    folder = path if path.is_dir() else path.parent
    with closing(FolderWatch([folder])) as watch:
        while True:
            take(await trio.to_thread.run_sync(read_manifests, path, node, abandon_on_cancel=True))
            await watch.changed()
