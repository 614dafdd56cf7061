"""``ebbtide outage explain`` on a real API server: what it gathers where no controller runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.actors.edges.kubernetes.node_view import DECLARED_ANNOTATION
from ebbtide.actors.outage_proof import OTHER_BOOT
from tests.actors.edges.kubernetes.outage_rig import Kubelet
from tests.actors.edges.kubernetes.rights import granted
from tests.actors.edges.kubernetes.test_work_edge import DRIVER, HOLD, Hands, hands
from tests.commands import Ran, ebbtide
from tests.node.bed import Bed

__all__ = ["hands"]

pytestmark = [pytest.mark.node]

ACCOUNT = "ebbtide-explains"
#: What a person needs, and nothing else.
RULES = [
    {"apiGroups": [""], "resources": ["nodes", "persistentvolumes"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims"], "verbs": ["get", "list"]},
    {"apiGroups": ["storage.k8s.io"], "resources": ["volumeattachments"], "verbs": ["list"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"]},
]
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


@pytest.fixture
async def rights(api_bed: Bed) -> Path:
    return await granted(api_bed, ACCOUNT, [], RULES)


@pytest.fixture
async def kubelet(api_bed: Bed) -> AsyncIterator[Kubelet]:
    made = Kubelet(api_bed, "worker")
    await made.register()
    yield made
    await made.remove()


async def explain(rights: Path, *arguments: str) -> Ran:
    words: tuple[str | Path, ...] = ("outage", "explain", *arguments, "--kubeconfig", rights)
    return await trio.to_thread.run_sync(partial(ebbtide, *words))


async def explained(rights: Path, *arguments: str) -> Any:
    ran = await explain(rights, *arguments, "-o", "json")
    assert ran.err == ""
    return json.loads(ran.out)


async def database(hands: Hands) -> None:
    """A pod with a volume that is attached to its node."""
    mounts = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await hands.pod("db-0", "worker", "StatefulSet/db", volumes=mounts)
    await hands.volume("pv-db", claim="data")
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": "pv-db",
        "storageClassName": "",
    }
    hands.made.append(f"{CLAIMS}/data")
    await hands.api.post(CLAIMS, {"metadata": {"name": "data"}, "spec": spec})
    await hands.attach("db")
    running = {"name": "main", "state": {"running": {}}, "ready": True, "restartCount": 0, "image": "i"}
    await hands.status(
        "db-0",
        phase="Running",
        conditions=[{"type": "Ready", "status": "True"}],
        containerStatuses=[{**running, "imageID": "i"}],
    )


async def test_a_node_that_died(rights: Path, kubelet: Kubelet, hands: Hands) -> None:
    """From a pod that runs to a driver that refuses: at each step the cause, for the pod and for its node."""
    await database(hands)
    ran = await explain(rights, "default/db-0")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "cause  default/db-0 is Ready, and nothing of it hangs")
    await kubelet.report(volumes=(f"kubernetes.io/csi/{DRIVER}^handle-pv-db",))
    await kubelet.unheard()
    await hands.delete("db-0")
    said = await explained(rights, "default/db-0")
    assert [each["code"] for each in said["causes"]] == ["node-down", "finalizers"]
    (disk,) = said["attachments"]
    assert (disk["volume"], disk["claim"], disk["in_use"]) == ("pv-db", "default/data", True)
    # Its grace is not over, and the statuses say Running for ever.
    assert disk["timer"].startswith("never begins: the statuses of default/db-0")
    assert (said["leader"], said["unseen"]) == ("", [])
    assert [each["code"] for each in (await explained(rights, "worker"))["causes"]] == [
        "node-down",
        "finalizers",
    ]
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    await kubelet.bed.api.patch(kubelet.path, {"spec": {"taints": [taint]}})
    said = await explained(rights, "default/db-0")
    assert [each["code"] for each in said["causes"]] == ["finalizers"]
    assert HOLD in said["causes"][0]["text"]
    await hands.gone("db-0")
    assert [each["code"] for each in (await explained(rights, "worker"))["causes"]] == ["detach-late"]
    await hands.api.delete("/apis/storage.k8s.io/v1/volumeattachments/db")
    await hands.refuse("db", "rpc error: code = Internal desc = the array is busy")
    ran = await explain(rights, "worker")
    assert ran.code == 1
    # To a person the driver's own text is shown.
    assert f"its driver {DRIVER} refuses: rpc error: code = Internal desc = the array is busy" in ran.out


async def test_the_one_that_waits_elsewhere(rights: Path, kubelet: Kubelet, hands: Hands) -> None:
    """Its successor waits for the volume on the dead node."""
    await database(hands)
    await kubelet.unheard()
    await hands.gone("db-0")
    mounts = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    await hands.pod("db-0", owner="StatefulSet/db", volumes=mounts)
    said = await explained(rights, "default/db-0")
    assert said["causes"][0]["code"] == "attached-elsewhere"
    assert "still attached to worker" in said["causes"][0]["text"]


async def test_who_may_see_less(api_bed: Bed, kubelet: Kubelet, hands: Hands) -> None:
    """What may not be seen is named; what cannot be done without is one line."""
    await database(hands)
    await kubelet.unheard()
    await hands.delete("db-0")
    less = await granted(
        api_bed, "ebbtide-sees-less", [], [RULES[1], {**RULES[0], "resources": ["nodes"]}, RULES[3]]
    )
    said = await explained(less, "default/db-0")
    assert said["causes"][0]["code"] == "node-down"
    assert [each.partition(" is forbidden")[0] for each in said["unseen"]] == [
        "volumeattachments.storage.k8s.io",
        'persistentvolumes "pv-db"',
    ] or len(said["unseen"]) == 2
    ran = await explain(less, "default/nothing")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("ebbtide: there is no pod default/nothing")
    ran = await explain(less, "nobody")
    assert (ran.code, ran.err) == (
        2,
        "ebbtide: there is no Node nobody, and no pod on it: a pod is named NAMESPACE/POD\n",
    )


async def test_statements_that_do_not_count(rights: Path, kubelet: Kubelet) -> None:
    """One that nobody can read, one of another boot, and one that may count: each is told for what it is."""
    node = await kubelet.bed.api.get(kubelet.path)
    boot = node["status"]["nodeInfo"]["bootID"]

    async def declared(text: str) -> Any:
        annotation = {DECLARED_ANNOTATION: text}
        await kubelet.bed.api.patch(kubelet.path, {"metadata": {"annotations": annotation}})
        return (await explained(rights, "worker"))["node"]

    said = await declared("nonsense")
    assert (said["declared"], said["not_declared"][:28]) == ("", "the annotation is no JSON ob")
    mark = await kubelet.renew()
    words = {"uid": kubelet.uid, "boot": boot, "mark": mark, "by": "ann", "seconds": 90}
    said = await declared(json.dumps(words | {"boot": "another"}))
    assert (said["declared"], said["not_declared"]) == ("", OTHER_BOOT)
    said = await declared(json.dumps(words))
    assert (said["declared"], said["declared_seconds"], said["not_declared"]) == ("ann", 90, "")
    ran = await explain(rights, "worker")
    assert "declared    off, by ann, for 90 s from when the controller has read it" in ran.out


@pytest.mark.parametrize("subject", ["", "shop/", "/db-0", "a b", "No"])
async def test_what_is_no_name(rights: Path, subject: str) -> None:
    """Without a name the path would be that of a list."""
    ran = await explain(rights, subject)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "is no name of a" in ran.err
