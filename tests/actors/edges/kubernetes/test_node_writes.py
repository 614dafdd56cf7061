"""The dying node as others see it, on a real API server: shown, and taken back exactly as it was."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import trio

from ebbtide.actors.interfaces import Ending
from ebbtide.events.decisions import AnnounceNode, PublishCertificate, PublishLastBoot
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


async def test_down_and_up(bed: Bed, hand: Hand) -> None:
    """Taint, unschedulable and conditions come with their note, and go with it; nothing else changes."""
    before = await read(bed)
    assert await hand.do(DOWN) == Ending()
    node = await read(bed)
    assert spec(node) == (True, [TAINT])
    for kind in (DRAINING, GRACEFUL):
        assert of_kind(node, kind)["status"] == "True"
        assert of_kind(node, kind)["reason"] == "NodeShutdown"
    assert of_kind(node, "Ready")["status"] == "True"
    changed = {"taint": True, "unschedulable": True, "conditions": {DRAINING: None, GRACEFUL: None}}
    assert annotation(node, CHANGED) == changed
    assert await hand.do(UP) == Ending()
    after = await read(bed)
    assert spec(after) == (False, [])
    assert annotation(after, CHANGED) is None
    kinds = [each["type"] for each in before["status"]["conditions"]]
    assert [each["type"] for each in after["status"]["conditions"]] == kinds
    assert after["metadata"]["labels"] == before["metadata"]["labels"]


async def test_again(bed: Bed, hand: Hand) -> None:
    """An announcement that is repeated after a crash changes nothing, not even the version."""
    await hand.do(DOWN)
    before = (await read(bed))["metadata"]["annotations"]
    assert await hand.do(DOWN) == Ending()
    assert (await read(bed))["metadata"]["annotations"] == before


async def test_drained(bed: Bed, hand: Hand) -> None:
    """Conditions of ours that are no longer named become False."""
    await hand.do(DOWN)
    drained = AnnounceNode(key="k", ready=False, unready=False, cordon=True, conditions=(DRAINED,))
    assert await hand.do(drained) == Ending()
    node = await read(bed)
    states = {kind: of_kind(node, kind)["status"] for kind in (DRAINED, DRAINING, GRACEFUL)}
    assert states == {DRAINED: "True", DRAINING: "False", GRACEFUL: "False"}
    await hand.do(UP)
    node = await read(bed)
    assert not any(of_kind(node, kind) for kind in states)


async def test_cordoned_before(bed: Bed, hand: Hand) -> None:
    """A node that somebody else has cordoned and tainted stays so; a condition of others is theirs."""
    await bed.api.patch(PATH, {"spec": {"unschedulable": True, "taints": [THEIRS]}})
    others = {"type": DRAINING, "status": "True", "reason": "Kubectl", "message": "drain"}
    conditions = [*(await read(bed))["status"]["conditions"], others]
    await bed.api.patch(f"{PATH}/status", {"status": {"conditions": conditions}})
    await hand.do(DOWN)
    node = await read(bed)
    assert spec(node) == (True, [THEIRS, TAINT])
    assert of_kind(node, DRAINING)["reason"] == "Kubectl"
    await hand.do(UP)
    node = await read(bed)
    assert spec(node) == (True, [THEIRS])
    assert of_kind(node, DRAINING)["reason"] == "Kubectl"
    assert not of_kind(node, GRACEFUL)


async def test_condition_as_it_stood(bed: Bed, hand: Hand) -> None:
    """A condition that was False before us is put back as it was."""
    others = {"type": DRAINING, "status": "False", "reason": "Done", "message": "of last week"}
    conditions = [*(await read(bed))["status"]["conditions"], others]
    await bed.api.patch(f"{PATH}/status", {"status": {"conditions": conditions}})
    stood = of_kind(await read(bed), DRAINING)
    await hand.do(DOWN)
    assert of_kind(await read(bed), DRAINING)["status"] == "True"
    await hand.do(UP)
    assert of_kind(await read(bed), DRAINING) == stood


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


async def test_after_a_reboot(bed: Bed, hand: Hand) -> None:
    """Another daemon, which remembers nothing, takes back what the Node says."""
    await hand.do(DOWN)
    async with writing(bed, client=await account(bed)) as other:
        assert await other.do(UP) == Ending()
    assert spec(await read(bed)) == (False, [])


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


@pytest.mark.parametrize("who", ["account", "node"])
async def test_how_the_last_boot_ended(bed: Bed, who: str) -> None:
    """It stands on the Node, also when that is shown as it was, until it is taken away."""
    await clean(bed)
    client = NODE_CLIENT if who == "node" else await account(bed)
    async with writing(bed, client=client) as hand:
        said = PublishLastBoot(key="k", boot_id="a" * 32, ending="cut-short", why="panic", wave=1)
        assert await hand.do(said) == Ending()
        assert await hand.do(UP) == Ending()
        found = annotation(await read(bed), LAST_BOOT)
        assert (found["ending"], found["why"], found["wave"]) == ("cut-short", "panic", 1)
        assert found["bootId"] == "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
        assert await hand.do(PublishLastBoot(key="k2", boot_id="", ending="unknown")) == Ending()
    assert annotation(await read(bed), LAST_BOOT) is None


@pytest.mark.parametrize("who", ["node", "account"])
async def test_certificate(bed: Bed, who: str) -> None:
    """It stands on the Node with its boot, bounded, until the node is shown as it was."""
    await clean(bed)
    client = NODE_CLIENT if who == "node" else await account(bed)
    many = tuple(f"uid-{number}" for number in range(1000))
    async with writing(bed, client=client) as hand:
        unsafe = PublishCertificate(key="k", safe=False, ended=3, running=many, mounted=(("u", "v"),))
        assert await hand.do(unsafe) == Ending()
        node = await read(bed)
        said = annotation(node, CERTIFICATE)
        assert said["safe"] is False
        assert said["bootId"] == node["status"]["nodeInfo"]["bootID"]
        assert (len(said["running"]), said["mounted"], said["more"]) == (50, [["u", "v"]], 950)
        assert await hand.do(PublishCertificate(key="k2", safe=True, ended=105)) == Ending()
        said = annotation(await read(bed), CERTIFICATE)
        assert (said["safe"], said["ended"], "running" in said) == (True, 105, False)
        assert await hand.do(UP) == Ending()
    assert annotation(await read(bed), CERTIFICATE) is None
