"""Does a rollout fit the waves of the fleet that it is for? Asked before it happens, of what happened before.

What a pod needs is learned from the recorded stops of its workload (`replay.advise.stops`), and from its
manifest: a sleep hook takes as long as it says, and stopping comes after it. What it has is its grace in the
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
from replay.advise.stops import Stop, workload

#: hook-too-long: its sleep alone takes all that it has; grace-too-short: its own grace is less than it needs;
#: wave-too-short: its wave is; never-enough: it was killed after as much time, and never seen to end.
Code = Literal["hook-too-long", "grace-too-short", "wave-too-short", "never-enough"]


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
        slept_ns = _slept_ns(place.pod) if sleep_action else 0
        if not stops and not slept_ns:
            unknown.append(place.pod)
        misfit = _judge(place, stops, slept_ns)
        if misfit is not None:
            misfits.append(misfit)
    return Fit(tuple(misfits), tuple(unknown))


def _places(plan: Plan, pods: Sequence[Pod]) -> Iterator[_Place]:
    by_uid = {pod.uid: pod for pod in pods}
    for number, wave in enumerate(plan.waves):
        for seat in wave.pods:
            grace_ns = seat.grace_seconds * NS_PER_SECOND
            yield _Place(by_uid[seat.uid], number, wave.priority, wave.period_seconds, grace_ns)


def _slept_ns(pod: Pod) -> int:
    """Its longest sleep hook, of containers that run."""
    hooks = (each.hook for each in pod.containers if each.running and each.hook is not None)
    return max((hook.sleep_seconds for hook in hooks if hook.kind == "sleep"), default=0) * NS_PER_SECOND


def _runs_hooks(pod: Pod) -> bool:
    """Hooks whose time no manifest tells."""
    hooks = (each.hook for each in pod.containers if each.running and each.hook is not None)
    return any(hook.kind in ("exec", "httpGet") for hook in hooks)


def _judge(place: _Place, stops: Sequence[Stop], slept_ns: int) -> Misfit | None:
    if slept_ns and slept_ns >= place.grace_ns:
        return _misfit(place, slept_ns, False, f"its preStop sleep alone takes {span(slept_ns)}")
    ended = [each for each in stops if each.observed.ended]
    if ended:
        needed_ns = _needed_ns(place, ended, slept_ns)
        if needed_ns >= place.grace_ns:
            slowest = f"the slowest of {plural(len(stops), 'recorded stop')}"
            return _misfit(place, needed_ns, False, f"as {slowest} did{_sleeping(slept_ns)}")
        return None
    had_ns = max((each.observed.ns for each in stops), default=-1)
    if had_ns >= place.grace_ns:
        times = "every time" if len(stops) > 1 else "the only time"
        return _misfit(place, had_ns, True, f"it was killed {times}, {plural(len(stops), 'stop')} on record")
    return None


def _needed_ns(place: _Place, ended: Sequence[Stop], slept_ns: int) -> int:
    """As long as ever; where its hooks are sleeps, with the sleep that it has now."""
    rest_ns = max(each.observed.ns - each.hook_ns for each in ended)
    if slept_ns and not _runs_hooks(place.pod):
        return slept_ns + rest_ns
    return max(slept_ns + rest_ns if slept_ns else 0, *(each.observed.ns for each in ended))


def _sleeping(slept_ns: int) -> str:
    return f", after a sleep of {span(slept_ns)}" if slept_ns else ""


def _misfit(place: _Place, needed_ns: int, at_least: bool, because: str) -> Misfit:
    code = _code(place, needed_ns, at_least, alone=because.startswith("its preStop"))
    own = place.pod.grace_seconds
    limit = f"wave {place.wave} (priority {place.priority})"
    whose = f"its own grace of {own} s" if code == "grace-too-short" else limit
    more = "more than " if at_least else ""
    message = f"{place.pod.label} needs {more}{span(needed_ns)} and has {span(place.grace_ns)} in {limit}"
    cut = f"; {whose} is the limit" if whose != limit else ""
    return Misfit(
        place.pod,
        place.wave,
        place.priority,
        needed_ns,
        at_least,
        place.grace_ns,
        code,
        f"{message}: {because}{cut}",
    )


def _code(place: _Place, needed_ns: int, at_least: bool, *, alone: bool) -> Code:
    if at_least:
        return "never-enough"
    if alone:
        return "hook-too-long"
    own = place.pod.grace_seconds
    return "grace-too-short" if own is not None and own < place.period_seconds else "wave-too-short"
