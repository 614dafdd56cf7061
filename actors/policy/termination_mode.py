"""The termination mode: how a shutdown ends its pods, and in which wave each of them ends by which mode.

First one table over what is wanted, and what is there to do it with: a kubelet that shuts its pods down
itself is never raced; what is not possible falls back to the other mode. Then the pods, each with its wave
and with who ends it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ebbtide.actors.policy.grace_periods import group_index, priority_of
from ebbtide.actors.policy.planning import planned_waves
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.values import Period, PlannedWave, Pod, ShutdownKind, TerminationMode

#: Modes in which the pods are a Kubernetes node's; in any other they are processes of our own.
NODE_MODES = ("auto", "api", "cri", "observe")

#: Of these it is said that the pods should move; after any other kind the same pods come back here.
GOING_FOR_GOOD: tuple[ShutdownKind, ...] = ("poweroff", "halt")

MODE_BY_KIND: dict[ShutdownKind, TerminationMode] = dict.fromkeys(GOING_FOR_GOOD, "api")

#: How long a kubelet that nobody can ask may do nothing to a pod whose delete it was sent, however short the
#: pod's grace. It acts within some hundred milliseconds, beside a hundred others within a second.
SIGN_NS = 2 * NS_PER_SECOND

KUBELET_LOCK_REASON = "the kubelet's own graceful shutdown holds a lock"


class NodeHealth(NamedTuple):
    """What is there; None: nobody has said yet. ``stoppable``: the kubelet, without the runtime.

    ``healthy``: the kubelet, by its own word. ``api_unheard``: nobody has said yet whether the API server
    answers, and that is to be told apart.
    """

    kubelet: bool | None
    runtime: bool | None
    api: bool | None
    stoppable: bool = True
    healthy: bool | None = None
    api_unheard: bool = False


class ModeChoice(NamedTuple):
    means: TerminationMode
    reason: str


def pods_come_back(kind: ShutdownKind) -> bool:
    """Do this node's pods start again here? Not known counts as yes: no status may end such a pod."""
    return kind not in GOING_FOR_GOOD


def choose_mode(
    mode: str,
    kind: ShutdownKind,
    wanted: Mapping[str, str],
    kubelet_lock: bool,
    health: NodeHealth,
    *,
    starved: bool = False,
) -> ModeChoice:
    """The means of a shutdown of ``kind`` in one of `NODE_MODES`. ``wanted``: the configuration, by kind.

    ``starved``: under the grant a wave is left without any time. Deletes that go out together reach the pods
    in whatever order, and the order is all that is left to keep.
    """
    if mode == "observe":
        return ModeChoice("observe", "mode observe")
    # Two that end the same pods would each cut the other's grace short: the kubelet was asked first.
    if kubelet_lock:
        return ModeChoice("observe", KUBELET_LOCK_REASON)
    by_kind = f"a shutdown of kind {kind}" if mode == "auto" else f"mode {mode}"
    means = (wanted.get(kind) or MODE_BY_KIND.get(kind, "cri")) if mode == "auto" else mode
    if means == "api":
        # Asked in this order, as the record has one reason: what is not there outweighs what is only not
        # wise.
        lacking = _lacking_for_api(health) or ("a wave has no time under the grant" if starved else "")
        return (
            ModeChoice("cri", f"{by_kind} wants api, but {lacking}")
            if lacking
            else ModeChoice("api", by_kind)
        )
    # A kubelet that runs on starts again what is stopped, so over the runtime it has to be stopped first.
    lacking = "" if health.stoppable else "the kubelet cannot be stopped without its container runtime"
    if health.runtime is False:
        lacking = "the container runtime does not answer"
    if mode == "auto" and lacking and not _lacking_for_api(health):
        return ModeChoice("api", f"{by_kind} wants cri, but {lacking}")
    return ModeChoice("cri", by_kind)


def _lacking_for_api(health: NodeHealth) -> str:
    """Deletes need somebody to take them and somebody to carry them out. That nobody has said is no."""
    if health.api_unheard:
        return "nobody has said yet whether the API server answers"
    if not health.api:
        return "the API server does not answer"
    if health.kubelet is False:
        return "the kubelet does not run"
    return "the kubelet is not healthy" if health.healthy is False else ""


# Each pod's place in a shutdown: which wave, and who ends it there.
#
# Pods that no delete ends (static ones, and those of DaemonSets that tolerate whatever taint, or where the
# node cannot be tainted) have waves of their own behind the API's, in the same order: not before the last of
# those may the kubelet be stopped, because until then it is the one that carries deletes out. The last
# priority range is one wave, over the runtime as a whole: what keeps the node running is there, and has its
# full time.


def deletable(pod: Pod, *, taints: bool) -> bool:
    """Does a delete end it for good, on this node? ``taints``: this node can be tainted."""
    return not pod.static and not (pod.daemon and (pod.tolerates_all or not taints))


class PlacementRules(NamedTuple):
    """What decides about a pod's place. ``together``: the last range is one wave, over the runtime."""

    means: TerminationMode
    taints: bool
    together: bool = False


def placement_rules(pods: Sequence[Pod], means: TerminationMode, *, taints: bool) -> PlacementRules:
    """For a node with these pods."""
    return PlacementRules(
        means, taints, means == "api" and not all(deletable(pod, taints=taints) for pod in pods)
    )


def arrange_waves(
    periods: Sequence[Period], grant_ns: int, pods: Sequence[Pod], rules: PlacementRules
) -> tuple[PlannedWave, ...]:
    """The waves in the order in which they run; under ``api`` followed by those of the hand-over."""
    if rules.means != "api":
        return planned_waves(periods, grant_ns, pods)
    first: list[Pod] = []
    behind: list[Pod] = []
    for pod in pods:
        (first if wave_index(periods, pod, rules) < len(periods) else behind).append(pod)
    # The same periods once more: which of the two a pod is in is a matter of who can end it, not of how long
    # it may take.
    over_runtime = (replace(wave, handover=True) for wave in planned_waves(periods, grant_ns, behind))
    return (*planned_waves(periods, grant_ns, first), *over_runtime)


def wave_index(periods: Sequence[Period], pod: Pod, rules: PlacementRules) -> int:
    """Its index in `arrange_waves`."""
    index = group_index(periods, priority_of(pod))
    # Together also those that a delete would end: network and storage of the node itself are among them, and
    # what the others need goes last.
    in_last = rules.together and index == len(periods) - 1
    behind = rules.means == "api" and (in_last or not deletable(pod, taints=rules.taints))
    return len(periods) + index if behind else index


def wave_mode(wave: PlannedWave, means: TerminationMode, *, handed_over: bool) -> TerminationMode:
    """Who ends the pods of a wave."""
    return "cri" if means == "api" and (handed_over or wave.handover) else means
