"""The plan: which pods go in which wave, with how much grace, and why: one warning for every cut.

One plan serves the ``plan`` command and the shutdown itself, so what is announced is what happens. The
warnings name the pod and the cure. There are two kinds of rules, about the whole plan and about one pod in
it; each is a function that yields (code, message), and the tables at the end are the only list of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ebbtide.actors.policy.grace_periods import (
    group_pods,
    planned_waves,
    priority_of,
    requested_seconds,
)
from ebbtide.events.base import FLOOR_SECONDS, NS_PER_SECOND
from ebbtide.events.units import span, span_s
from ebbtide.events.values import Budget, Period, PlannedWave, Pod, Value


class Plan(Value):
    """What a shutdown would do. ``waves`` are in the order in which they run, empty ones included.

    ``enabled`` False, without waves: graceful shutdown is off. ``grant_seconds`` is None when logind's
    limit is not known; then nothing is cut for it. ``override_needed``: the grant does not cover what is
    requested and reserved. ``warnings`` are (code, message), codes as in `actors.policy.planning`.
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
    #: Whom each of the first warnings is about, ``namespace/name``; empty: not one pod. What has been added
    #: behind them since is about none.
    warned_pods: tuple[str, ...] = ()


def usable_budget_ns(periods: Sequence[Period], grant_ns: int | None) -> int:
    """min(grant, sum of the configured periods), counted from the signal; never negative."""
    requested_ns = requested_seconds(periods) * NS_PER_SECOND
    return requested_ns if grant_ns is None else max(0, min(grant_ns, requested_ns))


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
    placed = tuple(
        PodInPlan(pod, index, wave.period_seconds, period.seconds, planned.grace_seconds)
        for index, (period, wave, members) in enumerate(
            zip(periods, waves, group_pods(periods, pods), strict=True)
        )
        for pod, planned in zip(members, wave.pods, strict=True)
    )
    wanted_seconds = requested_seconds(periods)
    usable_ns = usable_budget_ns(periods, grant_ns)
    context = PlanContext(periods, waves, placed, grant_ns, reserve_ns, budget, sleep_action)
    warned = explain_plan(context)
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
        warnings=tuple(warning for warning, _ in warned),
        warned_pods=tuple(label for _, label in warned),
    )


#: (code, message). Codes stay; messages are for people.
PlanWarning = tuple[str, str]

#: How many names one message lists before it counts the rest.
NAMES_MAX = 5


class PodInPlan(NamedTuple):
    """A pod's place in the plan: its wave's number, what the wave has, what it was configured to have."""

    pod: Pod
    wave: int
    period_seconds: int
    configured_seconds: int
    grace_seconds: int


class PlanContext(NamedTuple):
    """What every rule may look at. ``periods`` are the configured ones."""

    periods: Sequence[Period]
    waves: Sequence[PlannedWave]
    pods: Sequence[PodInPlan]
    grant_ns: int | None
    reserve_ns: int
    budget: Budget
    sleep_action: bool


def explain_plan(plan: PlanContext) -> list[tuple[PlanWarning, str]]:
    """All warnings of a plan, each with its pod's label: those about the whole first (empty), then pod by pod
    in the order of the waves.
    """
    if not plan.periods:
        off = "graceful shutdown is off: set shutdownGracePeriod, and leave its gate on"
        return [(("disabled", off), "")]
    # The grant first: it is the cause of most of what is said of single pods.
    whole = [(warning, "") for rule in PLAN_RULES for warning in rule(plan)]
    single = [
        (warning, placed.pod.label)
        for placed in plan.pods
        for rule in POD_RULES
        for warning in rule(placed, plan)
    ]
    return whole + single


def first_names(names: Sequence[str]) -> str:
    """Some of them, and how many more there are."""
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


def short_name(pod: Pod) -> str:
    """``namespace/name``, and just the name in the namespace ``default``."""
    return pod.name if pod.namespace == "default" else pod.label


# --- the whole plan ----------------------------------------------------------------------------


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
        reserve = span(plan.reserve_ns)
        yield (
            "reserve-not-granted",
            f"logind grants {granted}: enough for the waves, not for the whole reserve of {reserve}: {cure}",
        )


def _wave_cuts(plan: PlanContext) -> Iterator[PlanWarning]:
    # Per wave and not as one sum: from which pods the time is taken is what people have to know.
    for number, (period, wave) in enumerate(zip(plan.periods, plan.waves, strict=True)):
        if wave.period_seconds < period.seconds:
            granted = span(plan.grant_ns or 0)
            yield (
                "wave-cut",
                (
                    f"wave {number} asks for {span_s(period.seconds)} and gets "
                    f"{span_s(wave.period_seconds)}: logind grants {granted}, and higher "
                    "priorities are served first"
                ),
            )


def _wave_zeros(plan: PlanContext) -> Iterator[PlanWarning]:
    for number, wave in enumerate(plan.waves):
        if wave.pods and not wave.period_seconds:
            message = f"wave {number} has 0 s: its {len(wave.pods)} pods are signalled and not waited for"
            yield "wave-zero", message.replace("its 1 pods are", "its pod is")


def _duplicates(plan: PlanContext) -> Iterator[PlanWarning]:
    # The kubelet takes them without a word, and hardly anybody means what follows.
    counts = Counter(period.priority for period in plan.periods)
    for priority, count in counts.items():
        if count > 1:
            yield (
                "priority-duplicate",
                (
                    f"priority {priority} is configured {count} times: pods exactly at it go to the first "
                    "entry, pods above it to the last; keep one"
                ),
            )


def _unset_priorities(plan: PlanContext) -> Iterator[PlanWarning]:
    """Only where it can matter: with one wave every pod is in it anyway."""
    names = [short_name(placed.pod) for placed in plan.pods if placed.pod.priority is None]
    if names and len(plan.periods) > 1:
        yield (
            "priority-unset",
            (
                f"{first_names(names)}: no numeric spec.priority, which counts as 0; "
                "write the number where the pod has to go later"
            ),
        )


# --- one pod -----------------------------------------------------------------------------------


def _grace_cut(placed: PodInPlan, plan: PlanContext) -> Iterator[PlanWarning]:
    asked_seconds = placed.pod.grace_seconds
    if asked_seconds is not None and asked_seconds > placed.grace_seconds:
        yield (
            "grace-cut",
            (
                f"{short_name(placed.pod)} asks for {span_s(asked_seconds)} and gets "
                f"{span_s(placed.grace_seconds)}: {_wave_has(placed, plan)}"
            ),
        )


def _grace_unset(placed: PodInPlan, plan: PlanContext) -> Iterator[PlanWarning]:
    if placed.pod.grace_seconds is None:
        yield (
            "grace-unset",
            (
                f"{short_name(placed.pod)} sets no terminationGracePeriodSeconds and may take all of its "
                f"wave: {_wave_has(placed, plan)}"
            ),
        )


def _grace_below_floor(placed: PodInPlan, plan: PlanContext) -> Iterator[PlanWarning]:
    if placed.grace_seconds < FLOOR_SECONDS:
        yield (
            "grace-below-floor",
            (
                f"{short_name(placed.pod)} gets {span_s(placed.grace_seconds)}, but at least "
                f"{span_s(FLOOR_SECONDS)} lie between stop signal and SIGKILL"
            ),
        )


def _below_every_period(placed: PodInPlan, plan: PlanContext) -> Iterator[PlanWarning]:
    priority, lowest = priority_of(placed.pod), plan.periods[0].priority
    if priority < lowest:
        yield (
            "priority-below",
            (
                f"{short_name(placed.pod)} has priority {priority}, below every configured one: it goes with "
                f"priority {lowest}, wave {placed.wave}"
            ),
        )


def _hooks_cut(placed: PodInPlan, plan: PlanContext) -> Iterator[PlanWarning]:
    for container in placed.pod.containers:
        if container.hook is not None and container.running:
            hook, grace_seconds = container.hook, placed.grace_seconds
            whose = f"the preStop hook of {short_name(placed.pod)}, container {container.name},"
            sleeps = f"{whose} sleeps {span_s(hook.sleep_seconds)}"
            slept = hook.kind == "sleep" and plan.sleep_action
            if not grace_seconds:
                yield "hook-not-run", f"{whose} does not run: the pod gets 0 s"
            elif hook.kind == "tcpSocket":
                yield "hook-invalid", f"{whose} is a tcpSocket, which fails when it runs: use exec or httpGet"
            elif slept and hook.sleep_seconds > grace_seconds:
                yield "sleep-cut", f"{sleeps} and is cut at {span_s(grace_seconds)}, the pod's grace"
            elif slept and hook.sleep_seconds == grace_seconds:
                remain = f"only {span_s(FLOOR_SECONDS)} remain to stop"
                yield "sleep-fills-grace", f"{sleeps}, the pod's whole grace: {remain}"


def _wave_has(placed: PodInPlan, plan: PlanContext) -> str:
    cut = " under the grant" if placed.period_seconds < placed.configured_seconds else ""
    more = ", and what earlier waves leave" if plan.budget == "elastic" and placed.wave else ""
    return f"wave {placed.wave} has {span_s(placed.period_seconds)}{cut}{more}"


PLAN_RULES: tuple[Callable[[PlanContext], Iterator[PlanWarning]], ...] = (
    _grant_too_small,
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
