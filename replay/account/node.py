"""What a Kubernetes node's events mean for an account: means, deletes, hand-over, volumes, the certificate.

A pod that the kubelet ends has no signal of ours: its stop begins with its delete, or, where we only look on,
with its wave. So its containers have a time at which they were asked to end, and the rest is as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from events.decisions import (
    AwaitStatuses,
    CheckMounts,
    DeletePod,
    DeleteRefused,
    DetachCertified,
    HandedOver,
    KubeletStopped,
    LeftUndone,
    MeansChosen,
    PublishCertificate,
    StartKubelet,
    StopKubelet,
    WithdrawPods,
)
from events.facts import ApiRead, PodJoined, RuntimeRead, VolumesUnmounted
from events.words.kubernetes import some
from replay.account.course import order
from replay.account.node_told import CertificateTold, NodeTold
from replay.account.tale import Tale
from replay.account.words import plural


def _change(tale: Tale, **changes: Any) -> None:
    tale.fields["by"] = replace(tale.fields.get("by", NodeTold()), **changes)


def _labels(tale: Tale, uids: tuple[str, ...]) -> str:
    return some([tale.pod(uid).label for uid in uids])


# --- who ends the pods -------------------------------------------------------------------------


def _means(tale: Tale, event: MeansChosen) -> None:
    _change(tale, means=event.means, reason=event.reason)


def _handed_over(tale: Tale, event: HandedOver) -> None:
    """Pods that no delete ends are handed over by plan: nobody needs to be warned of that."""
    _change(tale, handed_over_ns=tale.place.at_ns, handed_over_reason=event.reason)
    if not any(wave.handover for wave in tale.waves if wave.outcome == "open"):
        tale.note("handed-over", reason=event.reason)


def _kubelet_stopped(tale: Tale, event: KubeletStopped) -> None:
    if event.result == "done":
        _change(tale, kubelet_stopped_ns=tale.place.at_ns)


def _api(tale: Tale, event: ApiRead) -> None:
    if not event.reachable:
        tale.note("api-lost", error=event.error or "no answer")


def _runtime(tale: Tale, event: RuntimeRead) -> None:
    if not event.reachable:
        tale.note("runtime-lost", error=event.error or "no answer")


# --- pods --------------------------------------------------------------------------------------


def _joined(tale: Tale, event: PodJoined) -> None:
    """It has a part in the plan only where it is planned."""
    tale.listed |= {event.pod.uid: event.pod}


def _deleted(tale: Tale, event: DeletePod) -> None:
    """The first one: given again it only shortens the grace."""
    asked_to_end(tale, event.uid)


def asked_to_end(tale: Tale, uid: str) -> None:
    """The kubelet was asked to, or begins by itself: whatever runs of the pod is on its way from now on."""
    for each in tale.pod(uid).containers:
        if each.running and each.asked_ns is None and each.exited_ns is None:
            tale.change_container(uid, each.name, asked_ns=tale.place.at_ns)


def _refused(tale: Tale, event: DeleteRefused) -> None:
    tale.change_pod(event.uid, refused=event.reason)
    tale.tally("delete-refused", reason=event.reason)


def _unmounted(tale: Tale, event: VolumesUnmounted) -> None:
    if event.uid in tale.pods:
        tale.change_pod(event.uid, unmounted_ns=tale.place.at_ns)


# --- the end -----------------------------------------------------------------------------------


def _certified(tale: Tale, event: DetachCertified) -> None:
    told = CertificateTold(
        at_ns=tale.place.at_ns,
        safe=event.safe,
        ended=event.ended,
        running=event.running,
        mounted=event.mounted,
    )
    _change(tale, certificate=told)
    if not event.safe:
        running = [tale.pod(uid).label for uid in event.running]
        volumes = [f"{tale.pod(uid).label} {name}" if uid else name for uid, name in event.mounted]
        what = f"not seen to end: {some(running)}" if running else ""
        left = f"mounted: {some(volumes)}" if volumes else ""
        why = "; ".join(part for part in (what, left) if part) or "what is mounted is not known"
        tale.note("not-safe-to-detach", why=why)


def _left(tale: Tale, event: LeftUndone) -> None:
    _change(tale, left_running=event.running, left_without_status=event.without_status)
    if event.running:
        count = plural(len(event.running), "pod")
        tale.note("kubelet-left-running", count=count, pods=_labels(tale, event.running))
    if event.without_status:
        count = plural(len(event.without_status), "pod")
        tale.note("final-statuses-missing", count=count, pods=_labels(tale, event.without_status))


NODE: dict[type, Callable[[Tale, Any], None]] = {
    MeansChosen: _means,
    HandedOver: _handed_over,
    KubeletStopped: _kubelet_stopped,
    ApiRead: _api,
    RuntimeRead: _runtime,
    PodJoined: _joined,
    DeletePod: _deleted,
    DeleteRefused: _refused,
    VolumesUnmounted: _unmounted,
    DetachCertified: _certified,
    LeftUndone: _left,
    StopKubelet: order("kubelet"),
    StartKubelet: order("kubelet-start"),
    WithdrawPods: order("withdraw"),
    AwaitStatuses: order("await"),
    CheckMounts: order("mounts"),
    PublishCertificate: order("certificate"),
}
