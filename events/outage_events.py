"""The events of the controller in the cluster: facts first, then decisions.

One journal is about one Node object. Times are on the writing process's monotonic clock. Other machines'
times are *marks*: texts that are only compared for equality.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from ebbtide.events import kinds
from ebbtide.events.base import (
    OUTCOMES,
    URGENT,
    Barrier,
    BoundedDict,
    BoundedTuple,
    Decision,
    Fact,
    Order,
    Stamp,
)
from ebbtide.events.decisions import PostEvent
from ebbtide.events.facts import NODE_CHANGED
from ebbtide.events.messages import (
    ERROR,
    INFO,
    NOTICE,
    PLAIN,
    TIMED_OF_POD,
    WARNING,
    Names,
    boot_end_text,
    plural,
    shortened_list,
)
from ebbtide.events.units import span
from ebbtide.events.values import BootEnding, BootEndReason, Value

#: Empty: the Node has no Ready condition, or is gone.
Ready = Literal["True", "False", "Unknown", ""]
#: The owner of the Node's out-of-service taint. An annotation marks ours.
TaintOwner = Literal["none", "ours", "other"]
Effect = Literal["NoExecute", "NoSchedule"]

#: ``declared``: a person. ``certificate``: the node's own daemon. ``cloud-taint``: the cloud controller.
#: ``remediator``: another controller's condition.
Source = Literal[
    "redfish", "ipmi", "cloud", "cloud-taint", "certificate", "declared", "remediator", "peer", "kubelet"
]
#: ``off`` may be a proof, ``on`` is a contradiction, ``unknown`` neither.
Verdict = Literal["off", "on", "unknown"]
#: ``nodeName``: the configuration names the system of this node.
IdentityKind = Literal["systemUUID", "providerID", "nodeUID", "nodeName", "none"]
_UUID = re.compile(r"(..)(..)(..)(..)-(..)(..)-(..)(..)(-.{4}-.{12})")


def unswapped(uuid: str) -> str:
    """One spelling for both byte orders: a kubelet may write either."""
    return min(uuid, _UUID.sub(r"\4\3\2\1-\6\5-\8\7\9", uuid)) if _UUID.fullmatch(uuid) else uuid


OutageOutcome = Literal[
    "recovered",  # out of service, everything elsewhere, back, taint gone
    "proof-wrong",  # it spoke again under the boot id that was proved off
    "false-alarm",  # it came back before it was out of service
    "rebooted",  # another boot id: before it was out of service, or it went again before it was Ready
    "left-to-other",  # another controller's taint came and went
    "node-deleted",  # the Node object is gone
]


class OutageSettings(Value):
    effect: Effect = "NoExecute"
    #: Decide and record, but do not change the cluster. This includes open outages.
    dry_run: bool = False
    #: How long a proof counts after its observation.
    proof_seconds: int = 60
    reminder_seconds: int = 3600
    #: Switch the machine off after so long without Ready and without a sign of life; 0: never.
    power_off_seconds: int = 0
    #: The configuration names this node's system to its management controller, so no systemUUID decides. Also
    #: true if its pool has none.
    bound: bool = False
    #: OTEL_RESOURCE_ATTRIBUTES of the controller.
    resource: BoundedDict[str, str] = {}
    #: As in `PauseRead`.
    paused: str = ""


class LostPod(Value):
    """A pod bound to the node. ``owner_uid`` empty: no controller makes it again."""

    uid: str
    namespace: str
    name: kinds.PodName
    owner_uid: str = ""
    #: ``Kind/name``.
    owner: kinds.Owner = ""
    #: The owner's apiVersion, if the controller reads its kind.
    owner_api: kinds.Word = ""
    #: A StatefulSet makes it again under the same name.
    same_name: bool = False
    #: Of a DaemonSet, or a static pod's mirror: it has no place elsewhere.
    daemon: bool = False
    tolerates: bool = False
    terminating: bool = False
    finalizers: BoundedTuple[str] = ()
    #: Its PersistentVolumes. Empty if the pod has ended: its unmount blocks no other pod.
    volumes: BoundedTuple[str] = ()

    @property
    def label(self) -> str:
        return f"{self.namespace}/{self.name}"


class Attachment(Value):
    """``volume``: its PersistentVolume's name."""

    name: kinds.Uid
    volume: str = ""
    driver: str = ""
    deleting: bool = False
    #: ``status.detachError``, or that its driver has no attacher.
    error: str = ""
    #: The volume's name in `NodeRead.volumes_in_use`. Empty: unknown, so the kubelet may still report it.
    unique_name: kinds.VolumeInUse = ""

    @property
    def state_text(self) -> str:
        error = f": {self.error}" if self.error else ""
        # Its ``status.attached`` may be false: the driver is still attaching it.
        state = "is being detached" if self.deleting else "has a VolumeAttachment"
        return f"volume {self.volume or self.name} {state}{error}"


def who_of(event: Any) -> str:
    return f"{event.source} {event.name}".strip()


BACK_UNDER = {True: "under the same boot id", False: "under another boot id"}


# --- facts


class LeaderStarted(Fact):
    """A process began to write. It has seen no heartbeat yet."""

    template = "ebbtide {self.version}: {self.replica} leads, for {self.node}"
    log_level_max = INFO

    version: kinds.Version
    replica: str
    node: str
    node_uid: str
    settings: OutageSettings = OutageSettings()


class NodeRead(Fact):
    """A change from the watch, or the answer to `ReadNode`. A watch that lags behind an answer is ignored."""

    lane = URGENT

    uid: str
    boot_id: str
    ready: Ready
    resource_version: str
    system_uuid: str = ""
    provider_id: str = ""
    #: The first systemUUID on the controller's record, if it differs.
    first_uuid: str = ""
    #: Another Node with the same systemUUID or providerID; empty: none.
    same_uuid_node: str = ""
    same_provider_node: str = ""
    taint: TaintOwner = "none"
    volumes_in_use: BoundedTuple[kinds.VolumeInUse] = ()
    #: The current heartbeat marks, whether this leader saw them change or only found them.
    lease_mark: str = ""
    status_mark: str = ""
    #: The boot that was proved off, from the note beside our taint; empty: none.
    taint_boot: str = ""

    def text(self, names: Names, at: Stamp) -> str:
        taint = {
            "none": "",
            "ours": ", our out-of-service taint",
            "other": ", another's out-of-service taint",
        }
        ready = f"Ready is {self.ready}" if self.ready else "no Ready condition"
        same = self.same_uuid_node or self.same_provider_node
        identity = f", the same machine as {same}" if same else ""
        return f"the Node: {ready}, boot {self.boot_id}{identity}{taint[self.taint]}"


class NodeDeleted(Fact):
    """``replaced``: another Node has its name, so its kubelet runs."""

    lane = URGENT
    level = NOTICE

    replaced: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        return f"the Node object is gone{', and another has its name' if self.replaced else ''}"


class PauseRead(Fact):
    """A person has paused the controller or this node's outages. ``by`` empty: not any more."""

    lane = URGENT
    level = NOTICE

    by: str = ""

    def text(self, names: Names, at: Stamp) -> str:
        return f"paused by {self.by}" if self.by else "not paused any more"


class CloseRead(Fact):
    """A person asks to close the node's outage, though work still hangs. ``at`` distinguishes requests."""

    lane = URGENT
    template = "{self.by} asks to close the outage: {self.why}"
    level = NOTICE

    by: str
    why: str
    at: str


class LastBootStated(Fact):
    """The Node's report on how a boot ended (`actors.edges.kubernetes.node_writes.last_boot_text`).

    ``wave``: where its shutdown was cut short, else -1. ``alive_wall_ns``: its last sign of life by that
    machine's clock, for people; 0: none. ``journal_id`` is the node's own, ``trace_id`` the shutdown's.
    ``said_by``: the reporting boot.
    """

    lane = URGENT
    log_level_max = INFO

    boot_id: str
    ending: BootEnding
    why: BootEndReason = ""
    wave: int = -1
    alive_wall_ns: int = 0
    journal_id: kinds.Hash = ""
    trace_id: kinds.Hash = ""
    said_by: kinds.BootId = ""

    def text(self, names: Names, at: Stamp) -> str:
        ending = boot_end_text(self.ending, self.why, self.wave)
        return f"the node reports how boot {self.boot_id} ended: {ending}"


class HeartbeatSeen(Fact):
    # It comes before an answer that would lead to a taint.
    lane = URGENT
    template = "the node's {self.source} was renewed"

    #: ``renewTime``, or the Ready condition's ``lastHeartbeatTime``, verbatim.
    mark: str
    source: Literal["lease", "status"] = "lease"


class HeartbeatMissed(Fact):
    """This leader has watched for ``silent_ns`` without a renewal of the lease."""

    # In one lane with `HeartbeatSeen`, so that both keep their order.
    lane = URGENT
    level = NOTICE

    silent_ns: int
    #: The current mark, seen to change or only found.
    mark: str = ""

    def text(self, names: Names, at: Stamp) -> str:
        return f"no renewal of the node's lease for {span(self.silent_ns)}"


class EvidenceRead(Fact):
    """One answer of a source. ``name``: a host, a controller, a person.

    ``begun_ns``: when this leader began to ask. The answer is true of some later moment.
    """

    lane = URGENT

    source: Source
    name: str
    verdict: Verdict
    begun_ns: int
    #: A UUID in lower case, as in `NodeRead`: firmware and kubelet differ.
    identity_kind: IdentityKind = "none"
    identity: kinds.Uid = ""
    #: Empty: the running boot.
    boot_id: str = ""
    #: The last heartbeat that its author knew (`ebbtide outage declare`); empty: none.
    mark: str = ""
    #: Only with the cloud's taint: the last status when it was set.
    status_mark: str = ""
    #: How long it counts after this leader first saw it; 0: the default.
    valid_seconds: int = 0
    #: The author's own time, which distinguishes a repeated statement.
    at: str = ""
    error: str = ""

    def text(self, names: Names, at: Stamp) -> str:
        error = f": {self.error}" if self.error else ""
        return f"{who_of(self)} says {self.verdict}{error}"


class BrakeLimit(Value):
    """In the asking node's part of the cluster, ``out`` nodes count against ``most``."""

    part: Literal["control-plane", "etcd", "pool", "zone"]
    out: int
    most: int


class NodesCounted(Fact):
    """The answer to `RequestPermit`: all nodes except the one that asks, and the configured limits.

    ``healthy``: Ready, in service, and with a renewed lease or none. ``recovering``: with a place: a permit,
    or any out-of-service taint while the work is not elsewhere. ``out``: with the taint and without a place.
    ``dead``: the rest. ``ahead``: waiting nodes that asked earlier.
    """

    lane = OUTCOMES

    key: str
    healthy: int
    recovering: int
    dead: int
    ahead: int
    max_nodes: int
    max_share_percent: int
    min_healthy: int
    out: int = 0
    limits: BoundedTuple[BrakeLimit] = ()
    #: False: the watch of leases is broken, so the numbers are no proof.
    sees_leases: bool = True

    def text(self, names: Names, at: Stamp) -> str:
        counts = (
            f"other nodes: {self.healthy} healthy, {self.recovering} in recovery, {self.out} out of service,"
            f" {self.dead} not healthy"
        )
        return counts if self.sees_leases else f"{counts}; the leader sees no lease renewals"


# --- facts about pods and volumes


class WorkListed(Fact):
    """The answer to `ListWork`: pods bound to the node, its attachments, and their owners' pods elsewhere."""

    lane = OUTCOMES

    key: str
    pods: BoundedTuple[LostPod] = ()
    attachments: BoundedTuple[Attachment] = ()
    #: Their owners' pods that existed elsewhere already, and the replacements of other pods. ``more``: pods
    #: and attachments above `FOLLOWED_MAX`, which no actor follows.
    elsewhere: BoundedTuple[kinds.Uid] = ()
    replaced: BoundedTuple[kinds.Uid] = ()
    more: int = 0

    def text(self, names: Names, at: Stamp) -> str:
        more = f", and {self.more} more" if self.more else ""
        return f"{plural(len(self.pods), 'pod')} and {plural(len(self.attachments), 'attachment')} here{more}"

    def introduce(self, names: Names) -> None:
        names.labels.update((pod.uid, pod.label) for pod in self.pods)


class LostPodRead(Fact):
    pod: LostPod

    def text(self, names: Names, at: Stamp) -> str:
        return "Terminating" if self.pod.terminating else "bound to the node"

    def introduce(self, names: Names) -> None:
        names.labels[self.pod.uid] = self.pod.label


class LostPodGone(Fact):
    template = "its object is gone"

    uid: str


class ElsewhereRead(Fact):
    """An owner's pod on another node, or on none yet. ``waiting``: why it is not Ready."""

    uid: str
    namespace: str
    name: kinds.PodName
    owner_uid: str
    node: str = ""
    ready: bool = False
    waiting: str = ""

    def text(self, names: Names, at: Stamp) -> str:
        where = f" on {self.node}" if self.node else ""
        waiting = f": {self.waiting}" if self.waiting else ""
        return f"{'Ready' if self.ready else 'not Ready'} elsewhere{where}{waiting}"

    def introduce(self, names: Names) -> None:
        names.labels[self.uid] = f"{self.namespace}/{self.name}"


class OwnerRead(Fact):
    """The pods that an owner wants, and how many are Ready. A gone, finished or failed owner wants none."""

    namespace: str
    owner_uid: str
    wants: int
    ready: int

    def text(self, names: Names, at: Stamp) -> str:
        return f"an owner wants {plural(self.wants, 'pod')}, and {self.ready} are Ready"


class AttachmentRead(Fact):
    attachment: Attachment

    def text(self, names: Names, at: Stamp) -> str:
        return self.attachment.state_text


class AttachmentGone(Fact):
    """The driver has detached the volume."""

    template = "attachment {self.name} is gone"

    name: kinds.Uid


# --- OutageActor


class OutageBegan(Decision):
    """The controller suspects the node. The record's number names the outage."""

    template = "node {self.node} is suspected: {self.reason}"
    level = WARNING
    log = PLAIN

    node: str
    node_uid: str
    boot_id: str
    reason: str
    #: Resource attributes of its trace, beside the segment header's.
    resource: BoundedDict[str, str] = {}


class OutageWaits(Decision):
    template = "the outage waits: {self.reason}"
    level = NOTICE

    reason: str


class ReadNode(Order):
    """Get the Node and its lease: `HeartbeatSeen` for a new mark, then `NodeRead`."""

    template = "reading the Node and its lease"
    barrier: ClassVar[Barrier] = "none"


class RequestPermit(Order):
    """Ask for a place among the nodes in recovery: `NodesCounted`, then done or failed."""

    template = "asking the storm brake for a permit"
    span_role = "permit"

    barrier: ClassVar[Barrier] = "none"
    node: str


class ReturnPermit(Order):
    """Return the place, or withdraw the request. From now on the node's taint takes no place."""

    template = "giving the storm brake's permit back"

    barrier: ClassVar[Barrier] = "none"
    node: str


class SetTaint(Order):
    """Put the out-of-service taint and our note on the Node in one request.

    The edge first reads UID, boot id, Ready and both heartbeats again, and the write names
    ``resource_version``. Any difference: failed with reason `CHANGED`, without a write.
    """

    template = "putting {self.node} out of service, effect {self.effect}"
    span_role = "taint"
    level = NOTICE

    #: The next leader must find this order: the taint outlives this process.
    barrier: ClassVar[Barrier] = "confirmed"
    node: str
    node_uid: str
    boot_id: str
    resource_version: str
    effect: Effect
    ready: Ready
    #: The last known mark, by source; empty: this leader has seen none.
    lease_mark: str = ""
    status_mark: str = ""


class PowerOff(Order):
    """Switch the machine off through its management controller, without its operating system.

    The edge reads again first, as for `SetTaint`. It fails with reason `CHANGED` and sends no command after
    any difference, and if this leader has not watched the lease for ``silent_ns`` without break or renewal.
    It also fails if the management controller's UUID differs from ``system_uuid``, or if that is empty and
    the configuration does not name the system. A machine that is off already is a success. The outcome is no
    proof.
    """

    template = "switching the machine of {self.node} off"
    span_role = "power off"
    level = WARNING

    #: The next leader must know that the machine may be off.
    barrier: ClassVar[Barrier] = "confirmed"
    node: str
    node_uid: str
    boot_id: str
    system_uuid: str
    ready: Ready
    lease_mark: str = ""
    status_mark: str = ""
    silent_ns: int = 0


class PowerOffGivenUp(Decision):
    """``ordered``: how often it tried."""

    level = ERROR

    ordered: int
    reason: str

    def text(self, names: Names, at: Stamp) -> str:
        return f"power-off given up after {plural(self.ordered, 'order')}: {self.reason}"


class RemoveTaint(Order):
    """Remove in one write our quarantine, and the taint and its note if the note is ours."""

    template = "taking our taints away from {self.node}"
    span_role = "untaint"
    level = NOTICE

    barrier: ClassVar[Barrier] = "confirmed"
    node: str
    node_uid: str


class SetQuarantine(Order):
    """Our NoSchedule taint: no new pods on a node whose volumes may be attached elsewhere."""

    template = "setting the quarantine of {self.node}"
    span_role = "quarantine"
    level = NOTICE

    barrier: ClassVar[Barrier] = "confirmed"
    node: str
    node_uid: str


class ListWork(Order):
    """List the node's pods and attachments (`WorkListed`), then report their changes.

    The edge retries until the API server answers: the outage cannot continue without.
    """

    template = "listing what hangs on {self.node}"

    barrier: ClassVar[Barrier] = "none"
    node: str


class PostOutageEvent(PostEvent):
    """It waits for no record, so people see Events of an outage whose journal is blocked."""

    barrier: ClassVar[Barrier] = "none"


class OutOfService(Decision):
    """The taint is set. ``proof``: the accepted source."""

    level = WARNING

    effect: Effect
    proof: str
    #: An earlier leader ordered it, without an outcome on record.
    found: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        return f"out of service{', as found' if self.found else ''}, " + (
            f"proved by {self.proof}" if self.proof else "and no record names its proof"
        )


class PodLost(Decision):
    """A pod to follow. ``place``: its index among its owner's pods. ``replaced``: as in `WorkListed`."""

    template = "hangs on the node"
    level = INFO

    pod: LostPod
    place: int = 0
    replaced: BoundedTuple[kinds.Uid] = ()
    #: The effect of the taint that is set already; empty: none.
    effect: str = ""

    def introduce(self, names: Names) -> None:
        names.labels[self.pod.uid] = self.pod.label


class AttachmentLeft(Decision):
    """An attachment to follow. ``unsafe``: a detach would be forced (`DetachForced`)."""

    level = INFO

    attachment: Attachment
    tainted: bool = False
    unsafe: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        return self.attachment.state_text


class WorkRecovered(Decision):
    """``unrecovered``: pods and volumes that have no cure."""

    level_by = ("unrecovered", WARNING, NOTICE)

    unrecovered: BoundedTuple[str] = ()

    def text(self, names: Names, at: Stamp) -> str:
        left = f"; unknown: {shortened_list(self.unrecovered)}" if self.unrecovered else ""
        return f"no pod or volume hangs on the node any more{left}"


class NodeReturned(Decision):
    """``same_boot``: under the boot id that was proved off."""

    boot_id: str
    same_boot: bool

    def text(self, names: Names, at: Stamp) -> str:
        return f"the node is back, {BACK_UNDER[self.same_boot]}"

    @property
    def level(self) -> int:
        return ERROR if self.same_boot else NOTICE


class ProofWasWrong(Decision):
    """The boot that was proved off gave a sign of life after the taint."""

    template = (
        "{self.proof} was wrong, the node was not off: {self.what}; two nodes may have written its data"
    )
    level = ERROR

    proof: str
    what: str


class StoodAside(Decision):
    """Another controller has set its out-of-service taint, so Ebbtide does not act."""

    template = "another controller set the out-of-service taint: only recording"
    level = NOTICE


class OutageReminded(Decision):
    template = "still open: {self.reason}"
    level = WARNING

    reason: str


class OutageClosed(Decision):
    log = PLAIN

    outcome: OutageOutcome
    unrecovered: BoundedTuple[str] = ()

    def text(self, names: Names, at: Stamp) -> str:
        left = f"; left: {shortened_list(self.unrecovered)}" if self.unrecovered else ""
        return f"outage closed: {self.outcome}{left}"

    @property
    def level(self) -> int:
        return WARNING if self.unrecovered or self.outcome == "proof-wrong" else NOTICE


class OutageAbandoned(Decision):
    """The OutageActor failed: until a new leader starts, Ebbtide changes no taint."""

    level = ERROR

    tainted: bool

    def text(self, names: Names, at: Stamp) -> str:
        return (
            "no decisions until another leader starts; our taint"
            f" {'is set: remove it by hand if the node is back' if self.tainted else 'is not set'}"
        )


# --- ProofActor


class ReadSources(Order):
    """Ask every source of this node once. Each makes an `EvidenceRead`, even without an answer."""

    template = "reading the sources of proof"

    barrier: ClassVar[Barrier] = "none"
    node: str


class ProofAccepted(Decision):
    """The proof counts until ``until_ns``, or until it is voided. ``at``: as in `EvidenceRead`."""

    level = NOTICE

    source: Source
    name: str
    until_ns: int
    at: str = ""

    def text(self, names: Names, at: Stamp) -> str:
        return f"proved off by {who_of(self)}"


class ProofRefused(Decision):
    """Why a statement that the node is off does not count. Once for each reason."""

    level = NOTICE

    source: Source
    name: str
    reason: str

    def text(self, names: Names, at: Stamp) -> str:
        return f"{who_of(self)} is no proof: {self.reason}"


class ProofVoided(Decision):
    template = "no longer proved off: {self.reason}"
    level = NOTICE

    reason: str


class Contradicted(Decision):
    """A source reports that the node runs, so no proof counts."""

    level = WARNING

    source: Source
    name: str
    what: str

    def text(self, names: Names, at: Stamp) -> str:
        return f"{who_of(self)} contradicts: {self.what}"


class ContradictionEnded(Decision):
    level = NOTICE

    source: Source
    name: str
    reason: str

    def text(self, names: Names, at: Stamp) -> str:
        return f"{who_of(self)} contradicts no longer: {self.reason}"


# --- StuckPodActor and DetachActor


class PodWaits(Decision):
    template = "waits: {self.reason}"
    level = INFO

    uid: str
    reason: str


class PodRecovered(Decision):
    """The pod is gone here. ``by``: UID of its Ready successor elsewhere; empty: it has none, because its
    owner has enough Ready pods (``enough``), or because it has no owner.
    """

    level = INFO
    log = TIMED_OF_POD
    log_level_max = INFO

    uid: str
    by: str = ""
    node: str = ""
    elapsed_ns: int = 0
    enough: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        took = span(self.elapsed_ns)
        if self.enough:
            return f"gone after {took}; its owner wants no pod in its place"
        if not self.by:
            return f"gone after {took}; no new pod is waited for"
        if self.by == self.uid:
            return f"runs on here after {took}"
        return f"Ready again as {names.of(self.by)} on {self.node} after {took}"


class DetachWaits(Decision):
    template = "attachment {self.name} waits: {self.reason}"
    level = INFO

    name: str
    reason: str


class DetachForced(Decision):
    """A volume was detached from a node that is not Ready, without an out-of-service taint, before its
    kubelet reported the unmount (NodeUnstage).

    ``sure`` False: the kubelet may have reported the unmount, because no leader watched the detach, or the
    volume's name in ``volumesInUse`` is unknown. ``name`` empty: no record shows the attachment.
    """

    level = WARNING

    name: str
    volume: str
    sure: bool = True

    def text(self, names: Names, at: Stamp) -> str:
        return forced_text(self.volume or self.name, sure=self.sure)


def forced_text(volume: str, *, sure: bool) -> str:
    return (
        f"volume {volume} was detached without the out-of-service taint, {'' if sure else 'perhaps '}before"
        " NodeUnstage: by the attach-detach controller's six-minute timer, or by hand. If the node still"
        " writes, its data may be damaged"
    )


class Detached(Decision):
    """``kept``: the node is back and uses it. Else it is gone. ``forced``: as in `DetachForced`."""

    level = INFO
    log_level_max = INFO

    name: str
    elapsed_ns: int = 0
    before_taint: bool = False
    kept: bool = False
    forced: bool = False

    def text(self, names: Names, at: Stamp) -> str:
        if self.kept:
            return f"attachment {self.name} stays: the node is back"
        before = ", before the node was out of service" if self.before_taint else ""
        if self.forced:
            before = ", without the taint"
        return f"attachment {self.name} is gone after {span(self.elapsed_ns)}{before}"


CHANGED = NODE_CHANGED
