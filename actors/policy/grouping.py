"""Which wave a pod belongs to, to the letter of the kubelet (facts: KEP-2712 and its pod grouping).

A pod goes to the entry with the largest priority that is not above its own. A pod below every entry goes
to the lowest. A pod without a priority counts as 0: the reference does the same for static pods that have
only a ``priorityClassName`` (kubernetes#113940, #133442).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from actors.policy.periods import DEFAULT_PRIORITY
from events.model import Period, Pod


def priority_of(pod: Pod) -> int:
    """The priority that counts for ``pod``."""
    return DEFAULT_PRIORITY if pod.priority is None else pod.priority


def group_of(periods: Sequence[Period], priority: int) -> int:
    """The index in ``periods`` (ascending, at least one) of the wave for ``priority``.

    Among entries of equal priority, pods exactly at the value go to the first, pods between it and the
    next value to the last. Raises ValueError when there are no periods.
    """
    if not periods:
        raise ValueError("no periods, so no pod has a wave: ask `enabled` first")
    index = bisect_left(periods, priority, key=lambda period: period.priority)
    exact = index < len(periods) and periods[index].priority == priority
    return index if exact else max(0, index - 1)


def group(periods: Sequence[Period], pods: Sequence[Pod]) -> list[list[Pod]]:
    """The pods of each period, in the order of ``pods``. One list a period, empty ones included."""
    groups: list[list[Pod]] = [[] for _ in periods]
    if periods:
        for pod in pods:
            groups[group_of(periods, priority_of(pod))].append(pod)
    return groups
