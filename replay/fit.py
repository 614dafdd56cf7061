"""Does a rollout fit the waves of the fleet that it is for? Asked before it happens, of what happened before.

What a pod needs is learned from the recorded stops of its workload (`replay.advise`) and from its manifest.
What it has is its grace in the plan: its wave's period under the grant, or its own
``terminationGracePeriodSeconds``, if that is less. A pod whose workload was never seen, and whose hooks are
no sleeps, is unknown: that is said, and is no finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from ebbtide.actors.policy.planning import Plan
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.messages import plural
from ebbtide.events.units import span, span_s
from ebbtide.events.values import Container, Pod
from ebbtide.replay.advise import ContainerTimes, Stop, workload

#: hook-too-long: its sleep alone takes all that it has; grace-too-short: its own grace is less than it needs;
#: wave-too-short: its wave is; never-enough: it was killed after as much time, and never seen to end;
#: sometimes-killed: it was killed after as much time, and seen to end in less.
MisfitCode = Literal["hook-too-long", "grace-too-short", "wave-too-short", "never-enough", "sometimes-killed"]

#: Of these only a bound is known.
AT_LEAST_CODES: tuple[MisfitCode, ...] = ("never-enough", "sometimes-killed")


class Misfit(NamedTuple):
    """A pod that cannot end in its wave. ``at_least``: it needs more than ``needed_ns``."""

    pod: Pod
    wave: int
    priority: int
    needed_ns: int
    at_least: bool
    has_ns: int
    code: MisfitCode
    message: str


class Fit(NamedTuple):
    """``unknown``: pods of which nothing is on record."""

    misfits: tuple[Misfit, ...]
    unknown: tuple[Pod, ...]

    @property
    def fits(self) -> bool:
        return not self.misfits


class _PlacedPod(NamedTuple):
    """A pod in its wave of the plan, with the grace that it gets there."""

    pod: Pod
    wave: int
    priority: int
    period_seconds: int
    grace_ns: int


def fit(plan: Plan, pods: Sequence[Pod], history: Iterable[Stop], *, sleep_action: bool = True) -> Fit:
    """Each planned pod against the stops of its workload; ``pods`` are those of the plan."""
    seen: dict[str, list[Stop]] = {}
    for stop in history:
        seen.setdefault(stop.workload, []).append(stop)
    by_uid = {pod.uid: pod for pod in pods}
    placed = [
        _PlacedPod(
            by_uid[each.uid], number, wave.priority, wave.period_seconds, each.grace_seconds * NS_PER_SECOND
        )
        for number, wave in enumerate(plan.waves)
        for each in wave.pods
    ]
    misfits, unknown = list[Misfit](), list[Pod]()
    for place in placed:
        stops = seen.get(workload(place.pod.namespace, place.pod.name), ())
        sleep_ns = slept_ns(place.pod) if sleep_action else 0
        if not stops and not sleep_ns:
            unknown.append(place.pod)
        misfit = _check_pod(place, stops, sleep_ns, sleep_action)
        if misfit is not None:
            misfits.append(misfit)
    return Fit(tuple(misfits), tuple(unknown))


def _check_pod(place: _PlacedPod, stops: Sequence[Stop], sleep_ns: int, sleep_action: bool) -> Misfit | None:
    if sleep_ns and sleep_ns >= place.grace_ns:
        why = f"its preStop sleep alone takes {span(sleep_ns)}"
        return _misfit(place, "hook-too-long", sleep_ns, why)
    ended, cut = list[int](), list[int]()
    for stop in stops:
        needs_ns = needed_ns(place.pod, stop, sleep_action=sleep_action)
        (ended if stop.observed.ended else cut).append(needs_ns)
    total = len(stops)
    if ended and max(ended) >= place.grace_ns:
        after = f", after a sleep of {span(sleep_ns)}" if sleep_ns else ""
        why = f"as the slowest of {plural(total, 'recorded stop')} did{after}"
        own = place.pod.grace_seconds
        code: MisfitCode = (
            "grace-too-short" if own is not None and own < place.period_seconds else "wave-too-short"
        )
        return _misfit(place, code, max(ended), why)
    # Killed after as much time as it has here: that others ended sooner does not say that it will. Killed
    # after less says nothing, because here it has more.
    beyond = [ns for ns in cut if ns >= place.grace_ns]
    if not beyond:
        return None
    if ended:
        why = f"it was killed {len(beyond)} of {plural(total, 'time')} after as much time or more"
        return _misfit(place, "sometimes-killed", max(beyond), why)
    times = "every time" if total > 1 else "the only time"
    why = f"it was killed {times}, {plural(total, 'stop')} on record"
    return _misfit(place, "never-enough", max(beyond), why)


def _misfit(place: _PlacedPod, code: MisfitCode, ns: int, because: str) -> Misfit:
    at_least = code in AT_LEAST_CODES
    more = "more than " if at_least else ""
    message = (
        f"{place.pod.label} needs {more}{span(ns)} and has {span(place.grace_ns)} in wave {place.wave}"
        f" (priority {place.priority}): {because}"
    )
    if code == "grace-too-short":
        message += f"; its own grace of {span_s(place.pod.grace_seconds)} is the limit"
    return Misfit(place.pod, place.wave, place.priority, ns, at_least, place.grace_ns, code, message)


# How long a pod that is to come needs, if its containers stop as those of a recorded stop did.
#
# A sleep hook takes as long as the manifest says. Any other hook takes as long as it did; so does one that is
# gone, unless it was a sleep, because what it did may have to be done still. A container that the record does
# not have stops as the slowest there; one that the manifest does not have (a mesh puts its own into every
# pod) is taken as it was.


_NO_SHARE = ContainerTimes("", False, False, 0, 0)


def slept_ns(pod: Pod) -> int:
    """Its longest sleep hook, of containers that run."""
    return max((_sleep_ns(each) or 0 for each in pod.containers if each.running), default=0)


def needed_ns(pod: Pod, stop: Stop, *, sleep_action: bool) -> int:
    """From the beginning of its stop to its end; of a stop that was cut, more than that."""
    then = {part.container: part for part in stop.parts}
    slowest_ns = max((part.stop_ns for part in stop.parts if not part.sidecar), default=0)
    new = _NO_SHARE._replace(stop_ns=slowest_ns)
    shares = []
    # Backwards, because sidecars stop in the reverse of their order. Those of the record alone come last.
    for each in reversed([each for each in pod.containers if each.running]):
        part = then.pop(each.name, _NO_SHARE if each.sidecar else new)
        hook_ns = _sleep_ns(each)
        if hook_ns is None:
            hook_ns = 0 if part.slept and each.hook is None else part.hook_ns
        elif not sleep_action:
            hook_ns = 0
        shares.append(part._replace(sidecar=each.sidecar, hook_ns=hook_ns))
    shares += then.values()
    ns = max((share.hook_ns + share.stop_ns for share in shares if not share.sidecar), default=0)
    for share in shares:
        if share.sidecar:
            ns = max(ns, share.hook_ns) + share.stop_ns
    return ns


def _sleep_ns(each: Container) -> int | None:
    """None: it has no sleep hook."""
    hook = each.hook
    return hook.sleep_seconds * NS_PER_SECOND if hook is not None and hook.kind == "sleep" else None
