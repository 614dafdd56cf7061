"""Two shutdowns side by side: waves by priority, pods by name or owner (`pod_pairs`), a pod's parts by
container. The biggest difference in time comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, get_args

from ebbtide.events.base import NS_PER_SECOND, FrozenStruct
from ebbtide.events.decisions import PodOutcome
from ebbtide.events.record import shutdown_record
from ebbtide.events.units import span_s
from ebbtide.events.values import Period, pod_name_stem
from ebbtide.replay.time_spent import critical_chain

Section = Literal["shutdown", "configuration", "notice", "wave", "pod"]

#: None: there is none.
Value = str | int | bool | None


class Compared(NamedTuple):
    """A shutdown, a wave or a pod of one side."""

    times: Mapping[str, int | None]
    facts: Mapping[str, Value]


#: The output shows whole milliseconds.
SAME_NS = 1_000_000

#: Durations that were given, not used.
ALLOWED = ("grace", "period")


class Change(FrozenStruct):
    """``subject``: a wave, a pod or its container. Durations are in ``a_ns`` and ``b_ns``."""

    section: Section
    subject: str = ""
    what: str
    a: Value = None
    b: Value = None
    a_ns: int | None = None
    b_ns: int | None = None

    @property
    def more_ns(self) -> int:
        """B's extra time; 0 without two durations."""
        return 0 if self.a_ns is None or self.b_ns is None else self.b_ns - self.a_ns

    @property
    def differs(self) -> bool:
        if self.a_ns is None or self.b_ns is None:
            return (self.a, self.a_ns) != (self.b, self.b_ns)
        return abs(self.more_ns) >= SAME_NS


class Difference(FrozenStruct):
    """``pods_alike``: the number of pods without a difference."""

    changes: tuple[Change, ...]
    pods_alike: int


def diff(a: shutdown_record.ShutdownRecord, b: shutdown_record.ShutdownRecord) -> Difference:
    whole = [
        *_compare("shutdown", "", _of_shutdown(a), _of_shutdown(b)),
        *_configured(a.configuration, b.configuration),
    ]
    # The number of each warning, without pods' own: times always differ.
    then, now = (Counter(each.code for each in side.notices if not each.pod) for side in (a, b))
    whole += [Change(section="notice", what=code, a=then[code], b=now[code]) for code in {**then, **now}]
    # Keep the changes of a wave or a pod together.
    waves = [[each for each in wave if each.differs] for wave in _waves(a, b)]
    pods = []
    for pair in pod_pairs(a, b):
        if pair.a is not None and pair.b is not None:
            changes = list(_compare("pod", pair.label, _of_pod(pair.a, a), _of_pod(pair.b, b)))
        else:
            had, has = (None if pod is None else pod.fate for pod in pair)
            changes = [Change(section="pod", subject=pair.label, what="outcome", a=had, b=has)]
        pods.append([each for each in changes if each.differs])
    changed = sorted(filter(None, pods), key=_size)
    groups = [[each for each in whole if each.differs], *sorted(filter(None, waves), key=_size), *changed]
    return Difference(
        changes=tuple(each for group in groups for each in group), pods_alike=len(pods) - len(changed)
    )


def _size(group: list[Change]) -> tuple[int, int]:
    """Used durations count before allowed ones."""
    took_ns = max((abs(change.more_ns) for change in group if change.what not in ALLOWED), default=0)
    return -took_ns, -max(abs(change.more_ns) for change in group)


def _compare(section: Section, subject: str, a: Compared, b: Compared) -> Iterator[Change]:
    """One change for each key of either side."""
    for what in {**a.times, **b.times}:
        a_ns, b_ns = a.times.get(what), b.times.get(what)
        yield Change(section=section, subject=subject, what=what, a_ns=a_ns, b_ns=b_ns)
    for what in {**a.facts, **b.facts}:
        then, now = a.facts.get(what), b.facts.get(what)
        yield Change(section=section, subject=subject, what=what, a=then, b=now)


def _configured(
    a: shutdown_record.ConfigurationRecord, b: shutdown_record.ConfigurationRecord
) -> Iterator[Change]:
    for name in a.__struct_fields__:
        then, now = getattr(a, name), getattr(b, name)
        if name.endswith("_ns"):
            yield Change(section="configuration", what=name.removesuffix("_ns"), a_ns=then, b_ns=now)
        elif name == "periods":
            yield Change(section="configuration", what=name, a=_periods_text(then), b=_periods_text(now))
        elif name != "sources":
            yield Change(section="configuration", what=name, a=then, b=now)


def _periods_text(periods: Iterable[Period]) -> str:
    return ", ".join(f"{each.priority}: {span_s(each.seconds)}" for each in periods)


def _of_shutdown(shutdown: shutdown_record.ShutdownRecord) -> Compared:
    total_ns = critical_chain(shutdown).total_ns
    counts = shutdown.summary.pods
    return Compared(
        {"total": total_ns, "grant": shutdown.grant_ns, "budget": shutdown.budget_ns},
        {
            "outcome": shutdown.outcome,
            "kind": shutdown.kind,
            "node": shutdown.node,
            "version": shutdown.version,
            "logic": shutdown.logic or None,
            "mode": shutdown.processes[0].mode if shutdown.processes else None,
            "lock held": shutdown.lock_held,
            "pods": len(shutdown.pods),
            **{f"pods {outcome}": counts.get(outcome, 0) for outcome in get_args(PodOutcome)},
        },
    )


def _waves(a: shutdown_record.ShutdownRecord, b: shutdown_record.ShutdownRecord) -> Iterator[list[Change]]:
    """By priority; waves of one priority in their order."""
    sides: list[dict[tuple[int, int], Compared]] = []
    for shutdown in (a, b):
        seen: Counter[int] = Counter()
        sides.append({})
        for wave in shutdown.waves:
            took_ns = None
            if wave.began_ns is not None:
                took_ns = shutdown_record.wave_end_ns(wave, shutdown) - wave.began_ns
            period_ns = wave.planned_ns if wave.period_ns is None else wave.period_ns
            sides[-1][wave.priority, seen[wave.priority]] = Compared(
                {"took": took_ns, "period": period_ns}, {"outcome": wave.outcome, "pods": len(wave.pods)}
            )
            seen[wave.priority] += 1
    for key in {**sides[0], **sides[1]}:
        then, now = (side.get(key, Compared({}, {})) for side in sides)
        yield list(_compare("wave", f"priority {key[0]}", then, now))


def _of_pod(pod: shutdown_record.PodRecord, shutdown: shutdown_record.ShutdownRecord) -> Compared:
    """A single part would repeat the pod's time."""
    took_ns = None if pod.began_ns is None else shutdown_record.pod_end_ns(pod, shutdown) - pod.began_ns
    parts = list(shutdown_record.stop_parts(pod, shutdown))
    several = {
        f"{each.container} {'hook' if each.what == 'hook' else 'stop'}": each.took_ns for each in parts
    }
    grace_ns = pod.grace_seconds * NS_PER_SECOND if pod.grace_ns is None else pod.grace_ns
    # Not the wave's number, which another configuration may change without an effect.
    priority = shutdown.waves[pod.wave].priority if 0 <= pod.wave < len(shutdown.waves) else None
    return Compared(
        {"took": took_ns, **(several if len(parts) > 1 else {}), "grace": grace_ns},
        {
            "outcome": pod.fate,
            "wave's priority": priority,
            "terminationGracePeriodSeconds": pod.wanted_grace_seconds,
            **{f"{hook.container} hook result": hook.result for hook in pod.hooks},
        },
    )


class PodPair(NamedTuple):
    """None: not in that shutdown."""

    a: shutdown_record.PodRecord | None
    b: shutdown_record.PodRecord | None

    @property
    def label(self) -> str:
        """One name, or both: ``shop/web-6c9f7d8b5-q7zwt / web-5d4f8c7b9-x2k4z``."""
        first, *others = dict.fromkeys(pod.label for pod in self if pod is not None)
        return " / ".join((first, *(label.rpartition("/")[2] for label in others)))


def owner(pod: shutdown_record.PodRecord, node: str) -> str:
    """Namespace, and the name without its controller's suffix: a pod's successors have the same."""
    return f"{pod.namespace}/{pod_name_stem(pod.name, node)}"


def pod_pairs(a: shutdown_record.ShutdownRecord, b: shutdown_record.ShutdownRecord) -> Iterator[PodPair]:
    """Every pod of both, once: in A's order, then B's own. Replicas pair in the order of the inventories."""
    # An equal name is the same pod, or its successor in a StatefulSet: pair these first.
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


def _pods_by(
    pods: Iterable[shutdown_record.PodRecord], keys: dict[str, str]
) -> dict[str, list[shutdown_record.PodRecord]]:
    found: dict[str, list[shutdown_record.PodRecord]] = {}
    for pod in pods:
        found.setdefault(keys[pod.uid], []).append(pod)
    return found
