"""The cluster's pods, VolumeAttachments and PersistentVolumes (`WorkView`), and one node's edge (`WorkEdge`).

There may be tens of thousands of pods with 1.5 MB each, so `WorkView` stores a few hundred bytes of each, and
equal words once. Only the watches write here, in the server's order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import HTTP_NOT_FOUND, ApiCaller, Unanswered, listed_path
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.api_watch import Mirror, Sees, Watch, Watched
from ebbtide.actors.edges.kubernetes.known_pods import (
    FINAL_PHASES,
    NAME_MAX,
    UNIQUE_MAX,
    Metadata,
    PodObject,
    Toleration,
    controller_of,
    shown_finalizers,
)
from ebbtide.actors.edges.kubernetes.node_view import OUT_OF_SERVICE, OUT_OF_SERVICE_VALUE
from ebbtide.actors.hang import ATTACHER_SECONDS, TEXTS, detach_hang
from ebbtide.actors.interfaces import Edge, Effect, Ending, Outlet, Tell, known_text
from ebbtide.events import bounds, outage_events
from ebbtide.events.base import Fact, Order, Record
from ebbtide.events.kinds import CSI_VOLUME
from ebbtide.events.outage_events import Effect as TaintEffect

PODS_PATH = "/api/v1/pods"
ATTACHMENTS_PATH = "/apis/storage.k8s.io/v1/volumeattachments"
VOLUMES_PATH = "/api/v1/persistentvolumes"
#: 2 MiB of pods, one of the others.
PART_PODS, PART_ATTACHMENTS, PART_VOLUMES = 250, 500, 500
#: Emptied when full.
SHARED_MAX = 50_000
#: No kubelet exceeds these. 10 000 pods take at most 70 MiB.
CLAIMS_MAX, CLAIMS_BYTES_MAX = 64, 2048
#: A node has some 110 pods.
FOLLOWED_MAX = 256
#: 200 KiB in a record.
ELSEWHERE_MAX = 5000
#: Of an outage, since a pod's author can change 20 KB of words again and again, which decisions repeat. Above
#: it only ends and Ready pods are reported, above twice as much only ends. A report takes 300 bytes with its
#: decision; a new pod has a decision for each lost pod of its owner, until it is Ready.
REPORT_BYTES_MAX, REPORT_BYTES = 3_000_000, 300

#: A reason by Kubernetes' conventions, one word in CamelCase. Other texts may be anything.
REASON = re.compile("(?=.*[a-z])[A-Z][A-Za-z]{1,39}")
#: Any other reason says more.
CREATING = ("ContainerCreating", "PodInitializing")
SCHEDULER_TEXTS = (
    # Kubernetes 1.34's, then earlier ones.
    "didn't match PersistentVolume's node affinity",
    "had volume node affinity conflict",
    "with ReadWriteOncePod access mode already in-use by another pod",
    "bound to non-existent pv(s)",
    "exceed max volume count",
    "did not have enough free storage",
    "had no available disk",
    "had no available volume zone",
    "didn't find available persistent volumes to bind",
    "unbound immediate PersistentVolumeClaims",
    "had untolerated taint",
    "were unschedulable",
    "didn't match Pod's node affinity/selector",
    "didn't match pod affinity rules",
    "didn't match pod anti-affinity rules",
    "didn't satisfy existing pods anti-affinity rules",
    "didn't match pod topology spread constraints",
    "didn't have free ports for the requested pod ports",
    "Insufficient cpu",
    "Insufficient memory",
    "Insufficient ephemeral-storage",
    "Too many pods",
)

#: gRPC's codes by number.
GRPC_CODES = (
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
)
_GRPC_TEXT = re.compile(r"\bcode = (\w+)")


class _AttachmentSource(msgspec.Struct, rename="camel", gc=False):
    persistent_volume_name: str | None = None


class _AttachmentSpec(msgspec.Struct, rename="camel", gc=False):
    attacher: str = ""
    node_name: str = ""
    source: _AttachmentSource = msgspec.field(default_factory=_AttachmentSource)


class _VolumeError(msgspec.Struct, rename="camel", gc=False):
    message: str | None = None
    error_code: int | None = None


class _AttachmentStatus(msgspec.Struct, rename="camel", gc=False):
    detach_error: _VolumeError | None = None


class AttachmentObject(msgspec.Struct, gc=False):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: _AttachmentSpec = msgspec.field(default_factory=_AttachmentSpec)
    status: _AttachmentStatus = msgspec.field(default_factory=_AttachmentStatus)


class _PvcReference(msgspec.Struct, gc=False):
    namespace: str = ""
    name: str = ""


class _CsiSource(msgspec.Struct, rename="camel", gc=False):
    driver: str = ""
    volume_handle: str = ""


class _VolumeSpec(msgspec.Struct, rename="camel", gc=False):
    claim_ref: _PvcReference | None = None
    csi: _CsiSource | None = None


class _VolumePhase(msgspec.Struct, gc=False):
    phase: str = ""


class VolumeObject(msgspec.Struct, gc=False):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: _VolumeSpec = msgspec.field(default_factory=_VolumeSpec)
    status: _VolumePhase = msgspec.field(default_factory=_VolumePhase)


class PodView(msgspec.Struct, kw_only=True, gc=False):
    """``ended``: it succeeded or failed. ``over``: ended, not Terminating, and its owner does not need its
    name. ``waiting``: why it is not Ready. ``claims``: ``namespace/name``.
    """

    uid: str
    namespace: str
    name: str
    node: str = ""
    owner_uid: str = ""
    owner: str = ""
    #: The owner's apiVersion, if its kind is in `OWNER_PATHS`.
    owner_api: str = ""
    same_name: bool = False
    daemon: bool = False
    started: bool = False
    tolerates: tuple[TaintEffect, ...] = ()
    terminating: bool = False
    finalizers: tuple[str, ...] = ()
    ended: bool = False
    over: bool = False
    #: Also true once it succeeded.
    ready: bool = False
    waiting: str = ""
    claims: tuple[str, ...] = ()


class VolumeView(msgspec.Struct, kw_only=True, gc=False):
    """``claim``: ``namespace/name``. ``unique_name``: the kubelet's name for a CSI volume."""

    name: str
    claim: str = ""
    unique_name: str = ""


class AttachmentView(msgspec.Struct, kw_only=True, gc=False):
    """``error``: why its detach waits. ``unheard``: its attacher has not answered a detach."""

    uid: str
    name: str
    node: str
    volume: str = ""
    driver: str = ""
    deleting: bool = False
    error: str = ""
    unheard: bool = False


def tolerated_effects(tolerations: Iterable[Toleration]) -> tuple[TaintEffect, ...]:
    """As in the taint eviction controller, the first match counts; a limited one only delays the delete."""
    ours = []
    for each in tolerations:
        key, value = each.key or "", each.value
        same = (key, value) == (OUT_OF_SERVICE, OUT_OF_SERVICE_VALUE)
        equals = same and each.operator in (None, "", "Equal")
        if equals or (each.operator == "Exists" and key in ("", OUT_OF_SERVICE)):
            ours.append(each)
    found: list[TaintEffect] = []
    effects: tuple[TaintEffect, ...] = ("NoExecute", "NoSchedule")
    for effect in effects:
        first = next((each for each in ours if (each.effect or effect) == effect), None)
        if first is not None and first.toleration_seconds is None:
            found.append(effect)
    return tuple(found)


def claims_of(pod: PodObject) -> tuple[str, ...]:
    """The claim of a generic ephemeral volume is named after the pod and the volume."""
    meta, found, room = pod.metadata, list[str](), CLAIMS_BYTES_MAX
    for volume in pod.spec.volumes or ():
        claim = volume.get("persistentVolumeClaim")
        name = claim.get("claimName") if isinstance(claim, dict) else None
        if name is None and "ephemeral" in volume:
            name = f"{meta.name}-{volume.get('name')}"
        # A pod may have other names, but no claim has one.
        if isinstance(name, str) and name.isascii() and len(name) <= min(NAME_MAX, room):
            room -= len(name)
            found.append(f"{meta.namespace}/{name}")
    return tuple(found[:CLAIMS_MAX])


def project_volume(volume: VolumeObject) -> VolumeView:
    """An unbound volume may name a former or future claim."""
    claim, csi = volume.spec.claim_ref, volume.spec.csi
    is_bound = claim is not None and volume.status.phase == "Bound"
    return VolumeView(
        name=volume.metadata.name,
        claim=f"{claim.namespace}/{claim.name}" if claim is not None and is_bound else "",
        unique_name=f"{CSI_VOLUME}{csi.driver}^{csi.volume_handle}"[:UNIQUE_MAX] if csi is not None else "",
    )


def waiting_text(pod: PodObject) -> str:
    """Only known words."""
    status = pod.status
    conditions = {each.type: each for each in status.conditions or ()}
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    if status.phase == "Failed":
        return f"Failed {_known_reason(status.reason)}".rstrip()
    scheduled = conditions.get("PodScheduled")
    if scheduled is not None and scheduled.status == "False" and (reason := _known_reason(scheduled.reason)):
        why = known_text(scheduled.message or "", SCHEDULER_TEXTS)
        return f"{reason}: {why}" if why else reason
    if not status.containers and status.phase == "Pending":
        return "nothing from its kubelet yet" if pod.spec.node_name else "no node yet"
    states = (each.state for each in status.containers if each.state is not None)
    reasons = [_known_reason(state.waiting.reason) for state in states if state.waiting is not None]
    known = [each for each in reasons if each]
    if known:
        return next((each for each in known if each not in CREATING), known[0])
    ready = conditions.get("Ready")
    return _known_reason(ready.reason) if ready is not None else ""


def _known_reason(reason: str | None) -> str:
    return reason if reason and REASON.fullmatch(reason) else ""


def refusal_text(error: _VolumeError) -> str:
    """Only the code: the text may be anything."""
    number, said = error.error_code or 0, _GRPC_TEXT.search(error.message or "")
    code = GRPC_CODES[number] if 0 < number < len(GRPC_CODES) else said[1] if said else ""
    known = re.sub("(?<=[a-z])(?=[A-Z])", "_", code).upper() if code in GRPC_CODES else ""
    return TEXTS["driver-refuses"].format(error=f": {known}" if known else "")


#: By apiVersion and kind.
OWNER_PATHS = {
    ("apps/v1", "StatefulSet"): "/apis/apps/v1/namespaces/{}/statefulsets/{}",
    ("apps/v1", "ReplicaSet"): "/apis/apps/v1/namespaces/{}/replicasets/{}",
    ("batch/v1", "Job"): "/apis/batch/v1/namespaces/{}/jobs/{}",
    ("v1", "ReplicationController"): "/api/v1/namespaces/{}/replicationcontrollers/{}",
}
#: A person looks a minute after scaling down. A hundred outages share 20 requests a second, so each reads
#: few owners.
OWNERS_SECONDS, OWNERS_MAX = 60.0, 5


def owner_path(pod: outage_events.LostPod) -> str:
    """Empty for an unknown kind."""
    kind, _, name = pod.owner.partition("/")
    return OWNER_PATHS.get((pod.owner_api, kind), "").format(quote(pod.namespace), quote(name, safe=""))


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""


class _OwnerSpec(msgspec.Struct, gc=False):
    replicas: int | None = None
    parallelism: int | None = None
    suspend: bool | None = None


class _OwnerStatus(msgspec.Struct, rename="camel", gc=False):
    ready_replicas: int = 0
    ready: int = 0
    conditions: list[_Condition] | None = None


class OwnerObject(msgspec.Struct, gc=False):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: _OwnerSpec = msgspec.field(default_factory=_OwnerSpec)
    status: _OwnerStatus = msgspec.field(default_factory=_OwnerStatus)


def read_owner(pod: outage_events.LostPod, found: OwnerObject | None) -> outage_events.OwnerRead:
    """``found`` None: it is gone."""
    uid, namespace = pod.owner_uid, pod.namespace
    if found is None or found.metadata.uid != uid:
        return outage_events.OwnerRead(namespace=namespace, owner_uid=uid, wants=0, ready=0)
    spec, status = found.spec, found.status
    over = any(
        each.type in ("Complete", "Failed") and each.status == "True" for each in status.conditions or ()
    )
    wants = spec.replicas if spec.replicas is not None else spec.parallelism
    return outage_events.OwnerRead(
        namespace=namespace,
        owner_uid=uid,
        wants=0 if over or spec.suspend else 1 if wants is None else wants,
        ready=max(status.ready_replicas, status.ready),
    )


_owner_decoder = msgspec.json.Decoder(OwnerObject)

HashableT = TypeVar("HashableT", bound=Hashable)


class Changes:
    """One follower's changes, in their order."""

    def __init__(self) -> None:
        #: The followed groups.
        self.keys: tuple[Key, ...] = ()
        self._pods: dict[str, None] = {}
        self._attachments: dict[str, None] = {}
        self.news = trio.Event()

    def pod(self, uid: str) -> None:
        self._pods[uid] = None
        self.news.set()

    def attachment(self, uid: str) -> None:
        self._attachments[uid] = None
        self.news.set()

    def take(self) -> tuple[list[str], list[str]]:
        """Wakes the follower: its next time may have changed."""
        taken, news = ([*self._pods], [*self._attachments]), self.news
        self._pods, self._attachments, self.news = {}, {}, trio.Event()
        news.set()
        return taken


#: ``node`` and its name, or ``owner`` and `owner_of`.
Key = tuple[str, str]


class _Group:
    """UIDs of a node or an owner, and its followers."""

    __slots__ = ("attachments", "followers", "pods")

    def __init__(self) -> None:
        self.pods: set[str] = set()
        self.attachments: set[str] = set()
        self.followers: tuple[Changes, ...] = ()


def owner_of(pod: PodView | outage_events.LostPod | outage_events.ElsewhereRead) -> str:
    """Empty without an owner. Any pod may name an owner of another namespace."""
    return f"{pod.namespace}/{pod.owner_uid}" if pod.owner_uid else ""


def _keys_of(pod: PodView | None) -> list[Key]:
    keys = [("node", pod.node), ("owner", owner_of(pod))] if pod is not None else []
    return [key for key in keys if key[1]]


class WorkView:
    def __init__(self, tell: Tell = lambda level, line: None) -> None:
        self.pods = Mirror[PodView]("uid", self._take_pod)
        self.attachments = Mirror[AttachmentView]("uid", self._take_attachment)
        self.volumes = Mirror[VolumeView]("name", self._take_volume)
        self._groups: dict[Key, _Group] = {}
        self._shared: dict[Hashable, Hashable] = {}
        #: By bound claim.
        self._volume_of: dict[str, str] = {}
        names = ("pods", "volumeattachments", "persistentvolumes")
        self._watches = [Sees(name, tell, self.turned) for name in names]
        self._turned = trio.Event()

    async def run(self, link: ApiClient) -> None:
        pods = Watched(partial(listed_path, PODS_PATH), PodObject, self.project_pod, PART_PODS)
        at = partial(listed_path, ATTACHMENTS_PATH)
        attachments = Watched(at, AttachmentObject, self.project_attachment, PART_ATTACHMENTS)
        volumes = Watched(partial(listed_path, VOLUMES_PATH), VolumeObject, project_volume, PART_VOLUMES)
        sees_pods, sees_attachments, sees_volumes = self._watches
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Watch(link, pods, self.pods, sees_pods).run)
            nursery.start_soon(Watch(link, attachments, self.attachments, sees_attachments).run)
            nursery.start_soon(Watch(link, volumes, self.volumes, sees_volumes).run)

    async def current(self) -> None:
        """Waits until all watches are up to date."""
        while not self.sees:
            await self._turned.wait()

    @property
    def sees(self) -> bool:
        return all(each.since < math.inf for each in self._watches)

    @property
    def hears_since(self) -> float:
        """Infinite: the watch is broken."""
        return self._watches[1].since

    def pods_of(self, node: str) -> list[PodView]:
        """By name."""
        return self._pods_in(("node", node))

    def siblings(self, owner: str) -> list[PodView]:
        return self._pods_in(("owner", owner))

    def attachments_of(self, node: str) -> list[AttachmentView]:
        """By name."""
        group = self._groups.get(("node", node), _Group())
        found = (self.attachments.kept[uid] for uid in group.attachments)
        return sorted(found, key=lambda each: (each.name, each.uid))

    def volumes_of(self, pod: PodView) -> tuple[str, ...]:
        return tuple(self._volume_of[claim] for claim in pod.claims if claim in self._volume_of)

    def unique_name(self, volume: str) -> str:
        """Empty: unknown."""
        found = self.volumes.kept.get(volume)
        return found.unique_name if found is not None else ""

    def _pods_in(self, key: Key) -> list[PodView]:
        found = (self.pods.kept[uid] for uid in self._groups.get(key, _Group()).pods)
        return sorted(found, key=lambda pod: (pod.namespace, pod.name, pod.uid))

    def follow(self, changes: Changes, node: str, owners: Iterable[str]) -> None:
        self.forget(changes)
        changes.keys = (("node", node), *(("owner", each) for each in owners))
        for key in changes.keys:
            group = self._groups.setdefault(key, _Group())
            group.followers = (*group.followers, changes)

    def forget(self, changes: Changes) -> None:
        for key in changes.keys:
            group = self._groups[key]
            group.followers = tuple(each for each in group.followers if each is not changes)
            self._drop_empty(key)
        changes.keys = ()

    def _drop_empty(self, key: Key) -> None:
        group = self._groups[key]
        if not (group.pods or group.attachments or group.followers):
            del self._groups[key]

    def turned(self) -> None:
        self._turned.set()
        self._turned = trio.Event()
        for group in self._groups.values():
            for changes in group.followers:
                changes.news.set()

    def project_pod(self, pod: PodObject) -> PodView:
        share, meta, status = self._share, pod.metadata, pod.status
        owner = controller_of(meta.owner_references)
        kind = owner.kind
        terminating, ended = meta.deletion_timestamp is not None, status.phase in FINAL_PHASES
        is_mirror = meta.annotations is not None and meta.annotations.mirror is not None
        is_true = any(each.type == "Ready" and each.status == "True" for each in status.conditions or ())
        ready = status.phase == "Succeeded" or (is_true and not terminating)
        return PodView(
            uid=meta.uid,
            namespace=share(meta.namespace),
            name=meta.name,
            node=share(pod.spec.node_name or ""),
            owner_uid=share(owner.uid),
            owner=share(f"{kind}/{owner.name}") if kind else "",
            owner_api=share(owner.api_version if (owner.api_version, kind) in OWNER_PATHS else ""),
            same_name=kind == "StatefulSet",
            daemon=is_mirror or kind in ("DaemonSet", "Node"),
            tolerates=share(tolerated_effects(pod.spec.tolerations or ())),
            terminating=terminating,
            started=bool(status.containers),
            finalizers=share(shown_finalizers(meta.finalizers)),
            over=ended and not terminating and kind != "StatefulSet",
            ended=ended,
            ready=ready,
            waiting="" if ready else share(waiting_text(pod)),
            claims=() if ended else claims_of(pod),
        )

    def project_attachment(self, attachment: AttachmentObject) -> AttachmentView:
        meta, spec, said = attachment.metadata, attachment.spec, attachment.status.detach_error
        deleting = meta.deletion_timestamp is not None
        finalizers = meta.finalizers or ()
        hang = detach_hang(finalizers, refused=said is not None) if deleting else ""
        error = ""
        if hang == "driver-refuses" and said is not None:
            error = refusal_text(said)
        elif hang == "attachment-finalizers":
            error = TEXTS[hang].format(finalizers=", ".join(shown_finalizers(finalizers)))
        return AttachmentView(
            uid=meta.uid,
            name=meta.name,
            node=self._share(spec.node_name),
            volume=(spec.source.persistent_volume_name or "")[:NAME_MAX],
            driver=self._share(spec.attacher),
            deleting=deleting,
            error=error,
            unheard=hang == "detaching" and finalizers != (),
        )

    def _share(self, word: HashableT) -> HashableT:
        if len(self._shared) >= SHARED_MAX:
            self._shared.clear()
        return self._shared.setdefault(word, word)  # type: ignore[return-value]  # an equal one

    def _take_pod(self, uid: str, before: PodView | None, now: PodView | None) -> None:
        keys = _keys_of(now)
        for key in dict.fromkeys((*_keys_of(before), *keys)):
            group = self._groups.setdefault(key, _Group())
            for changes in group.followers:
                changes.pod(uid)
            if key in keys:
                group.pods.add(uid)
            else:
                group.pods.discard(uid)
                self._drop_empty(key)

    def _take_attachment(self, uid: str, before: AttachmentView | None, now: AttachmentView | None) -> None:
        attachment = now or before
        assert attachment is not None
        # An attachment's spec is immutable.
        key = "node", attachment.node
        group = self._groups.setdefault(key, _Group())
        for changes in group.followers:
            changes.attachment(uid)
        if now is not None:
            group.attachments.add(uid)
        else:
            group.attachments.discard(uid)
            self._drop_empty(key)

    def _take_volume(self, name: str, before: VolumeView | None, now: VolumeView | None) -> None:
        # No follower needs it: a volume is bound before its pod starts, and stays bound.
        if before is not None and self._volume_of.get(before.claim) == before.name:
            del self._volume_of[before.claim]
        if now is not None and now.claim:
            self._volume_of[now.claim] = now.name


OVER = "the outage is over"


def elsewhere(pod: PodView) -> outage_events.ElsewhereRead:
    waiting = f"a new pod is not Ready: {pod.waiting}" if pod.waiting else ""
    return outage_events.ElsewhereRead(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        owner_uid=pod.owner_uid,
        node=pod.node,
        ready=pod.ready,
        waiting=waiting,
    )


class Followed(NamedTuple):
    """``elsewhere``: pods that are no successors."""

    pods: Sequence[outage_events.LostPod] = ()
    attachments: Sequence[outage_events.Attachment] = ()
    elsewhere: Sequence[str] = ()


NOT_FOLLOWED = Followed()


class WorkEdge(Edge):
    """Lists one node's pods and attachments, then reports their changes and their owners' new pods.

    ``followed``: by an earlier leader. `observe` ends needless reports: an outage may be open for weeks.
    """

    def __init__(
        self,
        view: WorkView,
        node: str,
        *,
        effect: TaintEffect = "NoExecute",
        followed: Followed = NOT_FOLLOWED,
        caller: ApiCaller | None = None,
    ) -> None:
        """Without a ``caller`` no owner is read."""
        self._view, self._node, self._effect, self._caller = view, node, effect, caller
        self._changes = Changes()
        #: By owner, one of its pods; and when it was read last, with the result.
        self._owned: dict[str, outage_events.LostPod] = {}
        self._owners: dict[str, tuple[float, outage_events.OwnerRead | None]] = {}
        #: By owner, pods that are no successors.
        self._before: dict[str, frozenset[str]] = {}
        #: By owner, pods that have replaced one.
        self._claimed: dict[str, dict[str, None]] = {}
        #: Owners by pods that are not over.
        self._open: dict[str, str] = {}
        self._lost = {each.uid: each for each in followed.pods}
        self._open |= {uid: owner for uid, each in self._lost.items() if (owner := owner_of(each))}
        self._owned |= {owner_of(each): each for each in self._lost.values()}
        self._before |= dict.fromkeys(self._open.values(), frozenset(followed.elsewhere))
        #: Pods that were already ending: their replacements exist.
        self._replaced: dict[str, None] = {}
        self._new: dict[str, outage_events.ElsewhereRead] = {}
        self._attachments = {each.name: each for each in followed.attachments}
        #: Since when an attachment's attacher is silent.
        self._unheard: dict[str, float] = {}
        self._outages = self._reported_bytes = 0
        self._telling = trio.Lock()
        self.effects: Mapping[type[Order], Effect] = {outage_events.ListWork: self._list}

    def observe(self, records: Sequence[Record]) -> None:
        for event in (record.event for record in records):
            if isinstance(event, outage_events.PodRecovered):
                self._drop_pod(event.uid, event.by)
            elif isinstance(event, outage_events.Detached):
                for uid in [uid for uid, each in self._attachments.items() if each.name == event.name]:
                    del self._attachments[uid]
                    self._unheard.pop(uid, None)
            elif isinstance(event, outage_events.OutageClosed):
                self._outages, self._reported_bytes = self._outages + 1, 0
                self._view.forget(self._changes)
                self._changes.take()
                followed: tuple[dict[str, Any], ...] = (
                    *(self._before, self._claimed, self._open, self._replaced),
                    *(self._lost, self._new, self._attachments, self._unheard),
                    *(self._owned, self._owners),
                )
                for each in followed:
                    each.clear()

    def _drop_pod(self, uid: str, by: str) -> None:
        self._lost.pop(uid, None)
        owner = self._open.pop(uid, None)
        if owner is None:
            return
        if owner in self._open.values():
            # It may still exist, and is no successor.
            self._before[owner] |= {uid}
            if by:
                # A place counts Ready pods: another lost pod may have named the same one.
                ready = (each for each, pod in self._new.items() if pod.ready and owner_of(pod) == owner)
                claimed = self._claimed.setdefault(owner, {})
                claimed |= dict.fromkeys([each for each in (by, *ready) if each not in claimed][:1])
            return
        del self._before[owner]
        self._claimed.pop(owner, None)
        self._owners.pop(owner, None)
        self._new = {uid: each for uid, each in self._new.items() if owner_of(each) != owner}
        if self._changes.keys:
            self._view.follow(self._changes, self._node, self._before)

    async def _list(self, order: outage_events.ListWork, outlet: Outlet) -> Ending:
        outage = self._outages
        # Without the API server there is no list.
        await self._view.current()
        async with self._telling:
            if outage != self._outages:
                return Ending("cancelled", OVER)
            listed, facts = self._start(order.key)
            await outlet.put(listed, *facts)
        return Ending()

    def _start(self, key: str) -> tuple[outage_events.WorkListed, list[outage_events.ElsewhereRead]]:
        here = [pod for pod in self._view.pods_of(self._node) if not pod.over]
        # Followed pods first: a missing one counts as gone. Then pods that ran: any user may bind others
        # here.
        here.sort(key=lambda pod: (pod.uid not in self._lost, pod.daemon, not pod.started))
        pods = here[:FOLLOWED_MAX]
        # A controller replaces a Terminating or ended pod at once, unless the new one needs its name.
        for pod in pods:
            if (pod.terminating or pod.ended) and not pod.same_name and pod.uid not in self._open:
                self._replaced[pod.uid] = None
        told_new, self._lost = self._new, {pod.uid: self._lost_pod(pod) for pod in pods}
        owned = {
            pod.uid: owner_of(pod)
            for pod in pods
            if pod.owner_uid and not pod.daemon and pod.uid not in self._replaced
        }
        there = {
            owner: frozenset(each.uid for each in self._siblings(owner))
            for owner in dict.fromkeys(owned.values())
            if owner not in self._before
        }
        # Small owners first: one with many pods must not crowd out others.
        for owner, uids in sorted(there.items(), key=lambda each: len(each[1])):
            if len(uids.union(*self._before.values())) <= ELSEWHERE_MAX:
                self._before[owner] = uids
        self._replaced |= {uid: None for uid, owner in owned.items() if owner not in self._before}
        owned = {uid: owner for uid, owner in owned.items() if owner in self._before}
        self._lost |= {pod.uid: self._lost_pod(pod) for pod in pods if pod.uid in self._replaced}
        self._open |= owned
        self._owned |= {owner_of(pod): self._lost_pod(pod) for pod in pods if pod.uid in owned}
        named = dict.fromkeys(owned[pod.uid] for pod in pods if pod.uid in owned and not pod.same_name)
        self._view.follow(self._changes, self._node, self._before)
        self._changes.take()
        self._new = {
            each.uid: elsewhere(each)
            for owner in self._before
            for each in [each for each in self._siblings(owner) if self._is_new(each)][:FOLLOWED_MAX]
        }
        # Bound to this node meanwhile, a new pod is lost too: it replaces no pod.
        lost_again = [_gone(each) for uid, each in told_new.items() if uid in self._lost]
        self._unheard = {}
        now = trio.current_time()
        attached = self._view.attachments_of(self._node)
        used = {volume for each in self._lost.values() for volume in each.volumes}
        names = {each.name for each in self._attachments.values()}
        attached.sort(key=lambda each: (each.name not in names, each.volume not in used))
        self._attachments = {each.uid: self._attachment(each, now) for each in attached[:FOLLOWED_MAX]}
        listed = outage_events.WorkListed(
            key=key,
            pods=tuple(self._lost.values()),
            attachments=tuple(self._attachments.values()),
            elsewhere=tuple(sorted({uid for owner in named for uid in self._before[owner]})),
            replaced=tuple(sorted({uid for owner in named for uid in self._claimed.get(owner, ())})),
            more=len(here) - len(pods) + len(attached) - len(self._attachments),
        )
        return listed, [*lost_again, *self._new.values()]

    def _lost_pod(self, pod: PodView) -> outage_events.LostPod:
        return outage_events.LostPod(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            owner_uid="" if pod.uid in self._replaced else pod.owner_uid,
            owner=pod.owner,
            owner_api=pod.owner_api,
            same_name=pod.same_name,
            daemon=pod.daemon,
            tolerates=self._effect in pod.tolerates,
            terminating=pod.terminating,
            finalizers=pod.finalizers,
            volumes=self._view.volumes_of(pod),
        )

    def _siblings(self, owner: str) -> list[PodView]:
        return [each for each in self._view.siblings(owner) if each.uid not in self._lost]

    def _is_new(self, pod: PodView) -> bool:
        return pod.uid not in self._lost and pod.uid not in self._before.get(owner_of(pod), (pod.uid,))

    async def run(self, outlet: Outlet) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_owners, outlet)
            try:
                while True:
                    now = trio.current_time()
                    silent_at = (self._heard_at(uid) + ATTACHER_SECONDS for uid in self._unheard)
                    with trio.move_on_at(min((at for at in silent_at if at > now), default=math.inf)):
                        await self._changes.news.wait()
                    async with self._telling:
                        if facts := self._look():
                            await outlet.put(*facts)
            finally:
                self._view.forget(self._changes)

    async def _read_owners(self, outlet: Outlet) -> None:
        """Owners of missing pods: scaling down, or a Job's failure, shows in no pod."""
        while self._caller is not None:
            await trio.sleep(OWNERS_SECONDS)
            gone = {owner for uid, owner in self._open.items() if uid not in self._lost}
            wanted = [owner for owner, pod in self._owned.items() if owner in gone and owner_path(pod)]
            wanted.sort(key=lambda owner: self._owners.get(owner, (-math.inf, None))[0])
            for owner in wanted[:OWNERS_MAX]:
                before, pod = self._owners.get(owner, (0.0, None))[1], self._owned[owner]
                read: outage_events.OwnerRead | None = None
                with suppress(Unanswered, ValueError, RecursionError):
                    answer = await self._caller.call(
                        "GET", owner_path(pod), seconds_max=bounds.now.api_try_seconds
                    )
                    if answer.ok or answer.code == HTTP_NOT_FOUND:
                        read = read_owner(pod, _owner_decoder.decode(answer.body) if answer.ok else None)
                async with self._telling:
                    if owner not in self._open.values():
                        continue
                    self._owners[owner] = trio.current_time(), read or before
                    if read is not None and read != before:
                        await outlet.put(read)

    def _look(self) -> list[Fact]:
        pods, attachments = self._changes.take()
        facts = [fact for uid in pods if (fact := self._look_at(uid)) is not None]
        now = trio.current_time()
        silent = [uid for uid in self._unheard if now >= self._heard_at(uid) + ATTACHER_SECONDS]
        for uid in dict.fromkeys((*attachments, *silent)):
            if (fact := self._look_at_attachment(uid, now)) is not None:
                facts.append(fact)
        self._reported_bytes += sum(
            max(REPORT_BYTES, 3 * len(msgspec.msgpack.encode(each))) for each in facts
        )
        return facts

    def _look_at(self, uid: str) -> Fact | None:
        pod = self._view.pods.kept.get(uid)
        if uid in self._lost:
            if pod is None:
                del self._lost[uid]
                return outage_events.LostPodGone(uid=uid)
            lost, last = self._lost_pod(pod), self._lost[uid]
            is_end = lost.terminating != last.terminating
            if lost != last and (is_end or self._reported_bytes < REPORT_BYTES_MAX):
                self._lost[uid] = lost
                return outage_events.LostPodRead(pod=lost)
        elif pod is None:
            if (told := self._new.pop(uid, None)) is not None and told != (gone := _gone(told)):
                return gone
        elif self._is_new(pod) and self._new.get(uid) != (news := elsewhere(pod)):
            of_owner = sum(owner_of(each) == owner_of(pod) for each in self._new.values())
            may = self._reported_bytes < REPORT_BYTES_MAX * (1 + news.ready)
            if may and (uid in self._new or of_owner < FOLLOWED_MAX):
                self._new[uid] = news
                waiting = () if news.ready else self._open.values()
                self._reported_bytes += REPORT_BYTES * sum(owner == owner_of(pod) for owner in waiting)
                return news
        return None

    def _look_at_attachment(self, uid: str, now: float) -> Fact | None:
        last = self._attachments.get(uid)
        if last is None:
            return None
        found = self._view.attachments.kept.get(uid)
        if found is None:
            del self._attachments[uid]
            self._unheard.pop(uid, None)
            return outage_events.AttachmentGone(name=last.name)
        told = self._attachment(found, now)
        if told == last or (told.deleting == last.deleting and self._reported_bytes >= REPORT_BYTES_MAX):
            return None
        self._attachments[uid] = told
        return outage_events.AttachmentRead(attachment=told)

    def _attachment(self, attachment: AttachmentView, now: float) -> outage_events.Attachment:
        error, uid = attachment.error, attachment.uid
        if not attachment.unheard:
            self._unheard.pop(uid, None)
        else:
            self._unheard.setdefault(uid, now)
            if now >= self._heard_at(uid) + ATTACHER_SECONDS:
                error = TEXTS["attacher-silent"].format(driver=attachment.driver)
        return outage_events.Attachment(
            name=attachment.name,
            volume=attachment.volume,
            driver=attachment.driver,
            deleting=attachment.deleting,
            error=error,
            unique_name=self._view.unique_name(attachment.volume),
        )

    def _heard_at(self, uid: str) -> float:
        return max(self._unheard[uid], self._view.hears_since)


def _gone(last: outage_events.ElsewhereRead) -> outage_events.ElsewhereRead:
    return outage_events.ElsewhereRead(
        uid=last.uid, namespace=last.namespace, name=last.name, owner_uid=last.owner_uid
    )
