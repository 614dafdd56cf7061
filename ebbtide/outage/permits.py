"""Permits to be in recovery: counts nodes for `actors.outage`, and queues requests in their order."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Set

import msgspec
import trio

from ebbtide.actors.edges.kubernetes.api_calls import ApiCaller, ListPart, Unanswered, answer_text
from ebbtide.actors.edges.kubernetes.known_pods import Metadata
from ebbtide.actors.edges.kubernetes.node_view import ClusterView, NodeView
from ebbtide.actors.edges.kubernetes.work_view import PodView
from ebbtide.actors.interfaces import Edge, Effect, Ending, Outlet
from ebbtide.actors.outage import limit_of, refusal
from ebbtide.events import bounds
from ebbtide.events.base import Order
from ebbtide.events.outage_events import BrakeLimit, NodesCounted, RequestPermit, ReturnPermit
from ebbtide.outage.configuration import OutageConfiguration
from ebbtide.outage.outage_follower import in_trouble

#: A refused node that still has its proof asks again after 15 s.
WAITS_SECONDS_MAX = 20.0
#: An actor ended without returning it: its taint may still come, within 10 s.
LEFT_SECONDS = 30.0
#: A new watch sees leases within milliseconds; a refused node would wait for 15 s.
SEES_SECONDS_MAX = 2.0

#: A kubelet may set its Node's zone, but not these labels.
CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
ZONE = "topology.kubernetes.io/zone"

ETCD = "etcd"
#: Only administrators create objects there. A tenant may bind a pod of any name to a control-plane node.
ETCD_NAMESPACES = ("kube-system", "openshift-etcd")
BUDGETS_PATHS = [f"/apis/policy/v1/namespaces/{each}/poddisruptionbudgets" for each in ETCD_NAMESPACES]
BUDGETS_UNREAD = "the PodDisruptionBudgets cannot be read, and this is a control-plane node"


def is_control_plane(node: NodeView) -> bool:
    return any(each in node.labels for each in CONTROL_PLANE)


def used_labels(configuration: OutageConfiguration) -> set[str]:
    """For a node's pool, zone and role."""
    return {ZONE, *CONTROL_PLANE, *(name for pool in configuration.pools for name in pool.node_selector)}


class _BudgetSpec(msgspec.Struct):
    selector: msgspec.Raw = msgspec.Raw()


class _BudgetStatus(msgspec.Struct, rename="camel"):
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0


class BudgetObject(msgspec.Struct):
    metadata: Metadata = msgspec.field(default_factory=Metadata)
    spec: _BudgetSpec = msgspec.field(default_factory=_BudgetSpec)
    status: _BudgetStatus = msgspec.field(default_factory=_BudgetStatus)


_decoder = msgspec.json.Decoder(ListPart[BudgetObject])


def etcd_allows(budgets: Iterable[BudgetObject], pods: Iterable[PodView] = ()) -> bool:
    """Whether each PodDisruptionBudget of etcd allows that this node goes. ``pods``: the node's own. A member
    that is not Ready is in the budget's numbers already: then the others must be enough.
    """
    down = {each.namespace for each in pods if ETCD in each.name and not each.ready}
    for each in budgets:
        meta, status = each.metadata, each.status
        named = ETCD in meta.name + meta.namespace or ETCD.encode() in bytes(each.spec.selector)
        enough = meta.namespace in down and status.current_healthy >= status.desired_healthy > 0
        if named and meta.namespace in ETCD_NAMESPACES and not (enough or status.disruptions_allowed > 0):
            return False
    return True


async def ask_etcd(caller: ApiCaller, pods: Iterable[PodView]) -> bool:
    """Raises Unanswered."""
    budgets: list[BudgetObject] = []
    for path in BUDGETS_PATHS:
        answer = await caller.call("GET", path, seconds_max=bounds.now.api_try_seconds)
        if not answer.ok:
            raise Unanswered(answer_text(answer))
        try:
            budgets += _decoder.decode(answer.body).items or ()
        except (ValueError, RecursionError) as error:
            raise Unanswered(f"a list that cannot be read: {error}") from None
    return etcd_allows(budgets, pods)


def count_nodes(
    configuration: OutageConfiguration,
    asks: NodeView | None,
    others: Iterable[NodeView],
    places: Set[str],
    healthy: Callable[[NodeView], bool],
    *,
    etcd: bool = True,
    key: str = "",
    ahead: int = 0,
    sees_leases: bool = True,
) -> NodesCounted:
    """``places``: the UIDs of the other nodes in recovery. ``etcd``: `etcd_allows`."""
    brake, nodes = configuration.brake, list(others)
    stay = [each for each in nodes if each.taint == "none" and each.uid not in places]
    well = sum(map(healthy, stay))
    limits = list[BrakeLimit]()
    if asks is not None and is_control_plane(asks):
        together = sum(
            is_control_plane(each) and (each.taint != "none" or each.uid in places) for each in nodes
        )
        limits.append(BrakeLimit(part="control-plane", out=together, most=1))
        limits += [] if etcd else [BrakeLimit(part="etcd", out=0, most=0)]
    moving = [each for each in nodes if each.uid in places]
    if asks is not None and (pool := configuration.pool_of(asks.labels)).max_nodes:
        out = sum(configuration.pool_of(each.labels) is pool for each in moving)
        limits.append(BrakeLimit(part="pool", out=out, most=pool.max_nodes))
    if asks is not None and brake.max_nodes_per_zone and (zone := asks.labels.get(ZONE)):
        out = sum(each.labels.get(ZONE) == zone for each in moving)
        limits.append(BrakeLimit(part="zone", out=out, most=brake.max_nodes_per_zone))
    return NodesCounted(
        key=key,
        healthy=well,
        recovering=len(places),
        dead=len(stay) - well,
        ahead=ahead,
        max_nodes=brake.max_nodes,
        max_share_percent=brake.max_share_percent,
        min_healthy=brake.min_healthy,
        out=len(nodes) - len(stay) - len(moving),
        limits=tuple(limits),
        sees_leases=sees_leases,
    )


def may_lose(configuration: OutageConfiguration, nodes: Iterable[NodeView], *, etcd: bool) -> tuple[int, str]:
    """How many Ready nodes may be in recovery at once, and the refusal of the next one. Workers first."""
    found = list(nodes)
    places = {each.uid for each in found if each.taint != "none" and each.ready != "True"}
    well = [each for each in found if each.ready == "True" and each.taint == "none"]
    lost, refused = 0, ""
    for asks in sorted(well, key=is_control_plane):
        others = [each for each in found if each is not asks]
        counted = count_nodes(
            configuration, asks, others, places, lambda each: each.ready == "True", etcd=etcd
        )
        if reason := refusal(counted):
            refused = refused or reason
        else:
            lost += 1
            places.add(asks.uid)
    return lost, refused


class Permits:
    """By Node UID: a deleted Node's work may hang beside a new Node of its name. ``etcd``: does etcd allow
    that this control-plane node goes? It raises Unanswered.
    """

    def __init__(
        self, configuration: OutageConfiguration, view: ClusterView, etcd: Callable[[str], Awaitable[bool]]
    ) -> None:
        self._configuration, self._view, self._etcd = configuration, view, etcd
        #: The permit's end: infinite while its actor has it.
        self._permits: dict[str, float] = {}
        #: Nodes that gave their place back: their taint takes none. A new leader lacks these.
        self._elsewhere: set[str] = set()
        #: In the order of first requests: the last one's time.
        self._waiting: dict[str, float] = {}

    async def wait_seen(self, node: str) -> bool:
        """Waits until the view sees renewals, at most `SEES_SECONDS_MAX`. Returns whether etcd allows it."""
        with trio.move_on_after(SEES_SECONDS_MAX):
            while self._view.sees_since == math.inf:
                await self._view.of(node).news.wait()
        found = self._view.of(node).node
        return found is None or not is_control_plane(found) or await self._etcd(node)

    def request(self, uid: str, key: str = "", *, etcd: bool = True) -> tuple[NodesCounted, str]:
        """Takes a place, or queues for one. Returns the count, and the reason of a refusal. A refused node
        keeps its permit until `give_back`.
        """
        now = trio.current_time()
        self._permits = {each: until for each, until in self._permits.items() if until > now}
        self._waiting = {each: at for each, at in self._waiting.items() if now - at < WAITS_SECONDS_MAX}
        ahead = list(self._waiting).index(uid) if uid in self._waiting else len(self._waiting)
        # A node with a permit is counted again, but queues behind no other.
        counted = self.count(uid, key, 0 if uid in self._permits else ahead, etcd=etcd)
        refused = refusal(counted)
        if refused and uid not in self._permits and not limit_of(counted):
            self._waiting[uid] = now
        elif not refused:
            self._waiting.pop(uid, None)
            self._permits[uid] = math.inf
            self._elsewhere.discard(uid)
        return counted, refused

    def give_back(self, uid: str) -> None:
        """The permit or the place in the queue, if any. The node's taint takes no place any more."""
        self._permits.pop(uid, None)
        self._waiting.pop(uid, None)
        self._elsewhere.add(uid)

    def leave(self, uid: str) -> None:
        """The node's actor has ended and reports no taint any more."""
        if uid in self._permits:
            self._permits[uid] = min(self._permits[uid], trio.current_time() + LEFT_SECONDS)
        self._waiting.pop(uid, None)
        self._elsewhere.discard(uid)

    def count(self, asks: str, key: str = "", ahead: int = 0, *, etcd: bool = True) -> NodesCounted:
        """Another's taint takes a place while the node has a follower: only that returns it."""
        now, there = trio.current_time(), {each.uid: each for each in self._view.there()}
        asking = there.pop(asks, None)
        tainted = {
            uid
            for uid, each in there.items()
            if each.taint != "none" and each.ready != "True" and in_trouble(self._view, each.name, uid)
        }
        return count_nodes(
            self._configuration,
            asking,
            there.values(),
            # Also a permit without a Node: the view may be broken.
            (self._permits.keys() | (tainted - self._elsewhere)) - {asks},
            lambda each: each.ready == "True" and self._view.silent_at(each.name) > now,
            etcd=etcd,
            key=key,
            ahead=ahead,
            sees_leases=self._view.sees_since < math.inf,
        )


class PermitEdge(Edge):
    def __init__(self, permits: Permits, node: str, uid: str) -> None:
        self._permits, self._node, self._uid = permits, node, uid
        self._returned = 0
        self.effects: Mapping[type[Order], Effect] = {
            RequestPermit: self._request,
            ReturnPermit: self._give_back,
        }

    async def run(self, outlet: Outlet) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._permits.leave(self._uid)

    async def _request(self, order: RequestPermit, outlet: Outlet) -> Ending:
        returned = self._returned
        try:
            etcd = await self._permits.wait_seen(self._node)
        except Unanswered as error:
            return Ending("failed", f"{BUDGETS_UNREAD}: {error}")
        if returned != self._returned:
            return Ending("cancelled", "withdrawn")
        counted, refused = self._permits.request(self._uid, order.key, etcd=etcd)
        await outlet.put(counted)
        return Ending("failed", refused) if refused else Ending()

    def _give_back(self, order: ReturnPermit, outlet: Outlet) -> Ending:
        self._returned += 1
        self._permits.give_back(self._uid)
        return Ending()
