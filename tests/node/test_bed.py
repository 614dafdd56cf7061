"""The bed itself: what it says is up is up, and what it says is gone is gone."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import trio

from tests.node.bed import Bed
from tests.node.client import condition
from tests.node.pods import PODS, container, pod, running
from tests.node.programs import version

pytestmark = [pytest.mark.node]
#: On one machine an answer takes milliseconds.
ANSWER_SECONDS_MAX = 1.0
SERVICES = "/api/v1/namespaces/default/services"
WEB = "hostname > /www/index.html; httpd -f -p 8080 -h /www & trap 'exit 0' TERM; wait"


async def test_ready(bed: Bed) -> None:
    """Each node is Ready, with the version that was built and an address of its own."""
    for member in bed.members.values():
        node = await bed.api.get(f"/api/v1/nodes/{member.name}")
        assert condition(node, "Ready") == "True"
        assert node["status"]["nodeInfo"]["kubeletVersion"] == version()
        assert {"type": "InternalIP", "address": member.address} in node["status"]["addresses"]


async def test_lock(bed: Bed) -> None:
    """logind lists a delay lock of each kubelet, and grants what its configuration asks for."""
    locks = [row for row in await bed.logind.list_inhibitors() if row.who == "kubelet"]
    assert [(row.what, row.mode) for row in locks] == [("shutdown", "delay")] * len(bed.members)
    assert await bed.logind.get("InhibitDelayMaxUSec") == 30_000_000


async def test_pod(bed: Bed) -> None:
    """A pod runs, is reached on its address in the nodes' network, and ends within its grace when deleted."""
    (made,) = await running(bed, pod("web", "node-1", WEB))
    assert await bed.fetch(made["status"]["podIP"], 8080) == "web\n"
    await bed.api.delete(f"{PODS}/web", {"gracePeriodSeconds": 5})
    await bed.api.until(PODS, lambda pods: not pods["items"], seconds=15)


async def test_service(bed: Bed) -> None:
    """A Deployment is spread over the nodes by the scheduler, and its Service answers on its address."""
    labels = {"app": "web"}
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": labels},
        }
    ]
    ready = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    spec = {"containers": [container(WEB, readinessProbe=ready)], "topologySpreadConstraints": spread}
    deployment = {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    ports = [{"port": 80, "targetPort": 8080}]
    service = {"metadata": {"name": "web"}, "spec": {"selector": labels, "ports": ports}}
    made = await bed.api.post(SERVICES, service)
    path = "/apis/apps/v1/namespaces/default/deployments"
    await bed.api.post(path, deployment)
    await bed.api.until(f"{path}/web", lambda each: each["status"].get("readyReplicas") == 2)
    pods = await bed.api.get(PODS)
    assert {each["spec"]["nodeName"] for each in pods["items"]} == set(bed.members)
    names = {each["metadata"]["name"] for each in pods["items"]}
    address = made["spec"]["clusterIP"]
    with trio.fail_after(20):
        seen: set[str] = set()
        while seen != names:
            # A connection begun before kube-proxy knows the address is lost for good: another is tried.
            with contextlib.suppress(OSError), trio.move_on_after(ANSWER_SECONDS_MAX):
                seen.add((await bed.fetch(address, 80)).strip())
            await trio.sleep(0.02)
    await bed.api.delete(f"{SERVICES}/web")


async def test_machine_untouched(bed: Bed) -> None:
    """The kubelet's settings of the kernel, its files and its lock's configuration stay in the node."""
    inside = (bed.root / "etc/systemd/logind.conf.d/99-kubelet.conf").read_text()
    assert "InhibitDelayMaxSec=30" in inside
    assert not Path("/etc/systemd/logind.conf.d/99-kubelet.conf").exists()
    assert not Path("/var/log/containers").exists()
    written = (bed.root / "proc/sys/kernel/panic").read_text().strip()
    assert written == "10"
    assert Path("/proc/sys/kernel/panic").read_text().strip() != "10"
