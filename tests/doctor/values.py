"""A healthy Kubernetes node for the doctor, and changes to it."""

from __future__ import annotations

from typing import Any

from ebbtide.actors.policy.planning import Plan
from ebbtide.doctor import rules
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.facts import DropInsRead
from ebbtide.events.values import PlannedPod, PlannedWave

STATUS = {"enabled": True, "armed": True, "whyNot": "", "phase": "idle"}
BUS = rules.LogindState(
    grant_ns=40 * NS_PER_SECOND,
    preparing=False,
    our_lock=True,
    kubelet_lock=False,
    power_key="poweroff",
    systemd="255.4",
)
API = rules.ApiServerState(
    source="/etc/ebbtide/kubeconfig", user="system:node:node-1", known=True, taint=True
)
KUBELET = rules.KubeletState(
    loaded=True, active=True, pid=7, config="/var/lib/kubelet/config.yaml", grace_ns=0
)
RUNTIME = rules.RuntimeState("/run/containerd/containerd.sock", "containerd", "1.7")
NODE = rules.NodeSnapshot("auto", "node-1", kubelet=KUBELET, runtime=RUNTIME, api=API)


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


WELL = rules.Snapshot(
    config_error="",
    raise_grant=True,
    plan=plan(("u-web", "u-host", "u-disk"), ("u-cni",)),
    status=STATUS,
    status_error="",
    bus=BUS,
    bus_error="",
    files=DropInsRead(),
    store=rules.JournalState("/var/lib/ebbtide/journal", exists=True, free_bytes=2**30),
    forecasts=(),
    labels={},
    node=NODE,
)

#: A healthy machine outside any cluster.
MACHINE = WELL._replace(node=None, plan=plan())
OVERRIDDEN = DropInsRead(overridden_by="/etc/systemd/logind.conf.d/zzz-site.conf")


def node(**changes: Any) -> rules.Snapshot:
    """The healthy one with these node fields changed."""
    assert WELL.node is not None
    return WELL._replace(node=WELL.node._replace(**changes))


def grades(sight: rules.Snapshot) -> list[tuple[str, str]]:
    return [(each.level, each.code) for each in rules.examine(sight)]
