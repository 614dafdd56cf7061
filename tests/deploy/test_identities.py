"""The host unit with its account, and without an identity: whole power-offs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.events import decisions as d
from ebbtide.events.facts import OrderEnded
from tests.deploy.granted import applied, token
from tests.node.bed import Bed
from tests.node.client import Object, condition
from tests.node.ebbtide import COMMAND, Daemon
from tests.node.identities import Client
from tests.node.pods import STUBBORN, pod, running
from tests.node.shutdowns import power_off

pytestmark = pytest.mark.node

ACCOUNT = "system:serviceaccount:ebbtide:ebbtide"
NODE = "/api/v1/nodes/node-1"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.fixture
async def beside(bed: Bed) -> AsyncIterator[Bed]:
    """A kubelet without graceful shutdown; the account with role and policy."""
    await bed.start_over(shutdownGracePeriod="0s", shutdownGracePeriodCriticalPods="0s")
    async with applied(bed):
        yield bed
    await bed.api.patch("/api/v1/nodes/node-1", {"spec": {"taints": None, "unschedulable": None}})
    await bed.start_over()


def outcomes(daemon: Daemon, *kinds: type[Any]) -> dict[str, set[str]]:
    ended = {each.key: each.result for each in daemon.events(OrderEnded)}
    return {
        kind.__name__: {ended[order.key] for order in daemon.events(kind) if order.key in ended}
        for kind in kinds
    }


def means(daemon: Daemon) -> list[tuple[str, str]]:
    return [(chosen.means, chosen.reason) for chosen in daemon.events(d.MeansChosen)]


async def test_the_account_is_enough_without_the_kubelet(beside: Bed, tmp_path: Path) -> None:
    """The policies permit all writes to node and pods, and their restore."""
    client = Client(await token(beside, NODE), ACCOUNT)
    daemon = Daemon(beside, tmp_path / "state/journal", "cri", client=client)
    daemon.configure(shutdownGracePeriod="4s", node={"unready": "always", "leftPods": "delete"})
    await running(beside, pod("slow", "node-1", "trap 'sleep 1; exit 0' TERM; while :; do sleep 1; done"))
    await beside.api.post(DEPLOYMENTS, deployment("deaf", STUBBORN))
    await beside.api.until(f"{DEPLOYMENTS}/deaf", lambda each: each["status"].get("readyReplicas") == 1)
    await daemon.start_ready()
    try:
        await power_off(beside)
        node = await beside.api.get(NODE)
        assert condition(node, "Ready") == "False"
        assert condition(node, "Drained") == "True"
    finally:
        await daemon.stop()
    assert means(daemon) == [("cri", "mode cri")]
    assert sorted(ended.outcome for ended in daemon.events(d.PodEnded)) == ["graceful", "killed"]
    assert {order.kind for order in daemon.events(d.PostEvent)} == {"Node", "Deployment"}
    needed = (d.WithdrawPods, d.DeliverStatuses, d.PostEvent, d.PublishCertificate)
    assert outcomes(daemon, *needed) == {kind.__name__: {"done"} for kind in needed}
    assert outcomes(daemon, d.AnnounceNode)["AnnounceNode"] <= {"done", "cancelled"}
    assert "denied request" not in beside.log("ebbtide")
    kubeconfig = beside.secrets.kubeconfig(client, beside.server, "taking-back")
    words = ("uninstall", "--node-only", "--node-name", "node-1", "--kubeconfig", str(kubeconfig))
    await trio.run_process([*COMMAND, *words], capture_stdout=True, capture_stderr=True)
    node = await beside.api.get(NODE)
    assert {each["type"] for each in node["status"]["conditions"]} & {"Drained", "DrainInProgress"} == set()
    assert node["spec"].get("unschedulable") is None
    await daemon.verify()


def deployment(name: str, script: str) -> Object:
    made = pod(name, "node-1", script)
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": made["metadata"]["labels"]},
        "template": {"metadata": {"labels": made["metadata"]["labels"]}, "spec": made["spec"]},
    }
    return {"metadata": {"name": name}, "spec": spec}


async def test_without_an_identity_the_status_stands_in_a_file(beside: Bed, tmp_path: Path) -> None:
    """Mode cri needs no API: pods end, and the node's status is in the daemon's folder."""
    daemon = Daemon(beside, tmp_path / "state/journal", "cri", server="")
    daemon.configure(shutdownGracePeriod="10s")
    await running(beside, pod("web", "node-1"))
    await daemon.start_ready()
    try:
        await power_off(beside)
    finally:
        await daemon.stop()
    assert [ended.outcome for ended in daemon.events(d.PodEnded)] == ["graceful"]
    # The pod ends before the kubelet, so no order waits for it.
    assert len(daemon.events(d.StopKubelet)) == 1
    assert outcomes(daemon, d.AnnounceNode, d.PostEvent) == {
        "AnnounceNode": {"done"},
        "PostEvent": {"failed"},
    }
    status = json.loads((daemon.folder / "run/cri/node.json").read_text())
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [("Ready", "False")]
    await daemon.verify()
