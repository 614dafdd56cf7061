"""The DaemonSet as a pod of a real node: its token, its sandbox, the node's logind.

Changed manifest parts: the image (busybox with our Python mounted), the bus, the runtime socket and the
kubelet's folder. The token is mounted by hand: the API server has no service account admission.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ebbtide.events.decisions import DeletePod, MeansChosen, PodEnded, PodPlanned, ReleaseLock
from ebbtide.events.facts import ApiRead, OrderEnded, RuntimeRead
from tests.beds.inside import PROJECT
from tests.deploy.granted import applied
from tests.deploy.rendering import Object, merged, place, rendered
from tests.node.bed import Bed
from tests.node.ebbtide import PROGRAM, Daemon
from tests.node.image import IMAGE
from tests.node.parts import Member
from tests.node.pods import pod, running
from tests.node.shutdowns import power_off
from tests.waiting import until

pytestmark = pytest.mark.node

PODS = "/api/v1/namespaces/ebbtide/pods"
JOURNAL = Path("/var/lib/ebbtide/journal")
LIBRARIES = ("/usr", "/lib", "/lib64")
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def token() -> list[Object]:
    """The volume that service account admission would add."""
    return [
        {"serviceAccountToken": {"path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]


def in_busybox(
    name: str, node: str, env: dict[str, str], mounts: list[Object], volumes: list[Object], **container: Any
) -> Object:
    """A DaemonSet's patch: on this node, busybox with our Python and this project."""
    pythons = {str(PROJECT), sys.prefix, os.path.realpath(sys.base_prefix), *LIBRARIES}
    paths = {f"python-{at}": path for at, path in enumerate(sorted(filter(os.path.isdir, pythons)))}
    env |= {"PYTHONPATH": str(PROJECT), "PYTHONDONTWRITEBYTECODE": "1"}
    container |= {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "env": [{"name": each, "value": value} for each, value in env.items()],
        "volumeMounts": [
            *({"name": each, "mountPath": path, "readOnly": True} for each, path in paths.items()),
            *mounts,
        ],
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [container],
        "volumes": [*({"name": each, "hostPath": {"path": path}} for each, path in paths.items()), *volumes],
    }
    return {"spec": {"template": {"spec": spec}}}


def here(bed: Bed, member: Member) -> Object:
    bus = Path(bed.logind.address.removeprefix("unix:path="))
    (made,) = [each for each in rendered("daemonset") if each["kind"] == "DaemonSet"]
    args: list[str] = made["spec"]["template"]["spec"]["containers"][0]["args"]
    return in_busybox(
        "ebbtide",
        member.name,
        {"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path=/run/dbus/{bus.name}"},
        [{"name": "token", "mountPath": ACCOUNT, "readOnly": True}],
        [
            {"name": "token", "projected": {"sources": token()}},
            {"name": "bus", "hostPath": {"path": str(bus.parent)}},
            {"name": "runtime", "hostPath": {"path": str(member.socket.parent)}},
            {"name": "kubelet", "hostPath": {"path": str(member.state / "kubelet")}},
        ],
        command=[sys.executable, "-c", PROGRAM],
        readinessProbe={"exec": {"command": [sys.executable, "-c", PROGRAM, "status", "--ready"]}},
        args=[each.replace("containerd.sock", member.socket.name) for each in args],
    )


@pytest.fixture
async def deployed(bed: Bed) -> AsyncIterator[Daemon]:
    """The Ready DaemonSet beside a pod; the kubelet has no graceful shutdown."""
    member = next(iter(bed.members.values()))
    await bed.start_over(shutdownGracePeriod="0s", shutdownGracePeriodCriticalPods="0s")
    await running(bed, pod("web", member.name))
    journal = bed.place(JOURNAL)
    async with applied(bed):
        for each in rendered("daemonset"):
            if each["kind"] == "ConfigMap":
                await bed.api.post(place(each), each)
            if each["kind"] == "DaemonSet":
                await bed.api.post(place(each), merged(each, here(bed, member)))
        daemon = Daemon(bed, journal, "auto", member)
        try:
            await until_ready(bed, daemon)
            yield daemon
        finally:
            await bed.api.delete("/apis/apps/v1/namespaces/ebbtide/daemonsets/ebbtide")
            # The daemon ended with the node announced.
            node = f"/api/v1/nodes/{member.name}"
            await bed.api.patch(node, {"spec": {"taints": None, "unschedulable": None}})
            await bed.start_over()


async def until_ready(bed: Bed, daemon: Daemon) -> None:
    async def ready() -> bool:
        return (
            any(read.reachable for read in daemon.events(ApiRead))
            and any(read.reachable for read in daemon.events(RuntimeRead))
            and bool(await bed.logind.ours())
        )

    def logs() -> str:
        return str([path.read_text() for path in bed.place(daemon.member.state / "logs").rglob("*.log")])

    await until(ready, logs)


def is_ready(found: Object) -> bool:
    conditions = found["status"].get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


async def test_a_shutdown_from_a_pod(bed: Bed, deployed: Daemon) -> None:
    """It holds the lock, ends the other pods through the API with its token, and is in no wave."""
    (held,) = await bed.logind.ours()
    assert (held.mode, held.uid) == ("delay", 0)
    await bed.api.until(PODS, lambda found: all(map(is_ready, found["items"])))
    asked_ns, over_ns = await power_off(bed)
    assert asked_ns < over_ns
    events: dict[Any, list[Any]] = {
        kind: deployed.events(kind) for kind in (MeansChosen, PodPlanned, PodEnded, DeletePod, ReleaseLock)
    }
    assert [chosen.means for chosen in events[MeansChosen]] == ["api"]
    own = (await bed.api.get(PODS))["items"][0]
    assert own["metadata"]["uid"] not in {each.pod.uid for each in events[PodPlanned]}
    deleted = {order.name: order.key for order in events[DeletePod]}
    results = {ended.key: ended.result for ended in deployed.events(OrderEnded)}
    assert results[deleted["web"]] == "done"
    assert [ended.outcome for ended in events[PodEnded]] == ["graceful"] * len(events[PodPlanned])
    assert len(events[ReleaseLock]) == 1
    await deployed.verify()
