"""Does a rollout fit the waves of its fleet? Answered before it happens, from earlier shutdowns.

A pod's need comes from the recorded stops of its workload (`replay.advise`) and from its manifest. Its time
is its grace in the plan: its wave's period under the grant, or its own smaller
``terminationGracePeriodSeconds``. A pod without stops on record, and with other hooks than sleeps, is
unknown, which is no finding.
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

#: hook-too-long: its sleep alone takes all its time; grace-too-short: its own grace is less than it needs;
#: wave-too-short: its wave is; never-enough: it was killed after as much time, and never ended by itself;
#: sometimes-killed: the same, but it ended by itself in less.
MisfitCode = Literal["hook-too-long", "grace-too-short", "wave-too-short", "never-enough", "sometimes-killed"]

#: Codes with only a lower bound.
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
    """``unknown``: pods without a stop on record."""

    misfits: tuple[Misfit, ...]
    unknown: tuple[Pod, ...]

    @property
    def fits(self) -> bool:
        return not self.misfits


class _PlacedPod(NamedTuple):
    """A pod in its wave of the plan, with its grace there."""

    pod: Pod
    wave: int
    priority: int
    period_seconds: int
    grace_ns: int


def fit(plan: Plan, pods: Sequence[Pod], history: Iterable[Stop], *, sleep_action: bool = True) -> Fit:
    """Each planned pod against the stops of its workload; ``pods`` are the plan's."""
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
    # A kill after as much time as here counts, even if others ended sooner. A kill after less does not,
    # because here it has more.
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


# How long a future pod needs, if its containers stop as in a recorded stop.
#
# A sleep hook takes the manifest's time. Any other hook takes its recorded time, also a removed one that was
# no sleep, because its work may remain. A new container stops like the slowest one on record; an unlisted one
# (a mesh adds its own) as recorded.


_NO_SHARE = ContainerTimes("", False, False, 0, 0)


def slept_ns(pod: Pod) -> int:
    """Its longest sleep hook, of running containers."""
    return max((_sleep_ns(each) or 0 for each in pod.containers if each.running), default=0)


def needed_ns(pod: Pod, stop: Stop, *, sleep_action: bool) -> int:
    """From the begin of its stop to its end; of a cut stop, more than that."""
    then = {part.container: part for part in stop.parts}
    slowest_ns = max((part.stop_ns for part in stop.parts if not part.sidecar), default=0)
    new = _NO_SHARE._replace(stop_ns=slowest_ns)
    shares = []
    # Backwards, because sidecars stop in reverse order. The record's own come last.
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
