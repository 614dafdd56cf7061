"""What can happen to a Kubernetes node's shutdown, and the notice that it leads to."""

from __future__ import annotations

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import Event
from ebbtide.events.model import PlannedWave, Pod

S = 1_000_000_000
POD = Pod(uid="u-web", namespace="shop", name="web-0")
PLANNED = d.PodPlanned(wave=0, grace_seconds=5, pod=POD, means="api")


def ended(key: str, result: str) -> f.OrderEnded:
    return f.OrderEnded(key=key, result=result, reason="it refuses")  # type: ignore[arg-type]  # words of a table


HANDED_OVER = d.HandedOver(reason="the API server did not take a delete: 429")

TOLD: dict[str, tuple[tuple[Event, ...], str]] = {
    "volumes-mounted": (
        (
            PLANNED,
            d.WaveStarted(wave=0, priority=7, period_ns=10 * S, deadline_ns=110 * S, kill_by_ns=112 * S),
            d.WaveEnded(wave=0, outcome="overran", mounted=("u-web",)),
        ),
        "wave 0 ended with volumes of 1 pod still mounted: shop/web-0",
    ),
    "api-lost": (
        (f.ApiRead(reachable=False, error="no route"),),
        "the API server did not answer: no route",
    ),
    "runtime-lost": (
        (f.RuntimeRead(reachable=False),),
        "the container runtime did not answer: no answer",
    ),
    "delete-refused": (
        (PLANNED, d.DeleteRefused(uid="u-web", reason="429"), d.DeleteRefused(uid="u-db", reason="500")),
        "2 deletes not taken by the API server in time (500)",
    ),
    "handed-over": (
        (PLANNED, HANDED_OVER),
        "was handed over to the container runtime: the API server did not take a delete: 429",
    ),
    "kubelet-failed": (
        (d.StopKubelet(key="K/stop//0"), ended("K/stop//0", "timed-out")),
        "the kubelet could not be stopped (timed-out): it refuses",
    ),
    "kubelet-start-failed": (
        (d.StartKubelet(key="K/start//0"), ended("K/start//0", "failed")),
        "the kubelet could not be started again (failed): it refuses; start it",
    ),
    "kubelet-left-running": (
        (PLANNED, d.LeftUndone(running=("u-web",))),
        "the kubelet had not ended 1 pod at the release: shop/web-0",
    ),
    "final-statuses-missing": (
        (PLANNED, d.LeftUndone(without_status=("u-web",))),
        "1 pod without a final status in the API server at the release: shop/web-0",
    ),
    "withdraw-failed": (
        (d.WithdrawPods(key="N/withdraw//0", uids=()), ended("N/withdraw//0", "failed")),
        "pods could not be taken out of their Services (failed): it refuses",
    ),
    "await-failed": (
        (d.AwaitStatuses(key="N/await//0", uids=(), timeout_ns=S), ended("N/await//0", "timed-out")),
        "the final statuses were not all seen in time (timed-out): it refuses",
    ),
    "mounts-failed": (
        (d.CheckMounts(key="N/mounts//0"), ended("N/mounts//0", "failed")),
        "what is mounted could not be read (failed): it refuses",
    ),
    "certificate-failed": (
        (d.PublishCertificate(key="N/certify//0", safe=True), ended("N/certify//0", "failed")),
        "the certificate could not be published (failed): it refuses",
    ),
    "not-safe-to-detach": (
        (PLANNED, d.DetachCertified(safe=False, running=("u-web",), mounted=(("u-web", "data"),))),
        "volumes are not safe to detach: not seen to end: shop/web-0; mounted: shop/web-0 data",
    ),
}

#: Handed over as planned: a wave of pods that no delete ends has begun.
BY_PLAN: tuple[Event, ...] = (
    d.PlanMade(waves=(PlannedWave(priority=7, period_seconds=10, handover=True),), pods=1),
    d.WaveStarted(
        wave=0, priority=7, period_ns=10 * S, deadline_ns=110 * S, kill_by_ns=112 * S, handover=True
    ),
    d.HandedOver(reason="no delete ends the pods that are left"),
)
