"""The dying node as others see it, on a real API server: shown, and taken back exactly as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ebbtide.actors.interfaces import Ending
from ebbtide.events.decisions import AnnounceNode
from tests.actors.edges.kubernetes.write_rig import NODE, NODE_CLIENT, account, of_kind, writing
from tests.node.bed import Bed
from tests.node.client import Object

pytestmark = [pytest.mark.node]
PATH = f"/api/v1/nodes/{NODE}"
CHANGED = "ebbtide.dev/changed"
#: Set by the controller on every node that is unschedulable, and by the kubelet's own pressure; not ours.
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


async def read(bed: Bed) -> Object:
    node: Object = await bed.api.get(PATH)
    return node


async def clean(bed: Bed) -> None:
    """A node that nobody has touched."""
    annotations = {CHANGED: None}
    await bed.api.patch(
        PATH, {"metadata": {"annotations": annotations}, "spec": {"taints": None, "unschedulable": None}}
    )
    conditions = (await read(bed))["status"]["conditions"]
    kept = [each for each in conditions if each["type"] not in (DRAINING, GRACEFUL, DRAINED)]
    await bed.api.patch(f"{PATH}/status", {"status": {"conditions": kept}})


async def test_unready(bed: Bed) -> None:
    """Ready=False has the reference's words while no kubelet is there; a kubelet that starts sets it back."""
    await clean(bed)
    await bed.stop(f"kubelet-{NODE}")
    order = AnnounceNode(key="k", ready=False, reason="KubeletNotReady", message="node is shutting down")
    async with writing(bed, client=await account(bed)) as hand:
        assert await hand.do(order) == Ending()
        ready = of_kind(await read(bed), "Ready")
        said = (ready["status"], ready["reason"], ready["message"])
        assert said == ("False", "KubeletNotReady", "node is shutting down")
        assert await hand.do(UP) == Ending()
    await bed.start_kubelet(bed.members[NODE])
    await bed.node_ready(bed.members[NODE])


async def test_node_identity(bed: Bed) -> None:
    """A node's own identity may not taint itself: the rest is done, it is said once, and it is taken back."""
    await clean(bed)
    async with writing(bed, client=NODE_CLIENT) as hand:
        ended = await hand.do(DOWN)
        assert ended.result == "failed"
        assert "is not allowed to modify taints" in ended.reason
        assert "the rest is done" in ended.reason
        node = await read(bed)
        assert spec(node) == (True, [])
        assert of_kind(node, DRAINING)["status"] == "True"
        assert annotation(node, CHANGED)["conditions"] == {DRAINING: None, GRACEFUL: None}
        await hand.do(DOWN)
        assert len(hand.told) == 1
        assert await hand.do(UP) == Ending()
    node = await read(bed)
    assert spec(node) == (False, [])
    assert annotation(node, CHANGED) is None
