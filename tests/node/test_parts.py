"""Each part of the node can go and come back while the others go on, as in an operator's bad day."""

from __future__ import annotations

import pytest

from tests.node.bed import Bed
from tests.node.bringing_up import mend
from tests.node.client import Api, Object, Refused, condition
from tests.node.identities import kubelet
from tests.node.pods import PODS, STUBBORN, is_ready, pod, running, static
from tests.node.shutdowns import power_off

pytestmark = [pytest.mark.node]
UNGRACEFUL = {"shutdownGracePeriod": "0s", "shutdownGracePeriodCriticalPods": "0s"}
FATES = {"stubborn": ("Failed", "Terminated"), "web": ("Succeeded", ""), "critical": ("Succeeded", "")}


def container_of(made: Object) -> Object:
    """The status of its only container."""
    status: Object = made["status"]["containerStatuses"][0]
    return status


def fates(pods: Object) -> dict[str, tuple[str, str]]:
    """Name to phase and reason."""
    return {
        each["metadata"]["name"]: (each["status"]["phase"], each["status"].get("reason", ""))
        for each in pods["items"]
    }


async def test_kubelet(bed: Bed) -> None:
    """A kubelet that is killed gives its lock back; started without graceful shutdown it takes none."""
    first = bed.members["node-1"]
    await bed.stop("kubelet-node-1")
    await bed.locks(1)
    await bed.start_kubelet(first, **UNGRACEFUL)
    (made,) = await running(bed, pod("one", "node-1"))
    await bed.locks(1)
    await bed.stop("kubelet-node-1")
    await bed.start_kubelet(first)
    await bed.locks(2)
    again = await bed.api.until(f"{PODS}/one", is_ready)
    assert container_of(again)["containerID"] == container_of(made)["containerID"]


async def test_containerd(bed: Bed) -> None:
    """Containers outlive containerd, and are known to it when it is back."""
    (made,) = await running(bed, pod("one", "node-1"))
    await bed.stop("containerd-node-1")
    await bed.start_containerd(bed.members["node-1"])
    await running(bed, pod("two", "node-1"))
    again = await bed.api.until(f"{PODS}/one", is_ready)
    assert container_of(again)["containerID"] == container_of(made)["containerID"]
    assert container_of(again)["restartCount"] == 0


async def test_api_server(bed: Bed) -> None:
    """An API server that is killed answers nobody; the next one knows what it knew."""
    await running(bed, pod("one", "node-1"))
    await bed.stop("kube-apiserver")
    with pytest.raises(OSError):
        await bed.api.get(PODS)
    await bed.start_api()
    assert [each["metadata"]["name"] for each in (await bed.api.get(PODS))["items"]] == ["one"]


async def test_static_pod(bed: Bed) -> None:
    """A manifest in the kubelet's folder is a pod, with a mirror that says where it came from."""
    async with static(bed, bed.members["node-2"], pod("still")) as mirror:
        annotations = (await bed.api.get(mirror))["metadata"]["annotations"]
        assert annotations["kubernetes.io/config.source"] == "file"
    await bed.api.until(PODS, lambda pods: not pods["items"])


async def test_identities(bed: Bed) -> None:
    """The API server keeps a node's identity to what is its own."""
    one = Api(bed.server, bed.secrets.authority, kubelet("node-1").token)
    assert condition(await one.get("/api/v1/nodes/node-1"), "Ready") == "True"
    labels = {"metadata": {"labels": {"ours": "yes"}}}
    with pytest.raises(Refused) as refused:
        await one.patch("/api/v1/nodes/node-2", labels)
    assert refused.value.code == 403


async def test_shutdown_of_the_kubelet(bed: Bed) -> None:
    """The kubelet's own graceful node shutdown: each group's pods get its time, then logind goes on."""
    critical = pod("critical", "node-1", priorityClassName="system-cluster-critical")
    made = [pod("stubborn", "node-1", STUBBORN), pod("web", "node-2"), critical]
    await bed.start_over(shutdownGracePeriod="5s", shutdownGracePeriodCriticalPods="2s")
    await bed.locks(2)
    try:
        await running(bed, *made)
        asked_ns, over_ns = await power_off(bed)
        assert 3.0 <= (over_ns - asked_ns) / 1e9 < 5.5
        # It lets go before its last report, and a pod that exits with 0 has succeeded.
        await bed.api.until(PODS, lambda pods: fates(pods) == FATES)
        node = await bed.api.get("/api/v1/nodes/node-1")
        assert condition(node, "Ready") == "False"
    finally:
        await bed.start_over()
    await bed.locks(2)


async def test_mended(bed: Bed) -> None:
    """What a test leaves stopped, or half way down, is up again for the next one."""
    await bed.start_over(shutdownGracePeriod="1s", shutdownGracePeriodCriticalPods="0s")
    await bed.locks(2)
    await power_off(bed)
    for name in ("kube-scheduler", "kube-apiserver", "containerd-node-2", "kubelet-node-1"):
        await bed.stop(name)
    await mend(bed)
    await bed.locks(2)
    await running(bed, pod("placed-by-the-scheduler"), pod("two", "node-2"))
