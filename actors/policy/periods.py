"""Which periods hold: the two-value form migrated, the gates applied, a small grant shared out.

Everything is whole seconds, because that is what pods are given; only durations as configured and the
grant as logind states it are nanoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from events.base import NS_PER_SECOND
from events.model import Period, Settings

#: Pods from this priority on are critical: the value of ``system-cluster-critical`` (KEP-2712).
CRITICAL_PRIORITY = 2_000_000_000

#: Where the regular share of the two-value form begins: the priority of a pod that has none.
DEFAULT_PRIORITY = 0

GATE_SHUTDOWN = "GracefulNodeShutdown"
GATE_BY_PRIORITY = "GracefulNodeShutdownBasedOnPodPriority"


def migrate(total_ns: int, critical_ns: int) -> tuple[Period, ...]:
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
        return _ascending(settings.by_pod_priority)
    return migrate(settings.shutdown_grace_period_ns, settings.shutdown_grace_period_critical_pods_ns)


def enabled(settings: Settings) -> bool:
    """Whether this configuration asks for graceful shutdown at all."""
    return bool(effective_periods(settings))


def requested_seconds(periods: Sequence[Period]) -> int:
    """The sum of all periods, also of those that no pod will use (KEP-2712)."""
    return sum(period.seconds for period in periods)


def share(periods: Sequence[Period], grant_seconds: int) -> tuple[Period, ...]:
    """``periods`` (ascending) as a grant allows them: served from the highest priority down.

    KEP-2000 shrinks the regular share first. 30/10 under a grant of 15 is 5 and 10, under 8 it is 0 and 8.
    A grant that is large enough changes nothing; a negative one counts as 0.
    """
    left = max(0, grant_seconds)
    shares = []
    for period in reversed(periods):
        seconds = min(period.seconds, left)
        left -= seconds
        shares.append(Period(priority=period.priority, seconds=seconds))
    return tuple(reversed(shares))


def _ascending(periods: Sequence[Period]) -> tuple[Period, ...]:
    """Sorted by priority, stable, so that the order of duplicates is the configuration's own."""
    clamped = [Period(priority=each.priority, seconds=max(0, each.seconds)) for each in periods]
    return tuple(sorted(clamped, key=lambda period: period.priority))
