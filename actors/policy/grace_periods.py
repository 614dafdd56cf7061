"""Every grace period: that of a wave, of a pod, and of the whole shutdown.

Which periods hold (the two-value form migrated, the gates applied, a small grant shared out); which of them
a pod belongs to, and how long it may take, to the letter of the kubelet (KEP-2712 and its pod grouping);
and how a shutdown's time is laid out from its signal. What pods are given is whole seconds; only durations
as configured, the grant as logind states it, and moments are nanoseconds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from ebbtide.events.base import FLOOR_SECONDS, NS_PER_SECOND
from ebbtide.events.values import Period, Pod, Settings

#: Pods from this priority on are critical: the value of ``system-cluster-critical`` (KEP-2712).
CRITICAL_PRIORITY = 2_000_000_000

#: Where the regular share of the two-value form begins: the priority of a pod that has none.
DEFAULT_PRIORITY = 0

GATE_SHUTDOWN = "GracefulNodeShutdown"
GATE_BY_PRIORITY = "GracefulNodeShutdownBasedOnPodPriority"


def migrate_two_values(total_ns: int, critical_ns: int) -> tuple[Period, ...]:
    """The two-value form as periods (KEP-2712, "Migration"): regular pods first, critical pods last.

    ``total_ns`` of 0, a critical share larger than the total, or a negative one give no periods at all:
    graceful shutdown is off. Each share is cut to whole seconds on its own.
    """
    if total_ns == 0 or total_ns < critical_ns or critical_ns < 0:
        return ()
    return (
        Period(priority=DEFAULT_PRIORITY, seconds=(total_ns - critical_ns) // NS_PER_SECOND),
        Period(priority=CRITICAL_PRIORITY, seconds=critical_ns // NS_PER_SECOND),
    )


def effective_periods(settings: Settings) -> tuple[Period, ...]:
    """The periods that hold, in ascending priority; entries of equal priority keep their order.

    Empty when graceful shutdown is off. The list by priority counts only with its gate on, as in the
    kubelet; negative seconds count as 0.
    """
    if not settings.gate(GATE_SHUTDOWN):
        return ()
    if settings.gate(GATE_BY_PRIORITY) and settings.by_pod_priority:
        clamped = [
            Period(priority=each.priority, seconds=max(0, each.seconds)) for each in settings.by_pod_priority
        ]
        # Stable, because among duplicates the configuration's own order says which is the first
        # (`group_index`).
        return tuple(sorted(clamped, key=lambda period: period.priority))
    return migrate_two_values(
        settings.shutdown_grace_period_ns, settings.shutdown_grace_period_critical_pods_ns
    )


def shutdown_enabled(settings: Settings) -> bool:
    """Whether this configuration asks for graceful shutdown at all."""
    return bool(effective_periods(settings))


def requested_seconds(periods: Sequence[Period]) -> int:
    """The sum of all periods, also of those that no pod will use (KEP-2712)."""
    return sum(period.seconds for period in periods)


def share_grant(periods: Sequence[Period], grant_seconds: int) -> tuple[Period, ...]:
    """``periods`` (ascending) as a grant allows them: served from the highest priority down.

    KEP-2000 shrinks the regular share first. 30/10 under a grant of 15 is 5 and 10, under 8 it is 0 and 8.
    A grant that is large enough changes nothing; a negative one counts as 0.
    """
    left = max(0, grant_seconds)
    shares = []
    for period in reversed(periods):
        # A period that is cut to nothing stays a wave: its pods still get their stop signal, and in their
        # order.
        seconds = min(period.seconds, left)
        left -= seconds
        shares.append(Period(priority=period.priority, seconds=seconds))
    return tuple(reversed(shares))


# Which wave a pod belongs to, to the letter of the kubelet (KEP-2712 and its pod grouping).
#
# A pod goes to the entry with the largest priority that is not above its own. A pod below every entry goes
# to the lowest. A pod without a priority counts as 0: the reference does the same for static pods that have
# only a ``priorityClassName`` (kubernetes#113940, #133442).


def priority_of(pod: Pod) -> int:
    """The priority that counts for ``pod``."""
    return DEFAULT_PRIORITY if pod.priority is None else pod.priority


def group_index(periods: Sequence[Period], priority: int) -> int:
    """The index in ``periods`` (ascending, at least one) of the wave for ``priority``.

    Among entries of equal priority, pods exactly at the value go to the first, pods between it and the
    next value to the last. Raises ValueError when there are no periods.
    """
    if not periods:
        raise ValueError("no periods, so no pod has a wave: ask `shutdown_enabled` first")
    # The first of equal entries where the priority is exactly theirs; else the entry below, which is their
    # last.
    index = bisect_left(periods, priority, key=lambda period: period.priority)
    exact = index < len(periods) and periods[index].priority == priority
    return index if exact else max(0, index - 1)


def group_pods(periods: Sequence[Period], pods: Sequence[Pod]) -> list[list[Pod]]:
    """The pods of each period, in the order of ``pods``. One list a period, empty ones included."""
    groups: list[list[Pod]] = [[] for _ in periods]
    if periods:
        for pod in pods:
            groups[group_index(periods, priority_of(pod))].append(pod)
    return groups


# How long one pod may take: the smaller of its wave's period and what it asks for itself.


def pod_grace_seconds(period_seconds: int, pod: Pod) -> int:
    """min(period, ``terminationGracePeriodSeconds``), never negative.

    A pod that names no grace takes the whole period, not Kubernetes' default of 30 s (kubernetes#120271).
    """
    wanted_seconds = period_seconds if pod.grace_seconds is None else pod.grace_seconds
    return max(0, min(period_seconds, wanted_seconds))


# How a shutdown's time is laid out from its signal: waves, the last SIGKILL, the release.
#
#     signal ... waves ... deadline ... (2 s floor) ... kill_by ... give_up ... release_by ... logind's limit
#                                                          reap       flush       release
#
# All are monotonic nanoseconds. With the reserve granted the last SIGKILL comes up to `FLOOR_NS` after
# the budget; without it the margins are taken from the last wave, because a fate that is not on record
# before logind's own timer fires is lost.


#: `FLOOR_SECONDS` in nanoseconds: least time between stop signal and SIGKILL, whatever a hook has used.
FLOOR_NS = FLOOR_SECONDS * NS_PER_SECOND

#: An API grace of 0 would take the object away at once, whatever still runs.
DELETE_SECONDS_MIN = 1

#: Kept free before logind's own timer: its clock and ours start some milliseconds apart.
RELEASE_MARGIN_NS = 250_000_000

#: Kept free before the release for the last statuses.
FLUSH_MARGIN_NS = 250_000_000

#: Kept free between the last moment of the regular release and the fallback's.
FALLBACK_MARGIN_NS = 50_000_000

#: Kept free after the last SIGKILL to see the processes go.
REAP_MARGIN_NS = 250_000_000

#: All of them.
END_MARGIN_NS = RELEASE_MARGIN_NS + FLUSH_MARGIN_NS + REAP_MARGIN_NS


class ShutdownTimes(NamedTuple):
    deadline_ns: int
    kill_by_ns: int
    release_by_ns: int

    @property
    def give_up_ns(self) -> int:
        """From here on nothing is waited for but the last statuses."""
        return self.release_by_ns - min(FLUSH_MARGIN_NS, (self.release_by_ns - self.kill_by_ns) // 2)


def lay_out_times(now_ns: int, grant_ns: int, requested_ns: int, reserve_ns: int) -> ShutdownTimes:
    """The end points of a shutdown signalled at ``now_ns``; none lies before ``now_ns``.

    Below a second the margins shrink with the limit: also then every pod gets its stop signal first.
    """
    budget_ns = min(grant_ns, requested_ns)
    limit_ns = max(0, min(grant_ns, budget_ns + reserve_ns))
    # A quarter, and a half below: under a tiny limit the margins would otherwise eat the time of the pods,
    # which the machine gives to nobody else.
    release_by_ns = now_ns + limit_ns - min(RELEASE_MARGIN_NS, limit_ns // 4)
    last_kill_ns = release_by_ns - min(FLUSH_MARGIN_NS + REAP_MARGIN_NS, limit_ns // 2)
    deadline_ns = now_ns + budget_ns
    kill_by_ns = max(now_ns, min(deadline_ns + FLOOR_NS, last_kill_ns))
    return ShutdownTimes(deadline_ns, kill_by_ns, release_by_ns)
