"""The plan for people: its waves, and a warning for every cut, with the pod and the cure.

``plan`` and the shutdown use the same waves (`actors.policy.grace_periods`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ebbtide.actors.policy.grace_periods import (
    FLOOR_NS,
    RESERVE_NS_MIN,
    group_pods,
    last_kill_ns,
    planned_waves,
    priority_of,
    requested_seconds,
    shutdown_times,
)
from ebbtide.events.base import FLOOR_SECONDS, NS_PER_SECOND, RESERVE_SECONDS_MIN
from ebbtide.events.messages import shortened_list
from ebbtide.events.units import span, span_s
from ebbtide.events.values import Budget, Period, PlannedWave, Pod, TerminationMode, Value


class Plan(Value):
    """``waves`` are in the order in which they run, empty ones included. ``enabled`` False: without waves.
    ``grant_seconds`` None: logind's limit is unknown, and cuts no period. ``override_needed``: the grant does
    not cover request and reserve.
    """

    enabled: bool
    requested_seconds: int = 0
    grant_seconds: int | None = None
    budget_seconds: int = 0
    #: The exact budget.
    budget_ns: int = 0
    #: Since the signal: no pod gets more.
    last_kill_ns: int = 0
    reserve_seconds: int = 0
    override_needed: bool = False
    waves: tuple[PlannedWave, ...] = ()
    warnings: tuple[PlanWarning, ...] = ()
    #: The pods of the first warnings, ``namespace/name``; empty: about more than one pod.
    warned_pods: tuple[str, ...] = ()


def make_plan(
    periods: Sequence[Period],
    grant_ns: int | None,
    reserve_ns: int,
    pods: Sequence[Pod],
    budget: Budget,
    *,
    sleep_action: bool = True,
    now_ns: int = 0,
    means: TerminationMode = "",
) -> Plan:
    """``periods``: `effective_periods`. Under ``elastic`` a wave may get more time, so ``budget`` changes
    warnings. ``sleep_action`` False: sleep hooks have no effect. ``now_ns``: for deletions.
    """
    requested_ns = requested_seconds(periods) * NS_PER_SECOND
    needed_ns = requested_ns + reserve_ns
    times = shutdown_times(periods, now_ns, needed_ns if grant_ns is None else max(0, grant_ns), reserve_ns)
    kill_by_ns = last_kill_ns(times.deadline_ns, times.kill_by_ns, means)
    last_ns = kill_by_ns - now_ns
    waves = planned_waves(periods, grant_ns, pods, now_ns, kill_by_ns, means)
    placed = tuple(
        PodInPlan(
            pod,
            index,
            wave.period_seconds,
            period.seconds,
            min(planned.grace_seconds * NS_PER_SECOND, last_ns),
        )
        for index, (period, wave, members) in enumerate(
            zip(periods, waves, group_pods(periods, pods), strict=True)
        )
        for pod, planned in zip(members, wave.pods, strict=True)
    )
    usable_ns = requested_ns if grant_ns is None else max(0, min(grant_ns, requested_ns))
    context = PlanContext(periods, waves, placed, grant_ns, reserve_ns, budget, sleep_action, means, last_ns)
    warned = explain_plan(context)
    return Plan(
        enabled=bool(periods),
        requested_seconds=requested_seconds(periods),
        grant_seconds=None if grant_ns is None else max(0, grant_ns) // NS_PER_SECOND,
        budget_seconds=usable_ns // NS_PER_SECOND,
        budget_ns=usable_ns,
        last_kill_ns=last_ns,
        reserve_seconds=reserve_ns // NS_PER_SECOND,
        override_needed=bool(periods) and grant_ns is not None and grant_ns < needed_ns,
        waves=waves,
        warnings=tuple(warning for warning, _ in warned),
        warned_pods=tuple(label for _, label in warned),
    )


#: Code and message. Codes stay; messages are for people.
PlanWarning = tuple[str, str]

NAMES_MAX = 5


class PodInPlan(NamedTuple):
    """``period_seconds``: of its wave, under the grant."""

    pod: Pod
    wave: int
    period_seconds: int
    configured_seconds: int
    grace_ns: int


class PlanContext(NamedTuple):
    """``periods``: as configured. ``last_kill_ns``: since the signal."""

    periods: Sequence[Period]
    waves: Sequence[PlannedWave]
    pods: Sequence[PodInPlan]
    grant_ns: int | None
    reserve_ns: int
    budget: Budget
    sleep_action: bool
    means: TerminationMode
    last_kill_ns: int


def explain_plan(plan: PlanContext) -> list[tuple[PlanWarning, str]]:
    """Each with its pod's label: first about the whole plan (empty), then pod by pod."""
    if not plan.periods:
        off = "graceful shutdown is off: set shutdownGracePeriod, and leave its gate on"
        return [(("disabled", off), "")]
    # The grant first: it causes most warnings about pods.
    whole = [(warning, "") for rule in PLAN_RULES for warning in rule(plan)]
    single = [
        (warning, placed.pod.label)
        for placed in plan.pods
        for rule in POD_RULES
        for warning in rule(placed, plan)
    ]
    return whole + single


def first_names(names: Sequence[str]) -> str:
    return shortened_list(names, NAMES_MAX)


def short_name(pod: Pod) -> str:
    """Without the namespace ``default``."""
    return pod.name if pod.namespace == "default" else pod.label


# --- the whole plan


def _grant_too_small(plan: PlanContext) -> Iterator[PlanWarning]:
    if plan.grant_ns is None:
        return
    requested_ns = requested_seconds(plan.periods) * NS_PER_SECOND
    needed_ns = requested_ns + plan.reserve_ns
    granted, requested = span(plan.grant_ns), span(requested_ns)
    cure = f"raise logind's InhibitDelayMaxSec to {span_s(-(-needed_ns // NS_PER_SECOND))}"
    if plan.grant_ns < requested_ns:
        yield "grant-too-small", f"logind grants {granted} of the {requested} that the waves ask for: {cure}"
    elif plan.grant_ns < needed_ns:
        enough = f"enough for the waves, not for the whole reserve of {span(plan.reserve_ns)}"
        lost = _lost_at_the_end(plan, plan.grant_ns - requested_ns)
        yield "reserve-not-granted", f"logind grants {granted}: {enough}{lost}: {cure}"


def _reserve_too_small(plan: PlanContext) -> Iterator[PlanWarning]:
    if lost := _lost_at_the_end(plan, plan.reserve_ns):
        cure = f"set reserve to {span_s(RESERVE_SECONDS_MIN)} or more"
        yield "reserve-too-small", f"the reserve is {span(plan.reserve_ns)}{lost}: {cure}"


def _lost_at_the_end(plan: PlanContext, reserve_ns: int) -> str:
    lost_seconds = -((reserve_ns - RESERVE_NS_MIN) // NS_PER_SECOND)
    loses = lost_seconds > 0 and plan.means != "observe"
    return f", so the last pods lose up to {span_s(lost_seconds)}" if loses else ""


def _wave_cuts(plan: PlanContext) -> Iterator[PlanWarning]:
    why = f"logind grants {span(plan.grant_ns or 0)}, and higher priorities are served first"
    for number, (period, wave) in enumerate(zip(plan.periods, plan.waves, strict=True)):
        if wave.period_seconds < period.seconds:
            gets = f"asks for {span_s(period.seconds)} and gets {span_s(wave.period_seconds)}"
            yield "wave-cut", f"wave {number} {gets}: {why}"


def _wave_zeros(plan: PlanContext) -> Iterator[PlanWarning]:
    for number, wave in enumerate(plan.waves):
        if wave.pods and not wave.period_seconds:
            message = f"wave {number} has 0 s: its {len(wave.pods)} pods are signalled and not waited for"
            yield "wave-zero", message.replace("its 1 pods are", "its pod is")


def _duplicates(plan: PlanContext) -> Iterator[PlanWarning]:
    # The kubelet accepts them silently.
    effect = "pods exactly at it go to the first entry, pods above it to the last; keep one"
    for priority, count in Counter(period.priority for period in plan.periods).items():
        if count > 1:
            yield "priority-duplicate", f"priority {priority} is configured {count} times: {effect}"


def _unset_priorities(plan: PlanContext) -> Iterator[PlanWarning]:
    unset = [placed.pod for placed in plan.pods if placed.pod.priority is None]
    number = "write a number if the pod must end later"
    class_only = "a static pod with a priorityClassName alone, which the kubelet counts as 0 and ends first"
    for code, assigned, why in (
        ("priority-unset", False, f"no numeric spec.priority, which counts as 0; {number}"),
        ("priority-class-only", True, f"{class_only}; {number}"),
    ):
        names = [short_name(pod) for pod in unset if pod.priority_assigned == assigned]
        if names and len(plan.periods) > 1:
            yield code, f"{first_names(names)}: {why}"


# --- one pod


def _grace_cut(placed: PodInPlan, plan: PlanContext) -> Iterator[PlanWarning]:
    asked_seconds = placed.pod.grace_seconds
    if placed.pod.deletion is not None:
        left = f"{span(placed.grace_ns)} of its grace are left, and no preStop hook runs again"
        yield "grace-left", f"{short_name(placed.pod)} is being deleted already: {left}"
    elif asked_seconds is not None and asked_seconds * NS_PER_SECOND > placed.grace_ns:
        gets = f"asks for {span_s(asked_seconds)} and gets {span(placed.grace_ns)}"
        yield "grace-cut", f"{short_name(placed.pod)} {gets}: {_wave_has(placed, plan)}"


def _grace_unset(placed: PodInPlan, plan: PlanContext) -> Iterator[PlanWarning]:
    if placed.pod.grace_seconds is None and placed.pod.deletion is None:
        takes = "sets no terminationGracePeriodSeconds and may take all of its wave"
        yield "grace-unset", f"{short_name(placed.pod)} {takes}: {_wave_has(placed, plan)}"


def _grace_below_floor(placed: PodInPlan, plan: PlanContext) -> Iterator[PlanWarning]:
    if placed.grace_ns < FLOOR_NS:
        gets, kill_ns = span(placed.grace_ns), min(FLOOR_NS, plan.last_kill_ns)
        floor = f"and SIGKILL comes {span(kill_ns)} after the stop signal at the latest"
        yield "grace-below-floor", f"{short_name(placed.pod)} gets {gets}, {floor}"


def _below_every_period(placed: PodInPlan, plan: PlanContext) -> Iterator[PlanWarning]:
    priority, lowest = priority_of(placed.pod), plan.periods[0].priority
    if priority < lowest:
        goes = f"it goes with priority {lowest}, wave {placed.wave}"
        yield (
            "priority-below",
            f"{short_name(placed.pod)} has priority {priority}, below every configured one: {goes}",
        )


def _hooks_cut(placed: PodInPlan, plan: PlanContext) -> Iterator[PlanWarning]:
    for container in placed.pod.containers:
        if container.hook is not None and container.running and placed.pod.deletion is None:
            hook, grace_ns = container.hook, placed.grace_ns
            whose = f"the preStop hook of {short_name(placed.pod)}, container {container.name},"
            sleeps = f"{whose} sleeps {span_s(hook.sleep_seconds)}"
            slept = hook.kind == "sleep" and plan.sleep_action
            if hook.kind == "tcpSocket":
                yield "hook-invalid", f"{whose} is a tcpSocket, which fails when it runs: use exec or httpGet"
            elif slept and hook.sleep_seconds * NS_PER_SECOND > grace_ns:
                yield "sleep-cut", f"{sleeps} and is cut at {span(grace_ns)}, the pod's grace"
            elif slept and hook.sleep_seconds * NS_PER_SECOND == grace_ns:
                remain = f"only {span_s(FLOOR_SECONDS)} remain to stop"
                yield "sleep-fills-grace", f"{sleeps}, the pod's whole grace: {remain}"


def _wave_has(placed: PodInPlan, plan: PlanContext) -> str:
    cut = " under the grant" if placed.period_seconds < placed.configured_seconds else ""
    more = ", and what earlier waves leave" if plan.budget == "elastic" and placed.wave else ""
    kept_ns = placed.period_seconds * NS_PER_SECOND - placed.grace_ns
    end = f", {span(kept_ns)} of them for the end of the shutdown" if kept_ns > 0 else ""
    return f"wave {placed.wave} has {span_s(placed.period_seconds)}{cut}{end}{more}"


PLAN_RULES: tuple[Callable[[PlanContext], Iterator[PlanWarning]], ...] = (
    _grant_too_small,
    _reserve_too_small,
    _wave_cuts,
    _wave_zeros,
    _duplicates,
    _unset_priorities,
)

POD_RULES: tuple[Callable[[PodInPlan, PlanContext], Iterator[PlanWarning]], ...] = (
    _grace_cut,
    _grace_unset,
    _grace_below_floor,
    _below_every_period,
    _hooks_cut,
)
