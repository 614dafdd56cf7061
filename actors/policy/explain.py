"""Why a plan is as it is: one warning for every cut, in words that name the pod and the cure.

Two kinds of rules: about the whole plan, and about one pod in its seat. Each rule is a function that yields
(code, message); the tables at the end are the only list of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from actors.policy.grace import FLOOR_SECONDS
from actors.policy.grouping import priority_of
from actors.policy.periods import requested_seconds
from events.base import NS_PER_SECOND
from events.model import Budget, Container, Period, PlannedWave, Pod

#: (code, message). Codes stay; messages are for people.
PlanWarning = tuple[str, str]

#: How many names one message lists before it counts the rest.
NAMES_MAX = 5


class Seat(NamedTuple):
    """A pod's place in the plan: its wave's number, what the wave has, what it was configured to have."""

    pod: Pod
    wave: int
    period_seconds: int
    configured_seconds: int
    grace_seconds: int


class Frame(NamedTuple):
    """What every rule may look at. ``periods`` are the configured ones."""

    periods: Sequence[Period]
    waves: Sequence[PlannedWave]
    seats: Sequence[Seat]
    grant_ns: int | None
    reserve_ns: int
    budget: Budget
    sleep_action: bool


def explain(frame: Frame) -> tuple[PlanWarning, ...]:
    """All warnings of a plan: those about the whole first, then pod by pod in the order of the waves."""
    if not frame.periods:
        return (("disabled", "graceful shutdown is off: set shutdownGracePeriod, and leave its gate on"),)
    whole = [warning for rule in PLAN_RULES for warning in rule(frame)]
    single = [warning for seat in frame.seats for rule in POD_RULES for warning in rule(seat, frame)]
    return (*whole, *single)


def short_name(pod: Pod) -> str:
    """``namespace/name``, and just the name in the namespace ``default``."""
    return pod.name if pod.namespace == "default" else pod.label


def seconds_text(duration_ns: int) -> str:
    """Nanoseconds as seconds for people, exact: ``15 s``, ``5.25 s``."""
    whole, rest = divmod(max(0, duration_ns), NS_PER_SECOND)
    return f"{whole}{f'.{rest:09d}'.rstrip('0') if rest else ''} s"


# --- the whole plan ----------------------------------------------------------------------------


def _grant(frame: Frame) -> Iterator[PlanWarning]:
    if frame.grant_ns is None:
        return
    requested_ns = requested_seconds(frame.periods) * NS_PER_SECOND
    needed_ns = requested_ns + frame.reserve_ns
    granted, requested = seconds_text(frame.grant_ns), seconds_text(requested_ns)
    cure = f"raise logind's InhibitDelayMaxSec to {-(-needed_ns // NS_PER_SECOND)} s"
    if frame.grant_ns < requested_ns:
        yield "grant-too-small", f"logind grants {granted} of the {requested} that the waves ask for: {cure}"
    elif frame.grant_ns < needed_ns:
        reserve = seconds_text(frame.reserve_ns)
        yield (
            "reserve-not-granted",
            f"logind grants {granted}: enough for the waves, not for the whole reserve of {reserve}: {cure}",
        )


def _wave_cuts(frame: Frame) -> Iterator[PlanWarning]:
    for number, (period, wave) in enumerate(zip(frame.periods, frame.waves, strict=True)):
        if wave.period_seconds < period.seconds:
            granted = seconds_text(frame.grant_ns or 0)
            yield (
                "wave-cut",
                (
                    f"wave {number} asks for {period.seconds} s and gets {wave.period_seconds} s: "
                    f"logind grants {granted}, and higher priorities are served first"
                ),
            )


def _wave_zeros(frame: Frame) -> Iterator[PlanWarning]:
    for number, wave in enumerate(frame.waves):
        if wave.pods and not wave.period_seconds:
            message = f"wave {number} has 0 s: its {len(wave.pods)} pods are signalled and not waited for"
            yield "wave-zero", message.replace("its 1 pods are", "its pod is")


def _duplicates(frame: Frame) -> Iterator[PlanWarning]:
    counts = Counter(period.priority for period in frame.periods)
    for priority, count in counts.items():
        if count > 1:
            yield (
                "priority-duplicate",
                (
                    f"priority {priority} is configured {count} times: pods exactly at it go to the first "
                    "entry, pods above it to the last; keep one"
                ),
            )


def _unset_priorities(frame: Frame) -> Iterator[PlanWarning]:
    """Only where it can matter: with one wave every pod is in it anyway."""
    names = [short_name(seat.pod) for seat in frame.seats if seat.pod.priority is None]
    if names and len(frame.periods) > 1:
        yield (
            "priority-unset",
            (
                f"{_names(names)}: no numeric spec.priority, which counts as 0; write the number where "
                "the pod has to go later"
            ),
        )


# --- one pod -----------------------------------------------------------------------------------


def _grace_cut(seat: Seat, frame: Frame) -> Iterator[PlanWarning]:
    asked_seconds = seat.pod.grace_seconds
    if asked_seconds is not None and asked_seconds > seat.grace_seconds:
        yield (
            "grace-cut",
            (
                f"{short_name(seat.pod)} asks for {asked_seconds} s and gets {seat.grace_seconds} s: "
                f"{_wave_has(seat, frame)}"
            ),
        )


def _grace_unset(seat: Seat, frame: Frame) -> Iterator[PlanWarning]:
    if seat.pod.grace_seconds is None:
        yield (
            "grace-unset",
            (
                f"{short_name(seat.pod)} sets no terminationGracePeriodSeconds and may take all of its wave: "
                f"{_wave_has(seat, frame)}"
            ),
        )


def _grace_below_floor(seat: Seat, frame: Frame) -> Iterator[PlanWarning]:
    if seat.grace_seconds < FLOOR_SECONDS:
        yield (
            "grace-below-floor",
            (
                f"{short_name(seat.pod)} gets {seat.grace_seconds} s, but at least {FLOOR_SECONDS} s lie "
                "between stop signal and SIGKILL"
            ),
        )


def _below_every_period(seat: Seat, frame: Frame) -> Iterator[PlanWarning]:
    priority, lowest = priority_of(seat.pod), frame.periods[0].priority
    if priority < lowest:
        yield (
            "priority-below",
            (
                f"{short_name(seat.pod)} has priority {priority}, below every configured one: it goes with "
                f"priority {lowest}, wave {seat.wave}"
            ),
        )


def _hooks(seat: Seat, frame: Frame) -> Iterator[PlanWarning]:
    for container in seat.pod.containers:
        if container.hook is not None and container.running:
            yield from _hook(seat, container, frame)


def _hook(seat: Seat, container: Container, frame: Frame) -> Iterator[PlanWarning]:
    hook, grace_seconds = container.hook, seat.grace_seconds
    assert hook is not None
    whose = f"the preStop hook of {short_name(seat.pod)}, container {container.name},"
    if not grace_seconds:
        yield "hook-not-run", f"{whose} does not run: the pod gets 0 s"
    elif hook.kind == "tcpSocket":
        yield "hook-invalid", f"{whose} is a tcpSocket, which fails when it runs: use exec or httpGet"
    elif hook.kind == "sleep" and frame.sleep_action and hook.sleep_seconds >= grace_seconds:
        cut = hook.sleep_seconds > grace_seconds
        sleeps = f"{whose} sleeps {hook.sleep_seconds} s"
        yield (
            "sleep-cut" if cut else "sleep-fills-grace",
            f"{sleeps} and is cut at {grace_seconds} s, the pod's grace"
            if cut
            else f"{sleeps}, the pod's whole grace: only {FLOOR_SECONDS} s remain to stop",
        )


def _wave_has(seat: Seat, frame: Frame) -> str:
    cut = " under the grant" if seat.period_seconds < seat.configured_seconds else ""
    more = ", and what earlier waves leave" if frame.budget == "elastic" and seat.wave else ""
    return f"wave {seat.wave} has {seat.period_seconds} s{cut}{more}"


def _names(names: Sequence[str]) -> str:
    rest = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {rest} more" if rest > 0 else "")


PLAN_RULES: tuple[Callable[[Frame], Iterator[PlanWarning]], ...] = (
    _grant,
    _wave_cuts,
    _wave_zeros,
    _duplicates,
    _unset_priorities,
)

POD_RULES: tuple[Callable[[Seat, Frame], Iterator[PlanWarning]], ...] = (
    _grace_cut,
    _grace_unset,
    _grace_below_floor,
    _below_every_period,
    _hooks,
)
