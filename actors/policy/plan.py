"""The plan: which pods go in which wave, with how much grace, under the time that logind grants.

One plan serves the ``plan`` command and the shutdown itself, so what is announced is what happens.
"""

from __future__ import annotations

from collections.abc import Sequence

from actors.policy.explain import Frame, PlanWarning, Seat, explain
from actors.policy.grace import pod_grace_seconds
from actors.policy.grouping import group
from actors.policy.periods import requested_seconds, share
from events.base import NS_PER_SECOND
from events.model import Budget, Period, PlannedPod, PlannedWave, Pod, Value


class Plan(Value, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a shutdown would do. ``waves`` are in the order in which they run, empty ones included.

    ``enabled`` False, without waves: graceful shutdown is off. ``grant_seconds`` is None when logind's
    limit is not known; then nothing is cut for it. ``override_needed``: the grant does not cover what is
    requested and reserved. ``warnings`` are (code, message), codes as in `actors.policy.explain`.
    """

    enabled: bool
    requested_seconds: int = 0
    grant_seconds: int | None = None
    budget_seconds: int = 0
    #: The exact budget: min(grant, requested), in nanoseconds.
    budget_ns: int = 0
    reserve_seconds: int = 0
    override_needed: bool = False
    waves: tuple[PlannedWave, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()


def budget_ns(periods: Sequence[Period], grant_ns: int | None) -> int:
    """min(grant, sum of the configured periods), counted from the signal; never negative."""
    requested_ns = requested_seconds(periods) * NS_PER_SECOND
    return requested_ns if grant_ns is None else max(0, min(grant_ns, requested_ns))


def granted_periods(periods: Sequence[Period], grant_ns: int | None) -> tuple[Period, ...]:
    """``periods`` (ascending) under the grant, in whole seconds: a broken second goes to nobody."""
    return tuple(periods) if grant_ns is None else share(periods, grant_ns // NS_PER_SECOND)


def planned_waves(
    periods: Sequence[Period], grant_ns: int | None, pods: Sequence[Pod]
) -> tuple[PlannedWave, ...]:
    """The waves alone, without a word of explanation: cheap enough for the first step of a shutdown.

    One wave a period, in ascending priority; ``pods`` of a wave are in the order given.
    """
    granted = granted_periods(periods, grant_ns)
    return tuple(_wave(*each) for each in zip(granted, group(periods, pods), strict=True))


def make_plan(
    periods: Sequence[Period],
    grant_ns: int | None,
    reserve_ns: int,
    pods: Sequence[Pod],
    budget: Budget,
    *,
    sleep_action: bool = True,
) -> Plan:
    """The whole plan with an explanation of every cut.

    ``periods`` are effective ones (ascending, see `effective_periods`); none means switched off.
    ``budget`` changes no number: under ``elastic`` a wave may get more than its period once earlier waves
    have left time, and the warnings say so. ``sleep_action`` False: sleep hooks do nothing.
    """
    waves = planned_waves(periods, grant_ns, pods)
    seats = _seats(periods, waves, pods)
    wanted_seconds = requested_seconds(periods)
    usable_ns = budget_ns(periods, grant_ns)
    needed_ns = wanted_seconds * NS_PER_SECOND + reserve_ns
    return Plan(
        enabled=bool(periods),
        requested_seconds=wanted_seconds,
        grant_seconds=None if grant_ns is None else max(0, grant_ns) // NS_PER_SECOND,
        budget_seconds=usable_ns // NS_PER_SECOND,
        budget_ns=usable_ns,
        reserve_seconds=reserve_ns // NS_PER_SECOND,
        override_needed=bool(periods) and grant_ns is not None and grant_ns < needed_ns,
        waves=waves,
        warnings=explain(Frame(periods, waves, seats, grant_ns, reserve_ns, budget, sleep_action)),
    )


def _wave(granted: Period, pods: Sequence[Pod]) -> PlannedWave:
    seconds = granted.seconds
    planned = (PlannedPod(uid=pod.uid, grace_seconds=pod_grace_seconds(seconds, pod)) for pod in pods)
    return PlannedWave(priority=granted.priority, period_seconds=seconds, pods=tuple(planned))


def _seats(periods: Sequence[Period], waves: Sequence[PlannedWave], pods: Sequence[Pod]) -> tuple[Seat, ...]:
    """Each pod with its place, wave by wave."""
    return tuple(
        Seat(pod, index, wave.period_seconds, period.seconds, planned.grace_seconds)
        for index, (period, wave, members) in enumerate(
            zip(periods, waves, group(periods, pods), strict=True)
        )
        for pod, planned in zip(members, wave.pods, strict=True)
    )
