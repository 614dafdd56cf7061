"""A Kubernetes node that is well, as the doctor sees it, and ways to make it ill."""

from __future__ import annotations

from typing import Any

from actors.policy.plan import Plan
from ebbtide.doctor.rules import examine
from ebbtide.doctor.seen import Api, Kubelet, NodePod, NodeSeen, Runtime, Validity
from ebbtide.doctor.sight import Bus, Finding, Sight, Store
from events.base import NS_PER_SECOND
from events.facts import DropInsRead
from events.model import PlannedPod, PlannedWave

DAY_S = 86_400
NOW_S = 1_800_000_000
STATUS = {"enabled": True, "armed": True, "whyNot": "", "phase": "idle"}
BUS = Bus(
    grant_ns=40 * NS_PER_SECOND,
    preparing=False,
    our_lock=True,
    kubelet_lock=False,
    power_key="poweroff",
    systemd="255.4",
)
API = Api(
    source="/etc/ebbtide/kubeconfig",
    user="system:node:node-1",
    groups=("system:nodes",),
    known=True,
    taint=True,
    certificate=Validity("/etc/ebbtide/kubeconfig", NOW_S - DAY_S, NOW_S + DAY_S),
)
KUBELET = Kubelet(loaded=True, active=True, pid=7, config="/var/lib/kubelet/config.yaml", grace_ns=0)
RUNTIME = Runtime("/run/containerd/containerd.sock", "containerd", "1.7")
NODE = NodeSeen("auto", "node-1", now_s=NOW_S, kubelet=KUBELET, runtime=RUNTIME, api=API)

WEB = NodePod("u-web", "shop/web-0")
HOST = NodePod("u-host", "shop/host-0", host_network=True)
DISK = NodePod("u-disk", "shop/db-0", volumes=True)
CNI = NodePod("u-cni", "kube-system/net", daemon=True, host_network=True, paths=("/etc/cni/net.d",))
PODS = (WEB, HOST, DISK, CNI)


def plan(*waves: tuple[str, ...], period: int = 15) -> Plan:
    """Waves of these UIDs, in their order."""
    made = tuple(
        PlannedWave(
            priority=number,
            period_seconds=period,
            pods=tuple(PlannedPod(uid=uid, grace_seconds=period) for uid in uids),
        )
        for number, uids in enumerate(waves)
    )
    return Plan(enabled=True, requested_seconds=30, budget_seconds=30, reserve_seconds=5, waves=made)


WELL = Sight(
    config_error="",
    raise_grant=True,
    plan=plan(("u-web", "u-host", "u-disk"), ("u-cni",)),
    status=STATUS,
    status_error="",
    bus=BUS,
    bus_error="",
    files=DropInsRead(),
    store=Store("/var/lib/ebbtide/journal", exists=True, free_bytes=2**30),
    forecasts=(),
    labels={},
    node=NODE._replace(pods=PODS),
)


def node(**changes: Any) -> Sight:
    """The well one, with these of its node's fields changed."""
    assert WELL.node is not None
    return WELL._replace(node=WELL.node._replace(**changes))


def found(sight: Sight) -> list[Finding]:
    """But for what is said of every identity."""
    return [each for each in examine(sight) if not each.code.startswith("identity-")]


def grades(sight: Sight) -> list[tuple[str, str]]:
    return [(each.level, each.code) for each in found(sight)]
