"""Does a rollout fit the waves of the fleet that it is for? Asked before it happens, of what happened before.

What a pod needs is learned from the recorded stops of its workload (`replay.advise.stops`), and from its
manifest (`replay.advise.needs`). What it has is its grace in the
plan: its wave's period under the grant, or its own ``terminationGracePeriodSeconds``, if that is less. A pod
whose workload was never seen, and whose hooks are no sleeps, is unknown: that is said, and is no finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from actors.policy.plan import Plan
from events.base import NS_PER_SECOND
from events.model import Pod
from replay.account.words import plural, span
from replay.advise.needs import needed_ns, slept_ns
from replay.advise.stops import Stop, workload

#: hook-too-long: its sleep alone takes all that it has; grace-too-short: its own grace is less than it needs;
#: wave-too-short: its wave is; never-enough: it was killed after as much time, and never seen to end;
#: sometimes-killed: it was killed after as much time, and seen to end in less.
Code = Literal["hook-too-long", "grace-too-short", "wave-too-short", "never-enough", "sometimes-killed"]

#: Of these only a bound is known.
AT_LEAST: tuple[Code, ...] = ("never-enough", "sometimes-killed")


class Misfit(NamedTuple):
    """A pod that cannot end in its wave. ``at_least``: it needs more than ``needed_ns``."""

    pod: Pod
    wave: int
    priority: int
    needed_ns: int
    at_least: bool
    has_ns: int
    code: Code
    message: str


class Fit(NamedTuple):
    """``unknown``: pods of which nothing is on record."""

    misfits: tuple[Misfit, ...]
    unknown: tuple[Pod, ...]

    @property
    def fits(self) -> bool:
        return not self.misfits


class _Place(NamedTuple):
    """A pod's seat in the plan."""

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
    misfits, unknown = list[Misfit](), list[Pod]()
    for place in _places(plan, pods):
        stops = seen.get(workload(place.pod.namespace, place.pod.name), ())
        sleep_ns = slept_ns(place.pod) if sleep_action else 0
        if not stops and not sleep_ns:
            unknown.append(place.pod)
        misfit = _judge(place, stops, sleep_ns, sleep_action)
        if misfit is not None:
            misfits.append(misfit)
    return Fit(tuple(misfits), tuple(unknown))


def _places(plan: Plan, pods: Sequence[Pod]) -> Iterator[_Place]:
    by_uid = {pod.uid: pod for pod in pods}
    for number, wave in enumerate(plan.waves):
        for seat in wave.pods:
            grace_ns = seat.grace_seconds * NS_PER_SECOND
            yield _Place(by_uid[seat.uid], number, wave.priority, wave.period_seconds, grace_ns)


def _judge(place: _Place, stops: Sequence[Stop], sleep_ns: int, sleep_action: bool) -> Misfit | None:
    if sleep_ns and sleep_ns >= place.grace_ns:
        why = f"its preStop sleep alone takes {span(sleep_ns)}"
        return _misfit(place, "hook-too-long", sleep_ns, why)
    ended, cut = list[int](), list[int]()
    for stop in stops:
        needs_ns = needed_ns(place.pod, stop, sleep_action=sleep_action)
        (ended if stop.observed.ended else cut).append(needs_ns)
    longest_ns = max(ended, default=0)
    if longest_ns >= place.grace_ns:
        why = f"as the slowest of {plural(len(stops), 'recorded stop')} did{_sleeping(sleep_ns)}"
        return _misfit(place, _too_short(place), longest_ns, why)
    return _cut(place, [ns for ns in cut if ns >= place.grace_ns], len(stops), never=not ended)


def _cut(place: _Place, beyond: Sequence[int], total: int, *, never: bool) -> Misfit | None:
    """Killed after as much time as it has here: that others ended sooner does not say that it will."""
    if not beyond:
        return None
    if not never:
        why = f"it was killed {len(beyond)} of {plural(total, 'time')} after as much time or more"
        return _misfit(place, "sometimes-killed", max(beyond), why)
    times = "every time" if total > 1 else "the only time"
    why = f"it was killed {times}, {plural(total, 'stop')} on record"
    return _misfit(place, "never-enough", max(beyond), why)


def _sleeping(slept_ns: int) -> str:
    return f", after a sleep of {span(slept_ns)}" if slept_ns else ""


def _misfit(place: _Place, code: Code, ns: int, because: str) -> Misfit:
    at_least = code in AT_LEAST
    own = place.pod.grace_seconds
    limit = f"wave {place.wave} (priority {place.priority})"
    more = "more than " if at_least else ""
    message = f"{place.pod.label} needs {more}{span(ns)} and has {span(place.grace_ns)} in {limit}"
    cut = f"; its own grace of {own} s is the limit" if code == "grace-too-short" else ""
    return Misfit(
        place.pod,
        place.wave,
        place.priority,
        ns,
        at_least,
        place.grace_ns,
        code,
        f"{message}: {because}{cut}",
    )


def _too_short(place: _Place) -> Code:
    own = place.pod.grace_seconds
    return "grace-too-short" if own is not None and own < place.period_seconds else "wave-too-short"
