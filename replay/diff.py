"""Two shutdowns side by side: what took longer, and what changed in plan, outcome, configuration and grant.

They are aligned by what they are about, never by the sequence of events: waves by their priority, pods by
name or owner (`pod_pairs`), parts of a pod by container. The biggest difference in time comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, get_args

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.decisions import PodOutcome
from ebbtide.events.model import pod_name_stem
from ebbtide.events.record.model import PodRecord, ShutdownRecord, WaveRecord
from ebbtide.events.record.stops import pod_end_ns, stop_parts, wave_end_ns
from ebbtide.replay.critical_chain import critical_chain

# Two shutdowns side by side: what took longer, and what changed in plan, outcome, configuration and grant.
#
# They are aligned by what they are about, never by the sequence of events: waves by their priority, pods by
# name or owner (`replay.diff`), parts of a pod by container. The biggest difference in time comes first.


Section = Literal["shutdown", "configuration", "notice", "wave", "pod"]

#: What is compared: a duration (nanoseconds), or anything else that has a text. None: there is none.
Value = str | int | bool | None

#: Two times count as the same below the millisecond: that is how they are shown.
SAME_NS = 1_000_000

#: Durations that were given, not used.
ALLOWED = ("grace", "period")


class Change(NamedTuple):
    """``subject`` is a wave, a pod or a container of one; ``duration`` says that A and B are nanoseconds."""

    section: Section
    subject: str
    what: str
    a: Value
    b: Value
    duration: bool = False

    @property
    def delta_ns(self) -> int:
        """How much longer B took; 0 for what is no duration, or is on one side only."""
        both = self.duration and self.a is not None and self.b is not None
        return int(self.b or 0) - int(self.a or 0) if both else 0

    @property
    def differs(self) -> bool:
        both = self.duration and self.a is not None and self.b is not None
        return abs(self.delta_ns) >= SAME_NS if both else self.a != self.b


class Difference(NamedTuple):
    """``changes`` section by section; ``alike`` counts the pods in which nothing differs."""

    changes: tuple[Change, ...]
    alike: int


def diff(a: ShutdownRecord, b: ShutdownRecord) -> Difference:
    """What differs between two shutdowns, of one journal or of two."""
    whole = [*_shutdown(a, b), *_configuration(a, b), *_notices(a, b)]
    groups = [[each for each in _pod(pair, a, b) if each.differs] for pair in pod_pairs(a, b)]
    changed = sorted((group for group in groups if group), key=_size)
    waves = [[each for each in wave if each.differs] for wave in _waves(a, b)]
    found = [each for each in whole if each.differs]
    found += [each for wave in sorted(filter(None, waves), key=_size) for each in wave]
    found += [each for group in changed for each in group]
    return Difference(tuple(found), len(groups) - len(changed))


def _size(group: list[Change]) -> tuple[int, int]:
    """The changes of a wave or a pod stay together; what took longer counts before what was allowed to."""
    took_ns = max((abs(change.delta_ns) for change in group if change.what not in ALLOWED), default=0)
    return -took_ns, -max(abs(change.delta_ns) for change in group)


def _compare(
    section: Section, subject: str, a: Mapping[str, Value], b: Mapping[str, Value], *, duration: bool = False
) -> Iterator[Change]:
    """One change for each key of either side."""
    for what in {**a, **b}:
        yield Change(section, subject, what, a.get(what), b.get(what), duration)


# --- the whole ---------------------------------------------------------------------------------


def _shutdown(a: ShutdownRecord, b: ShutdownRecord) -> Iterator[Change]:
    times = [
        {"total": critical_chain(each).total_ns, "grant": each.grant_ns, "budget": each.budget_ns}
        for each in (a, b)
    ]
    yield from _compare("shutdown", "", *times, duration=True)
    yield from _compare("shutdown", "", *map(_facts, (a, b)))


def _facts(shutdown: ShutdownRecord) -> dict[str, Value]:
    counts = Counter(pod.outcome or "unknown" for pod in shutdown.pods)
    return {
        "outcome": shutdown.outcome,
        "kind": shutdown.kind,
        "node": shutdown.node,
        "version": shutdown.version,
        "logic flags": ", ".join(shutdown.logic_flags) or None,
        "mode": shutdown.processes[0].mode if shutdown.processes else None,
        "lock held": shutdown.lock_held,
        "pods": len(shutdown.pods),
        **{f"pods {outcome}": counts[outcome] for outcome in get_args(PodOutcome)},
    }


def _configuration(a: ShutdownRecord, b: ShutdownRecord) -> Iterator[Change]:
    times = [
        {
            "requested": each.configuration.requested_ns,
            "reserve": each.configuration.reserve_ns,
            "status flush": each.configuration.status_flush_ns,
            "trace flush": each.configuration.trace_flush_ns,
        }
        for each in (a, b)
    ]
    yield from _compare("configuration", "", *times, duration=True)
    plain: list[dict[str, Value]] = [
        {
            "periods": ", ".join(
                f"{period.priority}: {period.seconds}s" for period in each.configuration.periods
            ),
            "budget": each.configuration.budget,
            "sleep action": each.configuration.sleep_action,
        }
        for each in (a, b)
    ]
    yield from _compare("configuration", "", *plain)


def _notices(a: ShutdownRecord, b: ShutdownRecord) -> Iterator[Change]:
    """How often each happened; what concerns one pod stands with the pod."""
    counts = [Counter(each.code for each in shutdown.notices if not each.pod) for shutdown in (a, b)]
    for code in {**counts[0], **counts[1]}:
        yield Change("notice", "", code, counts[0][code], counts[1][code])


# --- waves and pods ----------------------------------------------------------------------------


def _waves(a: ShutdownRecord, b: ShutdownRecord) -> Iterator[list[Change]]:
    """By priority; of several with one priority, in their order."""
    sides = [_by_priority(shutdown) for shutdown in (a, b)]
    for key in {**sides[0], **sides[1]}:
        subject = f"priority {key[0]}"
        waves = [side.get(key) for side in sides]
        times = [_wave_times(wave, shutdown) for wave, shutdown in zip(waves, (a, b), strict=True)]
        yield [
            *_compare("wave", subject, *times, duration=True),
            *_compare("wave", subject, *map(_wave_facts, waves)),
        ]


def _by_priority(shutdown: ShutdownRecord) -> dict[tuple[int, int], WaveRecord]:
    seen: Counter[int] = Counter()
    found: dict[tuple[int, int], WaveRecord] = {}
    for wave in shutdown.waves:
        found[(wave.priority, seen[wave.priority])] = wave
        seen[wave.priority] += 1
    return found


def _wave_times(wave: WaveRecord | None, shutdown: ShutdownRecord) -> dict[str, Value]:
    if wave is None:
        return {}
    took_ns = None if wave.began_ns is None else wave_end_ns(wave, shutdown) - wave.began_ns
    period_ns = wave.planned_ns if wave.period_ns is None else wave.period_ns
    return {"took": took_ns, "period": period_ns}


def _wave_facts(wave: WaveRecord | None) -> dict[str, Value]:
    return {} if wave is None else {"outcome": wave.outcome, "pods": len(wave.pods)}


def _pod(pair: PodPair, a: ShutdownRecord, b: ShutdownRecord) -> Iterator[Change]:
    """Of a pod that only one of them had there is nothing to compare but that."""
    if pair.a is None or pair.b is None:
        had, has = (None if pod is None else pod.outcome or "unknown" for pod in pair)
        yield Change("pod", pair.label, "outcome", had, has)
        return
    sides = ((pair.a, a), (pair.b, b))
    yield from _compare("pod", pair.label, *(_pod_times(*side) for side in sides), duration=True)
    yield from _compare("pod", pair.label, *(_pod_facts(*side) for side in sides))


def _pod_times(pod: PodRecord, shutdown: ShutdownRecord) -> dict[str, Value]:
    """The whole way down, and its parts where there are several."""
    took_ns = None if pod.began_ns is None else pod_end_ns(pod, shutdown) - pod.began_ns
    found = list(stop_parts(pod, shutdown))
    several = {
        f"{part.container} {'hook' if part.what == 'hook' else 'stop'}": part.took_ns for part in found
    }
    grace_ns = pod.grace_seconds * NS_PER_SECOND if pod.grace_ns is None else pod.grace_ns
    return {"took": took_ns, **(several if len(found) > 1 else {}), "grace": grace_ns}


def _pod_facts(pod: PodRecord, shutdown: ShutdownRecord) -> dict[str, Value]:
    wave = shutdown.waves[pod.wave].priority if 0 <= pod.wave < len(shutdown.waves) else None
    hooks = {f"{hook.container} hook result": hook.result for hook in pod.hooks}
    return {
        "outcome": pod.outcome or "unknown",
        "wave's priority": wave,
        "terminationGracePeriodSeconds": pod.wanted_grace_seconds,
        **hooks,
    }


# Which pod of one shutdown is which of another, when most of them have been made anew in between.
#
# First by namespace and name. Of the others, by namespace and owner: the name without what a controller has
# added to it (`events.model`). Pods of one owner are paired in the order of the inventories: replicas are
# alike, and which is which cannot be known.


class PodPair(NamedTuple):
    """A pod in both shutdowns, or in one of them (the other None)."""

    a: PodRecord | None
    b: PodRecord | None

    @property
    def label(self) -> str:
        """One name, or both where they differ: ``shop/web-6c9f7d8b5-q7zwt / web-5d4f8c7b9-x2k4z``."""
        first, *others = dict.fromkeys(pod.label for pod in self if pod is not None)
        return " / ".join((first, *(label.rpartition("/")[2] for label in others)))


def owner(pod: PodRecord, node: str) -> str:
    """Namespace and the name without what was added: the same for pods that are each other's successors."""
    return f"{pod.namespace}/{pod_name_stem(pod.name, node)}"


def pod_pairs(a: ShutdownRecord, b: ShutdownRecord) -> Iterator[PodPair]:
    """Every pod of both, once: in A's order, then those that only B has."""
    by_label = _pods_by(b.pods, {pod.uid: pod.label for pod in b.pods})
    same = {pod.uid: found.pop(0) for pod in a.pods if (found := by_label.get(pod.label))}
    taken = {pod.uid: None for pod in same.values()}
    left = [pod for pod in b.pods if pod.uid not in taken]
    by_owner = _pods_by(left, {pod.uid: owner(pod, b.node) for pod in left})
    for pod in a.pods:
        partner = same.get(pod.uid)
        if partner is None:
            found = by_owner.get(owner(pod, a.node))
            partner = found.pop(0) if found else None
        yield PodPair(pod, partner)
        if partner is not None:
            taken[partner.uid] = None
    yield from (PodPair(None, pod) for pod in b.pods if pod.uid not in taken)


def _pods_by(pods: Iterable[PodRecord], keys: dict[str, str]) -> dict[str, list[PodRecord]]:
    found: dict[str, list[PodRecord]] = {}
    for pod in pods:
        found.setdefault(keys[pod.uid], []).append(pod)
    return found
