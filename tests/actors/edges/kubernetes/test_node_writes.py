"""The dying node as others see it, on a real API server: shown, and taken back exactly as it was."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import trio

from ebbtide.actors.interfaces import Ending
from ebbtide.events.decisions import AnnounceNode
from tests.actors.edges.kubernetes.write_rig import NODE, NODE_CLIENT, Hand, account, of_kind, writing
from tests.node.bed import Bed
from tests.node.client import Object, Refused

pytestmark = [pytest.mark.node]
PATH = f"/api/v1/nodes/{NODE}"
CHANGED, CERTIFICATE = "ebbtide.dev/changed", "ebbtide.dev/safe-to-detach"
LAST_BOOT = "ebbtide.dev/last-boot"
TAINT = {"key": "ebbtide.dev/shutting-down", "effect": "NoSchedule"}
THEIRS = {"key": "example.com/theirs", "value": "x", "effect": "PreferNoSchedule"}
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
    annotations = {CHANGED: None, CERTIFICATE: None, LAST_BOOT: None}
    await bed.api.patch(
        PATH, {"metadata": {"annotations": annotations}, "spec": {"taints": None, "unschedulable": None}}
    )
    conditions = (await read(bed))["status"]["conditions"]
    kept = [each for each in conditions if each["type"] not in (DRAINING, GRACEFUL, DRAINED)]
    await bed.api.patch(f"{PATH}/status", {"status": {"conditions": kept}})


@pytest.fixture
async def hand(bed: Bed) -> AsyncIterator[Hand]:
    """As a service account."""
    await clean(bed)
    async with writing(bed, client=await account(bed)) as made:
        yield made
    await clean(bed)


async def test_somebody_else_at_the_same_time(bed: Bed, hand: Hand) -> None:
    """Others who taint and annotate while we do lose nothing, and nor do we."""

    async def others() -> None:
        for number in range(20):
            node = await read(bed)
            taints, version = node["spec"].get("taints", []), node["metadata"]["resourceVersion"]
            key = f"example.com/theirs-{number}"
            body = {
                "metadata": {"resourceVersion": version},
                "spec": {"taints": [*taints, {**THEIRS, "key": key}]},
            }
            with suppress(Refused):
                await bed.api.patch(PATH, body)
                done.append(key)

    done: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        for _ in range(5):
            assert await hand.do(DOWN) == Ending()
            assert await hand.do(UP) == Ending()
    keys = [taint["key"] for taint in spec(await read(bed))[1]]
    assert done
    assert [key for key in keys if key != TAINT["key"]] == done
    assert TAINT["key"] not in keys


async def test_unready(bed: Bed, hand: Hand) -> None:
    """Ready=False has the reference's words while no kubelet is there; a kubelet that starts sets it back."""
    await bed.stop(f"kubelet-{NODE}")
    order = AnnounceNode(key="k", ready=False, reason="KubeletNotReady", message="node is shutting down")
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
