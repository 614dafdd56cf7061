"""A shutdown's writes to pods and Node, on a real API server beside a real kubelet."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from ebbtide.actors.interfaces import Ending
from ebbtide.events.decisions import AnnounceNode, DeliverStatuses
from tests.actors.edges.kubernetes.rig import kubeconfig, wire
from tests.actors.edges.kubernetes.rig import running as edge_running
from tests.actors.edges.kubernetes.write_rig import (
    NODE,
    NODE_CLIENT,
    account,
    delete,
    known,
    of_kind,
    writing,
)
from tests.node.bed import Bed
from tests.node.client import Object, Refused
from tests.node.pods import PODS, pod, running, static
from tests.waiting import until

pytestmark = [pytest.mark.node]
MESSAGE = "Pod was terminated in response to imminent node shutdown."


def statuses(*made: Object, phase: str = "Failed", **fields: bool) -> DeliverStatuses:
    rows = tuple((known(each).uid, phase, "Terminated", MESSAGE) for each in made)
    return DeliverStatuses(key="NodeStatusActor/deliver//1", statuses=rows, **fields)


@pytest.fixture
async def alone(bed: Bed) -> AsyncIterator[Bed]:
    """Keep the kubelet stopped until the test's end."""
    yield bed
    if f"kubelet-{NODE}" not in await bed.inside.do("alive"):
        await bed.start_kubelet(bed.members[NODE])
        await bed.node_ready(bed.members[NODE])


async def stop_kubelet(bed: Bed) -> None:
    await bed.stop(f"kubelet-{NODE}")


async def test_removed(alone: Bed) -> None:
    """Delete objects at once; a static pod's mirror stays the kubelet's."""
    (made,) = await running(alone, pod("one", NODE))
    async with static(alone, alone.members[NODE], pod("still")) as mirror:
        still = await alone.api.get(mirror)
        await stop_kubelet(alone)
        async with writing(alone, [known(made), known(still)], NODE_CLIENT) as hand:
            assert await hand.do(statuses(made, still, remove=True)) == Ending()
        with pytest.raises(Refused) as refused:
            await alone.api.get(f"{PODS}/one")
        assert refused.value.code == 404
        assert (await alone.api.get(mirror))["status"]["phase"] == "Failed"


async def undelivered(bed: Bed, folder: Path, order: DeliverStatuses) -> None:
    """A shutdown with the whole edge; the API server stops after the first list."""
    async with wire(bed) as between:
        path = kubeconfig(folder / "before", bed, NODE_CLIENT, between.server)
        async with edge_running(path, folder) as rig:
            await until(lambda: rig.edge.pods.version, "the first list")
            between.block()
            ended = await rig.edge.adopt(order, rig.outbox)
    assert ended is not None
    assert ended.result == "failed"


async def delivered_later(bed: Bed, folder: Path, order: DeliverStatuses) -> Ending:
    """The next boot with the same state directory: its watch lists before any delivery."""
    path = kubeconfig(folder / "after", bed, NODE_CLIENT)
    async with edge_running(path, folder) as rig:
        await until(lambda: rig.edge.pods.version, "the first list")
        ended = await rig.edge.adopt(structs.replace(order, unchanged_only=True), rig.outbox)
    assert ended is not None
    return ended


@pytest.mark.parametrize("changed", [False, True], ids=["unchanged", "changed"])
async def test_of_an_earlier_boot(alone: Bed, changed: bool, tmp_path: Path) -> None:
    """An unchanged pod gets the earlier boot's status; a changed pod does not."""
    (made,) = await running(alone, pod("one", NODE))
    await stop_kubelet(alone)
    await undelivered(alone, tmp_path, statuses(made))
    if changed:
        mark = {"type": "example.com/seen", "status": "True"}
        await alone.api.patch(f"{PODS}/one/status", {"status": {"conditions": [mark]}})
    ended = await delivered_later(alone, tmp_path, statuses(made))
    phase = (await alone.api.get(f"{PODS}/one"))["status"]["phase"]
    if changed:
        assert ended == Ending("cancelled", "stale: 1 of 1: default/one has changed since")
    else:
        assert ended == Ending()
    assert phase == ("Running" if changed else "Failed")


# --- deletes -------------------------------------------------------------------------------------


async def test_the_kubelet_keeps_the_mark(bed: Bed) -> None:
    """The kubelet's final status still has our reason."""
    held = pod("one", NODE)
    held["metadata"]["finalizers"] = ["example.com/hold"]
    (made,) = await running(bed, held)
    async with writing(bed, [known(made)], NODE_CLIENT) as hand:
        assert await hand.do(delete(made)) == Ending()
    path = f"{PODS}/one"
    try:
        now = await bed.api.until(path, lambda each: each["status"]["phase"] in ("Succeeded", "Failed"))
    finally:
        await bed.api.patch(path, {"metadata": {"finalizers": None}})
    assert of_kind(now, "DisruptionTarget")["reason"] == "TerminationByKubelet"


# --- the Node -------------------------------------------------------------------------------------

PATH = f"/api/v1/nodes/{NODE}"
CHANGED = "ebbtide.dev/changed"
#: Set by the controller on unschedulable nodes and by the kubelet's own pressure.
CONTROLLERS = "node.kubernetes.io/"
DRAINING, GRACEFUL, DRAINED = "DrainInProgress", "GracefulNodeShutdownInProgress", "Drained"
DOWN = AnnounceNode(
    key="NodeStatusActor/announce//1",
    ready=False,
    reason="KubeletNotReady",
    message="node is shutting down",
    unready=False,
    cordon=True,
    conditions=(DRAINING, GRACEFUL),
)
UP = AnnounceNode(key="NodeStatusActor/announce//9", ready=True)


def spec(node: Object) -> tuple[bool, list[Object]]:
    taints = [each for each in node["spec"].get("taints", []) if not each["key"].startswith(CONTROLLERS)]
    return bool(node["spec"].get("unschedulable")), taints


def annotation(node: Object, name: str) -> Any:
    text = node["metadata"]["annotations"].get(name)
    return None if text is None else json.loads(text)


async def clean(bed: Bed) -> None:
    annotations = {CHANGED: None}
    await bed.api.patch(
        PATH, {"metadata": {"annotations": annotations}, "spec": {"taints": None, "unschedulable": None}}
    )
    conditions = (await bed.api.get(PATH))["status"]["conditions"]
    kept = [each for each in conditions if each["type"] not in (DRAINING, GRACEFUL, DRAINED)]
    await bed.api.patch(f"{PATH}/status", {"status": {"conditions": kept}})


async def test_unready(bed: Bed) -> None:
    """Ready=False has the reference's texts without a kubelet; a starting kubelet resets it."""
    await clean(bed)
    await bed.stop(f"kubelet-{NODE}")
    order = AnnounceNode(key="k", ready=False, reason="KubeletNotReady", message="node is shutting down")
    async with writing(bed, client=await account(bed)) as hand:
        assert await hand.do(order) == Ending()
        ready = of_kind(await bed.api.get(PATH), "Ready")
        said = (ready["status"], ready["reason"], ready["message"])
        assert said == ("False", "KubeletNotReady", "node is shutting down")
        assert await hand.do(UP) == Ending()
    await bed.start_kubelet(bed.members[NODE])
    await bed.node_ready(bed.members[NODE])


async def test_node_identity(bed: Bed) -> None:
    """The node identity may not taint itself: one message, the other writes happen, and all is reverted."""
    await clean(bed)
    async with writing(bed, client=NODE_CLIENT) as hand:
        ended = await hand.do(DOWN)
        assert ended.result == "failed"
        assert "is not allowed to modify taints" in ended.reason
        assert "the rest is done" in ended.reason
        node = await bed.api.get(PATH)
        assert spec(node) == (True, [])
        assert of_kind(node, DRAINING)["status"] == "True"
        assert annotation(node, CHANGED)["conditions"] == {DRAINING: None, GRACEFUL: None}
        await hand.do(DOWN)
        assert len(hand.told) == 1
        assert await hand.do(UP) == Ending()
    node = await bed.api.get(PATH)
    assert spec(node) == (False, [])
    assert annotation(node, CHANGED) is None
