"""The record of each machine's first systemUUID, and what a lying kubelet gets past it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes.node_view import ClusterView, NodeView, machine_keys
from ebbtide.actors.outage_proof import JUNK_UUIDS, NAMES_MAX, PROOF, ProofState, is_junk
from ebbtide.actors.outage_work import STUCK_POD, StuckPodState
from ebbtide.actors.system import System
from ebbtide.events import outage_events as o
from ebbtide.events.base import NS_PER_SECOND, Fact, Stamp
from ebbtide.events.segment import OUTAGE_LOGIC
from ebbtide.outage import first_uuids
from ebbtide.outage.first_uuids import LOOK_SECONDS, FirstUuids
from ebbtide.replay.sim.scenario import Draws
from tests.actors.edges.kubernetes.config_map_fake import ConfigMaps

POLICY = Path(__file__).parents[2] / "deploy/kubernetes/outage/only-our-journals.yaml"
JUNK = "03000200-0400-0500-0006-000700080009"


def node(name: str, uuid: str, provider: str = "", uid: str = "") -> NodeView:
    return NodeView(name, uid or f"uid-{name}", "1", "b1", "True", uuid, provider, "none", (), "s1")


class Leading:
    """One leader's view and record, on the same server as the others'."""

    def __init__(self, server: ConfigMaps, *nodes: NodeView) -> None:
        self.view, self.told = ClusterView(), list[str]()
        self.record = FirstUuids(server, "ns", self.view, lambda level, line: self.told.append(line))
        for each in nodes:
            self.put(each)

    def put(self, each: NodeView) -> None:
        self.view.nodes.put(each._replace(version=""))

    async def lead(self, autojump_clock: MockClock, seconds: float = LOOK_SECONDS * 2) -> None:
        await self.record.load()
        with trio.move_on_after(seconds):
            await self.record.run(None)  # type: ignore[arg-type]  # its caller is the server

    def first(self, each: NodeView) -> str:
        return self.view.identity_of(each).first_uuid


async def test_the_first_uuid_outlives_leaders_and_nodes(autojump_clock: MockClock) -> None:
    """By the providerID, else by the Node's UID. Also junk: the kubelet could name any free machine next."""
    server = ConfigMaps(Draws(1))
    honest, metal, junk = node("a", "u1", "aws:///z/i-1"), node("m", "u5"), node("j", JUNK)
    one = Leading(server, honest, metal, junk)
    await one.lead(autojump_clock)
    assert server.creates == 1
    lying, again = honest._replace(system_uuid="u2"), node("b", "u3", "aws:///z/i-1", uid="new")
    two = Leading(server, lying, again, metal._replace(system_uuid="u6", uid="another"), junk)
    await two.lead(autojump_clock)
    assert (two.first(lying), two.first(again), two.first(honest)) == ("u1", "u1", "")
    assert two.first(metal._replace(system_uuid="u6")) == "u5"
    assert two.first(metal._replace(system_uuid="u6", uid="another")) == two.first(junk) == ""
    assert two.first(junk._replace(system_uuid="u7")) == JUNK
    # The new Node is known now; the lower numbers are gone. The controller's policy allows that name.
    (name,) = server.objects
    assert name == "ebbtide-outage-machines-0000000002"
    pattern = re.search(r'name\.matches\("([^"]+)"\)', POLICY.read_text())
    assert pattern is not None
    assert re.search(pattern[1], name)
    await Leading(server, lying).lead(autojump_clock)
    assert server.creates == 2


async def test_a_provider_id_that_is_set_with_another_uuid(autojump_clock: MockClock) -> None:
    """The kubelet of a Node without one may set it. A Node that it makes anew with it is the same machine."""
    server, honest = ConfigMaps(Draws(1)), node("a", "u1")
    one = Leading(server, honest)
    await one.lead(autojump_clock)
    lying = honest._replace(provider_id="metal://x", system_uuid="u2")
    one.put(lying)
    assert one.first(lying) == "u1"
    two = Leading(server, lying)
    await two.lead(autojump_clock)
    assert two.first(lying) == two.first(lying._replace(uid="new")) == "u1"
    assert two.first(lying._replace(system_uuid="u1")) == ""


async def test_two_leaders_and_a_server_that_refuses(autojump_clock: MockClock) -> None:
    """What was recorded first stays; a leader that cannot write knows what it saw itself."""
    server = ConfigMaps(Draws(1))
    one, two = Leading(server, node("a", "u1")), Leading(server, node("a", "u2"), node("b", "u3"))
    await one.record.load()
    await two.record.load()
    await one.lead(autojump_clock, 1)
    with trio.move_on_after(3 * LOOK_SECONDS):
        await two.record.run(None)  # type: ignore[arg-type]  # its caller is the server
    assert two.first(node("a", "u2")) == "u1"
    assert server.creates == 2
    server.away = True
    two.put(node("c", "u4"))
    with trio.move_on_after(60):
        await two.record.run(None)  # type: ignore[arg-type]  # its caller is the server
    assert two.first(node("c", "u9")) == "u4"
    assert two.told == ["the record of machines: silence: trying again"]


async def test_machines_that_are_gone_make_room(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest first, and none of a present Node."""
    monkeypatch.setattr(first_uuids, "MACHINES_MAX", 3)
    server = ConfigMaps(Draws(1))
    nodes = [node(name, f"u-{name}") for name in "abc"]
    await Leading(server, *nodes).lead(autojump_clock)
    last = Leading(server, nodes[0], node("d", "u-d"), node("e", "u-e"))
    await last.lead(autojump_clock)
    kept = {machine_keys(each)[0] for each in (nodes[0], node("d", ""), node("e", ""))}
    assert set(last.view.first_uuids) == kept


@pytest.mark.parametrize("data", [{}, {"first-uuids.json": "["}, {"first-uuids.json": '{"a": 1}'}])
async def test_a_spoilt_object(autojump_clock: MockClock, data: dict[str, Any]) -> None:
    server = ConfigMaps(Draws(1))
    meta = {"labels": {first_uuids.LABEL: "true"}}
    names = ("ebbtide-outage-machines-0000000007", "x")
    server.objects |= {each: {"metadata": {**meta, "name": each}, "data": data} for each in names}
    one = Leading(server, node("a", "u1"))
    await one.lead(autojump_clock)
    assert "ebbtide-outage-machines-0000000008" in server.objects
    assert one.told == []


async def test_objects_of_others(autojump_clock: MockClock) -> None:
    """30 of 1 MB under foreign names are not read. A forged last number is no end: it is younger."""
    server = ConfigMaps(Draws(1))
    honest = node("a", "u1")
    await Leading(server, honest).lead(autojump_clock)
    forged = f"ebbtide-outage-machines-{first_uuids.NUMBER_MAX}"
    lie = msgspec.json.encode({machine_keys(honest)[0]: "lie", "x" * 99: ""}).decode()
    for name in (*(f"x{at}" for at in range(30)), forged):
        meta = {"name": name, "labels": {first_uuids.LABEL: "true"}, "creationTimestamp": "2027"}
        big = {} if name == forged else {"a": "A" * 1_000_000}
        server.objects[name] = {"metadata": meta, "data": {first_uuids.DATA: lie}, "binaryData": big}
    await Leading(server, honest, node("b", "u2")).lead(autojump_clock)
    assert sorted(server.objects)[0] == "ebbtide-outage-machines-0000000002"
    assert forged not in server.objects
    lying = honest._replace(system_uuid="lie")
    last = Leading(server, lying)
    await last.lead(autojump_clock)
    assert last.first(lying) == "u1"
    assert len(last.view.first_uuids) == 2


def test_nodes_that_name_one_machine_hear_of_each_other() -> None:
    """At once, and after one names another, or is deleted. EC2's providerID has several spellings."""
    view = ClusterView()
    a, b = node("a", "u1", "aws:///z/i-1"), node("b", "u2")
    for each in (a, b):
        view.nodes.put(each)
    assert view.identity_of(a) == view.identity_of(b) == ("", "", "")
    news = view.of("b").news
    view.nodes.put(a._replace(version="2", system_uuid="u2"))
    assert news.is_set()
    assert view.identity_of(b) == ("", "a", "")
    view.nodes.put(b._replace(version="3", provider_id="aws:////i-1"))
    assert view.identity_of(a._replace(system_uuid="u2")) == ("", "b", "b")
    news = view.of("b").news
    view.nodes.put(a._replace(version="4"))
    assert news.is_set()
    view.nodes.remove(view.nodes.kept["b"]._replace(version="5"))
    assert view.identity_of(a) == ("", "", "")


def test_a_kubelet_that_names_all_machines_in_turn() -> None:
    """It takes the identity from one of them: a restored machine has two UUIDs, in either byte order."""
    view = ClusterView()
    uuids = [f"{at}0112233-4455-6677-8899-aabbccddeeff" for at in range(6)]
    swapped = "33221100-5544-7766-8899-aabbccddeeff"
    liar, victims = node("a", uuids[0]), [node(f"v{at}", uuids[at]) for at in range(1, 6)]
    for each in (liar, *victims):
        view.nodes.put(each)
    view.first_uuids = {machine_keys(liar)[0]: uuids[0]}
    for at, uuid in enumerate(["", swapped, *uuids[1:], *uuids[1:]], start=2):
        view.nodes.put(liar._replace(version=str(at), system_uuid=uuid))
        for each in victims:
            same = "a" if each.system_uuid == uuid == uuids[1] else ""
            assert view.identity_of(each) == ("", same, "")
    lies = view.nodes.kept["a"]
    assert view.identity_of(lies) == (uuids[0], "v5", "")
    # Another Node of its name begins anew, also if no watch has seen the old one's end.
    for at, uuid in enumerate(uuids[3:5], start=90):
        view.nodes.put(liar._replace(version=str(at), system_uuid=uuid, uid="another"))
    assert [view.identity_of(each).same_uuid_node for each in victims] == ["", "", "", "a", ""]


def test_the_other_byte_order_is_the_same_uuid() -> None:
    """Where it is configured, a management controller would answer for it."""
    view = ClusterView()
    a, b = (
        node("a", "00112233-4455-6677-8899-aabbccddeeff"),
        node("b", "33221100-5544-7766-8899-aabbccddeeff"),
    )
    for each in (a, b):
        view.nodes.put(each)
    assert (view.identity_of(a).same_uuid_node, view.identity_of(b).same_uuid_node) == ("b", "a")
    assert is_junk(JUNK)
    assert is_junk("00020003-0004-0005-0006-000700080009")
    assert is_junk("78563412-3412-7856-90ab-cddeefaabbcc")
    assert all(map(is_junk, JUNK_UUIDS))
    assert not is_junk(a.system_uuid)


def suspected() -> tuple[System, Callable[[Fact], None]]:
    system = System(logic=OUTAGE_LOGIC)

    def step(fact: Fact) -> None:
        now_ns = system.next_seq * NS_PER_SECOND
        system.step(fact, Stamp(now_ns, now_ns))

    step(o.LeaderStarted(version="0", replica="r", node="a", node_uid="u"))
    step(o.NodeRead(uid="u", boot_id="b1", ready="Unknown", resource_version="1", lease_mark="m0"))
    return system, step


def test_new_pods_that_come_and_go() -> None:
    """A lost pod that a finalizer holds sees any number of them, and keeps those that are there."""
    system, step = suspected()
    held = o.LostPod(uid="p", namespace="n", name="p", owner_uid="o", terminating=True, finalizers=("a/b",))
    step(o.WorkListed(key="OutageActor/list//0", pods=(held,)))
    for at in range(50):
        new = o.ElsewhereRead(uid=f"new-{at}", namespace="n", name=f"new-{at}", owner_uid="o")
        for each in (replace(new, waiting="why"), replace(new, node="b", ready=True), new):
            step(each)
            state = system.slots[STUCK_POD.name, "p"].state
            assert isinstance(state, StuckPodState)
            assert len(state.successors) == (each is not new)


@pytest.mark.parametrize("boot", ["b1", "another"])
def test_statements_under_ever_new_names(boot: str) -> None:
    """Each one accepted and voided by a heartbeat, or refused: the actor keeps a few."""
    system, step = suspected()
    for at in range(5 * NAMES_MAX):
        said: Any = {"identity_kind": "nodeUID", "identity": "u", "boot_id": boot, "mark": f"m{at}"}
        begun_ns = (system.next_seq + 1) * NS_PER_SECOND
        step(o.EvidenceRead(source="declared", name=f"p{at}", verdict="off", begun_ns=begun_ns, **said))
        if boot == "b1":
            step(o.HeartbeatSeen(mark=f"m{at + 1}"))
        step(o.EvidenceRead(source="declared", name=f"p{at}", verdict="unknown", begun_ns=begun_ns))
    state = system.slots[PROOF.name, ""].state
    assert isinstance(state, ProofState)
    kept = (NAMES_MAX, 0) if boot == "b1" else (0, NAMES_MAX)
    assert (len(state.declared), len(state.refused)) == kept
