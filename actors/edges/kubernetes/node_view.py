"""Every Node and every lease in the newest version seen.

Two watches serve the whole cluster, beside the answers about single nodes. A lease's silence counts from the
moment when its last renewal was seen here, and only while this process could see one; never from the times in
the lease.
"""

from __future__ import annotations

import math
import re
import sys
from calendar import timegm
from collections.abc import Callable, Mapping
from functools import partial
from time import strptime
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import (
    TIME_FORM,
    ApiNode,
    JsonObject,
    find_condition,
    listed_path,
)
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.api_watch import Mirror, Sees, Watch, Watched
from ebbtide.actors.edges.kubernetes.known_pods import Metadata
from ebbtide.actors.edges.kubernetes.node_writes import (
    CERTIFICATE_ANNOTATION,
    LAST_BOOT_ANNOTATION,
    CertificateNote,
    LastBootNote,
    read_annotation,
)
from ebbtide.actors.interfaces import Tell
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.outage_events import LastBootStated, Ready, TaintOwner

OUT_OF_SERVICE, OUT_OF_SERVICE_VALUE = "node.kubernetes.io/out-of-service", "nodeshutdown"
#: By the cloud controller, on a node that is not Ready and whose instance is shut down.
CLOUD_SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
DECLARED_ANNOTATION = "ebbtide.dev/declared-off"
ALIVE_ANNOTATION = "ebbtide.dev/declared-alive"
NOTE_ANNOTATION = "ebbtide.dev/out-of-service"
MACHINE_ANNOTATION, MACHINE_NAMESPACE_ANNOTATION = (
    "cluster.x-k8s.io/machine",
    "cluster.x-k8s.io/cluster-namespace",
)
NODES_PATH = "/api/v1/nodes"
LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
#: A Node has some ten KiB, a lease half of one.
PART_NODES, PART_LEASES = 100, 500
#: A thousand nodes renew a hundred leases a second.
GATHER_SECONDS = 0.25
#: A kubelet renews after this part of the lease (``renewIntervalFraction``), plus at most 4 % and a busy
#: server's delay. After so many intervals the sources are asked, twice 5 s apart. Later, where nodes are
#: NotReady after 15 s, the proof would delay the cure.
RENEWAL_FRACTION, MISSED_RENEWALS = 0.25, 1.15
#: Kubelets' defaults.
LEASE_SECONDS = 40

KUBELET_PORT = 10250
#: An account or a mail address.
PERSON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
#: A person can declare it again.
DECLARED_SECONDS_MAX = 7 * 86400

#: A literal of the program itself: a record leaves out a default by identity.
READY: dict[object, Ready] = {"True": "True", "False": "False", "Unknown": "Unknown"}


#: It has some 300 characters.
LAST_BOOT_CHARACTERS_MAX = 1024
_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
NOTED_BOOT_CHARACTERS_MAX = 64
#: The year 2242: later nanoseconds do not fit a record.
ALIVE_SECONDS_MAX = 2**33


class OutageNote(msgspec.Struct, omit_defaults=True, frozen=True):
    """The annotation, which a leader without the journal needs: which taint is ours, by which order."""

    order: str = ""
    effect: str = ""
    added: str = ""
    boot: str = ""


class Certificate(NamedTuple):
    """``safe``: all pods had ended, and nothing was mounted."""

    boot_id: str
    safe: bool


class Declared(msgspec.Struct, frozen=True, rename={"node_uid": "uid", "boot_id": "boot"}):
    """A person declares that the machine of this boot is off since this heartbeat (``mark``), or that it
    lives (without a mark). ``seconds``: how long that counts; 0: not limited. ``problem``: why it cannot
    count. ``at``: tells two declarations apart.
    """

    node_uid: str = ""
    boot_id: str = ""
    mark: str = ""
    by: str = ""
    seconds: int = 0
    problem: str = ""
    at: str = ""


class NodeView(NamedTuple):
    name: str
    uid: str
    version: str
    boot_id: str
    ready: Ready
    system_uuid: str
    provider_id: str
    taint: TaintOwner
    volumes_in_use: tuple[str, ...]
    status_mark: str
    labels: Mapping[str, str] = {}
    addresses: tuple[str, ...] = ()
    port: int = KUBELET_PORT
    cloud_off: bool = False
    certificate: Certificate | None = None
    declared: Declared | None = None
    alive: Declared | None = None
    machine: tuple[str, str] | None = None
    last_boot: LastBootStated | None = None
    #: The boot that our taint is about; empty: no taint of ours, or an unknown boot.
    taint_boot: str = ""


class LeaseView(NamedTuple):
    name: str
    version: str
    mark: str
    seconds: int


class _LeaseSpec(msgspec.Struct, rename="camel"):
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


class ApiLease(msgspec.Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


def read_machine(node: ApiNode) -> tuple[str, str] | None:
    """A kubelet can write it: the Machine itself has to confirm its node."""
    said = [
        node.metadata.annotations.get(each, "") for each in (MACHINE_NAMESPACE_ANNOTATION, MACHINE_ANNOTATION)
    ]
    return (said[0], said[1]) if all(map(_OBJECT.fullmatch, said)) else None


def read_note(node: ApiNode) -> OutageNote:
    """A spoilt annotation counts as empty."""
    note = read_annotation(node, NOTE_ANNOTATION, OutageNote) or OutageNote()
    return note if len(note.boot) <= NOTED_BOOT_CHARACTERS_MAX else msgspec.structs.replace(note, boot="")


def is_our_taint(taint: JsonObject, note: OutageNote) -> bool:
    """Another controller's taint has another time."""
    said = (taint.get("effect"), taint.get("timeAdded"))
    return taint.get("key") == OUT_OF_SERVICE and bool(note.added) and said == (note.effect, note.added)


def read_certificate(node: ApiNode) -> Certificate | None:
    said = read_annotation(node, CERTIFICATE_ANNOTATION, CertificateNote)
    return None if said is None else Certificate(said.boot_id, bool(said.safe and not said.restarts))


def read_declared(node: ApiNode, annotation: str = DECLARED_ANNOTATION) -> Declared | None:
    """An unreadable one is reported, since its author waits."""
    if annotation not in node.metadata.annotations:
        return None
    said = read_annotation(node, annotation, Declared)
    if said is None:
        return Declared(problem="the annotation is no JSON object with uid, boot, mark, by and seconds")
    if not PERSON.fullmatch(said.by):
        return Declared(problem="it does not say by whom, in letters, digits and ._@+-, 64 at most")
    if not 0 <= said.seconds <= DECLARED_SECONDS_MAX:
        return Declared(by=said.by, problem=f"seconds must be from 0 to {DECLARED_SECONDS_MAX}")
    return msgspec.structs.replace(said, problem="")


def read_last_boot(node: ApiNode) -> LastBootStated | None:
    """One that the node's daemon did not write exactly so counts as none."""
    said = read_annotation(node, LAST_BOOT_ANNOTATION, LastBootNote, LAST_BOOT_CHARACTERS_MAX)
    if said is None:
        return None
    try:
        alive_seconds = timegm(strptime(said.alive_at, TIME_FORM)) if said.alive_at else 0
    except ValueError:
        return None
    if not 0 <= alive_seconds <= ALIVE_SECONDS_MAX:
        return None
    return LastBootStated(
        boot_id=said.boot_id,
        ending=said.ending,
        why=said.why,
        wave=said.wave,
        alive_wall_ns=alive_seconds * NS_PER_SECOND,
        journal_id=said.journal or "",
        trace_id=said.trace or "",
        said_by=said.said_by,
    )


def project_node(node: ApiNode) -> NodeView:
    note, state = read_note(node), node.status
    ready = find_condition(state.conditions, "Ready") or {}
    taints = [taint for taint in node.spec.taints if taint.get("key") == OUT_OF_SERVICE]
    ours = any(is_our_taint(taint, note) for taint in taints)
    mark = ready.get("lastHeartbeatTime")
    return NodeView(
        name=node.metadata.name,
        uid=node.metadata.uid,
        version=node.metadata.resource_version,
        boot_id=state.node_info.boot_id,
        ready=READY.get(ready.get("status"), ""),
        # Firmware and kubelet write it differently.
        system_uuid=state.node_info.system_uuid.lower(),
        provider_id=node.spec.provider_id,
        taint="ours" if ours else "other" if taints else "none",
        volumes_in_use=tuple(state.volumes_in_use),
        status_mark=mark if isinstance(mark, str) else "",
        labels={sys.intern(name): sys.intern(value) for name, value in node.metadata.labels.items()},
        addresses=tuple(each.address for each in state.addresses if each.type == "InternalIP"),
        port=state.daemon_endpoints.kubelet_endpoint.port or KUBELET_PORT,
        cloud_off=any(taint.get("key") == CLOUD_SHUTDOWN for taint in node.spec.taints),
        certificate=read_certificate(node),
        declared=read_declared(node),
        alive=read_declared(node, ALIVE_ANNOTATION),
        machine=read_machine(node),
        last_boot=read_last_boot(node),
        taint_boot=note.boot if ours else "",
    )


def project_lease(lease: ApiLease) -> LeaseView:
    seconds = lease.spec.lease_duration_seconds or LEASE_SECONDS
    meta = lease.metadata
    return LeaseView(meta.name, meta.resource_version, lease.spec.renew_time or "", max(1, seconds))


def lease_path(node: str) -> str:
    return f"{LEASES_PATH}/{quote(node, safe='')}"


class ObservedNode:
    """Take ``news`` before the look: it is made anew at each change."""

    def __init__(self) -> None:
        self.node: NodeView | None = None
        self.lease: LeaseView | None = None
        self.renewed_at = -math.inf
        #: Since when the cloud's taint is seen, and whether the node has spoken since: the taint names no
        #: boot, so one that outlives a start is about the boot before.
        self.cloud_off_at = math.inf
        self.spoke_under_it = False
        self.alive_since = math.inf
        self.news = trio.Event()

    def change(self) -> None:
        self.news.set()
        self.news = trio.Event()


class _Versioned(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...


VersionedT = TypeVar("VersionedT", bound=_Versioned)


class NewestStore(Mirror[VersionedT]):
    """Takes only newer states: an answer about a single object may be older than the watch, or newer."""

    def __init__(self, take: Callable[[str, VersionedT | None, VersionedT | None], None]) -> None:
        super().__init__("name", take)
        #: Also of objects gone since the last list.
        self._versions: dict[str, int] = {}

    def put(self, item: VersionedT) -> None:
        if self._is_newer(item.name, item.version):
            super().put(item)

    def remove(self, item: VersionedT) -> None:
        if self._is_newer(item.name, item.version):
            super().remove(item)

    def replace(self, items: list[VersionedT], resource_version: str) -> None:
        super().replace(items, resource_version)
        self._versions = {name: at for name, at in self._versions.items() if name in self.kept}

    def end(self, key: str) -> None:
        if self._is_newer(key, self.resource_version):
            super().remove(self.kept[key])

    def _is_newer(self, name: str, version: str) -> bool:
        """Versions are growing numbers. Any other version counts as newer."""
        number = int(version) if version.isdecimal() else self._versions.get(name, 0) + 1
        if number <= self._versions.get(name, -1):
            return False
        self._versions[name] = number
        return True


class ClusterView:
    def __init__(self, tell: Tell = lambda level, line: None) -> None:
        self._observed: dict[str, ObservedNode] = {}
        self._watches = (
            Sees("nodes", tell, lambda: None),
            Sees("leases of nodes", tell, lambda: self.sees(self._watches[1].since)),
        )
        self.nodes = NewestStore[NodeView](self._take_node)
        self.leases = NewestStore[LeaseView](self._take_lease)
        #: Since when renewals are seen; infinite: they are not.
        self.sees_since = math.inf

    def of(self, node: str) -> ObservedNode:
        observed = self._observed.get(node)
        if observed is None:
            observed = self._observed[node] = ObservedNode()
        return observed

    def there(self) -> list[NodeView]:
        return [each.node for each in self._observed.values() if each.node is not None]

    async def run(self, link: ApiClient) -> None:
        nodes = Watched(partial(listed_path, NODES_PATH), ApiNode, project_node, PART_NODES)
        leases = Watched(
            partial(listed_path, LEASES_PATH), ApiLease, project_lease, PART_LEASES, GATHER_SECONDS
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Watch(link, nodes, self.nodes, self._watches[0]).run)
            nursery.start_soon(Watch(link, leases, self.leases, self._watches[1]).run)

    async def listed(self) -> None:
        await self.nodes.listed.wait()
        await self.leases.listed.wait()

    def silent_at(self, node: str) -> float:
        """When a renewal will have been missed that this process would have seen; infinite: no lease."""
        observed = self.of(node)
        if observed.lease is None:
            return math.inf
        seconds = observed.lease.seconds * RENEWAL_FRACTION * MISSED_RENEWALS
        return max(observed.renewed_at, self.sees_since) + seconds

    def heard_at(self, node: str) -> float:
        """Since when its silence counts."""
        return max(self.of(node).renewed_at, self.sees_since)

    def sees(self, since: float) -> None:
        """Infinite: they are not."""
        self.sees_since = since
        for observed in self._observed.values():
            observed.change()

    def _take_node(self, name: str, before: NodeView | None, node: NodeView | None) -> None:
        observed = self.of(name)
        if node is None or node.alive is None:
            observed.alive_since = math.inf
        elif before is None or node.alive != before.alive:
            observed.alive_since = trio.current_time()
        observed.node = node
        if node is None or not node.cloud_off:
            observed.cloud_off_at, observed.spoke_under_it = math.inf, False
        else:
            observed.cloud_off_at = min(observed.cloud_off_at, trio.current_time())
            observed.spoke_under_it = observed.spoke_under_it or node.ready == "True"
        self._tell(name, observed)

    def _take_lease(self, name: str, before: LeaseView | None, lease: LeaseView | None) -> None:
        observed = self.of(name)
        if lease is not None and (before is None or before.mark != lease.mark):
            observed.renewed_at = trio.current_time()
            # Not an old renewal that a returning watch reports with the taint.
            late = observed.renewed_at - observed.cloud_off_at > lease.seconds * RENEWAL_FRACTION
            observed.spoke_under_it = observed.spoke_under_it or late
        observed.lease = lease
        self._tell(name, observed)

    def _tell(self, name: str, observed: ObservedNode) -> None:
        if observed.node is None and observed.lease is None:
            del self._observed[name]
        observed.change()
