"""How long one pod may take: the smaller of its wave's period and what it asks for itself."""

from __future__ import annotations

from actors.policy.periods import CRITICAL_PRIORITY
from events.model import Pod

__all__ = ["CRITICAL_PRIORITY", "FLOOR_SECONDS", "pod_grace_seconds"]

#: Between a container's stop signal and its SIGKILL, whatever a hook has used: the kubelet's own floor.
FLOOR_SECONDS = 2


def pod_grace_seconds(period_seconds: int, pod: Pod) -> int:
    """min(period, ``terminationGracePeriodSeconds``), never negative.

    A pod that names no grace takes the whole period, not Kubernetes' default of 30 s (kubernetes#120271).
    """
    wanted_seconds = period_seconds if pod.grace_seconds is None else pod.grace_seconds
    return max(0, min(period_seconds, wanted_seconds))
