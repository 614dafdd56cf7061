"""The pods of this node as far as they are known, and what the parts of this edge need of each other.

The watch keeps `KnownPod`s, the writers look them up by UID and call; neither knows how the other does it.
The watch replaces what the cache on disk had as soon as it has listed; manifests answer for static pods
that the API never showed.

The cache is one file, replaced as a whole, so that a start without the API server knows the pods'
priorities. It outlives a reboot: what the next boot delivers is checked against it. It follows the watch at
a distance: which pods there are matters at once, how they are can wait.

Nothing here needs the client: it is loaded with the edge, and by whoever only looks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from ebbtide.actors.interfaces import WARNING, Tell
from ebbtide.events import bounds
from ebbtide.events.base import Order
from ebbtide.events.decisions import (
    AnnounceNode,
    AwaitStatuses,
    DeletePod,
    DeliverStatuses,
    PostEvent,
    PublishCertificate,
    PublishLastBoot,
    WithdrawPods,
)
from ebbtide.events.files import read_own, write_atomically

#: What the core may have written to the API server. Here, so that the edge can take orders before the
#: writers are loaded.
API_ORDERS: tuple[type[Order], ...] = (
    AnnounceNode,
    AwaitStatuses,
    DeletePod,
    DeliverStatuses,
    PostEvent,
    PublishCertificate,
    PublishLastBoot,
    WithdrawPods,
)


#: Phases of a pod after which nothing of it runs.
FINAL_PHASES = ("Succeeded", "Failed")
#: Of an object that nobody but its creator has written; the API server sets the second.
CREATED_PHASES = ("", "Pending")


class KnownPod(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a shutdown may need of a pod of this node, as the API last showed it (a whitelisted projection).

    ``uid`` is the one that the runtime knows, for a static pod what its mirror claims (`mirrored_uid`).
    ``api_uid`` is the object's own, for preconditions. ``static``: a mirror, which no kubelet runs, be its
    claim true or not.
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
    #: Restartable init containers, in the manifest's order.
    sidecars: tuple[str, ...] = ()
    #: Names of the other containers, in the manifest's order.
    containers: tuple[str, ...] = ()
    #: Those of them whose ``state`` is terminated, with the exit code of each.
    ended: dict[str, int] = {}
    #: The runtime's ids of the containers, and init containers, that run, by name.
    running: dict[str, str] = {}
    #: The newest start of any container, RFC 3339, as the API had it.
    started_at: str = ""
    deleting: bool = False


# A static pod is on this node's disk, and its kubelet makes an object for it, its mirror, that says by
# annotations whose it is. The API server lets everybody write these who may create pods and names the node,
# so what they say of others' pods is not simply believed: a pod that the API server has goes before what
# claims to mirror it, a mirror speaks only for what the runtime has as static and under the mirror's own
# namespace and name (`cri_pods.known_pod_of`), and where nobody asks the runtime, that mirror
# counts whose status a kubelet writes, which takes another right than creating pods.


class Annotations(msgspec.Struct, gc=False):
    """What a kubelet writes on a mirror. ``mirror`` None: it is none."""

    mirror: str | None = msgspec.field(default=None, name="kubernetes.io/config.mirror")
    source: str = msgspec.field(default="", name="kubernetes.io/config.source")


class Owner(msgspec.Struct, gc=False):
    """An owner reference, as far as it is read."""

    kind: str = ""
    name: str = ""
    controller: bool | None = None


#: Where a kubelet has a static pod from.
STATIC_SOURCES = ("file", "http")


def controller_of(owners: Iterable[Owner] | None) -> Owner:
    """An empty one where there is none."""
    return next((each for each in owners or () if each.controller), Owner())


def mirrored_uid(name: str, annotations: Annotations | None, owners: Iterable[Owner] | None) -> str:
    """The UID of the static pod that an object of that name says it mirrors, as a kubelet says it: with the
    pod's source, owned by its Node, and with the Node's name behind its own. Else empty.
    """
    if annotations is None or annotations.source not in STATIC_SOURCES:
        return ""
    owner = controller_of(owners)
    is_kubelets = owner.kind == "Node" and name.endswith(f"-{owner.name.lower()}")
    return annotations.mirror or "" if is_kubelets else ""


def by_runtime_uid(pods: Iterable[KnownPod]) -> dict[str, KnownPod]:
    """Each pod by the UID that the runtime knows; what only claims to be one of them is left out."""
    found: dict[str, KnownPod] = {}
    for each in pods:
        before = found.get(each.uid)
        if before is None or _precedence(each) > _precedence(before):
            found[each.uid] = each
    return found


def _precedence(pod: KnownPod) -> tuple[bool, bool]:
    """A pod before a mirror, and one with a kubelet's status before one that was only created."""
    return pod.uid == pod.api_uid, pod.phase not in CREATED_PHASES


class PodLookup(Protocol):
    """What the runtime's edge asks for a pod that it has found: from the watch, its cache, or a manifest."""

    def find(self, uid: str) -> KnownPod | None:
        """By the UID that the runtime knows."""

    def find_named(self, namespace: str, name: str) -> KnownPod | None:
        """By name, where the UID is not known: a static pod that only its manifest tells of has none."""

    def pods(self) -> list[KnownPod]:
        """All pods of this node, as far as they are known."""

    def last_ends(self, uid: str) -> Mapping[str, int]:
        """Of a pod whose object is gone: the exit codes that it went with, by container."""


class FollowedPods(PodLookup, Protocol):
    """A lookup that says when it has learned something."""

    @property
    def version(self) -> int:
        """Counts what the API server has told; 0: nothing yet, all that is known is from before a restart."""

    async def changed(self, since: int) -> None:
        """Return once ``version`` is another than this."""

    @property
    def untold(self) -> str:
        """Why the API server has told nothing since this start; empty: it has."""

    @property
    def expecting(self) -> bool:
        """May more be known of the pods in a moment, with nothing having happened to them?"""


PodName = tuple[str, str]

#: Why the API server has told nothing: its first answer may still come, or it is on record as one that is not
#: reachable, refuses, or cannot be asked by us.
NOT_LISTED_YET = "the API server has not listed this node's pods yet"
NO_LIST = "the API server gives no list of this node's pods"


#: Asked for within a quarter of a second: a kubelet, of 50 calls a second and 100 at once, takes away fewer
#: objects in that time.
LAST_ENDS_MAX = 256


class PodStore:
    """A `Lookup`. ``version`` counts changes, ``membership`` those of which pods there are."""

    def __init__(self) -> None:
        #: By the object's own UID.
        self._pods: dict[str, KnownPod] = {}
        self._by_uid: dict[str, KnownPod] = {}
        self._manifests: dict[PodName, KnownPod] = {}
        #: By the runtime's UID, of pods that are gone, the newest last.
        self._last_ends: dict[str, dict[str, int]] = {}
        #: Where a watch goes on; empty: nothing was listed yet.
        self.resource_version = ""
        self.version = 0
        self.membership = 0
        #: Why no first list is to be expected of the API server for now; empty: it may come.
        self.why_no_list = ""
        self._news = trio.Event()

    async def changed(self, since: int) -> None:
        """Return once ``version`` is another than this."""
        while self.version == since:
            await self._news.wait()

    # --- what is asked ---------------------------------------------------------------------------

    @property
    def untold(self) -> str:
        """Why the API server has told nothing since this start; empty: it has."""
        return "" if self.version else self.why_no_list or NOT_LISTED_YET

    def find(self, uid: str) -> KnownPod | None:
        """By the UID that the runtime knows."""
        return self._by_uid.get(uid)

    def find_named(self, namespace: str, name: str) -> KnownPod | None:
        """By name, for a static pod whose UID only the kubelet can tell: a manifest's has none."""
        named = (each for each in self._pods.values() if (each.namespace, each.name) == (namespace, name))
        return next((each for each in named if each.static), None) or self._manifests.get((namespace, name))

    def pods(self) -> list[KnownPod]:
        """The API's first, then static ones that it has not shown."""
        shown = {(each.namespace, each.name) for each in self._pods.values()}
        unseen = [each for name, each in self._manifests.items() if name not in shown]
        believed = [each for each in self._pods.values() if self._by_uid[each.uid] is each]
        return [*believed, *unseen]

    def last_ends(self, uid: str) -> Mapping[str, int]:
        """Of a pod whose object is gone: the exit codes that it went with, by container."""
        return self._last_ends.get(uid, {})

    def watched(self) -> list[KnownPod]:
        """What the API has shown: what is worth keeping over a restart."""
        return list(self._pods.values())

    # --- what is learned -------------------------------------------------------------------------

    def restore(self, pods: Iterable[KnownPod]) -> None:
        """What was known before a restart, unless the watch was faster."""
        if not self.resource_version:
            self._set(pods)

    def replace(self, pods: Iterable[KnownPod], resource_version: str) -> None:
        """A whole list, as of that version."""
        before = self._pods.keys()
        self._set(pods)
        self.resource_version = resource_version
        self._tell(before != self._pods.keys())

    def put(self, pod: KnownPod) -> None:
        """One pod, new or changed."""
        is_new = pod.api_uid not in self._pods
        self._pods[pod.api_uid] = pod
        self._by_uid = by_runtime_uid(self._pods.values())
        self._tell(is_new)

    def remove(self, last: KnownPod) -> None:
        """One pod whose object is gone, as it was last. A mirror that was made anew is another object, with
        the same UID.
        """
        gone = self._pods.pop(last.api_uid, None)
        if gone is None:
            return
        # A kubelet writes the last status, and takes the object away at once: often before anybody has looked
        # at the one. Only of an object that was believed to be this pod's.
        if last.ended and self._by_uid[gone.uid] is gone:
            self._last_ends[gone.uid] = last.ended
            if len(self._last_ends) > LAST_ENDS_MAX:
                del self._last_ends[next(iter(self._last_ends))]
        self._by_uid = by_runtime_uid(self._pods.values())
        self._tell(True)

    def set_manifests(self, pods: Iterable[KnownPod]) -> None:
        """The static pods of this node, all of them."""
        self._manifests = {(each.namespace, each.name): each for each in pods}

    def _tell(self, membership: bool) -> None:
        self.version += 1
        self.membership += membership
        self._news.set()
        self._news = trio.Event()

    def _set(self, pods: Iterable[KnownPod]) -> None:
        self._pods = {each.api_uid: each for each in pods}
        self._by_uid = by_runtime_uid(self._pods.values())


CACHE_FILE_NAME = "pods.json"
CACHE_FILE_VERSION = 1
#: 250 pods are 100 KiB; a file like this is not ours.
CACHE_BYTES_MAX = 16 * 1024 * 1024
#: A pod that came or went is on disk so soon; pods mostly come and go together.
MEMBERSHIP_SECONDS = 0.5
#: Anything else: a container that was restarted, a phase, a resource version.
DETAIL_SECONDS = 10.0


class _CacheFile(msgspec.Struct, rename="camel", kw_only=True):
    version: int
    node: str
    resource_version: str = ""
    pods: list[KnownPod] = []


class PodCache:
    """``pods.json`` in ``folder``, of one node's pods."""

    def __init__(self, folder: Path, node: str, tell: Tell) -> None:
        self.folder = folder
        self._path = folder / CACHE_FILE_NAME
        self._node = node
        self._tell = tell
        self._failed = False
        #: One, and none of those that everybody shares: one that a disk holds up goes on when its task has
        #: given it up, and must not come after a later one.
        self.threads = trio.CapacityLimiter(1)

    def load(self) -> list[KnownPod]:
        """Empty where there is nothing of use; for a thread."""
        try:
            found = msgspec.json.decode(read_own(self._path, CACHE_BYTES_MAX), type=_CacheFile)
        except (OSError, ValueError, RecursionError):
            return []
        return found.pods if (found.version, found.node) == (CACHE_FILE_VERSION, self._node) else []

    async def follow(self, store: PodStore) -> None:
        """Write what changes until cancelled, and then once more. Writes nothing before the first list."""
        written, membership = store.version, store.membership
        try:
            while True:
                await store.changed(written)
                # Changes come in bursts: one write for all of them.
                until = trio.current_time() + DETAIL_SECONDS
                while True:
                    await trio.sleep(MEMBERSHIP_SECONDS)
                    seen, left = store.version, until - trio.current_time()
                    if store.membership != membership or left <= 0:
                        break
                    with trio.move_on_after(left):
                        await store.changed(seen)
                written, membership = store.version, store.membership
                await self._write(store)
        finally:
            if store.version != written:
                with trio.move_on_after(bounds.now.last_write_seconds, shield=True):
                    await self._write(store)

    async def _write(self, store: PodStore) -> None:
        """A disk that hangs holds up this task alone."""
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
