"""Other remediators, for what they say: medik8s' Fence Agents Remediation and Self Node Remediation, and
Cluster API.

What medik8s' have done stands in an object of theirs for each node, by its name. The taints that they set on
the Node come before they act, so these say nothing. FAR says that its fence agent has succeeded: the machine
was switched off, or off and on again, so that the boot of before is over. SNR says that by now the machine
must have restarted itself, by the time that its watchdog takes.

Neither names a boot, and an object may have outlived the remediation that it was made for. So what counts is
what one came to say after the node's last sign of life, while this process looked on: what it said already at
the first look says nothing.

Of Cluster API one thing counts: the infrastructure object of the node's Machine was there, and has been
deleted. Its provider takes its finalizer away when the machine is gone, and Cluster API itself deletes the
Node on the strength of that alone. It is looked at in the same way, because a finalizer can be taken away by
hand while the machine runs on: then the node gives signs of life afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import (
    HTTP_NOT_FOUND,
    Answer,
    ApiCaller,
    JsonObject,
    NodeInfo,
    Unanswered,
    answer_text,
    find_condition,
)
from ebbtide.actors.edges.kubernetes.node_view import ClusterView
from ebbtide.actors.edges.proof.sources import Gathering, Machine, Said, Turns, Unread
from ebbtide.events import bounds
from ebbtide.events.outage_events import IdentityKind, Source

#: Where the object has another name than its node.
NODE_NAME_ANNOTATION = "remediation.medik8s.io/node-name"
#: One object a node that is in trouble; a thousand are more than any storm lets through.
OBJECTS_MAX = 1000
#: As many nodes as there are: one list is about all of them.
NODES_MAX = 5000

#: A list is about all nodes, and a hundred that are out are read twenty times a second.
LIST_EVERY_SECONDS = 1.0
#: Of Machines each takes a request of its own. A fifth of all that the controller allows itself: with a
#: hundred nodes out each is read every 25 s, and a proof counts for 60.
MACHINES_PER_SECOND = 4
#: What is not installed is not asked for by each node anew.
NOT_INSTALLED_SECONDS = 60.0

T = TypeVar("T")

EARLIER = "it said so before we began to look: it may be of an earlier boot"


class Remediation(NamedTuple):
    """``done``: it says that the machine was fenced, or is gone. Which machine, and of which boot, where it
    says so; else the Node whose name it has.
    """

    uid: str
    node: str
    done: bool
    identity_kind: IdentityKind = "nodeUID"
    identity: str = ""
    boot_id: str = ""


class Remediator(Protocol):
    """One remediator, for all nodes."""

    @property
    def name(self) -> str: ...

    async def of(self, node: str) -> list[Remediation] | None:
        """None: this kind is not installed, or says nothing of this node now. Raises Unread."""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    uid: str = ""
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class _Status(msgspec.Struct):
    conditions: list[JsonObject] = []
    phase: str | None = None


class _Object(msgspec.Struct):
    metadata: _Meta
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    items: list[_Object] = []


def _fenced(status: _Status) -> bool:
    found = find_condition(status.conditions, "FenceAgentActionSucceeded")
    return found is not None and found.get("status") == "True"


def _restarted(status: _Status) -> bool:
    return status.phase in ("Reboot-Completed", "Fencing-Completed")


#: By the name that goes on record: where its objects are, and how one says that it is done.
KINDS: dict[str, tuple[str, Callable[[_Status], bool]]] = {
    "fence-agents-remediation": (
        "/apis/fence-agents-remediation.medik8s.io/v1alpha1/fenceagentsremediations",
        _fenced,
    ),
    "self-node-remediation": (
        "/apis/self-node-remediation.medik8s.io/v1alpha1/selfnoderemediations",
        _restarted,
    ),
}


class _Details(msgspec.Struct):
    name: str = ""


class _Refusal(msgspec.Struct):
    """The API server's Status, which names the object that is not there; not so where its kind is not."""

    details: _Details = msgspec.field(default_factory=_Details)


def _is_installed(not_found: Answer) -> bool:
    try:
        return bool(msgspec.json.decode(not_found.body, type=_Refusal).details.name)
    except (ValueError, RecursionError):
        return False


async def _get(caller: ApiCaller, path: str, kind: type[T], what: str, asked: str) -> T | None:
    """None: its kind is not installed. Raises Unread, in which it is called ``what``, and what was ``asked``
    of it.
    """
    try:
        answer = await caller.call("GET", path, seconds_max=bounds.now.source_seconds / 2)
    except Unanswered as error:
        raise Unread(f"the API server: {error}") from None
    if answer.code == HTTP_NOT_FOUND and not _is_installed(answer):
        return None
    if answer.code == HTTP_NOT_FOUND:
        raise Unread(f"{what} is not there")
    if not answer.ok:
        raise Unread(f"{what} cannot be {asked}: {answer_text(answer)}")
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (ValueError, RecursionError):
        raise Unread(f"{what} cannot be read") from None


class Remediations:
    """All objects of one kind, listed for all nodes at once whenever somebody asks."""

    def __init__(self, caller: ApiCaller, name: str) -> None:
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
            # One that is being deleted is over, whatever it has said.
            if meta.deletion_timestamp is None:
                node = meta.annotations.get(NODE_NAME_ANNOTATION) or meta.name
                made = Remediation(meta.uid, node, self._is_done(each.status))
                found.setdefault(node, []).append(made)
        return found


CLUSTER_API = "cluster-api"
MACHINES = "/apis/cluster.x-k8s.io/v1beta2"
#: Cluster API's own word, where the object that stands for the machine was there and is not any more
#: (`MachineInfrastructureDeletedReason` of core/v1beta2). A provider's `Deleted`, mirrored into the same
#: condition, is none: some say it once the end of a machine was asked for, while it still runs.
OBJECT_DELETED = "ObjectDeleted"
NOTED = "the Machine that is noted on the Node"
OTHER_PROVIDER_ID = f"{NOTED} has another providerID"
#: A cluster that another one manages has the notes, and not the Machines; an older one has them in another
#: version.
ELSEWHERE = f"{NOTED} is not looked for: no Cluster API of 1.11 or newer is here (clusterApi.kubeconfig)"


class _MachineSpec(msgspec.Struct):
    provider_id: str = msgspec.field(default="", name="providerID")


class _MachineStatus(msgspec.Struct, rename="camel"):
    conditions: list[JsonObject] = []
    #: As Cluster API has copied it from the Node.
    node_info: NodeInfo = msgspec.field(default_factory=NodeInfo)


class _Machine(msgspec.Struct):
    metadata: _Meta
    spec: _MachineSpec = msgspec.field(default_factory=_MachineSpec)
    status: _MachineStatus = msgspec.field(default_factory=_MachineStatus)


def _is_gone(status: _MachineStatus) -> bool:
    """``ObjectDoesNotExist`` is of a machine that was never there. While one is deleted it says neither."""
    found = find_condition(status.conditions, "InfrastructureReady") or {}
    return (found.get("status"), found.get("reason")) == ("False", OBJECT_DELETED)


class Machines:
    """Cluster API's, in this cluster or in the one that manages it. The Machine that is noted on the Node is
    asked for alone: a management cluster has those of all its clusters.
    """

    name = CLUSTER_API

    def __init__(self, caller: ApiCaller, view: ClusterView) -> None:
        self._caller, self._view = caller, view
        self._turns = Turns(MACHINES_PER_SECOND)
        self._missing_until = -math.inf

    async def of(self, node: str) -> list[Remediation] | None:
        """None: the node has no Machine, or it is not its turn. Raises Unread."""
        found = self._view.of(node).node
        if found is None or found.machine is None:
            return None
        if trio.current_time() < self._missing_until:
            raise Unread(ELSEWHERE)
        if not self._turns.takes(node):
            return None
        namespace, name = (quote(each, safe="") for each in found.machine)
        path = f"{MACHINES}/namespaces/{namespace}/machines/{name}"
        machine = await _get(self._caller, path, _Machine, NOTED, "read")
        if machine is None:
            self._missing_until = trio.current_time() + NOT_INSTALLED_SECONDS
            raise Unread(ELSEWHERE)
        provider_id, info = machine.spec.provider_id, machine.status.node_info
        if not provider_id or provider_id != found.provider_id:
            raise Unread(OTHER_PROVIDER_ID)
        done = _is_gone(machine.status)
        said = Remediation(machine.metadata.uid, node, done, "providerID", provider_id, info.boot_id)
        return [said]


class RemediatorSource:
    """What one remediator says of one node. ``name``: the remediator's."""

    source: Source = "remediator"

    def __init__(self, remediations: Remediator, view: ClusterView, node: str) -> None:
        self._remediations, self._view, self._node = remediations, view, node
        self.name = remediations.name
        #: The last sign of life at the first look, and what was done already then, by UID.
        self._since: Any = None
        self._earlier: frozenset[str] = frozenset()

    async def read(self, machine: Machine) -> Said | None:
        """None: it is not installed, or has no object for this node. Raises Unread."""
        # Before it is asked: what comes while it answers makes the next look the first.
        life = self._sign_of_life(machine)
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

    def _sign_of_life(self, machine: Machine) -> tuple[str, ...]:
        observed = self._view.of(self._node)
        lease = observed.lease.mark if observed.lease is not None else ""
        status = observed.node.status_mark if observed.node is not None else ""
        return machine.node_uid, machine.boot_id, lease, status
