"""``ebbtide outage explain`` on a real API server: what it gathers where no controller runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

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


async def test_what_is_no_name(rights: Path) -> None:
    """Without a name the path would be that of a list."""
    for subject in ("", "shop/", "/db-0", "a b", "No"):
        ran = await explain(rights, subject)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert "is no name of a" in ran.err
