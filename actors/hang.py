"""What a pod or a volume of a lost node waits for: one answer for the journal and for `outage explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

#: A CSI attacher's finalizer; its driver follows (external-attacher).
ATTACHER_FINALIZER = "external-attacher/"
#: An attacher that runs has answered by then: it ends a driver's call after 15 s, or a minute for slow
#: drivers.
ATTACHER_SECONDS = 90

Hang = Literal[
    "node-down",
    "finalizers",
    "collector-round",
    "tolerates",
    "no-schedule",
    "not-evicted",
    "detach-late",
    "detaching",
    "driver-refuses",
    "attacher-silent",
    "attachment-finalizers",
]

TEXTS: dict[Hang, str] = {
    "node-down": "the node is not out of service",
    "finalizers": "finalizers: {finalizers}",
    "collector-round": "the pod collector has not deleted it yet",
    "tolerates": "it tolerates the taint, so Kubernetes does not delete it",
    "no-schedule": "the taint has effect NoSchedule, so Kubernetes does not delete it",
    "not-evicted": "the taint eviction controller has not deleted it yet",
    "detach-late": "the attach-detach controller has not asked for it: it waits until no pod here uses it",
    "detaching": "its driver detaches it",
    "driver-refuses": "its driver refuses{error}",
    "attacher-silent": "no attacher has answered for {driver}",
    "attachment-finalizers": "finalizers: {finalizers}",
}


def pod_hang(*, terminating: bool, finalizers: Sequence[str], tolerates: bool, effect: str) -> Hang:
    """Why a pod of a node that is down still exists. ``effect``: of the taint, empty without."""
    if terminating and finalizers:
        return "finalizers"
    if not effect:
        return "node-down"
    if terminating:
        return "collector-round"
    if tolerates:
        return "tolerates"
    return "no-schedule" if effect == "NoSchedule" else "not-evicted"


def detach_hang(finalizers: Sequence[str], *, refused: bool, seconds: int = 0) -> Hang:
    """Why a volume is still attached ``seconds`` after its detach was asked for."""
    held = any(each.startswith(ATTACHER_FINALIZER) for each in finalizers)
    if finalizers and not held:
        return "attachment-finalizers"
    if refused:
        return "driver-refuses"
    return "attacher-silent" if held and seconds >= ATTACHER_SECONDS else "detaching"
