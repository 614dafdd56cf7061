"""One test of each promise on a real API server, without kubelet and controllers. The bounds are wide:
virtual time proves them elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ebbtide.actors.edges.kubernetes import api_watch as watch
from ebbtide.actors.edges.kubernetes import leadership
from ebbtide.actors.edges.kubernetes.api_calls import Answer, ApiCall, Unanswered
from ebbtide.actors.edges.kubernetes.api_writes import event_name
from ebbtide.actors.edges.kubernetes.config_maps import ConfigMapStorage
from ebbtide.actors.edges.kubernetes.known_pods import KnownPod
from ebbtide.actors.edges.kubernetes.leadership import Leadership
from ebbtide.actors.interfaces import Ending, Outlet
from ebbtide.actors.runner import Effects, Inbox
from ebbtide.events import bounds
from ebbtide.events.decisions import AnnounceNode, DeliverStatuses, PostEvent, WithdrawPods
from ebbtide.events.facts import ApiRead, OrderEnded
from ebbtide.events.outage_events import CHANGED as NODE_CHANGED
from ebbtide.events.outage_events import SetQuarantine
from ebbtide.host import SystemClock
from tests.actors.edges.kubernetes.config_map_fake import leading, read
from tests.actors.edges.kubernetes.outage_rig import OTHERS, Kubelet, asking
from tests.actors.edges.kubernetes.rig import kubeconfig, linked, running, wire
from tests.actors.edges.kubernetes.rights import CLUSTER_RULES, JOURNAL_RULES, LEASE_RULES, granted
from tests.actors.edges.kubernetes.write_rig import NODE, RULES, TRACE, Hand, delete, known, of_kind
from tests.events.making import Told, step, write_steps
from tests.node.bed import Bed
from tests.node.client import Object, Refused
from tests.node.identities import ADMIN
from tests.node.pods import PODS, pod
from tests.waiting import WATCHDOG_SECONDS, until

pytestmark = [pytest.mark.node, pytest.mark.gate]

SPACE = "ebbtide-gate"
NOTE = "ebbtide.dev/out-of-service"
MAPS = f"/api/v1/namespaces/{SPACE}/configmaps"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases"
EVENTS = "/api/v1/namespaces/default/events"
MESSAGE = "Pod was terminated in response to imminent node shutdown."
#: The minimal rights of the daemon and of the outage controller.
LEADS = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}


@pytest.fixture(autouse=True)
def _wide_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "now", bounds.Bounds().widened(WATCHDOG_SECONDS))


@pytest.fixture(autouse=True)
async def no_pods(api_bed: Bed) -> None:
    """Whatever the test before left."""
    for each in (await api_bed.api.get(PODS))["items"]:
        await api_bed.api.delete(f"{PODS}/{each['metadata']['name']}?gracePeriodSeconds=0")


@pytest.fixture
async def rights(api_bed: Bed) -> Path:
    return await granted(
        api_bed, SPACE, [*JOURNAL_RULES, LEADS], [*RULES, *CLUSTER_RULES], {"kube-node-lease": LEASE_RULES}
    )


@pytest.fixture
async def kubelet(api_bed: Bed) -> AsyncIterator[Kubelet]:
    made = Kubelet(api_bed, NODE)
    await made.register(ready="Unknown")
    yield made
    await made.remove()


@pytest.fixture
async def pods(api_bed: Bed, no_pods: None) -> list[Object]:
    """Two pods that their kubelet reported as running."""
    running = {"name": "main", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "ready": True}
    running |= {"restartCount": 0, "image": "i", "imageID": "i", "containerID": f"containerd://{'a' * 64}"}
    ready = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
    status = {"phase": "Running", "conditions": ready, "containerStatuses": [running]}
    for name in ("one", "two"):
        await api_bed.api.post(PODS, pod(name, NODE))
        await api_bed.api.patch(f"{PODS}/{name}/status", {"status": status})
    return [await api_bed.api.get(f"{PODS}/{name}") for name in ("one", "two")]


@asynccontextmanager
async def writing(rights: Path, *known_pods: KnownPod) -> AsyncIterator[Hand]:
    """The daemon's writers; a second one is a second process."""
    async with linked(rights) as link:
        yield Hand(link, known_pods)


# --- pods


async def test_pods_are_listed_and_followed_and_listed_again(
    api_bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This node's pods. After a 410 the edge lists again."""
    lists: list[str] = []
    list_watched = watch.list_watched

    async def listed(*arguments: Any, **more: Any) -> Any:
        lists.append("")
        return await list_watched(*arguments, **more)

    monkeypatch.setattr(watch, "list_watched", listed)
    first = await api_bed.api.post(PODS, pod("one", NODE, terminationGracePeriodSeconds=7))
    async with wire(api_bed) as between:
        path = kubeconfig(tmp_path / "it", api_bed, ADMIN, between.server)
        async with running(path, tmp_path / "state") as rig:
            await until(lambda: rig.names() == ["one"], "the list")
            await rig.outbox.wait_for(ApiRead, reachable=True)
            await api_bed.api.post(PODS, pod("two", NODE))
            await api_bed.api.post(PODS, pod("far", "no-such-node"))
            await until(lambda: rig.names() == ["one", "two"], "the watch")
            found = rig.edge.pods.find(first["metadata"]["uid"])
            assert found is not None
            assert found.grace_seconds == 7
            await api_bed.api.delete(f"{PODS}/two?gracePeriodSeconds=0")
            await until(lambda: rig.names() == ["one"], "the watch tells of an end")
            assert len(lists) == 1
            between.block()
            between.cut()
            rig.edge.pods.resource_version = "1"
            await api_bed.api.delete(f"{PODS}/one?gracePeriodSeconds=0")
            await api_bed.api.post(PODS, pod("three", NODE))
            # A server that has just started has no history to watch from.
            await api_bed.stop("kube-apiserver")
            await api_bed.start_api()
            between.open.set()
            between.cut()
            await until(lambda: rig.names() == ["three"], "the second list")
            await api_bed.api.post(PODS, pod("four", NODE))
            await until(lambda: rig.names() == ["four", "three"], "the watch from the new place")
    assert len(lists) == 2
    assert rig.outbox.of(ApiRead) == [ApiRead(reachable=True, taint=True)]


async def test_a_delete_has_its_mark_its_grace_and_its_uid(
    rights: Path, api_bed: Bed, pods: list[Object]
) -> None:
    """A later delete shortens the grace. A delete for another pod of the name has no effect."""
    one, two = pods
    async with writing(rights, known(one)) as hand:
        for grace_seconds, left in ((20, 20), (25, 20), (6, 6)):
            assert await hand.do(delete(one, grace_seconds)) == Ending()
            now = await api_bed.api.get(f"{PODS}/one")
            assert now["metadata"]["deletionGracePeriodSeconds"] == left
        mark = of_kind(now, "DisruptionTarget")
        assert (mark["status"], mark["reason"]) == ("True", "TerminationByKubelet")
        assert mark["message"] == MESSAGE
        assert await hand.do(delete(two, uid=str(uuid4()))) == Ending()
        assert await api_bed.api.get(f"{PODS}/two") == two
        assert await hand.do(delete({"metadata": {**two["metadata"], "name": "gone"}})) == Ending()


async def test_statuses_are_patched(rights: Path, api_bed: Bed, pods: list[Object]) -> None:
    """A withdrawn pod only becomes unready. Later it gets its final status, or its object is removed."""
    one, two = pods
    async with writing(rights, known(one), known(two)) as hand:
        assert await hand.do(WithdrawPods(key="w", uids=(one["metadata"]["uid"],))) == Ending()
        now = await api_bed.api.get(f"{PODS}/one")
        assert of_kind(now, "Ready")["status"] == of_kind(now, "ContainersReady")["status"] == "False"
        assert now["status"]["phase"] == "Running"
        assert not of_kind(now, "DisruptionTarget")
        rows = [(each["metadata"]["uid"], "Failed", "Terminated", MESSAGE) for each in (one, two)]
        assert await hand.do(DeliverStatuses(key="d", statuses=(rows[0],))) == Ending()
        assert await hand.do(DeliverStatuses(key="r", statuses=(rows[1],), remove=True)) == Ending()
    now = await api_bed.api.get(f"{PODS}/one")
    state = now["status"]
    assert (state["phase"], state["reason"], state["message"]) == ("Failed", "Terminated", MESSAGE)
    assert of_kind(now, "DisruptionTarget")["reason"] == "TerminationByKubelet"
    assert of_kind(now, "Ready")["reason"] == "PodFailed"
    (before,), (after,) = one["status"]["containerStatuses"], state["containerStatuses"]
    ended = after["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (137, "ContainerStatusUnknown")
    assert ended["startedAt"] == before["state"]["running"]["startedAt"]
    with pytest.raises(Refused) as refused:
        await api_bed.api.get(f"{PODS}/two")
    assert refused.value.code == 404


# --- the Node


async def test_the_node_is_shown_down_and_taken_back(rights: Path, kubelet: Kubelet) -> None:
    """Taint, cordon and conditions come with a note. Another daemon reverts exactly these; Ready is the
    kubelet's.
    """

    async def seen() -> Any:
        node = await kubelet.bed.api.get(kubelet.path)
        conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
        # The controller that adds a cordon's taint is absent.
        return node["spec"], node["metadata"].get("annotations", {}), conditions

    before = await seen()
    kinds = "DrainInProgress", "GracefulNodeShutdownInProgress"
    why = {"reason": "KubeletNotReady", "message": "node is shutting down"}
    down = AnnounceNode(key="down", ready=False, cordon=True, conditions=kinds, **why)
    async with writing(rights) as hand:
        assert await hand.do(down) == Ending()
        spec, annotations, conditions = await seen()
        assert spec["unschedulable"]
        assert OTHERS in spec["taints"]
        ours = [each for each in spec["taints"] if each not in before[0]["taints"]]
        assert {"key": "ebbtide.dev/shutting-down", "effect": "NoSchedule"} in ours
        assert {kind: conditions[kind] for kind in kinds} == dict.fromkeys(kinds, "True")
        note = json.loads(annotations["ebbtide.dev/changed"])
        assert note == {"taint": True, "unschedulable": True, "conditions": dict.fromkeys(kinds)}
        ready = of_kind(await kubelet.bed.api.get(kubelet.path), "Ready")
        assert ready.items() >= {"status": "False", **why}.items()
    async with writing(rights) as other:
        assert await other.do(AnnounceNode(key="up", ready=True)) == Ending()
    spec, annotations, conditions = await seen()
    assert (spec, annotations, conditions | {"Ready": "Unknown"}) == before


async def test_an_event_is_posted_once(rights: Path, api_bed: Bed) -> None:
    """Repeated orders post one Event, with source and trace."""
    order = PostEvent(key="NodeStatusActor/event/1", kind="Node", name="", reason="Shutdown", message="down")
    async with writing(rights) as hand:
        for _ in range(2):
            assert await hand.do(order) == Ending()
    name = event_name(order, NODE, TRACE)
    (event,) = [each for each in (await api_bed.api.get(EVENTS))["items"] if each["metadata"]["name"] == name]
    assert (event["message"], event["count"]) == (f"down (trace {TRACE})", 1)
    assert event["source"] == {"component": "ebbtide", "host": NODE}
    assert (event["involvedObject"]["kind"], event["involvedObject"]["uid"]) == ("Node", NODE)
    await api_bed.api.delete(f"{EVENTS}/{name}")


async def test_the_out_of_service_taint_and_back(rights: Path, kubelet: Kubelet) -> None:
    """A change since the last read makes the write fail with 409. Other taints stay."""
    async with asking(rights, kubelet) as hand:
        order = hand.taint()
        hand.caller.before["PATCH"] = kubelet.report
        assert await hand.do(order) == Ending("failed", NODE_CHANGED)
        assert hand.caller.patches == 1
        assert hand.last().resource_version != order.resource_version
        assert await kubelet.taints() == [OTHERS]
        await kubelet.report(ready="Unknown")
        assert await hand.read() == Ending()

        order = hand.taint()
        assert await hand.do(order) == Ending()
        assert hand.last().taint == "ours"
        theirs, ours = await kubelet.taints()
        added = ours.pop("timeAdded")
        assert theirs == OTHERS
        assert ours == {
            "key": "node.kubernetes.io/out-of-service",
            "value": "nodeshutdown",
            "effect": "NoExecute",
        }
        said = json.loads((await kubelet.annotations())[NOTE])
        assert said == {"order": order.key, "effect": "NoExecute", "added": added, "boot": "boot-1"}
        assert await hand.do(hand.quarantine()) == Ending()
        assert await hand.do(hand.untaint()) == Ending()
        assert hand.last().taint == "none"
        assert await kubelet.taints() == [OTHERS]
        assert NOTE not in await kubelet.annotations()
        assert hand.caller.patches == 4


async def is_untouched(kubelet: Kubelet) -> bool:
    return await kubelet.taints() == [OTHERS] and NOTE not in await kubelet.annotations()


async def test_an_answer_that_is_lost(rights: Path, kubelet: Kubelet) -> None:
    """The note shows the lost write as done; it is not repeated."""
    async with asking(rights, kubelet) as hand:

        async def lose(send: Callable[[], Awaitable[Answer]]) -> Answer:
            assert (await send()).ok
            raise Unanswered("the connection ended before the answer came")

        hand.caller.instead = lose
        assert await hand.do(hand.taint()) == Ending()
        assert hand.caller.patches == 1
        assert len(await kubelet.taints()) == 2
        hand.caller.instead = lose
        assert await hand.do(hand.untaint()) == Ending()
        assert await is_untouched(kubelet)


async def test_a_write_that_comes_late_is_refused(
    rights: Path, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read for the next decision invalidates writes still in flight."""
    async with asking(rights, kubelet) as hand:
        late: list[Callable[[], Awaitable[Answer]]] = []
        with monkeypatch.context() as patch:

            async def hold_back(send: Callable[[], Awaitable[Answer]]) -> Answer:
                late.append(send)
                patch.setattr(ApiCall, "left_seconds", 0.0)  # the order's time is over
                raise Unanswered("silence")

            hand.caller.instead = hold_back
            assert (await hand.do(hand.taint())).result == "timed-out"
        assert await hand.read() == Ending()
        assert hand.last().taint == "none"
        assert (await late[0]()).code == 409
        assert await kubelet.taints() == [OTHERS]


async def test_the_way_back_overtakes_the_quarantine(rights: Path, kubelet: Kubelet) -> None:
    """A restore during the quarantine leaves no trace of ours, in either order."""
    async with asking(rights, kubelet) as hand, trio.open_nursery() as nursery:
        sent = trio.Event()

        async def slowly(send: Callable[[], Awaitable[Answer]]) -> Answer:
            sent.set()
            await wait_all_tasks_blocked()  # until the restore is on its way
            return await send()

        hand.caller.instead = slowly
        nursery.start_soon(hand.do, hand.quarantine())
        await sent.wait()
        assert await hand.do(hand.untaint()) == Ending()
        assert await is_untouched(kubelet)


# --- what a leader keeps


async def test_of_two_writers_of_a_journal_one_is_fenced(rights: Path, api_bed: Bed) -> None:
    """The first writer's next append conflicts and its orders are cancelled. Objects are immutable."""
    uid, told, inbox, begun = str(uuid4()), Told(), Inbox(), []

    class Effectless:
        def __init__(self) -> None:
            self.effects = {SetQuarantine: self.begin}

        def begin(self, order: SetQuarantine, outlet: Outlet) -> Ending:
            begun.append(order.key)
            return Ending()

    async with linked(rights) as link, leading(ConfigMapStorage(link, SPACE, uid, "one"), told) as (old, _):
        await write_steps(old, 1, synced=True)
        effects = Effects([Effectless()], inbox, old, SystemClock())  # type: ignore[list-item]  # no more of an edge is needed
        async with (
            leading(ConfigMapStorage(link, SPACE, uid, "two")) as (new, _),
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(effects.run)
            await write_steps(new, 1, synced=True)
            old.append(step(old.last_seq + 1))
            order = SetQuarantine(key="OutageActor/quarantine//0", node="node-1", node_uid=uid)
            effects.hold(order, old.last_seq)
            (ended,) = await until(inbox.take, "the order ends")
            assert isinstance(ended, OrderEnded)
            assert (ended.result, begun) == ("cancelled", [])
            assert told.lost == ["[Errno 16] another leader goes on with this journal: two"]
            await write_steps(new, 2, synced=True)
            nursery.cancel_scope.cancel()
        raws, verdict = await read(ConfigMapStorage(link, SPACE, uid, "three"))
    assert (verdict.state, [raw.seq for raw in raws]) == ("intact", list(range(1, new.last_seq + 1)))
    items = (await api_bed.api.get(f"{MAPS}?labelSelector=ebbtide.dev/node-uid={uid}"))["items"]
    names = [each["metadata"]["name"] for each in items]
    assert names == [f"ebbtide-outage-{uid}-{number:010d}" for number in range(1, len(items) + 1)]
    with pytest.raises(Refused, match="immutable"):
        await api_bed.api.patch(f"{MAPS}/{names[0]}", {"binaryData": {"x": ""}})


async def test_a_lease_is_held_lost_and_held_again(
    rights: Path, api_bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign label keeps the lease; an edit of the holder loses it; a deleted lease is recreated."""
    # Renewed every fifth of a second, and valid longer than any test.
    bounded = {"LEASE_SECONDS": 3 * WATCHDOG_SECONDS, "RENEW_SECONDS": 2 * WATCHDOG_SECONDS}
    for bound, seconds in (bounded | {"RETRY_SECONDS": 0.2}).items():
        monkeypatch.setattr(leadership, bound, seconds)
    name, lines, terms = f"lease-{uuid4()}", list[str](), list[str]()
    path = f"{LEASES}/{name}"

    async def lead() -> None:
        terms.append("begins")
        try:
            await trio.sleep_forever()
        finally:
            terms.append("ends")

    async with linked(rights) as link, trio.open_nursery() as nursery:
        held = Leadership(link, SPACE, name, "one", lambda level, line: lines.append(line))
        nursery.start_soon(held.run, lead)
        await until(lambda: terms == ["begins"], "it leads")
        renewed = (await api_bed.api.get(path))["spec"]["renewTime"]
        await api_bed.api.patch(path, {"metadata": {"labels": {"a": "b"}}})
        await api_bed.api.until(path, lambda found: found["spec"]["renewTime"] != renewed)
        assert terms == ["begins"]
        await api_bed.api.patch(path, {"spec": {"holderIdentity": ""}})
        await until(lambda: len(terms) == 3, "it is lost, and held again")
        await api_bed.api.delete(path)
        await until(lambda: len(terms) == 5, "it is made anew")
        found = await api_bed.api.get(path)
        assert (found["spec"]["holderIdentity"], found["spec"]["leaseTransitions"]) == ("one", 0)
        nursery.cancel_scope.cancel()
    assert (await api_bed.api.get(path))["spec"]["holderIdentity"] == ""
    assert len([line for line in lines if "leads no longer" in line]) == 2


# --- rights


async def test_what_the_rights_do_not_allow_is_refused_and_said(
    api_bed: Bed, kubelet: Kubelet, pods: list[Object]
) -> None:
    """Each order ends with the server's code."""
    reading = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]
    rights = await granted(api_bed, f"{SPACE}-none", [], reading, {"kube-node-lease": LEASE_RULES})
    one = pods[0]
    rows = ((one["metadata"]["uid"], "Failed", "Terminated", MESSAGE),)
    event = PostEvent(key="k", kind="Node", name="", reason="r", message="m")
    async with writing(rights, known(one)) as hand:
        for order in (delete(one), DeliverStatuses(key="d", statuses=rows), event):
            ended = await hand.do(order)
            assert (ended.result, "403" in ended.reason) == ("failed", True), ended
    async with asking(rights, kubelet) as outage:
        for write in (outage.taint(), outage.quarantine()):
            ended = await outage.do(write)
            assert (ended.result, ended.reason[:32]) == ("failed", "the node cannot be changed: 403 ")
    assert await kubelet.taints() == [OTHERS]
    assert await api_bed.api.get(f"{PODS}/one") == one
