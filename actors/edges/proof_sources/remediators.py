"""Other remediators: medik8s' Fence Agents Remediation and Self Node Remediation, and Cluster API.

FAR reports that its fence agent succeeded, SNR that its watchdog's time is over, Cluster API that the
infrastructure object of the node's Machine was deleted, which its provider allows when the machine is gone.

None names the boot, an object may be older than the outage, and a person can remove a finalizer while the
machine runs. So a report counts only if this process saw it appear after the node's last sign of life.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec
import trio

from ebbtide.actors.edges.kubernetes import api_calls
from ebbtide.actors.edges.kubernetes.node_view import ClusterView
from ebbtide.actors.edges.proof_sources.proof_source import Gathering, Machine, Said, Unread
from ebbtide.events import bounds
from ebbtide.events.outage_events import IdentityKind, Source

#: For an object with another name than its node.
NODE_NAME_ANNOTATION = "remediation.medik8s.io/node-name"
OBJECTS_MAX = 1000
NODES_MAX = 5000

#: Nodes share a list.
LIST_EVERY_SECONDS = 1.0
#: A fifth of the controller's rate. Each of a hundred nodes is read every 25 s, and a proof counts for 60 s.
MACHINES_PER_SECOND = 4
#: A few nodes are then read at each reading.
TURNS_AHEAD_SECONDS = 5.0
NOT_INSTALLED_SECONDS = 60.0

T = TypeVar("T")

EARLIER = "it reported this before we began to watch: it may be about an earlier boot"


class Remediation(NamedTuple):
    """``done``: fenced, or gone. Without an identity it is about the Node ``node``."""

    uid: str
    node: str
    done: bool
    identity_kind: IdentityKind = "nodeUID"
    identity: str = ""
    boot_id: str = ""


class Remediator(Protocol):
    @property
    def name(self) -> str: ...

    async def of(self, node: str) -> list[Remediation] | None:
        """None: no statement now. Raises Unread."""


class _Spec(msgspec.Struct):
    provider_id: str = msgspec.field(default="", name="providerID")


class _Status(msgspec.Struct, rename="camel"):
    conditions: list[api_calls.JsonObject] = []
    phase: str | None = None
    #: Cluster API's copy of the Node's.
    node_info: api_calls.NodeInfo = msgspec.field(default_factory=api_calls.NodeInfo)


class _Object(msgspec.Struct):
    metadata: api_calls.ObjectMeta
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    items: list[_Object] = []


def _fenced(status: _Status) -> bool:
    found = api_calls.find_condition(status.conditions, "FenceAgentActionSucceeded")
    return found is not None and found.get("status") == "True"


#: The objects' path, and: is it done?
KINDS: dict[str, tuple[str, Callable[[_Status], bool]]] = {
    "fence-agents-remediation": (
        "/apis/fence-agents-remediation.medik8s.io/v1alpha1/fenceagentsremediations",
        _fenced,
    ),
    "self-node-remediation": (
        "/apis/self-node-remediation.medik8s.io/v1alpha1/selfnoderemediations",
        lambda status: status.phase in ("Reboot-Completed", "Fencing-Completed"),
    ),
}


class _Details(msgspec.Struct):
    name: str = ""


class _Refusal(msgspec.Struct):
    """It names a missing object, but no missing kind."""

    details: _Details = msgspec.field(default_factory=_Details)


async def _get(caller: api_calls.ApiCaller, path: str, kind: type[T], what: str, asked: str) -> T | None:
    """None: the kind is not installed. Raises Unread: ``what`` cannot be ``asked``."""
    try:
        answer = await caller.call("GET", path, seconds_max=bounds.now.source_seconds / 2)
    except api_calls.Unanswered as error:
        raise Unread(f"the API server: {error}") from None
    if answer.code == api_calls.HTTP_NOT_FOUND:
        try:
            is_installed = bool(msgspec.json.decode(answer.body, type=_Refusal).details.name)
        except (ValueError, RecursionError):
            is_installed = False
        if not is_installed:
            return None
        raise Unread(f"{what} is not there")
    if not answer.ok:
        raise Unread(f"{what} cannot be {asked}: {api_calls.answer_text(answer)}")
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (ValueError, RecursionError):
        raise Unread(f"{what} cannot be read") from None


class Remediations:
    def __init__(self, caller: api_calls.ApiCaller, name: str) -> None:
        self.name = name
        self._path, self._is_done = KINDS[name]
        self._caller = caller
        self._gathering = Gathering(self._list, NODES_MAX, LIST_EVERY_SECONDS)
        self._missing_until = -math.inf

    async def of(self, node: str) -> list[Remediation] | None:
        """None: this kind is not installed. Raises Unread."""
        if trio.current_time() < self._missing_until:
            return None
        found = await self._gathering.about(node)
        return None if found is None else found.get(node, [])

    async def _list(self, nodes: list[str]) -> Mapping[str, list[Remediation]] | None:
        path = f"{self._path}?{urlencode({'limit': OBJECTS_MAX}, quote_via=quote)}"
        listed = await _get(self._caller, path, _List, "its objects", "listed")
        if listed is None:
            self._missing_until = trio.current_time() + NOT_INSTALLED_SECONDS
            return None
        found: dict[str, list[Remediation]] = {}
        for each in listed.items:
            meta = each.metadata
            # A remediation that is being deleted is over.
            if meta.deletion_timestamp is None:
                node = meta.annotations.get(NODE_NAME_ANNOTATION) or meta.name
                made = Remediation(meta.uid, node, self._is_done(each.status))
                found.setdefault(node, []).append(made)
        return found


CLUSTER_API = "cluster-api"
MACHINES = "/apis/cluster.x-k8s.io/v1beta2"
#: core/v1beta2. A provider's `Deleted` does not count: some write it while the machine runs.
OBJECT_DELETED = "ObjectDeleted"
NOTED = "the Machine in the Node's annotations"
OTHER_PROVIDER_ID = f"{NOTED} has another providerID"
ELSEWHERE = f"{NOTED} is not here: this cluster has no Cluster API of 1.11 or newer (clusterApi.kubeconfig)"


class Machines:
    """Cluster API's, here or in the management cluster."""

    name = CLUSTER_API

    def __init__(self, caller: api_calls.ApiCaller, view: ClusterView) -> None:
        self._caller, self._view = caller, view
        self._turns: dict[str, float] = {}
        self._last_turn_at = -math.inf
        self._missing_until = -math.inf

    async def of(self, node: str) -> list[Remediation] | None:
        """None: the node has no Machine, or it is not its turn. Raises Unread."""
        found = self._view.of(node).node
        if found is None or found.machine is None:
            return None
        if trio.current_time() < self._missing_until:
            raise Unread(ELSEWHERE)
        if not self._is_turn(node):
            return None
        namespace, name = (quote(each, safe="") for each in found.machine)
        path = f"{MACHINES}/namespaces/{namespace}/machines/{name}"
        machine = await _get(self._caller, path, _Object, NOTED, "read")
        if machine is None:
            self._missing_until = trio.current_time() + NOT_INSTALLED_SECONDS
            raise Unread(ELSEWHERE)
        provider_id, info = machine.spec.provider_id, machine.status.node_info
        if not provider_id or provider_id != found.provider_id:
            raise Unread(OTHER_PROVIDER_ID)
        # ``ObjectDoesNotExist`` is about a machine that never existed.
        ready = api_calls.find_condition(machine.status.conditions, "InfrastructureReady") or {}
        done = (ready.get("status"), ready.get("reason")) == ("False", OBJECT_DELETED)
        said = Remediation(machine.metadata.uid, node, done, "providerID", provider_id, info.boot_id)
        return [said]

    def _is_turn(self, node: str) -> bool:
        """A node's turn comes after the turns of all others."""
        now = trio.current_time()
        if node not in self._turns:
            self._turns[node] = self._following(now)
        if now < self._turns[node] - TURNS_AHEAD_SECONDS:
            return False
        self._turns[node] = self._following(now)
        return True

    def _following(self, now: float) -> float:
        self._last_turn_at = max(now, self._last_turn_at + 1 / MACHINES_PER_SECOND)
        return self._last_turn_at


class RemediatorSource:
    source: Source = "remediator"

    def __init__(self, remediations: Remediator, view: ClusterView, node: str) -> None:
        self._remediations, self._view, self._node = remediations, view, node
        self.name = remediations.name
        #: The node's last sign of life, and the remediations (UIDs) already done then.
        self._since: tuple[str, ...] = ()
        self._earlier: frozenset[str] = frozenset()

    async def read(self, machine: Machine) -> Said | None:
        """None: no object for this node. Raises Unread."""
        # Before the request: a sign of life during it counts at the next reading.
        observed = self._view.of(self._node)
        lease = observed.lease.mark if observed.lease is not None else ""
        status = observed.node.status_mark if observed.node is not None else ""
        life = machine.node_uid, machine.boot_id, lease, status
        found = await self._remediations.of(self._node)
        if found is None:
            return None
        done = {each.uid: each for each in found if each.done}
        if life != self._since:
            self._since, self._earlier = life, frozenset(done)
        for uid, said in done.items():
            if uid not in self._earlier:
                return Said("off", said.identity_kind, said.identity or machine.node_uid, said.boot_id)
        if done:
            return Said("unknown", error=EARLIER)
        return Said("unknown", error="it has not fenced the machine yet") if found else None
