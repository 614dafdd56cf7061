"""A Kubernetes node that is well, as the doctor sees it, and ways to make it ill."""

from __future__ import annotations

from typing import Any

from ebbtide.actors.policy.planning import Plan
from ebbtide.doctor import snapshot
from ebbtide.doctor.rules import examine
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import DropInsRead
from ebbtide.events.values import PlannedPod, PlannedWave

DAY_S = 86_400
NOW_S = 1_800_000_000
STATUS = {"enabled": True, "armed": True, "whyNot": "", "phase": "idle"}
BUS = snapshot.LogindState(
    grant_ns=40 * NS_PER_SECOND,
    preparing=False,
    our_lock=True,
    kubelet_lock=False,
    power_key="poweroff",
    systemd="255.4",
)
API = snapshot.ApiServerState(
    source="/etc/ebbtide/kubeconfig",
    user="system:node:node-1",
    groups=("system:nodes",),
    known=True,
    taint=True,
    certificate=snapshot.CertificateValidity("/etc/ebbtide/kubeconfig", NOW_S - DAY_S, NOW_S + DAY_S),
)
KUBELET = snapshot.KubeletState(
    loaded=True, active=True, pid=7, config="/var/lib/kubelet/config.yaml", grace_ns=0
)
RUNTIME = snapshot.RuntimeState("/run/containerd/containerd.sock", "containerd", "1.7")
NODE = snapshot.NodeSnapshot("auto", "node-1", now_s=NOW_S, kubelet=KUBELET, runtime=RUNTIME, api=API)

WEB = snapshot.NodePod("u-web", "shop/web-0")
HOST = snapshot.NodePod("u-host", "shop/host-0", host_network=True)
DISK = snapshot.NodePod("u-disk", "shop/db-0", volumes=True)
CNI = snapshot.NodePod("u-cni", "kube-system/net", daemon=True, host_network=True, paths=("/etc/cni/net.d",))
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


WELL = snapshot.Snapshot(
    config_error="",
    raise_grant=True,
    plan=plan(("u-web", "u-host", "u-disk"), ("u-cni",)),
    status=STATUS,
    status_error="",
    bus=BUS,
    bus_error="",
    files=DropInsRead(),
    store=snapshot.JournalState("/var/lib/ebbtide/journal", exists=True, free_bytes=2**30),
    forecasts=(),
    labels={},
    node=NODE._replace(pods=PODS),
)


#: A machine that is no node of a cluster, and well.
MACHINE = WELL._replace(node=None, plan=plan())
OVERRIDDEN = DropInsRead(overridden_by="/etc/systemd/logind.conf.d/zzz-site.conf")


def node(**changes: Any) -> snapshot.Snapshot:
    """The well one, with these of its node's fields changed."""
    assert WELL.node is not None
    return WELL._replace(node=WELL.node._replace(**changes))


def found(sight: snapshot.Snapshot) -> list[snapshot.Finding]:
    """But for what is said of every identity."""
    return [each for each in examine(sight) if not each.code.startswith("identity-")]


def grades(sight: snapshot.Snapshot) -> list[tuple[str, str]]:
    return [(each.level, each.code) for each in found(sight)]
