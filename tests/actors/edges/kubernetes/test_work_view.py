"""Workloads on nodes, in virtual time on a server in memory: stored and reported fields."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.kubernetes import work_view
from ebbtide.actors.edges.kubernetes.api_calls import Answer
from ebbtide.actors.edges.kubernetes.known_pods import FINALIZERS_MAX, PodObject
from ebbtide.actors.edges.kubernetes.work_view import (
    ATTACHMENTS_PATH,
    CLAIMS_MAX,
    ELSEWHERE_MAX,
    FOLLOWED_MAX,
    OWNER_PATHS,
    OWNERS_SECONDS,
    PODS_PATH,
    REPORT_BYTES,
    VOLUMES_PATH,
    AttachmentObject,
    AttachmentView,
    Followed,
    PodView,
    VolumeObject,
    WorkEdge,
    WorkView,
    project_volume,
)
from ebbtide.actors.hang import ATTACHER_SECONDS
from ebbtide.actors.interfaces import Ending
from ebbtide.events import outage_events
from ebbtide.events.base import Event, Fact, Record
from ebbtide.events.codec import HASH_BYTES, decode_record, encode_frame, parse_frames
from ebbtide.replay.sim.scenario import Draws
from tests.actors.edges.kubernetes.work_fake import (
    Object,
    Server,
    attachment,
    csi,
    pod,
    ready,
    tolerating,
    volume,
)
from tests.actors.edges.process.process_bed import Outbox

#: More of them on demand, by ``EBBTIDE_SEEDS=5000``.
SEEDS = int(os.environ.get("EBBTIDE_SEEDS", "10"))
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def seen(made: Object) -> PodView:
    return WorkView().project_pod(msgspec.convert(made, PodObject))


def seen_attachment(made: Object) -> AttachmentView:
    return WorkView().project_attachment(msgspec.convert(made, AttachmentObject))


# --- the kept fields of a pod

FOR_A_WHILE = tolerating(effect="NoExecute", tolerationSeconds=300)


@pytest.mark.parametrize(
    ("spec", "effects"),
    [
        ({}, ()),
        (tolerating(), ("NoExecute", "NoSchedule")),
        (tolerating(effect=""), ("NoExecute", "NoSchedule")),
        (tolerating(effect="NoExecute"), ("NoExecute",)),
        (FOR_A_WHILE, ()),
        (tolerating(key="", effect="NoSchedule"), ("NoSchedule",)),
        ({"tolerations": [{"operator": "Exists"}]}, ("NoExecute", "NoSchedule")),
        (tolerating(key="node.kubernetes.io/unreachable"), ()),
        (tolerating(operator="Equal", value="nodeshutdown"), ("NoExecute", "NoSchedule")),
        (tolerating(operator="", value="nodeshutdown"), ("NoExecute", "NoSchedule")),
        (tolerating(operator="Equal", value="another"), ()),
        # The first that matches counts.
        ({"tolerations": [*FOR_A_WHILE["tolerations"], {"operator": "Exists"}]}, ("NoSchedule",)),
    ],
)
def test_which_effects_a_pod_tolerates(spec: Object, effects: tuple[str, ...]) -> None:
    """As the taint eviction controller matches; a limited toleration does not count."""
    assert seen(pod("a", "worker", spec=spec)).tolerates == effects


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"owner": "ReplicaSet/web"}, {"owner": "ReplicaSet/web", "owner_uid": "ReplicaSet/web"}),
        ({"owner": "StatefulSet/db"}, {"owner": "StatefulSet/db", "same_name": True}),
        ({"owner": "DaemonSet/log"}, {"daemon": True}),
        ({"meta": {"annotations": {"kubernetes.io/config.mirror": "x"}}}, {"daemon": True}),
        ({"meta": {**DELETED, "finalizers": ["a/b"]}}, {"terminating": True, "finalizers": ("a/b",)}),
        ({"status": {"phase": "Succeeded"}}, {"over": True, "ended": True, "ready": True}),
        ({"status": {"phase": "Failed"}}, {"over": True, "ended": True, "ready": False}),
        # Its owner deletes it to reuse the name.
        ({"status": {"phase": "Succeeded"}, "owner": "StatefulSet/db"}, {"over": False, "ended": True}),
        # Marked by the pod collector, and being deleted.
        ({"status": {"phase": "Failed"}, "meta": DELETED}, {"over": False, "terminating": True}),
        ({"status": ready()}, {"ready": True, "waiting": ""}),
        ({"status": ready(), "meta": DELETED}, {"ready": False, "waiting": "Terminating"}),
    ],
)
def test_what_is_kept_of_a_pod(fields: dict[str, Any], said: dict[str, Any]) -> None:
    found = seen(pod("a", "worker", **fields))
    assert {name: getattr(found, name) for name in said} == said
    assert (found.uid, found.namespace, found.name, found.node) == ("uid-a", "default", "a", "worker")


def waiting(*reasons: str) -> Object:
    return {
        "phase": "Pending",
        "containerStatuses": [{"state": {"waiting": {"reason": each}}} for each in reasons],
    }


def unscheduled(message: str, reason: str = "Unschedulable") -> Object:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"phase": "Pending", "conditions": [condition]}


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (waiting("ContainerCreating"), "ContainerCreating"),
        (waiting("ContainerCreating", "ImagePullBackOff"), "ImagePullBackOff"),
        (waiting("secret/of a plugin"), ""),
        (unscheduled(""), "Unschedulable"),
        (
            unscheduled("0/3: 1 Insufficient cpu, 2 node(s) had volume node affinity conflict. pod:secret"),
            "Unschedulable: had volume node affinity conflict, Insufficient cpu",
        ),
        ({"phase": "Failed", "reason": "Evicted"}, "Failed Evicted"),
        ({"phase": "Failed", "reason": "secret"}, "Failed"),
        (ready("False", reason="ContainersNotReady", message="secret"), "ContainersNotReady"),
        ({}, ""),
        ({"phase": "Pending"}, "no node yet"),
        (unscheduled("", reason="secret"), "no node yet"),
    ],
)
def test_why_a_pod_is_not_ready(status: Object, words: str) -> None:
    """Known reasons only."""
    assert seen(pod("a", status=status)).waiting == words


# --- the kept fields of an attachment


REFUSES = "its driver refuses"


def refused(**error: Any) -> Object:
    return attachment("a", **DELETED, error=error)


@pytest.mark.parametrize(
    ("made", "error", "unheard"),
    [
        (attachment("a"), "", False),
        (attachment("a", **DELETED), "", True),
        (refused(message="rpc error: code = Internal desc = secret"), f"{REFUSES}: INTERNAL", False),
        (refused(message="rpc error: code = Secret"), REFUSES, False),
        (refused(message="secret"), REFUSES, False),
        (refused(), REFUSES, False),
        (refused(message="secret", errorCode=4), f"{REFUSES}: DEADLINE_EXCEEDED", False),
        (refused(message="secret", errorCode=99), REFUSES, False),
        (attachment("a", **DELETED, finalizers=["a/hold"]), "finalizers: a/hold", False),
    ],
)
def test_what_an_attachment_waits_for(made: Object, error: str, *, unheard: bool) -> None:
    """A driver's text is never stored, its code is."""
    found = seen_attachment(made)
    assert (found.error, found.unheard) == (error, unheard)
    assert (found.name, found.node, found.volume, found.driver) == ("a", "worker", "pv-a", "csi.example.test")


# --- the kept fields of a volume


@pytest.mark.parametrize(
    ("made", "claim", "unique_name"),
    [
        (volume("v"), "", ""),
        (volume("v", "data"), "default/data", ""),
        (volume("v", "data", "Released", **csi("h")), "", "kubernetes.io/csi/csi.example.test^h"),
        (volume("v", nfs={"path": "/"}), "", ""),
    ],
)
def test_what_is_kept_of_a_volume(made: Object, claim: str, unique_name: str) -> None:
    """Only bound claims: an old claim may belong to another volume."""
    found = project_volume(msgspec.convert(made, VolumeObject))
    assert (found.name, found.claim, found.unique_name) == ("v", claim, unique_name)


# --- what is told


class Hand:
    """The edge of the node ``worker`` over a view that a server fills, and its facts."""

    def __init__(self, server: Server, view: WorkView, edge: WorkEdge) -> None:
        self.server, self.view, self.edge, self.outbox = server, view, edge, Outbox()
        self._said = 0

    async def do_list(self, key: str = "k") -> Ending:
        effect: Any = self.edge.effects[outage_events.ListWork]
        ended = await effect(outage_events.ListWork(key=key, node="worker"), self.outbox)
        assert isinstance(ended, Ending)
        return ended

    async def list(self) -> list[Fact]:
        assert await self.do_list() == Ending()
        return await self.said()

    async def list_work(self) -> outage_events.WorkListed:
        (listed,) = await self.list()
        assert isinstance(listed, outage_events.WorkListed)
        return listed

    async def said(self, seconds: float = 1.0) -> list[Fact]:
        """New facts since the last call, after all events arrived."""
        await trio.sleep(seconds)
        before, self._said = self._said, len(self.outbox.facts)
        return self.outbox.facts[before:]


@asynccontextmanager
async def working(server: Server, **fields: Any) -> AsyncIterator[Hand]:
    view = WorkView()
    hand = Hand(server, view, WorkEdge(view, "worker", **fields))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(view.run, server)
        nursery.start_soon(hand.edge.run, hand.outbox)
        yield hand
        nursery.cancel_scope.cancel()


def lost(name: str, **fields: Any) -> outage_events.LostPod:
    return outage_events.LostPod(uid=f"uid-{name}", namespace="default", name=name, **fields)


listed_work = partial(outage_events.WorkListed, key="k")


def db(name: str = "db-0", node: str = "worker", **fields: Any) -> Object:
    return pod(name, node, owner="StatefulSet/db", **fields)


def web(name: str, node: str = "", **fields: Any) -> Object:
    return pod(name, node, owner="ReplicaSet/web", **fields)


APPS = {"owner_api": "apps/v1"}
OF_DB = {"owner_uid": "StatefulSet/db", "owner": "StatefulSet/db", "same_name": True, **APPS}
OF_WEB = {"owner_uid": "ReplicaSet/web", "owner": "ReplicaSet/web", **APPS}
VA = outage_events.Attachment(name="va", volume="pv-va", driver="csi.example.test")


def elsewhere(
    name: str, node: str = "", *, is_ready: bool = False, waiting: str = "", **uid: str
) -> outage_events.ElsewhereRead:
    return outage_events.ElsewhereRead(
        uid=uid.get("uid", f"uid-{name}"),
        namespace="default",
        name=name,
        owner_uid="StatefulSet/db" if name.startswith("db") else "ReplicaSet/web",
        node=node,
        ready=is_ready,
        waiting=waiting,
    )


async def test_the_list(autojump_clock: MockClock) -> None:
    """This node's unfinished pods; others of an owner that does not reuse names."""
    server = Server()
    for made in (
        db(),
        db("db-1", "other"),
        web("web-a", "worker"),
        web("web-b", "other"),
        web("web-c"),
        pod("log", "worker", owner="DaemonSet/log"),
        pod("log-2", "other", owner="DaemonSet/log"),
        pod("done", "worker", owner="Job/once", status={"phase": "Succeeded"}),
        pod("evicted", "worker", owner="ReplicaSet/api", status={"phase": "Failed", "reason": "Evicted"}),
        pod("bare", "worker", spec=tolerating()),
        pod("bare-2", "other"),
    ):
        server.pod(made)
    server.attach(attachment("va"))
    server.attach(attachment("va-2", "other"))
    async with working(server) as hand:
        log = lost("log", owner_uid="DaemonSet/log", owner="DaemonSet/log", daemon=True)
        pods = (lost("bare", tolerates=True), lost("db-0", **OF_DB), lost("web-a", **OF_WEB), log)
        assert await hand.list_work() == listed_work(
            pods=pods, attachments=(VA,), elsewhere=("uid-web-b", "uid-web-c")
        )


class Owners(Server):
    """``owners`` by path; one that is missing is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.owners: dict[str, Object | int] = {}
        self.asked: list[str] = []

    async def call(self, method: str, path: str, **fields: Any) -> Answer:
        if "/namespaces/" not in path:
            return await super().call(method, path, **fields)
        self.asked.append(path)
        found = self.owners.get(path, 404)
        return Answer(found) if isinstance(found, int) else Answer(200, msgspec.json.encode(found))


def owned(kind: str, uid: str, status: Object | None = None, **spec: Any) -> Object:
    return {"kind": kind, "metadata": {"uid": uid}, "spec": spec, "status": status or {}}


def owner_read(uid: str, wants: int, ready: int) -> outage_events.OwnerRead:
    return outage_events.OwnerRead(namespace="default", owner_uid=uid, wants=wants, ready=ready)


async def test_owners_of_pods_that_are_gone(autojump_clock: MockClock) -> None:
    """Each minute, and reported when it changes; five of them at most. Only of kinds that are known."""
    server = Owners()
    kinds = {"StatefulSet": "apps/v1", "Job": "batch/v1", "Foo": "example.test/v1"}
    for kind, version in kinds.items():
        made = pod(f"{kind.lower()}-0", "worker", owner=f"{kind}/x")
        made["metadata"]["ownerReferences"][1]["apiVersion"] = version
        server.pod(made)
    db_path, job_path = (OWNER_PATHS[kinds[kind], kind].format("default", "x") for kind in [*kinds][:2])
    server.owners = {db_path: owned("StatefulSet", "StatefulSet/x", replicas=2), job_path: 403}
    async with working(server, caller=server) as hand:
        await hand.list()
        await hand.said(2 * OWNERS_SECONDS)
        assert server.asked == []
        for kind in kinds:
            server.remove(PODS_PATH, f"uid-{kind.lower()}-0")
        await hand.said()
        assert await hand.said(2.5 * OWNERS_SECONDS) == [owner_read("StatefulSet/x", 2, 0)]
        assert sorted(set(server.asked)) == sorted([db_path, job_path])
        server.owners[db_path] = owned("StatefulSet", "StatefulSet/x", {"readyReplicas": 1}, replicas=0)
        failed = {"conditions": [{"type": "Failed", "status": "True"}]}
        server.owners[job_path] = owned("Job", "Job/x", failed, parallelism=3)
        assert await hand.said(OWNERS_SECONDS) == [
            owner_read("Job/x", 0, 0),
            owner_read("StatefulSet/x", 0, 1),
        ]
        # Another one of its name: the owner is gone.
        server.owners[db_path] = owned("StatefulSet", "another", replicas=2)
        assert await hand.said(OWNERS_SECONDS) == [owner_read("StatefulSet/x", 0, 0)]


async def test_what_follows(autojump_clock: MockClock) -> None:
    """Changes of listed pods and of later pods: no other pods, no repeats."""
    server = Server()
    for made in (db(), web("web-a", "worker"), web("web-b", "other")):
        server.pod(made)
    server.attach(attachment("va"))
    async with working(server) as hand:
        await hand.list()
        server.pod(db(meta={**DELETED, "labels": {"a": "b"}}))
        assert await hand.said() == [outage_events.LostPodRead(pod=lost("db-0", terminating=True, **OF_DB))]
        # Unchanged, older, of another node, or created after the list.
        server.pod(db(meta={**DELETED, "labels": {"a": "c"}}))
        server.pod(web("web-b", "other", status=ready()))
        server.pod(pod("bare", "worker"))
        server.attach(attachment("va-2", "other"))
        server.attach(attachment("va-3", "worker"))
        assert await hand.said() == []

        server.remove(PODS_PATH, "uid-db-0")
        server.pod(db(node="", uid="again", status=unscheduled("Insufficient cpu")))
        assert await hand.said() == [
            outage_events.LostPodGone(uid="uid-db-0"),
            elsewhere("db-0", uid="again", waiting="a new pod is not Ready: Unschedulable: Insufficient cpu"),
        ]
        server.attach(attachment("va", **DELETED))
        assert await hand.said() == [
            outage_events.AttachmentRead(attachment=msgspec.structs.replace(VA, deleting=True))
        ]
        server.remove(ATTACHMENTS_PATH, "uid-va")
        server.pod(db(node="other", uid="again", status=ready()))
        server.pod(web("web-new", "other", status=ready()))
        assert await hand.said() == [
            elsewhere("db-0", "other", uid="again", is_ready=True),
            elsewhere("web-new", "other", is_ready=True),
            outage_events.AttachmentGone(name="va"),
        ]
        # A removed new pod is no longer Ready, and gets no further reports.
        server.remove(PODS_PATH, "uid-web-new")
        server.remove(PODS_PATH, "uid-web-b")
        assert await hand.said() == [elsewhere("web-new")]


def recorded(*events: Event) -> list[Record]:
    step = {"mono_ns": 0, "wall_ns": 0, "episode": 1, "cause": 1, "actor": "a", "last": True}
    return [Record(seq=at, event=event, **step) for at, event in enumerate(events, 2)]


async def test_each_new_pod_counts_for_one_lost_pod(autojump_clock: MockClock) -> None:
    """A place counts Ready pods, so two records may name the same one. A later list leaves out as many."""
    server = Server()
    for name in "abcd":
        server.pod(web(f"web-{name}", "worker"))
    async with working(server) as hand:
        await hand.list()
        for gone, new in ("ax", "by", "cz"):
            server.remove(PODS_PATH, f"uid-web-{gone}")
            server.pod(web(f"web-{new}", "other", status=ready()))
        await hand.said()
        for gone, by in ("ax", "bz", "cz"):
            hand.edge.observe(
                recorded(outage_events.PodRecovered(uid=f"uid-web-{gone}", by=f"uid-web-{by}", elapsed_ns=0))
            )
        listed = (await hand.list())[0]
        assert isinstance(listed, outage_events.WorkListed)
        assert listed.replaced == ("uid-web-x", "uid-web-y", "uid-web-z")


async def test_until_the_outage_is_over(autojump_clock: MockClock) -> None:
    """Silent until the next list; a waiting list is dropped."""
    server = Server()
    server.pod(db())
    server.attach(attachment("va", **DELETED))
    closed = recorded(outage_events.OutageClosed(outcome="recovered"))
    async with working(server) as hand, trio.open_nursery() as nursery:
        await hand.list()
        hand.edge.observe(closed)
        server.remove(PODS_PATH, "uid-db-0")
        server.pod(web("web-a", "worker"))
        assert await hand.said(2 * ATTACHER_SECONDS) == []
        server.reachable = False
        server.cut()
        await trio.sleep(1)
        ended: list[Ending] = []

        async def late() -> None:
            ended.append(await hand.do_list())

        nursery.start_soon(late)
        await trio.sleep(1)
        hand.edge.observe(closed)
        server.reachable = True
        await trio.sleep(60)
        assert [each.result for each in ended] == ["cancelled"]
        going = msgspec.structs.replace(VA, deleting=True)
        assert await hand.list_work() == listed_work(pods=(lost("web-a", **OF_WEB),), attachments=(going,))


# --- what others may send


def claiming(claim: str) -> Object:
    return {"name": "v", "persistentVolumeClaim": {"claimName": claim}}


def test_what_is_kept_of_a_tenants_pod() -> None:
    """A few hundred bytes of 1.5 MB: a few finalizers and their number, no name that cannot exist."""
    long = 64 * 1024 * "x"
    names = [f"claim-{number}" for number in range(5000)]
    volumes = [claiming(each) for each in (long, *names)]
    finalizers = [f"example.test/{number}" for number in range(60_000)]
    owners = [{"kind": long, "name": long, "uid": long, "controller": True}]
    tolerations = [{"key": long, "operator": "Exists"}] * 5000
    meta = {"finalizers": finalizers, "ownerReferences": owners}
    found = seen(pod("a", "worker", meta=meta, spec={"volumes": volumes, "tolerations": tolerations}))
    assert found.finalizers == (*finalizers[:FINALIZERS_MAX], "and 59996 more")
    assert found.claims == tuple(f"default/{each}" for each in names[:CLAIMS_MAX])
    assert (found.owner, found.owner_uid, found.tolerates) == ("", "", ())
    assert len(msgspec.msgpack.encode(found)) < 2500
    longest = [claiming(f"{number:0>253}") for number in range(64)]
    assert len(seen(pod("a", "worker", spec={"volumes": longest})).claims) == 8
    # Two bytes a character, which a reader of the record would count as two values.
    assert seen(pod("a", "worker", owner=f"ReplicaSet/{100 * 'é'}")).owner == ""
    # A path, for a request of the controller's.
    assert seen(pod("a", "worker", owner="StatefulSet/../../../nodes/x")).owner == ""


async def test_a_crowd_on_a_dead_node(autojump_clock: MockClock) -> None:
    """Anyone may bind pods to it. The pods that ran are followed, the rest is counted, and the record can be
    read. A later list keeps the followed ones, also with another leader.
    """
    server, running = Server(), {"containerStatuses": [{"name": "main"}], **ready()}
    for number in range(3000):
        server.pod(pod(f"a-{number}", "worker", owner="Job/a", meta={"finalizers": ["a/b"] * 9}))
        server.attach(attachment(f"a-{number:04d}"))
    for number in range(40):
        server.pod(web(f"web-{number}", "worker", status=running))
    server.pod(db(status=running, spec={"volumes": [claiming("data")]}))
    server.put(VOLUMES_PATH, volume("pv-z", "data"))
    server.attach(attachment("z"))
    async with working(server) as hand:
        listed = await hand.list_work()
        there = {each.uid for each in listed.pods}
        assert {"uid-db-0", *(f"uid-web-{number}" for number in range(40))} < there
        assert "z" in {each.name for each in listed.attachments}
        assert len(listed.pods) == len(listed.attachments) == FOLLOWED_MAX
        assert listed.more == 3041 + 3001 - 2 * FOLLOWED_MAX
        (record,) = recorded(listed)
        frame = encode_frame(record, bytes(HASH_BYTES), 0)
        (raw,) = parse_frames(bytes(HASH_BYTES) + frame, HASH_BYTES, HASH_BYTES + len(frame), 1).records
        assert decode_record(raw).event == listed
        # These come first by name.
        for number in range(300):
            server.pod(web(f"a-a-{number}", "worker", status=running))
            server.attach(attachment(f"a-{number}-0"))
        await hand.said()
        again, *_ = await hand.list()
        assert isinstance(again, outage_events.WorkListed)
        assert {each.uid for each in again.pods} == there
        followed = Followed(listed.pods, listed.attachments, listed.elsewhere)
    async with working(server, followed=followed) as hand:
        again, *_ = await hand.list()
        assert isinstance(again, outage_events.WorkListed)
        assert {each.uid for each in again.pods} == there
        assert set(again.attachments) == set(listed.attachments)


@pytest.mark.parametrize("lost", [1, 9])
async def test_new_pods_without_end(
    lost: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an owner's new pods a few are reported, however many come and go; another namespace's are not. Each
    lost pod of the owner has a record of what it waits for.
    """
    one = REPORT_BYTES * (1 + lost)
    monkeypatch.setattr(work_view, "REPORT_BYTES_MAX", most := 700 * one)
    server = Server()
    for number in range(lost):
        server.pod(web(f"lost-{number}", "worker"))
    async with working(server) as hand:
        await hand.list()
        other = {"namespace": "other"}
        server.pod(web("theirs", "elsewhere", meta=other, status=ready()))
        assert await hand.said() == []
        for number in range(2 * FOLLOWED_MAX):
            server.pod(web(f"web-{number}"))
        assert len(await hand.said()) == FOLLOWED_MAX
        for _ in range(4):
            for number in range(2 * FOLLOWED_MAX):
                status = unscheduled("", f"Because{'x' * (server.version % 17)}")
                server.pod(web(f"web-{number}", status=status))
            await hand.said()
        assert most <= len(hand.outbox.facts) * one < most + 2 * FOLLOWED_MAX * one
        server.pod(web("web-0", status=unscheduled("")))
        server.pod(web("web-1", "other", status=ready()))
        assert await hand.said() == [elsewhere("web-1", "other", is_ready=True)]
        for number in range(1500):
            server.remove(PODS_PATH, f"uid-web-{number + 2}")
            server.pod(web(f"web-{number + 512}", "other", status=ready()))
            await hand.said()
        assert len(hand.outbox.facts) * REPORT_BYTES < 2 * most + 2 * FOLLOWED_MAX * one
        server.remove(PODS_PATH, "uid-lost-0")
        assert await hand.said() == [outage_events.LostPodGone(uid="uid-lost-0")]


async def test_a_lost_pod_whose_words_change_without_end(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its author changes its finalizers: no outage's record is lost by it."""
    monkeypatch.setattr(work_view, "REPORT_BYTES_MAX", 100_000)
    server = Server()
    async with working(server) as hand:
        for number in range(400):
            long = [f"example.test/{number}-{at}-{'x' * 230}" for at in range(FINALIZERS_MAX)]
            server.pod(web("web-a", "worker", meta={"finalizers": long}))
            await (hand.said() if number else hand.list())
        size = sum(len(msgspec.msgpack.encode(each)) for each in hand.outbox.facts)
        assert 100_000 <= 3 * size < 110_000


async def test_a_namespace_names_another_ones_owner(autojump_clock: MockClock) -> None:
    """Its new pods do not count for the owner's: they hide no successor."""
    server, theirs = Server(), {"namespace": "theirs"}
    server.pod(web("web-a", "worker"))
    server.pod(web("bait", "worker", meta=theirs))
    async with working(server) as hand:
        await hand.list()
        for number in range(FOLLOWED_MAX):
            server.pod(web(f"x-{number}", meta=theirs))
        assert len(await hand.said()) == FOLLOWED_MAX
        server.pod(web("web-b", "other", status=ready()))
        assert await hand.said() == [elsewhere("web-b", "other", is_ready=True)]


async def test_an_owner_with_too_many_pods(autojump_clock: MockClock) -> None:
    """Its lost pods are over when they are gone; small owners' pods are followed to their successors."""
    server = Server()
    for number in range(ELSEWHERE_MAX + 1):
        server.pod(pod(f"api-{number}", "other", owner="ReplicaSet/api"))
    server.pod(pod("api", "worker", owner="ReplicaSet/api"))
    server.pod(web("web-a", "worker"))
    server.pod(web("web-b", "other"))
    async with working(server) as hand:
        pods = (lost("api", owner="ReplicaSet/api", **APPS), lost("web-a", **OF_WEB))
        assert await hand.list_work() == listed_work(pods=pods, elsewhere=("uid-web-b",))


# --- whatever happens


class Told:
    def __init__(self) -> None:
        self.lost: dict[str, outage_events.LostPod] = {}
        self.new: dict[str, outage_events.ElsewhereRead] = {}
        self.attachments: dict[str, outage_events.Attachment] = {}
        self.before: tuple[str, ...] = ()
        #: The newest reported version, by UID or name; tests encode the version in finalizer names.
        self.newest: dict[str, int] = {}

    def take(self, facts: list[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, outage_events.WorkListed):
                self.lost = {each.uid: each for each in fact.pods}
                self.attachments = {each.name: each for each in fact.attachments}
                self.before = fact.elsewhere
            elif isinstance(fact, outage_events.LostPodRead):
                assert fact.pod != self.lost[fact.pod.uid], "told twice"
                self._newer(fact.pod.uid, fact.pod.finalizers[0])
                self.lost[fact.pod.uid] = fact.pod
            elif isinstance(fact, outage_events.LostPodGone):
                del self.lost[fact.uid]
            elif isinstance(fact, outage_events.AttachmentRead):
                self._newer(fact.attachment.name, fact.attachment.error.rpartition(" ")[2])
                self.attachments[fact.attachment.name] = fact.attachment
            elif isinstance(fact, outage_events.AttachmentGone):
                del self.attachments[fact.name]
            elif isinstance(fact, outage_events.ElsewhereRead):
                self.new[fact.uid] = fact

    def _newer(self, name: str, version: str) -> None:
        number = int(version.removeprefix("v/"))
        assert number >= self.newest.get(name, 0), "older after newer"
        self.newest[name] = number


NODES = ("worker", "worker", "other", "")
OWNERS = ("", "StatefulSet/db", "ReplicaSet/web", "ReplicaSet/api", "DaemonSet/log")


class World:
    """Pods and attachments that come, change and go, and broken watches."""

    def __init__(self, seed: int) -> None:
        self.draws, self.server, self.number = Draws(seed), Server(), 0

    def one_of(self, given: Any) -> Any:
        return tuple(given)[self.draws.below(len(given))]

    def step(self) -> None:
        server, draws = self.server, self.draws
        self.number += 1
        version = {"finalizers": [f"v/{self.number}"]}
        there, attached = server.objects[PODS_PATH], server.objects[ATTACHMENTS_PATH]
        match draws.below(9):
            case 0 | 1:
                name = f"p{self.number}"
                made = {"owner": self.one_of(OWNERS), "status": self.one_of((ready(), ready("False"), {}))}
                server.pod(pod(name, self.one_of(NODES), meta=version, **made))
            case 2 | 3 if there:
                found = there[self.one_of(there)]
                found["metadata"] |= version | self.one_of(({}, DELETED))
                found["status"] = self.one_of((ready(), ready("False"), {}, {"phase": "Failed"}))
                found["spec"].setdefault("nodeName", self.one_of(("worker", "other")))
                server.pod(found)
            case 4 if there:
                server.remove(PODS_PATH, self.one_of(there))
            case 5:
                name = f"va{draws.below(6)}"
                same = (each for each in attached.values() if each["metadata"]["name"] == name)
                if (found := next(same, None)) is not None:
                    found["metadata"] |= DELETED | version
                    server.attach(found)
                else:
                    node = self.one_of(("worker", "other"))
                    server.attach(attachment(name, node, uid=f"{self.number}", **DELETED, **version))
            case 6 if attached:
                server.remove(ATTACHMENTS_PATH, self.one_of(attached))
            case 7:
                server.cut()
            case 8:
                server.forget()

    def now(self) -> tuple[dict[str, PodView], dict[str, AttachmentView]]:
        pods = [seen(each) for each in self.server.objects[PODS_PATH].values()]
        attachments = [seen_attachment(each) for each in self.server.objects[ATTACHMENTS_PATH].values()]
        return {each.uid: each for each in pods}, {each.uid: each for each in attachments}


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_the_list_and_its_changes_come_to_what_is_there(seed: int, autojump_clock: MockClock) -> None:
    """With broken watches: no older state after a newer one, no missed and no unlisted object."""
    world, told = World(seed), Told()
    for _ in range(10):
        world.step()
    async with working(world.server) as hand:
        told.take(await hand.list())
        owners = {each.owner_uid for each in told.lost.values() if each.owner_uid and not each.daemon}
        listed = set(told.lost)
        pods, attachments = world.now()
        attached = {each.uid for each in attachments.values() if each.node == "worker"}
        before = {each.uid for each in pods.values() if each.owner_uid in owners}
        for _ in range(30):
            for _ in range(world.draws.below(6)):
                world.step()
                await trio.sleep(world.draws.below(200) / 1000)
            if world.draws.below(4) == 0:
                told.take(await hand.said(30))
                pods, attachments = world.now()
                assert set(told.lost) == listed & set(pods)
                for uid, each in told.lost.items():
                    now = pods[uid]
                    assert (each.terminating, each.finalizers) == (now.terminating, now.finalizers)
                names = {each.name for each in attachments.values() if each.uid in attached}
                assert set(told.attachments) == names
                came = [each for each in pods.values() if each.owner_uid in owners and each.uid not in before]
                told_of = {uid: (each.node, each.ready) for uid, each in told.new.items() if uid in pods}
                assert told_of == {each.uid: (each.node, each.ready) for each in came}
                assert not any(each.ready for uid, each in told.new.items() if uid not in pods)
                assert hand.view.pods.kept == pods
                assert hand.view.attachments.kept == attachments
                for node in NODES[1:]:
                    there = {uid for uid, each in pods.items() if node and each.node == node}
                    assert {each.uid for each in hand.view.pods_of(node)} == there
                for owner in OWNERS[1:]:
                    theirs = {uid for uid, each in pods.items() if each.owner_uid == owner}
                    assert {each.uid for each in hand.view.siblings(f"default/{owner}")} == theirs
