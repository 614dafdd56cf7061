"""Each pod's place in a shutdown: which wave, and who ends it there.

Pods that no delete ends (static ones, and those of DaemonSets that tolerate whatever taint, or where the node
cannot be tainted) have waves of their own behind the API's, in the same order: not before the last of those
may the kubelet be stopped (design, rule 9). The last priority range is one wave, over the runtime as a whole:
what keeps the node running is there, and has its full time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from actors.policy.grouping import group_of, priority_of
from actors.policy.plan import planned_waves
from events.model import Means, Period, PlannedWave, Pod


def deletable(pod: Pod, *, taints: bool) -> bool:
    """Does a delete end it for good, on this node? ``taints``: this node can be tainted."""
    return not pod.static and not (pod.daemon and (pod.tolerates_all or not taints))


class Roads(NamedTuple):
    """What decides about a pod's place. ``together``: the last range is one wave, over the runtime."""

    means: Means
    taints: bool
    together: bool = False


def roads_of(pods: Sequence[Pod], means: Means, *, taints: bool) -> Roads:
    """For a node with these pods."""
    return Roads(means, taints, means == "api" and not all(deletable(pod, taints=taints) for pod in pods))


def waves_of(
    periods: Sequence[Period], grant_ns: int, pods: Sequence[Pod], roads: Roads
) -> tuple[PlannedWave, ...]:
    """The waves in the order in which they run; under ``api`` followed by those of the hand-over."""
    if roads.means != "api":
        return planned_waves(periods, grant_ns, pods)
    first: list[Pod] = []
    behind: list[Pod] = []
    for pod in pods:
        (first if wave_of(periods, pod, roads) < len(periods) else behind).append(pod)
    over_runtime = (replace(wave, handover=True) for wave in planned_waves(periods, grant_ns, behind))
    return (*planned_waves(periods, grant_ns, first), *over_runtime)


def wave_of(periods: Sequence[Period], pod: Pod, roads: Roads) -> int:
    """Its index in `waves_of`."""
    index = group_of(periods, priority_of(pod))
    in_last = roads.together and index == len(periods) - 1
    behind = roads.means == "api" and (in_last or not deletable(pod, taints=roads.taints))
    return len(periods) + index if behind else index


def means_of(wave: PlannedWave, means: Means, *, handed_over: bool) -> Means:
    """Who ends the pods of a wave."""
    return "cri" if means == "api" and (handed_over or wave.handover) else means
