"""A shutdown's writes to pods and Node, on a real API server beside a real kubelet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec import structs

from ebbtide.actors.interfaces import Ending
from ebbtide.events.decisions import AnnounceNode, DeliverStatuses
from tests.actors.edges.kubernetes.rig import kubeconfig, wire
from tests.actors.edges.kubernetes.rig import running as edge_running
from tests.actors.edges.kubernetes.write_rig import NODE, NODE_CLIENT, delete, known, of_kind, writing
from tests.node.bed import Bed
from tests.node.client import Object, Refused
from tests.node.pods import PODS, pod, running, static
from tests.waiting import until

pytestmark = [pytest.mark.node]
MESSAGE = "Pod was terminated in response to imminent node shutdown."


def statuses(*made: Object, **fields: bool) -> DeliverStatuses:
    rows = tuple((known(each).uid, "Failed", "Terminated", MESSAGE) for each in made)
    return DeliverStatuses(key="NodeStatusActor/deliver//1", statuses=rows, **fields)


async def test_removed(bed: Bed) -> None:
    """Delete objects at once; a static pod's mirror stays the kubelet's."""
    (made,) = await running(bed, pod("one", NODE))
    async with static(bed, bed.members[NODE], pod("still")) as mirror:
        still = await bed.api.get(mirror)
        await bed.stop(f"kubelet-{NODE}")
        async with writing(bed, [known(made), known(still)]) as hand:
            assert await hand.do(statuses(made, still, remove=True)) == Ending()
        with pytest.raises(Refused) as refused:
            await bed.api.get(f"{PODS}/one")
        assert refused.value.code == 404
        assert (await bed.api.get(mirror))["status"]["phase"] == "Failed"


@pytest.mark.parametrize("changed", [False, True], ids=["unchanged", "changed"])
async def test_of_an_earlier_boot(bed: Bed, changed: bool, tmp_path: Path) -> None:
    """Undelivered, because the API server stops after the first list. In the next boot, with the same folder,
    an unchanged pod gets its status; a changed pod does not.
    """
    (made,) = await running(bed, pod("one", NODE))
    await bed.stop(f"kubelet-{NODE}")
    order = statuses(made)
    async with wire(bed) as between:
        path = kubeconfig(tmp_path / "before", bed, NODE_CLIENT, between.server)
        async with edge_running(path, tmp_path) as rig:
            await until(lambda: rig.edge.pods.version, "the first list")
            between.block()
            ended = await rig.edge.adopt(order, rig.outbox)
    assert ended is not None
    assert ended.result == "failed"
    if changed:
        mark = {"type": "example.com/seen", "status": "True"}
        await bed.api.patch(f"{PODS}/one/status", {"status": {"conditions": [mark]}})
    async with edge_running(kubeconfig(tmp_path / "after", bed, NODE_CLIENT), tmp_path) as rig:
        await until(lambda: rig.edge.pods.version, "the first list")
        ended = await rig.edge.adopt(structs.replace(order, unchanged_only=True), rig.outbox)
    stale = Ending("cancelled", "stale: 1 of 1: default/one has changed since")
    assert ended == (stale if changed else Ending())
    phase = (await bed.api.get(f"{PODS}/one"))["status"]["phase"]
    assert phase == ("Running" if changed else "Failed")


# --- deletes


async def test_the_kubelet_keeps_the_mark(bed: Bed) -> None:
    """The kubelet's final status still has our reason."""
    held = pod("one", NODE)
    held["metadata"]["finalizers"] = ["example.com/hold"]
    (made,) = await running(bed, held)
    async with writing(bed, [known(made)]) as hand:
        assert await hand.do(delete(made)) == Ending()
    path = f"{PODS}/one"
    try:
        now = await bed.api.until(path, lambda each: each["status"]["phase"] in ("Succeeded", "Failed"))
    finally:
        await bed.api.patch(path, {"metadata": {"finalizers": None}})
    assert of_kind(now, "DisruptionTarget")["reason"] == "TerminationByKubelet"


# --- the Node

PATH = f"/api/v1/nodes/{NODE}"
CHANGED = "ebbtide.dev/changed"
#: Set by the controller on unschedulable nodes and by the kubelet's own pressure.
CONTROLLERS = "node.kubernetes.io/"
DRAINING, GRACEFUL = "DrainInProgress", "GracefulNodeShutdownInProgress"
DOWN = AnnounceNode(key="down", ready=False, unready=False, cordon=True, conditions=(DRAINING, GRACEFUL))


def spec(node: Object) -> tuple[bool, list[Object]]:
    taints = [each for each in node["spec"].get("taints", []) if not each["key"].startswith(CONTROLLERS)]
    return bool(node["spec"].get("unschedulable")), taints


async def test_node_identity(bed: Bed) -> None:
    """The node identity may not taint itself: one message, the other writes happen, and all is reverted."""
    async with writing(bed) as hand:
        ended = await hand.do(DOWN)
        assert ended.result == "failed"
        assert "is not allowed to modify taints" in ended.reason
        assert "the rest is done" in ended.reason
        node = await bed.api.get(PATH)
        assert spec(node) == (True, [])
        assert of_kind(node, DRAINING)["status"] == "True"
        note = json.loads(node["metadata"]["annotations"][CHANGED])
        assert note["conditions"] == {DRAINING: None, GRACEFUL: None}
        await hand.do(DOWN)
        assert len(hand.told) == 1
        assert await hand.do(AnnounceNode(key="up", ready=True)) == Ending()
    node = await bed.api.get(PATH)
    assert spec(node) == (False, [])
    assert CHANGED not in node["metadata"]["annotations"]
