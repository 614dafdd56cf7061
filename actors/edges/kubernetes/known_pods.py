"""This node's pods, from the API server, the cache on disk and the static pods' manifests.

The watch replaces what the cache had; manifests add static pods that the API never showed. The cache is one
file, which outlives a reboot, so that a start without the API server knows the pods' priorities. Nothing here
needs the client.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
import trio

from ebbtide.actors.interfaces import WARNING, Tell
from ebbtide.events import bounds
from ebbtide.events import decisions as d
from ebbtide.events.base import Order
from ebbtide.events.files import read_own, write_atomically

#: Here, so that the edge takes orders before the writers are loaded.
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


#: Nothing of a pod runs after these.
FINAL_PHASES = ("Succeeded", "Failed")
#: Of an object that only its creator has written.
CREATED_PHASES = ("", "Pending")


class KnownPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """``uid``: the runtime's; for a static pod the one that its mirror claims (`mirrored_uid`). ``api_uid``:
    the object's own, for preconditions. ``static``: a mirror, even if its claim is false.
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
    daemon: bool = False
    tolerates_all: bool = False
    volumes: bool = False
    host_network: bool = False
    owner: str = ""
    #: In the manifest's order, as are the containers.
    sidecars: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    #: Exit codes of terminated containers.
    ended: dict[str, int] = {}
    #: The runtime's ids of running containers, by name.
    running: dict[str, str] = {}
    deleting: bool = False


# A static pod is a file on this node. Its kubelet makes a mirror object, with annotations that name the pod.
# Every user who may create pods can write these, so a real pod goes before a mirror; a mirror counts only for
# a static pod of the runtime with its namespace and name (`cri_pods.known_pod_of`); and without the runtime a
# mirror with a kubelet's status counts first, since writing a status takes another right.


class Annotations(msgspec.Struct, gc=False):
    """``mirror`` None: it is no mirror."""

    mirror: str | None = msgspec.field(default=None, name="kubernetes.io/config.mirror")
    source: str = msgspec.field(default="", name="kubernetes.io/config.source")


class Owner(msgspec.Struct, gc=False):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Labels(msgspec.Struct, gc=False):
    template: str = msgspec.field(default="", name="pod-template-hash")


class Metadata(msgspec.Struct, rename="camel", gc=False):
    """Of a pod, and of other objects whose annotations are not read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] | None = None
    annotations: Annotations | None = None
    labels: _Labels | None = None
    owner_references: list[Owner] | None = None


STATIC_SOURCES = ("file", "http")


def controller_of(owners: Iterable[Owner] | None) -> Owner:
    """Empty if there is none."""
    return next((each for each in owners or () if each.controller), Owner())


def mirrored_uid(name: str, annotations: Annotations | None, owners: Iterable[Owner] | None) -> str:
    """The UID of the static pod that this object mirrors, if it looks like a kubelet's: with a source, owned
    by its Node, with the Node's name at its end. Else empty.
    """
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


#: They are asked for at once. A kubelet may remove 100 objects at once, then 50 a second.
LAST_ENDS_MAX = 256


class PodStore:
    """``version`` counts the API server's changes; 0: all is from before a restart."""

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
        """Why the API server has reported nothing since this start; empty: it has."""
        return "" if self.version else self.why_no_list or NOT_LISTED_YET

    @property
    def expecting(self) -> bool:
        """May the pods become better known in a moment, with no change to them?"""
        return self.untold == NOT_LISTED_YET or not self.manifests_known

    def find(self, uid: str) -> KnownPod | None:
        """By the runtime's UID."""
        return self._by_uid.get(uid)

    def find_named(self, namespace: str, name: str) -> KnownPod | None:
        """A static pod by name: only the kubelet knows its UID."""
        named = (each for each in self._pods.values() if (each.namespace, each.name) == (namespace, name))
        return next((each for each in named if each.static), None) or self._manifests.get((namespace, name))

    def pods(self) -> list[KnownPod]:
        """The API's first, then static pods that it has not shown."""
        shown = {(each.namespace, each.name) for each in self._pods.values()}
        unseen = [each for name, each in self._manifests.items() if name not in shown]
        believed = [each for each in self._pods.values() if self._by_uid[each.uid] is each]
        return [*believed, *unseen]

    def exit_code(self, uid: str, container: str) -> int | None:
        """As the API server has shown it since this start, for an object that is gone in its last state."""
        if not self.version:
            return None
        known = self.find(uid)
        return (self._last_ends.get(uid, {}) if known is None else known.ended).get(container)

    def watched(self) -> list[KnownPod]:
        """What the API has shown, to be kept over a restart."""
        return list(self._pods.values())

    def restore(self, pods: Iterable[KnownPod]) -> None:
        """What was known before a restart, unless the watch was faster."""
        if not self.resource_version:
            self._set(pods)

    def replace(self, pods: Iterable[KnownPod], resource_version: str) -> None:
        self._set(pods)
        self.resource_version = resource_version
        self._tell()

    def put(self, pod: KnownPod) -> None:
        self._pods[pod.api_uid] = pod
        self._by_uid = by_runtime_uid(self._pods.values())
        self._tell()

    def remove(self, last: KnownPod) -> None:
        """An object is gone; ``last``: its last state. A new mirror of the same pod is another object."""
        gone = self._pods.pop(last.api_uid, None)
        if gone is None:
            return
        # A kubelet writes the last status and removes the object at once, often before a look at the first.
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

    def _set(self, pods: Iterable[KnownPod]) -> None:
        self._pods = {each.api_uid: each for each in pods}
        self._by_uid = by_runtime_uid(self._pods.values())


CACHE_FILE_NAME = "pods.json"
CACHE_FILE_VERSION = 1
#: 250 pods are 100 KiB.
CACHE_BYTES_MAX = 16 * 1024 * 1024
#: Pods mostly come and go together: one write for all.
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
        #: A thread that hangs on a disk outlives its task, and must not write after a later write.
        self.threads = trio.CapacityLimiter(1)

    def load(self) -> list[KnownPod]:
        """For a thread. Empty without a usable file."""
        try:
            found = msgspec.json.decode(read_own(self._path, CACHE_BYTES_MAX), type=_CacheFile)
        except (OSError, ValueError, RecursionError):
            return []
        return found.pods if (found.version, found.node) == (CACHE_FILE_VERSION, self._node) else []

    async def follow(self, store: PodStore) -> None:
        """Until cancelled, and then once more. Writes nothing before the first list."""
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
