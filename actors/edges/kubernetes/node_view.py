"""The cluster's Nodes and leases in their newest versions (`ClusterView`), and one Node's edge (`NodeEdge`).

A lease's silence counts from the moment when this process saw its last renewal, never from the times in the
lease. Time without a watch does not count.
"""

from __future__ import annotations

import math
import re
import sys
from calendar import timegm
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from ipaddress import ip_address
from time import strptime
from typing import Annotated, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import msgspec
import trio

from ebbtide.actors.edges.kubernetes import api_calls as api
from ebbtide.actors.edges.kubernetes.api_client import ApiClient
from ebbtide.actors.edges.kubernetes.api_watch import Mirror, Sees, Watch, Watched
from ebbtide.actors.edges.kubernetes.known_pods import IN_USE_MAX, NAME_MAX, UNIQUE_MAX, Metadata
from ebbtide.actors.edges.kubernetes.node_writes import (
    CERTIFICATE_ANNOTATION,
    LAST_BOOT_ANNOTATION,
    CertificateNote,
    LastBootNote,
    NodePatch,
    NodeWriter,
    read_annotation,
)
from ebbtide.actors.interfaces import Edge, Effect, Ending, Outlet, Tell
from ebbtide.events import bounds, outage_events
from ebbtide.events.base import NS_PER_SECOND, Fact, Order
from ebbtide.events.outage_events import LastBootStated, Ready, TaintOwner, unswapped

OUT_OF_SERVICE, OUT_OF_SERVICE_VALUE = "node.kubernetes.io/out-of-service", "nodeshutdown"
#: The cloud controller's, for a shut-down instance.
CLOUD_SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
DECLARED_ANNOTATION = "ebbtide.dev/declared-off"
ALIVE_ANNOTATION = "ebbtide.dev/declared-alive"
NOTE_ANNOTATION = "ebbtide.dev/out-of-service"
MACHINE_ANNOTATION, MACHINE_NAMESPACE_ANNOTATION = (
    "cluster.x-k8s.io/machine",
    "cluster.x-k8s.io/cluster-namespace",
)
#: A Node has some ten KiB, a lease half of one.
PART_NODES, PART_LEASES = 100, 500
#: A thousand nodes renew a hundred leases a second.
GATHER_SECONDS = 0.25
#: Between two reports of one Node: a kubelet can write 256 KiB again and again. In a flood only orders read
#: the Node sooner.
REPORT_SECONDS, FLOOD_REPORT_SECONDS = 0.5, 600.0
#: A kubelet renews after this part of the lease (``renewIntervalFraction``), at most 4 % late, plus a busy
#: server's delay. Two readings of the sources follow, 5 s apart: a larger factor would delay the cure.
RENEWAL_FRACTION, MISSED_RENEWALS = 0.25, 1.15
#: The kubelet's default. One of a second could begin two outages a second, and a person waits for a long one.
LEASE_SECONDS, LEASE_SECONDS_MIN, LEASE_SECONDS_MAX = 40, 4, 3600
#: A restored machine names its own and another UUID. A kubelet could name all machines in turn.
CLAIMS_MAX = 2

KUBELET_PORT = 10250
#: Dual-stack nodes have two. A kubelet may write 90 000, of 25 µs each: all outages would wait for seconds.
ADDRESSES_MAX, ADDRESSES_READ_MAX = 4, 64
#: An account or a mail address.
PERSON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
#: A person can declare it again.
DECLARED_SECONDS_MAX = 7 * 86400

#: 128 bits, in place of names of up to 200 characters.
KEY_CHARACTERS = 32

#: Interned literals: a record leaves out a default by identity.
READY: dict[object, Ready] = {"True": "True", "False": "False", "Unknown": "Unknown"}

#: The daemon's note has some 300 characters; a person may add a reason.
LAST_BOOT_CHARACTERS_MAX, DECLARED_CHARACTERS_MAX = 1024, 8192
#: For a statement that the node is alive and names no time.
ALIVE_SECONDS = 3600
_OBJECT = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_Word = Annotated[str, msgspec.Meta(max_length=NAME_MAX)]
NOTED_BOOT_CHARACTERS_MAX = 64
#: The year 2242: later nanoseconds do not fit a record.
ALIVE_SECONDS_MAX = 2**33


class OutageNote(msgspec.Struct, omit_defaults=True, frozen=True):
    """Tells a leader without the journal which taint is ours."""

    order: str = ""
    effect: str = ""
    added: str = ""
    boot: str = ""


class Certificate(NamedTuple):
    """``safe``: all pods had ended, and no volume was mounted."""

    boot_id: str
    safe: bool


class Declared(msgspec.Struct, frozen=True, rename={"node_uid": "uid", "boot_id": "boot"}):
    """A person declares the machine of this boot off since the heartbeat ``mark``; without a mark, alive.
    ``seconds`` 0: not limited. ``problem``: why it cannot count. ``at`` separates two declarations.
    """

    node_uid: _Word = ""
    boot_id: _Word = ""
    mark: _Word = ""
    by: str = ""
    seconds: int = 0
    problem: str = ""
    at: _Word = ""


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
    #: Our taint's boot; empty: no taint of ours, or an unknown boot.
    taint_boot: str = ""


def _names_of(node: NodeView | None) -> set[str]:
    """The machine's."""
    return set() if node is None else {unswapped(node.system_uuid), _provider_name(node.provider_id)} - {""}


def _provider_name(provider_id: str) -> str:
    """EC2's have several spellings (``aws:///zone/i-1``, ``aws:////i-1``)."""
    return provider_id.rpartition("/")[2] if provider_id.startswith("aws:") else provider_id


class MachineClaims(NamedTuple):
    """``first_uuid``: the first recorded systemUUID, if it is another one. Empty: none."""

    first_uuid: str = ""
    same_uuid_node: str = ""
    same_provider_node: str = ""


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


def read_machine(node: api.ApiNode) -> tuple[str, str] | None:
    """A kubelet can write it: the Machine has to confirm its node."""
    said = [
        node.metadata.annotations.get(each, "") for each in (MACHINE_NAMESPACE_ANNOTATION, MACHINE_ANNOTATION)
    ]
    return (said[0], said[1]) if all(map(_OBJECT.fullmatch, said)) else None


def read_note(node: api.ApiNode) -> OutageNote:
    """A spoilt annotation counts as empty."""
    note = read_annotation(node, NOTE_ANNOTATION, OutageNote) or OutageNote()
    return note if len(note.boot) <= NOTED_BOOT_CHARACTERS_MAX else msgspec.structs.replace(note, boot="")


def is_our_taint(taint: api.JsonObject, note: OutageNote) -> bool:
    """Another controller's taint has another time."""
    said = (taint.get("effect"), taint.get("timeAdded"))
    return taint.get("key") == OUT_OF_SERVICE and bool(note.added) and said == (note.effect, note.added)


def read_certificate(node: api.ApiNode) -> Certificate | None:
    said = read_annotation(node, CERTIFICATE_ANNOTATION, CertificateNote)
    return (
        None if said is None else Certificate(said.boot_id[:NAME_MAX], bool(said.safe and not said.restarts))
    )


def read_declared(node: api.ApiNode, annotation: str = DECLARED_ANNOTATION) -> Declared | None:
    """An unreadable one is reported, since its author waits."""
    if annotation not in node.metadata.annotations:
        return None
    said = read_annotation(node, annotation, Declared, DECLARED_CHARACTERS_MAX)
    if said is None:
        return Declared(problem="the annotation is no JSON object with uid, boot, mark, by and seconds")
    if not PERSON.fullmatch(said.by):
        return Declared(problem="it does not say by whom, in letters, digits and ._@+-, 64 at most")
    if not 0 <= said.seconds <= DECLARED_SECONDS_MAX:
        return Declared(by=said.by, problem=f"seconds must be from 0 to {DECLARED_SECONDS_MAX}")
    return msgspec.structs.replace(said, problem="")


def read_last_boot(node: api.ApiNode) -> LastBootStated | None:
    """A spoilt annotation counts as none."""
    said = read_annotation(node, LAST_BOOT_ANNOTATION, LastBootNote, LAST_BOOT_CHARACTERS_MAX)
    if said is None:
        return None
    try:
        alive_seconds = timegm(strptime(said.alive_at, api.TIME_FORM)) if said.alive_at else 0
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


def is_address(text: str) -> bool:
    """A kubelet may also write names: a slow name server would hold all threads."""
    with suppress(ValueError):
        return bool(ip_address(text))
    return False


def project_node(node: api.ApiNode) -> NodeView:
    note, state = read_note(node), node.status
    internal = [each for each in state.addresses[:ADDRESSES_READ_MAX] if each.type == "InternalIP"]
    ready = api.find_condition(state.conditions, "Ready") or {}
    taints = [taint for taint in node.spec.taints if taint.get("key") == OUT_OF_SERVICE]
    ours = any(is_our_taint(taint, note) for taint in taints)
    mark = ready.get("lastHeartbeatTime")
    return NodeView(
        name=node.metadata.name,
        uid=node.metadata.uid,
        version=node.metadata.resource_version,
        boot_id=state.node_info.boot_id[:NAME_MAX],
        ready=READY.get(ready.get("status"), ""),
        # Firmware and kubelet write it differently.
        system_uuid=state.node_info.system_uuid[:NAME_MAX].lower(),
        provider_id=node.spec.provider_id[:UNIQUE_MAX],
        taint="ours" if ours else "other" if taints else "none",
        volumes_in_use=tuple(each[:UNIQUE_MAX] for each in state.volumes_in_use[:IN_USE_MAX]),
        status_mark=mark if isinstance(mark, str) else "",
        labels=node.metadata.labels,
        addresses=tuple(each.address for each in internal if is_address(each.address))[:ADDRESSES_MAX],
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
    meta, said = lease.metadata, lease.spec.lease_duration_seconds or LEASE_SECONDS
    seconds = min(max(LEASE_SECONDS_MIN, said), LEASE_SECONDS_MAX)
    return LeaseView(meta.name, meta.resource_version, lease.spec.renew_time or "", seconds)


def machine_keys(node: NodeView) -> list[str]:
    """A providerID never changes, and outlives the Node. Without one each new Node may be new hardware. The
    kubelet may set it later: the UID stays a key.
    """
    names = filter(None, (node.provider_id, node.uid))
    return [sha256(each.encode()).hexdigest()[:KEY_CHARACTERS] for each in names]


def other_first_uuid(first_uuids: Mapping[str, str], node: NodeView) -> str:
    """Empty: its machine has only its own on record."""
    found = (first_uuids.get(key, "") for key in machine_keys(node))
    return next((uuid for uuid in found if uuid not in ("", node.system_uuid)), "")


def lease_path(node: str) -> str:
    return f"{api.LEASES_PATH}/{quote(node, safe='')}"


class ObservedNode:
    """Take ``news`` before the look: each change replaces it."""

    def __init__(self) -> None:
        self.node: NodeView | None = None
        self.lease: LeaseView | None = None
        self.renewed_at = -math.inf
        #: Since when the cloud's taint is seen, and the heartbeats' marks then: a taint that outlives a start
        #: is about the boot before. Empty: the taint is older than the first look.
        self.cloud_off_at = math.inf
        self.cloud_marks = "", ""
        #: The first `CLAIMS_MAX` UUIDs that this leader saw it name.
        self.claims: tuple[str, ...] = ()
        self.alive_until = math.inf
        self.report_seconds = REPORT_SECONDS
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
    """Takes only newer states: an answer about one object may be older than the watch."""

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
        """A version that is no number counts as newer."""
        number = int(version) if version.isdecimal() else self._versions.get(name, 0) + 1
        if number <= self._versions.get(name, -1):
            return False
        self._versions[name] = number
        return True


class ClusterView:
    """``labels``: keep only these (a kubelet may set 100 000 others); None: all."""

    def __init__(self, tell: Tell = lambda level, line: None, labels: Collection[str] | None = None) -> None:
        self._labels = labels
        self._observed = defaultdict[str, ObservedNode](ObservedNode)
        self._watches = (
            Sees("nodes", tell, lambda: None),
            Sees("leases of nodes", tell, lambda: self.sees(self._watches[1].since)),
        )
        self.nodes = NewestStore[NodeView](self._take_node)
        self.leases = NewestStore[LeaseView](self._take_lease)
        #: By `machine_keys` (`ebbtide.outage.first_uuids`).
        self.first_uuids: dict[str, str] = {}
        #: Nodes that name each machine.
        self._named: Counter[str] = Counter()
        #: Infinite: renewals are not seen.
        self.sees_since = math.inf

    def of(self, node: str) -> ObservedNode:
        return self._observed[node]

    def project(self, node: api.ApiNode) -> NodeView:
        view = project_node(node)
        names = view.labels if self._labels is None else self._labels
        # Not of all: a kubelet may write 100 000.
        kept = {sys.intern(each): sys.intern(view.labels[each]) for each in names if each in view.labels}
        return view._replace(labels=kept)

    def there(self) -> list[NodeView]:
        return [each.node for each in self._observed.values() if each.node is not None]

    async def run(self, link: ApiClient) -> None:
        nodes = Watched(partial(api.listed_path, api.NODES_PATH), api.ApiNode, self.project, PART_NODES)
        leases = Watched(
            partial(api.listed_path, api.LEASES_PATH), ApiLease, project_lease, PART_LEASES, GATHER_SECONDS
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Watch(link, nodes, self.nodes, self._watches[0]).run)
            nursery.start_soon(Watch(link, leases, self.leases, self._watches[1]).run)

    async def listed(self) -> None:
        await self.nodes.listed.wait()
        await self.leases.listed.wait()

    def silent_at(self, node: str) -> float:
        """When a renewal counts as missed; infinite: no lease."""
        observed = self.of(node)
        if observed.lease is None:
            return math.inf
        seconds = observed.lease.seconds * RENEWAL_FRACTION * MISSED_RENEWALS
        return max(observed.renewed_at, self.sees_since) + seconds

    def heard_at(self, node: str) -> float:
        """Since when its silence counts."""
        return max(self.of(node).renewed_at, self.sees_since)

    def sees(self, since: float) -> None:
        self.sees_since = since
        for observed in self._observed.values():
            observed.change()

    def _take_node(self, name: str, before: NodeView | None, node: NodeView | None) -> None:
        observed = self.of(name)
        if node is None or node.alive is None:
            observed.alive_until = math.inf
        elif before is None or node.alive != before.alive:
            observed.alive_until = trio.current_time() + (node.alive.seconds or ALIVE_SECONDS)
        observed.node = node
        # Another Node may follow under this name.
        known = observed.claims if before and node and before.uid == node.uid else ()
        named = unswapped(node.system_uuid) if node else ""
        observed.claims = tuple(dict.fromkeys(filter(None, (*known, named))))[:CLAIMS_MAX]
        if node is None or not node.cloud_off:
            observed.cloud_off_at, observed.cloud_marks = math.inf, ("", "")
        elif before is not None and not before.cloud_off and observed.lease is not None:
            observed.cloud_off_at = trio.current_time()
            observed.cloud_marks = observed.lease.mark, node.status_mark
        self._tell(name, observed)
        # A change also changes the claims of Nodes that name the same machine.
        old, new = _names_of(before), _names_of(node)
        self._named.subtract(old)
        self._named.update(new)
        shared = {each for each in old ^ new if self._named[each] > (each in new)}
        for other in self._observed.values() if shared else ():
            if not shared.isdisjoint(_names_of(other.node)):
                other.change()

    def _take_lease(self, name: str, before: LeaseView | None, lease: LeaseView | None) -> None:
        observed = self.of(name)
        if lease is not None and (before is None or before.mark != lease.mark):
            observed.renewed_at = trio.current_time()
            # A returning watch may report an old renewal with the taint.
            late = observed.renewed_at - observed.cloud_off_at > lease.seconds * RENEWAL_FRACTION
            if observed.cloud_marks[0] and not late:
                observed.cloud_marks = lease.mark, observed.cloud_marks[1]
        observed.lease = lease
        self._tell(name, observed)

    def identity_of(self, node: NodeView) -> MachineClaims:
        uuid, provider = unswapped(node.system_uuid), _provider_name(node.provider_id)

        def others(machine: str) -> list[str]:
            found = self.there() if self._named[machine] > 1 else ()
            return [each.name for each in found if each.uid != node.uid and machine in _names_of(each)]

        same = [each for each in others(uuid) if uuid in self.of(each).claims]
        first = other_first_uuid(self.first_uuids, node)
        return MachineClaims(first, min(same, default=""), min(others(provider), default=""))

    def _tell(self, name: str, observed: ObservedNode) -> None:
        if observed.node is None and observed.lease is None:
            del self._observed[name]
        observed.change()


#: All taints with this key are ours.
QUARANTINE: api.JsonObject = {"key": "ebbtide.dev/quarantine", "effect": "NoSchedule"}
HOLD = "outage"
OVERTAKEN = "a later order has overtaken it"
ANOTHER_NODE = "another Node has its name"

EndingT = TypeVar("EndingT", Ending, Ending | None)


class _AnotherNode(Exception):
    """Another object has the order's name."""


class Look(NamedTuple):
    """``node`` None: it is gone. ``replaced``: another one has its name."""

    node: NodeView | None
    lease_mark: str
    claims: MachineClaims = MachineClaims()
    replaced: bool = False


def facts_between(told: Look | None, now: Look, *, asked: bool = False) -> list[Fact]:
    """``asked``: the Node also without a change."""
    if now.node is None:
        is_news = asked or told is None or told.node is not None or told.replaced != now.replaced
        return [outage_events.NodeDeleted(replaced=now.replaced)] if is_news else []
    node, before = now.node, told.node if told is not None else None
    facts: list[Fact] = []
    # First the new boot id: a heartbeat alone would count for the boot before.
    if told is not None and before is not None and before.boot_id == node.boot_id:
        if now.lease_mark not in ("", told.lease_mark):
            facts.append(outage_events.HeartbeatSeen(mark=now.lease_mark))
        if node.status_mark not in ("", before.status_mark):
            facts.append(outage_events.HeartbeatSeen(mark=node.status_mark, source="status"))
    if asked or before != node or (told is not None and told.claims != now.claims):
        facts.append(
            outage_events.NodeRead(
                uid=node.uid,
                boot_id=node.boot_id,
                ready=node.ready,
                resource_version=node.version,
                system_uuid=node.system_uuid,
                provider_id=node.provider_id,
                **now.claims._asdict(),
                taint=node.taint,
                volumes_in_use=node.volumes_in_use,
                lease_mark=now.lease_mark,
                status_mark=node.status_mark,
                taint_boot=node.taint_boot,
            )
        )
    if node.last_boot is not None and (before is None or before.last_boot != node.last_boot):
        facts.append(node.last_boot)
    return facts


def is_as_ordered(
    order: outage_events.SetTaint | outage_events.PowerOff, node: NodeView, lease_mark: str
) -> bool:
    """A mark that is gone is no sign of life."""
    if isinstance(order, outage_events.SetTaint):
        same = order.resource_version == node.version
    else:
        # Without a UUID the order is for systems that the configuration names.
        same = not order.system_uuid or node.system_uuid in ("", order.system_uuid)
    said = (order.node_uid, order.boot_id, order.ready)
    return (
        same
        and said == (node.uid, node.boot_id, node.ready)
        and lease_mark in ("", order.lease_mark)
        and node.status_mark in ("", order.status_mark)
    )


def taint_patch(node: api.ApiNode, order: outage_events.SetTaint) -> api.JsonObject:
    added = api.rfc3339_now()
    taint = {"key": OUT_OF_SERVICE, "value": OUT_OF_SERVICE_VALUE, "effect": order.effect, "timeAdded": added}
    note = msgspec.json.encode(OutageNote(order.key, order.effect, added, order.boot_id)).decode()
    meta = {"resourceVersion": order.resource_version, "annotations": {NOTE_ANNOTATION: note}}
    return {"metadata": meta, "spec": {"taints": [*node.spec.taints, taint]}}


def quarantine_patch(node: api.ApiNode) -> api.JsonObject | None:
    """None if it is set."""
    if QUARANTINE["key"] in [taint.get("key") for taint in node.spec.taints]:
        return None
    meta = {"resourceVersion": node.metadata.resource_version}
    return {"metadata": meta, "spec": {"taints": [*node.spec.taints, QUARANTINE]}}


def untaint_patch(node: api.ApiNode) -> api.JsonObject | None:
    """Remove all that is ours; None if it has none."""
    note = read_note(node)
    left = [each for each in node.spec.taints if each.get("key") != QUARANTINE["key"]]
    left = [each for each in left if not is_our_taint(each, note)]
    if len(left) == len(node.spec.taints) and NOTE_ANNOTATION not in node.metadata.annotations:
        return None
    meta = {"resourceVersion": node.metadata.resource_version, "annotations": {NOTE_ANNOTATION: None}}
    return {"metadata": meta, "spec": {"taints": left or None}}


class NodeEdge(Edge):
    """``heeded``: does a renewal alone need a report? A healthy node renews six times a minute, and each fact
    is an object in the API server. ``floods``: has this Node filled much of its journal? Then its reports are
    rare, and name one volume: each write reads the Node itself.

    Every write names the Node's version. `SetTaint` reads Node, then lease, again; if they differ from the
    order's, it refuses and reports them, and the core decides anew. A note in the same request names our
    taint. While an unanswered write may still take effect, no decision is based on the Node
    (`NodeWriter.change`).
    """

    def __init__(
        self,
        caller: api.ApiCaller,
        view: ClusterView,
        node: str,
        node_uid: str,
        heeded: Callable[[], bool] = lambda: True,
        floods: Callable[[], bool] = lambda: False,
    ) -> None:
        self._view, self._heeded, self._floods = view, heeded, floods
        self._node, self._uid = node, node_uid
        self._writer = NodeWriter(caller, node, NOTE_ANNOTATION)
        self._told: Look | None = None
        self._told_at = -math.inf
        self._gone = False
        self._missed: str | None = None
        self._telling = trio.Lock()
        self.effects: Mapping[type[Order], Effect] = {
            outage_events.ReadNode: self._read_node,
            outage_events.SetTaint: self._set_taint,
            outage_events.RemoveTaint: lambda order, outlet: self._change(order, outlet, untaint_patch),
            outage_events.SetQuarantine: lambda order, outlet: self._change(order, outlet, quarantine_patch),
        }

    async def run(self, outlet: Outlet) -> None:
        await self._view.listed()
        while True:
            observed = self._view.of(self._node)
            news = observed.news
            told, look = self._told, self._look()
            if self._heeded() or told is None or look._replace(lease_mark=told.lease_mark) != told:
                await self._tell(outlet)
            mark = self._look().lease_mark
            observed.report_seconds = FLOOD_REPORT_SECONDS if self._floods() else REPORT_SECONDS
            next_at = self._told_at + observed.report_seconds
            silent_at = max(next_at, self._view.silent_at(self._node))
            with trio.move_on_at(math.inf if self._gone or mark == self._missed else silent_at):
                await news.wait()
                await trio.sleep_until(next_at)
                continue
            # Report the last renewal before the missed one.
            await self._tell(outlet)
            # After a delay both may come at once.
            now = trio.current_time()
            if self._look().lease_mark == mark and self._view.silent_at(self._node) <= now:
                silent_ns = int((now - self._view.heard_at(self._node)) * NS_PER_SECOND)
                self._missed = mark
                await outlet.put(outage_events.HeartbeatMissed(silent_ns=silent_ns, mark=mark))

    async def _tell(self, outlet: Outlet, *, asked: bool = False) -> None:
        # Each report is a change against the one before.
        async with self._telling:
            now = self._look()
            facts = facts_between(self._told, now, asked=asked)
            self._told = now
            if facts:
                self._told_at = trio.current_time()
                await outlet.put(*facts)

    def _look(self) -> Look:
        observed = self._view.of(self._node)
        self._gone = self._gone or observed.node is None or observed.node.uid != self._uid
        mark = observed.lease.mark if observed.lease is not None else ""
        if not self._gone:
            assert observed.node is not None
            node = observed.node
            shown = node.volumes_in_use[: 1 if self._floods() else IN_USE_MAX]
            return Look(node._replace(volumes_in_use=shown), mark, self._view.identity_of(node))
        return Look(None, mark, replaced=observed.node is not None and observed.node.uid != self._uid)

    async def _holding(
        self,
        order: Order,
        seconds_max: float,
        work: Callable[[api.ApiCall], Awaitable[EndingT]],
        overtakes: tuple[str, ...] = (),
    ) -> EndingT | Ending:
        """``work`` may raise Unanswered."""
        async with self._writer.hold(HOLD, overtakes) as hold:
            try:
                return await work(api.ApiCall(hold, seconds_max, ""))
            except api.Unanswered as error:
                return api.unanswered_ending(error)
        return Ending("cancelled", OVERTAKEN)

    async def _read_node(self, order: outage_events.ReadNode, outlet: Outlet) -> Ending:
        async def read(call: api.ApiCall) -> Ending:
            problem = ""
            if self._writer.in_doubt:
                with suppress(_AnotherNode):
                    problem = await self._writer.change(call, self._patch(lambda node: None))
            # A Node that is gone is an answer.
            problem = (await self._get(call))[1] or problem
            if problem and not self._gone:
                return Ending("failed", problem)
            await self._tell(outlet, asked=True)
            return Ending()

        return await self._holding(order, bounds.now.api_try_seconds, read)

    async def _get(self, call: api.ApiCall) -> tuple[api.ApiNode | None, str]:
        """Read the Node, then its lease, into the view; the text says why not. Raises Unanswered."""
        answer = await call.until_answered("GET", api.node_path(self._node))
        node, problem = self._take(answer)
        if node is None:
            return None, problem
        answer = await call.until_answered("GET", lease_path(self._node))
        if answer.code == api.HTTP_NOT_FOUND:
            return node, ""
        if not answer.ok:
            return None, f"the node's lease cannot be read: {api.answer_text(answer)}"
        try:
            self._view.leases.put(project_lease(msgspec.json.decode(answer.body, type=ApiLease)))
        except (ValueError, RecursionError) as error:
            return None, f"the node's lease cannot be read: {error}"
        return node, ""

    def _take(self, answer: api.Answer) -> tuple[api.ApiNode | None, str]:
        self._gone = self._gone or answer.code == api.HTTP_NOT_FOUND
        if not answer.ok:
            return None, f"the node cannot be read: {api.answer_text(answer)}"
        try:
            node = msgspec.json.decode(answer.body, type=api.ApiNode)
        except (ValueError, RecursionError) as error:
            return None, f"the node cannot be read: {error}"
        self._view.nodes.put(self._view.project(node))
        self._gone = self._gone or node.metadata.uid != self._uid
        return node, ""

    async def as_ordered(self, order: outage_events.PowerOff, outlet: Outlet) -> Ending | None:
        """Reports Node and lease; None: unchanged since the order."""

        async def compare(call: api.ApiCall) -> Ending | None:
            node, problem = await self._get(call)
            await self._tell_if_known(outlet)
            if node is None:
                return Ending("failed", problem)
            silent_ns = (trio.current_time() - self._view.heard_at(self._node)) * NS_PER_SECOND
            silent = silent_ns >= order.silent_ns or not order.silent_ns
            look, now = self._look(), project_node(node)
            alone = not (order.system_uuid and look.claims.same_uuid_node)
            same = silent and alone and is_as_ordered(order, now, look.lease_mark)
            return None if same else Ending("failed", outage_events.CHANGED)

        return await self._holding(order, bounds.now.api_try_seconds, compare)

    async def _set_taint(self, order: outage_events.SetTaint, outlet: Outlet) -> Ending:
        async def compare_and_swap(call: api.ApiCall) -> Ending:
            again, claims = api.AGAIN_SECONDS, (self._told or self._look()).claims
            while True:
                node, problem = await self._get(call)
                await self._tell_if_known(outlet)
                if node is None:
                    return Ending("failed", problem)
                now = project_node(node)
                # An earlier try of this order whose answer was lost.
                if now.taint == "ours" and read_note(node).order == order.key:
                    return Ending()
                look = self._look()
                if claims != look.claims or not is_as_ordered(order, now, look.lease_mark):
                    return Ending("failed", outage_events.CHANGED)
                # One try: read both again before the next.
                with suppress(api.Unanswered):
                    answer = await call.once(
                        "PATCH", api.node_path(self._node), taint_patch(node, order), api.MERGE_PATCH
                    )
                    if answer.ok:
                        self._take(answer)
                        await self._tell(outlet)
                        return Ending()
                    if answer.code not in (api.HTTP_CONFLICT, api.HTTP_TOO_MANY) and answer.code < 500:
                        return Ending("failed", f"the node cannot be changed: {api.answer_text(answer)}")
                await trio.sleep(min(again, call.left_seconds))
                again = min(again * 2, api.AGAIN_SECONDS_MAX)

        return await self._holding(order, bounds.now.api_unhurried_seconds, compare_and_swap, (HOLD,))

    async def _change(
        self,
        order: outage_events.RemoveTaint | outage_events.SetQuarantine,
        outlet: Outlet,
        change: Callable[[api.ApiNode], api.JsonObject | None],
    ) -> Ending:
        """Depends only on the Node's identity."""

        async def write(call: api.ApiCall) -> Ending:
            problem = ANOTHER_NODE
            with suppress(_AnotherNode):
                problem = await self._writer.change(call, self._patch(change))
            with suppress(api.Unanswered):
                await self._get(call)
            await self._tell_if_known(outlet)
            return Ending("failed", problem) if problem else Ending()

        return await self._holding(order, bounds.now.api_unhurried_seconds, write, (HOLD,))

    def _patch(self, change: Callable[[api.ApiNode], api.JsonObject | None]) -> NodePatch:
        def of_this_node(node: api.ApiNode) -> api.JsonObject | None:
            if node.metadata.uid != self._uid:
                raise _AnotherNode
            return change(node)

        return NodePatch(of_this_node)

    async def _tell_if_known(self, outlet: Outlet) -> None:
        """Findings of an order come before its outcome."""
        if self._gone or self._view.of(self._node).node is not None:
            await self._tell(outlet)
