"""The waves of a shutdown and every grace period: of a wave, of a pod, of the whole shutdown.

Pods are grouped and timed as in the kubelet (KEP-2712), in whole seconds. Configured durations, logind's
grant and moments are nanoseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from ebbtide.events.base import FLOOR_SECONDS, NS_PER_SECOND
from ebbtide.events.values import Period, PlannedPod, PlannedWave, Pod, Settings, TerminationMode

#: The value of ``system-cluster-critical`` (KEP-2712).
CRITICAL_PRIORITY = 2_000_000_000

#: The priority of a pod that has none.
DEFAULT_PRIORITY = 0

GATE_SHUTDOWN = "GracefulNodeShutdown"
GATE_BY_PRIORITY = "GracefulNodeShutdownBasedOnPodPriority"


def migrate_two_values(total_ns: int, critical_ns: int) -> tuple[Period, ...]:
    """The two-value form as periods (KEP-2712, "Migration"): regular pods first, critical pods last.

    There are none (graceful shutdown is off) if the total is 0, or the critical share is larger or negative.
    Each share is cut to whole seconds.
    """
    if total_ns == 0 or total_ns < critical_ns or critical_ns < 0:
        return ()
    return (
        Period(priority=DEFAULT_PRIORITY, seconds=(total_ns - critical_ns) // NS_PER_SECOND),
        Period(priority=CRITICAL_PRIORITY, seconds=critical_ns // NS_PER_SECOND),
    )


def effective_periods(settings: Settings) -> tuple[Period, ...]:
    """In ascending priority; entries of equal priority keep their order (`group_index`). Empty when graceful
    shutdown is off. The list by priority counts only with its gate on, as in the kubelet; negative seconds
    count as 0.
    """
    if not settings.gate(GATE_SHUTDOWN):
        return ()
    if settings.gate(GATE_BY_PRIORITY) and settings.by_pod_priority:
        clamped = [
            Period(priority=each.priority, seconds=max(0, each.seconds)) for each in settings.by_pod_priority
        ]
        return tuple(sorted(clamped, key=lambda period: period.priority))
    return migrate_two_values(
        settings.shutdown_grace_period_ns, settings.shutdown_grace_period_critical_pods_ns
    )


def shutdown_enabled(settings: Settings) -> bool:
    return bool(effective_periods(settings))


def requested_seconds(periods: Sequence[Period]) -> int:
    """Periods that no pod will use count too (KEP-2712)."""
    return sum(period.seconds for period in periods)


def share_grant(periods: Sequence[Period], grant_seconds: int) -> tuple[Period, ...]:
    """``periods`` (ascending), served from the highest priority down.

    KEP-2000 shrinks the regular share first: 30/10 under a grant of 15 is 5 and 10, under 8 it is 0 and 8.
    """
    left = max(0, grant_seconds)
    shares = []
    for period in reversed(periods):
        # A period of 0 stays a wave: its pods get their stop signal, in their order.
        seconds = min(period.seconds, left)
        left -= seconds
        shares.append(Period(priority=period.priority, seconds=seconds))
    return tuple(reversed(shares))


# A pod goes to the entry with the largest priority that is not above its own, else to the lowest, as in the
# kubelet.


def as_counted(pod: Pod, means: TerminationMode) -> Pod:
    """The kubelet resolves no ``priorityClassName``: where it ends the pods, a static pod whose file has no
    number has no priority (kubernetes#113940, #133442). Ebbtide itself uses the class's number.
    """
    if means == "observe" and pod.static and pod.priority_assigned and pod.priority is not None:
        return replace(pod, priority=None)
    return pod


def priority_of(pod: Pod) -> int:
    return DEFAULT_PRIORITY if pod.priority is None else pod.priority


def group_index(periods: Sequence[Period], priority: int) -> int:
    """The wave for ``priority``; ``periods`` are ascending. Raises ValueError without periods.

    Among entries of equal priority, pods exactly at the value go to the first, pods between it and the next
    value to the last.
    """
    if not periods:
        raise ValueError("no periods, so no pod has a wave: ask `shutdown_enabled` first")
    index = bisect_left(periods, priority, key=lambda period: period.priority)
    exact = index < len(periods) and periods[index].priority == priority
    return index if exact else max(0, index - 1)


def group_pods(periods: Sequence[Period], pods: Sequence[Pod]) -> list[list[Pod]]:
    """One list a period, also an empty one. Pods keep their order."""
    groups: list[list[Pod]] = [[] for _ in periods]
    if periods:
        for pod in pods:
            groups[group_index(periods, priority_of(pod))].append(pod)
    return groups


#: The kubelet's least grace of a pod, so that no hook is skipped. An API grace of 0 would take the object
#: away at once.
GRACE_SECONDS_MIN = 1
GRACE_NS_MIN = GRACE_SECONDS_MIN * NS_PER_SECOND

#: Least time between stop signal and SIGKILL, whatever a hook has used.
FLOOR_NS = FLOOR_SECONDS * NS_PER_SECOND

#: For a plan that knows no last SIGKILL.
UNLIMITED_NS = 1 << 62

#: After a slow listing a pod's stop may begin so late without the loss of a whole second.
LATE_NS = 250_000_000


def pod_grace_seconds(period_seconds: int, pod: Pod, now_ns: int) -> int:
    """min(period, ``terminationGracePeriodSeconds``, the rest of the deletion's grace), and the kubelet's
    least. The API server cuts its timestamps, so the rest is rounded up.

    A pod that names no grace takes the whole period, not Kubernetes' default of 30 s (kubernetes#120271).
    """
    seconds = period_seconds if pod.grace_seconds is None else min(period_seconds, pod.grace_seconds)
    if pod.deletion is not None:
        seconds = min(seconds, -((now_ns - pod.deletion.until_ns) // NS_PER_SECOND))
    return max(GRACE_SECONDS_MIN, seconds)


def granted_periods(periods: Sequence[Period], grant_ns: int | None) -> tuple[Period, ...]:
    """``periods`` are ascending. The grant's rest below a second is not used."""
    return tuple(periods) if grant_ns is None else share_grant(periods, grant_ns // NS_PER_SECOND)


def keeps_floor(pod: Pod, means: TerminationMode) -> bool:
    """Its stop signal may come only when its grace is over: after a hook, to a sidecar, from the kubelet. So
    its grace ends a floor before the last SIGKILL.
    """
    late = any(each.hook is not None or each.sidecar for each in pod.containers)
    return means == "api" or (late and means != "observe")


def planned_pod(
    period_seconds: int, pod: Pod, now_ns: int, begin_ns: int, kill_by_ns: int, means: TerminationMode
) -> PlannedPod:
    """``begin_ns``: of its stop. Its grace ends before the last SIGKILL."""
    last_ns = kill_by_ns - FLOOR_NS if keeps_floor(pod, means) else kill_by_ns
    left_seconds = (last_ns - begin_ns + LATE_NS) // NS_PER_SECOND
    seconds = pod_grace_seconds(min(period_seconds, left_seconds), pod, now_ns)
    return PlannedPod(uid=pod.uid, grace_seconds=seconds)


def last_begin_ns(kill_by_ns: int) -> int:
    """The latest begin of a wave: each pod has the least grace, and the floor after it."""
    return kill_by_ns - FLOOR_NS - GRACE_NS_MIN


def planned_waves(
    periods: Sequence[Period],
    grant_ns: int | None,
    pods: Sequence[Pod],
    now_ns: int,
    kill_by_ns: int = UNLIMITED_NS,
    means: TerminationMode = "",
    until_ns: int | None = None,
) -> tuple[PlannedWave, ...]:
    """One wave a period, in ascending priority. Pods keep their order. ``until_ns``: the end of each wave,
    whatever the others take.
    """
    waves, begin_ns = [], now_ns
    # Grouped by the configuration, timed by the grant.
    for granted, members in zip(granted_periods(periods, grant_ns), group_pods(periods, pods), strict=True):
        seconds = granted.seconds
        begin_ns = begin_ns if until_ns is None else until_ns - seconds * NS_PER_SECOND
        planned = tuple(planned_pod(seconds, pod, now_ns, begin_ns, kill_by_ns, means) for pod in members)
        waves.append(PlannedWave(priority=granted.priority, period_seconds=seconds, pods=planned))
        if members:
            begin_ns = max(begin_ns, min(begin_ns + seconds * NS_PER_SECOND, last_begin_ns(kill_by_ns)))
    return tuple(waves)


# No delete ends static pods, or pods of DaemonSets that tolerate every taint or whose node cannot be tainted.
# Their waves come behind the API's, because the kubelet carries out the deletes and may not be stopped
# before. On a node with such pods the last priority range is one wave, over the runtime: the pods that keep
# the node running are there, and have its full time.


def deletable(pod: Pod, *, taints: bool) -> bool:
    """``taints``: this node can be tainted."""
    return not pod.static and not (pod.daemon and (pod.tolerates_all or not taints))


class PlacementRules(NamedTuple):
    """``together``: the last range is one wave, over the runtime."""

    means: TerminationMode
    taints: bool
    together: bool = False


def placement_rules(pods: Sequence[Pod], means: TerminationMode, *, taints: bool) -> PlacementRules:
    return PlacementRules(
        means, taints, means == "api" and not all(deletable(pod, taints=taints) for pod in pods)
    )


def arrange_waves(
    periods: Sequence[Period],
    grant_ns: int,
    pods: Sequence[Pod],
    rules: PlacementRules,
    now_ns: int,
    deadline_ns: int,
    kill_by_ns: int,
) -> tuple[PlannedWave, ...]:
    """In the order in which they run; under ``api`` the waves of the hand-over come last."""
    if rules.means != "api":
        return planned_waves(periods, grant_ns, pods, now_ns, kill_by_ns, rules.means)
    first: list[Pod] = []
    behind: list[Pod] = []
    for pod in pods:
        (first if wave_index(periods, pod, rules) < len(periods) else behind).append(pod)
    # Who can end a pod does not change its time.
    behind_waves = planned_waves(periods, grant_ns, behind, now_ns, kill_by_ns, "cri", deadline_ns)
    over_runtime = (replace(wave, handover=True) for wave in behind_waves)
    return (*planned_waves(periods, grant_ns, first, now_ns, kill_by_ns, "api"), *over_runtime)


def wave_index(periods: Sequence[Period], pod: Pod, rules: PlacementRules) -> int:
    index = group_index(periods, priority_of(pod))
    # Also pods that a delete would end: the node's network and storage are among them, and go last.
    in_last = rules.together and index == len(periods) - 1
    behind = rules.means == "api" and (in_last or not deletable(pod, taints=rules.taints))
    return len(periods) + index if behind else index


def wave_mode(wave: PlannedWave, means: TerminationMode, *, handed_over: bool) -> TerminationMode:
    return "cri" if means == "api" and (handed_over or wave.handover) else means


# A shutdown's time:
#
#     signal ... waves ... deadline ... (2 s floor) ... kill_by ... give_up ... release_by ... logind's limit
#                                                          reap       flush       release
#
# All are monotonic nanoseconds. With the reserve granted the last SIGKILL comes up to `FLOOR_NS` after
# the budget; without it floor and margins are taken from the last pods' graces (`planned_pod`), because a
# fate that is not on record before logind's own timer fires is lost.


#: Before logind's own timer: its clock and ours start some milliseconds apart.
RELEASE_MARGIN_NS = 250_000_000

#: Before the release, for the last statuses.
FLUSH_MARGIN_NS = 250_000_000

#: Between the last moment of the regular release and the fallback's.
FALLBACK_MARGIN_NS = 50_000_000

#: After the last SIGKILL, to see the processes go.
REAP_MARGIN_NS = 250_000_000

#: A smaller reserve costs the last pods time.
RESERVE_NS_MIN = FLOOR_NS + REAP_MARGIN_NS + FLUSH_MARGIN_NS + RELEASE_MARGIN_NS


class ShutdownTimes(NamedTuple):
    deadline_ns: int
    kill_by_ns: int
    release_by_ns: int


def shutdown_times(periods: Sequence[Period], now_ns: int, grant_ns: int, reserve_ns: int) -> ShutdownTimes:
    # The pods of a last wave of 0 s have the least grace.
    extra_ns = GRACE_NS_MIN if periods and not periods[-1].seconds else 0
    return lay_out_times(now_ns, grant_ns, requested_seconds(periods) * NS_PER_SECOND, reserve_ns, extra_ns)


def last_kill_ns(deadline_ns: int, kill_by_ns: int, means: TerminationMode) -> int:
    """A kubelet that ends its pods by itself keeps nothing free at the end."""
    return max(deadline_ns + FLOOR_NS, kill_by_ns) if means == "observe" else kill_by_ns


def wait_until_ns(kill_by_ns: int, release_by_ns: int) -> int:
    """The end of the wait for the pods: the rest is for the last statuses."""
    return release_by_ns - min(FLUSH_MARGIN_NS, (release_by_ns - kill_by_ns) // 2)


def lay_out_times(
    now_ns: int, grant_ns: int, requested_ns: int, reserve_ns: int, extra_ns: int = 0
) -> ShutdownTimes:
    """No time is before ``now_ns``, the signal. ``extra_ns``: for the pods at the deadline, if the reserve
    has it. A short limit shrinks the margins, so that every pod still gets its stop signal.
    """
    budget_ns = min(grant_ns, requested_ns)
    limit_ns = max(0, min(grant_ns, budget_ns + reserve_ns))
    release_by_ns = now_ns + limit_ns - min(RELEASE_MARGIN_NS, limit_ns // 4)
    last_kill_ns = release_by_ns - min(FLUSH_MARGIN_NS + REAP_MARGIN_NS, limit_ns // 2)
    deadline_ns = now_ns + budget_ns
    kill_by_ns = max(now_ns, min(deadline_ns + extra_ns + FLOOR_NS, last_kill_ns))
    return ShutdownTimes(deadline_ns, kill_by_ns, release_by_ns)
