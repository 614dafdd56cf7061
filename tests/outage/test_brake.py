"""The storm brake: a bound on nodes in recovery, and fair places."""

from __future__ import annotations

import math
import os
from typing import Any, get_args

import msgspec
import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes.api_calls import Answer, Unanswered
from ebbtide.actors.edges.kubernetes.node_view import LEASE_SECONDS, ClusterView, LeaseView, NodeView
from ebbtide.actors.edges.kubernetes.work_view import PodView
from ebbtide.actors.interfaces import Ending
from ebbtide.actors.outage import (
    BEHIND,
    LIMITED,
    MANY_DEAD,
    NOT_SEEN,
    PERMIT_RETRY_NS,
    PLACE_NS,
    REFUSAL,
    refusal,
)
from ebbtide.actors.system import System
from ebbtide.events import outage_events as o
from ebbtide.events.base import NS_PER_SECOND, Fact, Record, Stamp
from ebbtide.events.facts import OrderEnded, Tick
from ebbtide.events.outage_events import (
    BrakeLimit,
    NodesCounted,
    Ready,
    RequestPermit,
    ReturnPermit,
    TaintOwner,
)
from ebbtide.events.segment import OUTAGE_LOGIC
from ebbtide.outage.configuration import Brake, OutageConfiguration, Pool
from ebbtide.outage.permits import (
    BUDGETS_PATHS,
    BUDGETS_UNREAD,
    CONTROL_PLANE,
    LEFT_SECONDS,
    WAITS_SECONDS_MAX,
    ZONE,
    BudgetObject,
    PermitEdge,
    Permits,
    ask_etcd,
    etcd_allows,
    may_lose,
)
from ebbtide.replay.sim.scenario import Draws
from tests.actors.edges.process.process_bed import Outbox

#: More of them on demand, by ``EBBTIDE_SEEDS=5000``.
SEEDS = int(os.environ.get("EBBTIDE_SEEDS", "8"))
AGAIN_SECONDS = PERMIT_RETRY_NS / NS_PER_SECOND
ALL = Brake(max_nodes=1000, max_share_percent=100, min_healthy=0)
ONE = Brake(max_nodes=1)


class Cluster:
    """The brake and its view; without ``leases`` no node is silent."""

    def __init__(
        self, count: int, settings: Brake = ONE, *pools: Pool, leases: bool = True, **labels: str
    ) -> None:
        """``labels``: by node, one label and its value."""
        self.view, self._labels = ClusterView(), labels
        self.configuration = OutageConfiguration(brake=settings, pools=pools)
        self.etcd = True
        self.permits = Permits(self.configuration, self.view, self._etcd)
        self.view.sees(trio.current_time())
        self._versions = iter(range(1, 1 << 40))
        for name in self.names(count):
            self.put(name)
            if leases:
                self.renew(name)

    def names(self, count: int) -> list[str]:
        return [f"n{at}" for at in range(count)]

    def put(self, name: str, ready: Ready = "True", taint: TaintOwner = "none") -> None:
        version = str(next(self._versions))
        label, _, value = self._labels.get(name, "").partition("=")
        labels = {label: value} if label else {}
        self.view.nodes.put(NodeView(name, name, version, "b", ready, "", "", taint, (), "", labels))

    async def _etcd(self, node: str) -> bool:
        return self.etcd

    def renew(self, name: str) -> None:
        version = str(next(self._versions))
        self.view.leases.put(LeaseView(name, version, version, 40))

    def remove(self, name: str) -> None:
        found = self.view.of(name).node
        assert found is not None
        self.view.nodes.remove(found._replace(version=str(next(self._versions))))

    def dead(self, *names: str) -> None:
        for name in names:
            self.put(name, "Unknown")

    def refused(self, node: str) -> str:
        return self.permits.request(node)[1]

    def counts(self, asks: str) -> tuple[int, int, int]:
        counted = self.permits.count(asks)
        return counted.healthy, counted.recovering, counted.dead

    def tainted(self) -> set[str]:
        return {each.name for each in self.view.there() if each.taint != "none"}


async def ask(edge: Any, node: str, outbox: Outbox | None = None) -> Ending:
    ended = await edge.effects[RequestPermit](RequestPermit(key="k", node=node), outbox or Outbox())
    assert isinstance(ended, Ending)
    return ended


async def test_its_orders(autojump_clock: MockClock) -> None:
    """A request is granted or fails with a reason; returning an unknown permit is a no-op."""
    cluster = Cluster(10)
    cluster.dead("n1", "n2")
    one, two = PermitEdge(cluster.permits, "n1", "n1"), PermitEdge(cluster.permits, "n2", "n2")
    outbox = Outbox()

    assert await ask(one, "n1", outbox) == Ending()
    assert await ask(one, "n1", outbox) == Ending()
    assert await ask(two, "n2", outbox) == Ending("failed", "nodes in recovery: 1; at most 1 may be")
    for _ in range(2):
        assert one.effects[ReturnPermit](ReturnPermit(key="k", node="n1"), outbox) == Ending()
    assert await ask(two, "n2", outbox) == Ending()
    assert trio.current_time() == 0
    assert [type(each) for each in outbox.facts] == [NodesCounted] * 4
    assert await two.adopt(RequestPermit(key="k", node="n2"), outbox) is None


async def test_a_refused_node_keeps_its_permit(autojump_clock: MockClock) -> None:
    """Its machine may be off already: another one would be one too many."""
    cluster = Cluster(10)
    cluster.dead("n1", "n2")
    assert cluster.refused("n1") == ""
    cluster.view.sees(math.inf)
    assert cluster.refused("n1") == NOT_SEEN
    cluster.view.sees(trio.current_time())
    assert cluster.refused("n2") == "nodes in recovery: 1; at most 1 may be"
    cluster.permits.give_back("n1")
    assert cluster.refused("n2") == ""


async def test_a_view_that_is_just_coming(autojump_clock: MockClock) -> None:
    """A new leader has listed the leases and its watch is starting: requests wait briefly."""
    cluster = Cluster(10, Brake())
    cluster.dead("n1")
    one, ended = PermitEdge(cluster.permits, "n1", "n1"), []

    async def asks() -> None:
        ended.append(await ask(one, "n1"))

    for what in ("sees", "never", "returned"):
        cluster.view.sees(math.inf)
        ended.clear()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asks)
            await trio.sleep(0.5)
            cluster.renew("n1")
            assert not ended
            if what == "returned":
                one.effects[ReturnPermit](ReturnPermit(key="k", node="n1"), Outbox())
            if what != "never":
                cluster.view.sees(trio.current_time())
        took = trio.current_time() - began
        match what:
            case "sees":
                assert ended == [Ending()]
                assert took == pytest.approx(0.5)
                cluster.permits.give_back("n1")
            case "never":
                assert ended == [Ending("failed", NOT_SEEN)]
                assert took == pytest.approx(2)
            case "returned":
                assert ended == [Ending("cancelled", "withdrawn")]
                assert cluster.permits.count("n0").recovering == 0


@pytest.mark.parametrize("nodes, settings, allowed", [
    (100, Brake(), 5), (20, Brake(), 4), *((each, Brake(), 2) for each in range(5, 15)), (4, Brake(), 1),
    (3, Brake(), 1), (2, Brake(), 1), (1, Brake(), 0), (9, Brake(max_nodes=1), 1),
    (100, Brake(max_nodes=1000), 20), (100, Brake(max_nodes=1000, max_share_percent=29), 29),
    (7, Brake(max_nodes=1000, max_share_percent=29), 2),
    (10, Brake(max_nodes=1000, max_share_percent=100, min_healthy=7), 3),
    (10, Brake(max_nodes=1000, max_share_percent=100, min_healthy=10), 0), (10, ALL, 10), (1, ALL, 0),
])  # fmt: skip
async def test_how_many(nodes: int, settings: Brake, allowed: int, autojump_clock: MockClock) -> None:
    """The smallest limit counts. The last of two only if configured; no other node sees a single one."""
    cluster = Cluster(nodes, settings)
    granted = 0
    for name in cluster.names(nodes):
        cluster.dead(name)
        if reason := cluster.refused(name):
            break
        granted += 1
        cluster.put(name, "Unknown", "ours")
    if (nodes, settings) == (10, ALL):
        # No other node is heard beside the last one.
        assert (granted, reason) == (9, MANY_DEAD)
    else:
        assert granted == allowed
        assert reason


def test_from_the_count_alone() -> None:
    """The first matching reason, in a form that a redacted journal keeps."""
    free = NodesCounted(
        key="k", healthy=5, recovering=1, dead=1, ahead=0, max_nodes=5, max_share_percent=100, min_healthy=5
    )
    assert refusal(free) == ""
    refused = {
        BEHIND: {"ahead": 4},
        "nodes in recovery: 5; at most 5 may be": {"ahead": 4, "recovering": 5},
        "nodes in recovery: 2; at most 2 may be": {"max_share_percent": 1, "recovering": 2},
        **{
            text.format(1, 1): {"limits": (BrakeLimit(part=part, out=1, most=1),), "recovering": 5}  # type: ignore[arg-type]  # one of its words
            for part, text in LIMITED.items()
        },
        "healthy nodes: 4; at least 5 must be": {"recovering": 5, "healthy": 4},
        MANY_DEAD: {"healthy": 4, "dead": 4},
        NOT_SEEN: {"healthy": 4, "dead": 4, "sees_leases": False},
    }
    for reason, changed in refused.items():
        assert refusal(replace(free, **changed)) == reason
        assert REFUSAL.fullmatch(reason)
    assert refusal(replace(free, ahead=3)) == ""
    assert refusal(replace(free, healthy=6, dead=6)) == MANY_DEAD
    assert refusal(replace(free, healthy=6, dead=5)) == ""
    assert not REFUSAL.fullmatch("healthy nodes: few")


async def test_what_is_healthy(autojump_clock: MockClock) -> None:
    """Ready, renewed, in service; without a lease by Ready alone."""
    cluster = Cluster(8, ALL)
    assert cluster.counts("n0") == (7, 0, 0)
    cluster.put("n1", "False")
    cluster.put("n2", "")
    # Its work runs there, or its taint was forgotten: it takes no place.
    cluster.put("n3", "True", "other")
    cluster.put("n4", "Unknown", "ours")
    cluster.put("no-lease")
    assert cluster.counts("n0") == (4, 1, 2)
    assert cluster.permits.count("n0").out == 1
    await trio.sleep(20)
    assert cluster.counts("n0") == (1, 1, 5)
    assert cluster.counts("no-lease") == (0, 1, 6)
    cluster.renew("n5")
    assert cluster.counts("n0") == (2, 1, 4)
    # An unseen node is not silent.
    cluster.view.sees(trio.current_time())
    assert cluster.counts("n0") == (4, 1, 2)
    cluster.dead("n6")
    assert cluster.refused("n6") == ""
    assert cluster.counts("n0") == (3, 2, 2)
    cluster.remove("n6")
    assert cluster.counts("n0") == (3, 2, 2)
    cluster.permits.give_back("n6")
    assert cluster.counts("n0") == (3, 1, 2)
    cluster.permits.give_back("n4")
    assert cluster.counts("n0") == (3, 0, 2)
    assert cluster.permits.count("n0").out == 2


async def test_an_actor_that_is_gone(autojump_clock: MockClock) -> None:
    """Its permit counts until its taint is visible or a new actor starts; its wait ends."""
    cluster = Cluster(20)
    cluster.dead("n1", "n2", "n3")
    outbox = Outbox()
    async with trio.open_nursery() as nursery:
        for name in ("n1", "n2"):
            nursery.start_soon(PermitEdge(cluster.permits, name, name).run, outbox)
        await trio.testing.wait_all_tasks_blocked()
        assert cluster.refused("n1") == ""
        assert cluster.refused("n2") != ""
        nursery.cancel_scope.cancel()
    assert cluster.refused("n3") != ""
    assert cluster.refused("n1") == ""
    cluster.permits.leave("n1")
    for name in cluster.names(20):
        cluster.renew(name)
    await trio.sleep(LEFT_SECONDS - 1)
    for name in cluster.names(20):
        cluster.renew(name)
    assert cluster.refused("n3") != ""
    await trio.sleep(1)
    assert cluster.refused("n3") == ""


async def test_limits_of_a_part_of_the_cluster(autojump_clock: MockClock) -> None:
    """A node that waits for its own part's place keeps none of the others waiting."""
    master, other = CONTROL_PLANE
    cluster = Cluster(
        40,
        Brake(max_nodes_per_zone=2),
        Pool(name="disks", node_selector={"disk": "yes"}, max_nodes=1),
        n0=master,
        n1=other,
        n2=master,
        n3="disk=yes",
        n4="disk=yes",
        **dict.fromkeys(("n5", "n6", "n7"), f"{ZONE}=east"),
        n8=f"{ZONE}=west",
    )
    names = [f"n{at}" for at in range(9)]
    cluster.dead(*names)
    assert [cluster.refused(name) for name in ("n0", "n3", "n5", "n6")] == [""] * 4
    for _ in range(2):
        assert cluster.refused("n1") == "control-plane nodes out of service: 1; at most 1 may be"
        assert cluster.refused("n4") == "nodes of its pool in recovery: 1; at most 1 may be"
        assert cluster.refused("n7") == "nodes of its zone in recovery: 2; at most 2 may be"
    assert cluster.refused("n8") == ""
    for name in ("n0", "n3", "n5"):
        cluster.put(name, "Unknown", "ours")
        cluster.permits.give_back(name)
    assert [cluster.refused(name) for name in ("n4", "n7")] == ["", ""]
    # Its static pods run nowhere else: it counts until it is back or deleted.
    assert cluster.refused("n1") == "control-plane nodes out of service: 1; at most 1 may be"
    cluster.remove("n0")
    cluster.permits.give_back("n6")
    cluster.etcd = False
    edge = PermitEdge(cluster.permits, "n1", "n1")
    assert await ask(edge, "n1") == Ending("failed", "etcd's PodDisruptionBudget allows no disruption")
    cluster.etcd = True
    assert await ask(edge, "n1") == Ending()


async def test_a_kubelet_that_registers_with_the_taint(autojump_clock: MockClock) -> None:
    """It may set any taint on a new Node, and report NotReady for ever. It takes no place while it renews."""
    cluster = Cluster(4)
    cluster.put("n0", "False", "other")
    cluster.dead("n1")
    assert cluster.refused("n1") == ""
    cluster.permits.give_back("n1")
    await trio.sleep(LEASE_SECONDS)
    for each in ("n1", "n2", "n3"):
        cluster.renew(each)
    # Silent: its outage has a place, for 15 minutes.
    assert cluster.refused("n1") == "nodes in recovery: 1; at most 1 may be"
    cluster.permits.give_back("n0")
    assert cluster.refused("n1") == ""


async def test_a_deleted_node_and_the_next_one_of_its_name(autojump_clock: MockClock) -> None:
    """Each returns its own place, also the place of a taint with which a kubelet has registered."""
    cluster = Cluster(10, Brake(max_nodes=2))
    cluster.dead("n1", "n2")
    old, new = PermitEdge(cluster.permits, "n1", "before"), PermitEdge(cluster.permits, "n1", "n1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(old.run, Outbox())
        assert await ask(old, "n1") == Ending()
        cluster.put("n1", "Unknown", "other")
        assert cluster.counts("n0") == (7, 2, 1)
        new.effects[ReturnPermit](ReturnPermit(key="k", node="n1"), Outbox())
        assert cluster.counts("n0") == (7, 1, 1)
        cluster.put("n1", "Unknown")
        assert await ask(new, "n1") == Ending()
        old.effects[ReturnPermit](ReturnPermit(key="k", node="n1"), Outbox())
        assert cluster.counts("n0") == (7, 1, 1)
        nursery.cancel_scope.cancel()
    await trio.sleep(LEFT_SECONDS + 1)
    assert cluster.permits.count("n0").recovering == 1


async def test_an_unread_budget_is_no_permit(autojump_clock: MockClock) -> None:
    cluster = Cluster(9, Brake(), n0=CONTROL_PLANE[0])
    cluster.dead("n0", "n1")

    async def unread(node: str) -> bool:
        raise Unanswered("503")

    cluster.permits = Permits(cluster.configuration, cluster.view, unread)
    ended = await ask(PermitEdge(cluster.permits, "n0", "n0"), "n0")
    assert ended == Ending("failed", f"{BUDGETS_UNREAD}: 503")
    assert await ask(PermitEdge(cluster.permits, "n1", "n1"), "n1") == Ending()


@pytest.mark.parametrize("status, ready, allowed", [
    ({"disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2}, True, True),
    ({"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2}, True, False),
    # Its own member is down already, and the others are enough.
    ({"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2}, False, True),
    ({"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 2}, False, False),
    ({"disruptionsAllowed": 0}, False, False), ({}, False, False),
])  # fmt: skip
def test_what_etcd_allows(status: dict[str, int], ready: bool, allowed: bool) -> None:
    """Tenants write the word into their budgets too, and bind pods of that name to a control-plane node."""

    def budget(name: str, namespace: str, **labels: str) -> BudgetObject:
        spec = {"selector": {"matchLabels": labels}}
        made = {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": status}
        return msgspec.json.decode(msgspec.json.encode(made), type=BudgetObject)

    pod = PodView(uid="u", namespace="openshift-etcd", name="etcd-guard-n0", ready=ready)
    assert etcd_allows([budget("guard", "openshift-etcd")], [pod]) == allowed
    labelled = budget("a", "a", component="etcd")
    assert etcd_allows([labelled], [replace(pod, namespace="a")])
    assert etcd_allows([budget("a", "kube-system", component="etcd")], [pod]) == (allowed and ready)
    assert etcd_allows([labelled, budget("my-etcd", "tenant"), budget("web", "kube-system")], [pod])


async def test_no_budget_of_a_tenant_is_listed() -> None:
    """Thousands of them would take a minute of the controller's requests."""
    asked = list[str]()

    class Server:
        async def call(self, method: str, path: str, **fields: object) -> Answer:
            asked.append(path)
            return Answer(200, b'{"metadata": {}, "items": []}')

    assert await ask_etcd(Server(), [])  # type: ignore[arg-type]  # what it calls
    assert asked == BUDGETS_PATHS


async def test_how_many_may_be_lost_now(autojump_clock: MockClock) -> None:
    """What `outage doctor` says of a cluster."""
    cluster = Cluster(9, Brake(), n0=CONTROL_PLANE[0], n1=CONTROL_PLANE[0])

    def lost(*, etcd: bool = True) -> tuple[int, str]:
        return may_lose(cluster.configuration, cluster.view.there(), etcd=etcd)

    assert lost() == (2, "nodes in recovery: 2; at most 2 may be")
    cluster.put("n8", "Unknown", "other")
    assert lost() == (1, "nodes in recovery: 2; at most 2 may be")
    for name in ("n2", "n3", "n4", "n5", "n6", "n7"):
        cluster.remove(name)
    cluster.remove("n8")
    assert lost() == (1, MANY_DEAD)
    assert lost(etcd=False) == (0, "etcd's PodDisruptionBudget allows no disruption")


class Mortal:
    """One node's actors in the real brake: its work moves in half a minute, and it stays dead."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name, self.records = cluster, name, list[Record]()
        self._system, self._moves = System(logic=OUTAGE_LOGIC), list[tuple[float, list[Fact]]]()
        self._version = 0
        self.step(o.LeaderStarted(version="0", replica="r", node=name, node_uid=name))
        self.step(self._read("True"))

    def _read(self, ready: Ready, taint: TaintOwner = "none") -> o.NodeRead:
        self._version += 1
        self.cluster.put(self.name, ready, taint)
        return o.NodeRead(
            uid=self.name, boot_id="b", ready=ready, resource_version=str(self._version), taint=taint
        )

    @property
    def cured(self) -> bool:
        return any(isinstance(each.event, o.WorkRecovered) for each in self.records)

    def die(self) -> None:
        self.step(self._read("Unknown"))

    def step(self, fact: Fact) -> None:
        now_ns = int(trio.current_time() * NS_PER_SECOND)
        records = self._system.step(fact, Stamp(now_ns, now_ns))
        self.records += records
        for record in records:
            self._answer(record.event)

    def _answer(self, order: object) -> None:
        now, facts = trio.current_time(), list[Fact]()
        match order:
            case o.ReadSources():
                begun_ns = int(now * NS_PER_SECOND) + 1
                facts = [o.EvidenceRead(source="cloud", name="", verdict="off", begun_ns=begun_ns,
                                        identity_kind="nodeUID", identity=self.name)]  # fmt: skip
            case o.RequestPermit():
                facts = [self.cluster.permits.request(self.name, order.key)[0]]
            case o.ReturnPermit():
                self.cluster.permits.give_back(self.name)
            case o.SetTaint():
                facts = [self._read("Unknown", "ours")]
                new = o.ElsewhereRead(
                    uid=f"{self.name}-2",
                    namespace="d",
                    name=self.name,
                    owner_uid=self.name,
                    node="n",
                    ready=True,
                )
                self._moves.append((now + 30, [o.LostPodGone(uid=f"{self.name}-1"), new]))
            case o.ListWork():
                pod = o.LostPod(
                    uid=f"{self.name}-1", namespace="d", name=self.name, owner_uid=self.name, same_name=True
                )
                facts = [o.WorkListed(key=order.key, pods=(pod,))]
            case o.Order():
                pass
            case _:
                return
        self._moves.append((now, [*facts, OrderEnded(key=order.key, result="done")]))

    def move(self) -> bool:
        now = trio.current_time()
        due = [each for each in self._moves if each[0] <= now]
        self._moves = [each for each in self._moves if each[0] > now]
        for _, facts in due:
            for fact in facts:
                self.step(fact)
        deadline_ns = self._system.next_deadline_ns()
        late = deadline_ns is not None and deadline_ns <= now * NS_PER_SECOND
        if late:
            self.step(Tick())
        return late or bool(due)


@pytest.mark.parametrize("apart", [3600, 45, 0])
async def test_nine_nodes_die_and_stay_dead(apart: int, autojump_clock: MockClock) -> None:
    """One by one, each an hour after the other, faster, and half of them at once; no Node is deleted. All are
    cured but the last, which leaves no node to take the work over; and at each moment at most two of five or
    more, else one, are in recovery.
    """
    cluster = Cluster(9, Brake(), leases=False)
    nodes = [Mortal(cluster, name) for name in cluster.names(9)]
    dead = 8 if apart else 4
    for node in nodes[:dead]:
        node.die()
        for _ in range(max(1, apart if node is not nodes[dead - 1] else int(PLACE_NS / NS_PER_SECOND))):
            while sum(each.move() for each in nodes):
                recovering = cluster.permits.count("").recovering
                left = len(cluster.view.there()) - cluster.permits.count("").out
                assert recovering <= (2 if left >= 5 else 1)
            await trio.sleep(1 if apart or node is nodes[dead - 1] else 0)
    assert [node.cured for node in nodes] == [True] * dead + [False] * (9 - dead)


def limit(settings: Brake, nodes: int) -> int:
    return min(settings.max_nodes, max(2 if nodes >= 5 else 1, nodes * settings.max_share_percent // 100))


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_laws(seed: int, autojump_clock: MockClock) -> None:
    """A permit keeps the bound, leaves enough healthy nodes, and needs a current view."""
    draws = Draws(seed)
    count = draws.between(2, 30)
    settings = Brake(
        max_nodes=draws.between(1, 10),
        max_share_percent=draws.between(1, 100),
        min_healthy=draws.between(0, 8),
    )
    cluster = Cluster(count, settings)
    names = cluster.names(30)
    held: set[str] = set()
    elsewhere: set[str] = set()
    granted = 0
    for _ in range(400):
        there = {each.name: each for each in cluster.view.there()}
        name = draws.pick(names)
        match draws.below(9):
            case 0 | 1 | 2:
                cluster.dead(name)
                before = cluster.view.there()
                if cluster.refused(name) == "":
                    granted += 1
                    held.add(name)
                    elsewhere.discard(name)
                    out = cluster.tainted() | held
                    moving = held | {
                        each.name
                        for each in before
                        if each.taint != "none" and each.ready != "True" and each.name not in elsewhere
                    }
                    gone = {each.name for each in before if each.name not in moving and each.taint != "none"}
                    assert len(moving) <= limit(settings, len({each.name for each in before} - gone | held))
                    now = trio.current_time()
                    healthy = [
                        each.name
                        for each in before
                        if each.ready == "True"
                        and each.name not in out
                        and cluster.view.silent_at(each.name) > now
                    ]
                    assert len(healthy) >= settings.min_healthy
                    left = [each for each in before if each.name not in out]
                    assert 2 * (len(left) + 1 - len(healthy)) <= len(left) + 1
                    assert cluster.view.sees_since < math.inf
            case 3:
                cluster.permits.give_back(name)
                held.discard(name)
                elsewhere.add(name)
            case 4 if name in held:
                cluster.put(name, "Unknown", "ours")
            case 5:
                cluster.put(name, draws.pick(get_args(Ready)), draws.pick(get_args(TaintOwner)))
            case 6 if name in there:
                cluster.remove(name)
            case 7:
                for each in there:
                    if draws.below(10):
                        cluster.renew(each)
                await trio.sleep(draws.below(12))
            case 8 if draws.below(20) == 0:
                cluster.view.sees(draws.pick([math.inf, trio.current_time()]))
            case 8 if draws.below(20) == 0:
                # A new leader knows only permits that became taints.
                permits = Permits(cluster.configuration, cluster.view, cluster.permits._etcd)
                cluster.permits, held, elsewhere = permits, set(), set()
            case _:
                pass


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_nobody_starves(seed: int, autojump_clock: MockClock) -> None:
    """Each request that persists gets one of few places, and a free place is used soon."""
    draws = Draws(seed)
    settings = Brake(max_nodes=draws.between(1, 6), max_share_percent=100)
    cluster = Cluster(64, settings, leases=False)
    first_asked: list[str] = []
    got: list[str] = []
    given_up: set[str] = set()
    out: set[str] = set()

    async def node(name: str) -> None:
        cluster.dead(name)
        first_asked.append(name)
        stays = draws.below(10) > 0
        while cluster.refused(name):
            if not stays and draws.below(3) == 0:
                given_up.add(name)
                return
            await trio.sleep(AGAIN_SECONDS)
        before = first_asked[: first_asked.index(name)]
        ahead = [each for each in before if each not in got and each not in given_up]
        got.append(name)
        out.add(name)
        assert len(out) + len(ahead) <= settings.max_nodes
        await trio.sleep(draws.between(1, 60))
        out.discard(name)
        cluster.put(name)
        cluster.permits.give_back(name)

    async with trio.open_nursery() as nodes:
        for name in cluster.names(30):
            nodes.start_soon(node, name)
            await trio.sleep(draws.below(8000) / 1000)
    assert sorted(got) == sorted(name for name in first_asked if name not in given_up)
    # Each holds a place for a minute at most; the next one takes it with its next request, at the latest
    # after its predecessor is forgotten.
    per_place = 60 + AGAIN_SECONDS + WAITS_SECONDS_MAX
    assert trio.current_time() <= 30 * 8 + (len(first_asked) + 1) * per_place / settings.max_nodes + per_place


def test_it_waits_for_the_next_request() -> None:
    """A refused request is remembered until its repeat."""
    assert AGAIN_SECONDS < WAITS_SECONDS_MAX
