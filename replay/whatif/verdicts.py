"""A pod's change in a new run: the same, saved, lost, or perhaps; and how likely.

A doubt makes a verdict ``perhaps``: the record does not show the pod's way in the new run. But a pod that
ends well in the record and in both runs is the same in spite of most doubts (`STRONG_DOUBTS`): hardly any
such pod was lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from ebbtide.events import decisions
from ebbtide.events.base import NS_PER_MS, NS_PER_SECOND
from ebbtide.events.facts import OrderEnded, PrepareForShutdown, RuntimeRead
from ebbtide.events.record.shutdown_record import PodRecord, ShutdownRecord
from ebbtide.replay.advise import WHOLE, observed_stops, remaining, workload
from ebbtide.replay.whatif.record import RecordedBehaviour, RecordedShutdown

#: ``perhaps``: the record does not decide.
PodChange = Literal["same", "saved", "perhaps-saved", "lost", "perhaps-lost"]

ENDED_WELL: tuple[decisions.PodOutcome | None, ...] = ("graceful", "spared")

#: The kubelet's stops end at least this long before a hand-over is on record.
HANDOVER_NS = 50 * NS_PER_MS

AWAY_AT_THE_SIGNAL = "no daemon ran at the signal"
OTHER_MEANS = "another part of the node ends it than in the record"
HANDED_OVER = "the kubelet hands over before it ends"
STARTED_AGAIN = "it was started again, and its next stop is another"
NO_DAEMON = "no daemon ran for a part of its stop"
RUNTIME_AWAY = "the runtime did not answer for a part of the record"
RUNTIME_REFUSED = "the runtime did not carry out an order of the record"
OWN_PERIODS = "the kubelet ends it by its own periods, which may not follow this change"
END_UNKNOWN = "the record does not show how it ended"
NO_END = "the record does not show its end under this change"

#: Doubts that leave no verdict certain.
STRONG_DOUBTS = (AWAY_AT_THE_SIGNAL, OTHER_MEANS, OWN_PERIODS, END_UNKNOWN, NO_END)


class PodNeed(NamedTuple):
    """A pod's time from the begin of its stop, or ``at_least`` its time until it was killed."""

    ns: int
    at_least: bool


class PodRuns(NamedTuple):
    """``then`` None: a new pod; another None: not in that run."""

    then: PodRecord | None
    best: PodRecord | None
    worst: PodRecord | None

    @property
    def fates(self) -> tuple[bool | None, bool | None, bool | None]:
        return ended_well(self.then), ended_well(self.best), ended_well(self.worst)


class Verdict(NamedTuple):
    """``doubt``: why the pod's times may differ; its change may be certain in spite of it."""

    change: PodChange
    doubt: str = ""


def ended_well(pod: PodRecord | None) -> bool | None:
    """None: unknown."""
    outcome = None if pod is None else pod.outcome
    return None if outcome in (None, "unknown") else outcome in ENDED_WELL


def killed_ns(pod: PodRecord) -> int | None:
    """Its first SIGKILL."""
    return min((each.killed_ns for each in pod.containers if each.killed_ns is not None), default=None)


# --- doubts


class Doubts:
    def __init__(self, shutdown: RecordedShutdown, seen: RecordedBehaviour) -> None:
        #: For every pod.
        self.of_all = ""
        #: For a pod that stops at another time than in the record.
        self.of_moved = ""
        #: Pods that were started again.
        self.again: dict[str, None] = {}
        self.downtimes = [
            (down.begin_ns - shutdown.signal_ns, down.end_ns - shutdown.signal_ns) for down in seen.downtimes
        ]
        if not isinstance(shutdown.events[0].event, PrepareForShutdown):
            self.of_all = AWAY_AT_THE_SIGNAL
        planned: dict[str, None] = {}
        for each in shutdown.own:
            match each.event:
                case RuntimeRead():
                    self.of_moved = RUNTIME_AWAY
                case OrderEnded(key=key, result="failed" | "timed-out" | "unknown"):
                    _, order = seen.orders.get(key, (None, None))
                    if isinstance(order, decisions.SendSignal | decisions.KillContainer):
                        self.of_moved = self.of_moved or RUNTIME_REFUSED
                case decisions.PodPlanned(pod=pod):
                    if pod.uid in planned:
                        self.again[pod.uid] = None
                    planned[pod.uid] = None

    def of(self, pods: PodRuns, handovers_ns: Sequence[int | None]) -> str:
        """``handovers_ns``: of the record and both runs. Empty: none."""
        then, runs = pods.then, [each for each in pods[1:] if each is not None]
        if then is None or self.of_all:
            return self.of_all
        if then.uid in self.again:
            return STARTED_AGAIN
        if any(each.means != then.means for each in runs):
            return OTHER_MEANS
        for pod, over_ns in zip(pods, handovers_ns, strict=True):
            # From the hand-over on this daemon ends the kubelet's pods over the runtime.
            if pod is None or pod.means != "api" or over_ns is None:
                continue
            if pod.ended_ns is None or pod.ended_ns > over_ns - HANDOVER_NS:
                return HANDED_OVER
        moved = any(each.began_ns != then.began_ns for each in runs)
        if not moved and (all(pods.fates) or all(killed_ns(each) == killed_ns(then) for each in runs)):
            return ""
        # Its times that a daemon has a part in.
        steps: list[int | None] = []
        for each in (then, *runs):
            steps += [each.began_ns, each.ended_ns, *(hook.ended_ns for hook in each.hooks)]
            steps += [ns for of in each.containers for ns in (of.asked_ns, of.signalled_ns, of.killed_ns)]
        known = [step for step in steps if step is not None]
        away = any(begin_ns <= step <= end_ns for begin_ns, end_ns in self.downtimes for step in known)
        return NO_DAEMON if away else self.of_moved


# --- the change


def verdict_of(pods: PodRuns, doubt: str) -> Verdict:
    """A new pod is neither saved nor lost."""
    was, *now = pods.fates
    if pods.then is None or (pods.then == pods.best == pods.worst and pods.then.means != "observe"):
        return Verdict("same")
    if pods.then.means == "observe" and not doubt:
        if _ends_alike(pods):
            return Verdict("same", OWN_PERIODS)
        doubt = OWN_PERIODS
    if was is None:
        doubt = END_UNKNOWN
    elif None in now:
        doubt = doubt or NO_END
    if doubt and not (was and all(now) and doubt not in STRONG_DOUBTS):
        good = was is False or (was is None and now != [False, False])
        return Verdict("perhaps-saved" if good else "perhaps-lost", doubt)
    if now == [was, was]:
        return Verdict("same", doubt)
    if was:
        return Verdict("perhaps-lost" if any(now) else "lost", doubt)
    return Verdict("saved" if all(now) else "perhaps-saved", doubt)


def _ends_alike(pods: PodRuns) -> bool:
    """In mode observe the kubelet ends the pod, by its own periods, which may follow the change: the pod is
    the same if it ends alike under both. Its time counts from the signal, because the kubelet's begin is not
    on record.
    """
    had, *now = (0 if each is None else each.grace_seconds for each in pods)
    was, *fates = pods.fates
    if pods.then is None or was is None or fates != [was, was]:
        return False
    if not was:
        return max(now) <= had
    return now == [had, had] or (pods.then.ended_ns or 0) < min(had, *now) * NS_PER_SECOND


# --- how likely

#: How often a pod ended well, by its end on record and in both runs (None: unknown). Measured over simulated
#: nights with misfortunes (tests.replay.whatif.truth).
WELL_PERCENT: dict[tuple[bool | None, ...], int] = {
    (True, True, True): 87,
    (True, True, False): 92,
    (True, True, None): 88,
    (True, None, None): 56,
    (True, None, False): 30,
    (True, False, False): 13,
    (True, False, None): 5,
    (False, True, False): 28,
    (False, True, True): 18,
    (False, False, False): 9,
    (False, None, None): 5,
    (False, None, False): 17,
    (None, True, False): 95,
    (None, True, None): 80,
    (None, None, None): 18,
    (None, False, None): 5,
    (None, False, False): 5,
}

#: The share above weighs as much as so many stops on record.
PRIOR_STOPS = 4


class Curves:
    """Each workload's stops: the Kaplan-Meier estimate of `replay.advise`, from a pod's known need on."""

    def __init__(self, nights: Iterable[ShutdownRecord] = ()) -> None:
        self._node = ""
        #: By workload, and for all (empty name): the numbers of cut and of ended stops, by their time.
        self._stops: dict[str, tuple[Counter[int], Counter[int]]] = {}
        for night in nights:
            self._node = night.node
            for stop in observed_stops(night):
                for name in ("", stop.kind.workload):
                    self._stops.setdefault(name, (Counter(), Counter()))[stop.kind.ended][stop.ns] += 1

    def chance_percent(self, pods: PodRuns, verdict: Verdict, need: PodNeed | None) -> int | None:
        """That the change of a ``perhaps`` happens. A pod that was killed and has more time now follows the
        curves of all stops and of its workload; any other pod has the share in `WELL_PERCENT`.
        """
        if not verdict.change.startswith("perhaps"):
            return None
        well, (then, _, now) = WELL_PERCENT.get(pods.fates, 50), pods
        killed = pods.fates == (False, True, False) and not verdict.doubt
        if killed and then and now and need and now.grace_ns:
            for name in ("", workload(then.namespace, then.name, self._node)):
                # The share of longer stops that ended within the new grace.
                stops = self._stops.get(name, (Counter(), Counter()))
                cut, ended = (Counter({ns: each[ns] for ns in each if ns > need.ns}) for each in stops)
                later, shares = ended.total() + cut.total(), remaining(ended, cut)
                left = min((share for ns, share in shares if ns <= now.grace_ns), default=WHOLE)
                ended_percent = 100 * (WHOLE - left) * later // WHOLE
                well = (ended_percent + well * PRIOR_STOPS) // (later + PRIOR_STOPS)
        return well if verdict.change == "perhaps-saved" else 100 - well
