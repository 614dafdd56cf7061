"""Records into meters: one table from event type to what it changes.

Folded in the order of the journal, each record once (`Meters.seq`), so that a restart continues the sums and
a second reading of the same records changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from events import decisions as d
from events import facts as f
from events.base import Event
from events.record import Record
from events.workload import workload
from otel.metrics.state import Fates, Histogram, Last, Meters, Pod

Change = Callable[[Meters, Any, Record], None]


def fold(meters: Meters, records: Iterable[Record]) -> None:
    """Take over what is new."""
    for record in records:
        if record.seq <= meters.seq:
            continue
        meters.seq = record.seq
        change = CHANGES.get(type(record.event))
        if change is not None:
            meters.begun_wall_ns = meters.begun_wall_ns or record.wall_ns
            if record.episode:
                meters.ended(record.episode, record.seq, record.wall_ns)
            change(meters, record.event, record)


def _count(of: dict[str, dict[str, int]], first: str, second: str) -> None:
    row = of.setdefault(first, {})
    row[second] = row.get(second, 0) + 1


def _time(of: dict[str, Histogram], name: str, value_ns: int) -> None:
    of.setdefault(name, Histogram()).add(value_ns)


# --- how the node stands -----------------------------------------------------------------------


def _started(to: Meters, event: f.DaemonStarted, record: Record) -> None:
    to.starts += 1
    to.armed, to.lock_held = False, event.lock_inherited
    to.answers = {}


def _adopted(to: Meters, event: d.ConfigAdopted, record: Record) -> None:
    to.enabled, to.requested_ns, to.reserve_ns = event.enabled, event.requested_ns, event.reserve_ns
    to.periods = event.periods


def _read(to: Meters, event: f.LogindRead, record: Record) -> None:
    to.grant_ns, to.kubelet_lock = event.grant_ns, event.kubelet_lock


def _kubelet(to: Meters, event: f.KubeletRead, record: Record) -> None:
    """One that nobody can tell of is not there."""
    to.answers.pop("kubelet", None)
    if event.active is not None:
        to.answers["kubelet"] = event.active


def _runtime(to: Meters, event: f.RuntimeRead, record: Record) -> None:
    to.answers["runtime"] = event.reachable


def _api(to: Meters, event: f.ApiRead, record: Record) -> None:
    to.answers["api"] = event.reachable


def _assessed(to: Meters, event: d.GrantAssessed, record: Record) -> None:
    to.sufficient, to.grant_ns = event.sufficient, event.grant_ns


def _armed(to: Meters, event: d.Armed, record: Record) -> None:
    to.armed, to.lock_held = True, True


def _disarmed(to: Meters, event: d.Disarmed, record: Record) -> None:
    to.armed, to.lock_held = False, False


def _storage_failed(to: Meters, event: f.StorageFailed, record: Record) -> None:
    to.storage_failures += 1


def _late(to: Meters, event: f.DurabilityLate, record: Record) -> None:
    to.late_durability += 1


def _failed(to: Meters, event: d.ActorFailed, record: Record) -> None:
    to.actor_failures += 1


# --- a shutdown --------------------------------------------------------------------------------


#: Why a pod had its outcome; of one that was killed it depends on what cut its time (`_cause`).
CAUSES = {
    "graceful": "exited",
    "failed": "runtime",
    "spared": "cancelled",
    "rejected": "late",
    "unknown": "unknown",
}


def _cause(outcome: str, pod: Pod | None) -> str:
    """``hook``: it used the grace up; ``period``: the wave gave less than the pod asks; else ``grace``."""
    if outcome != "killed":
        return CAUSES[outcome]
    if pod is None:
        return "unknown"
    return "hook" if pod.hook_cut else "period" if pod.short else "grace"


def _fate(last: Last, key: tuple[str, str, str, str]) -> None:
    for fates in last.fates:
        if (fates.wave, fates.priority, fates.outcome, fates.cause) == key:
            fates.pods += 1
            return
    wave, priority, outcome, cause = key
    last.fates.append(Fates(wave=wave, priority=priority, outcome=outcome, cause=cause, pods=1))


def _began(to: Meters, event: d.ShutdownBegan, record: Record) -> None:
    to.last = Last(kind=event.kind, start_wall_ns=record.wall_ns)
    to.episode, to.priorities, to.open_pods = record.episode, {}, {}


def _plan(to: Meters, event: d.PlanMade, record: Record) -> None:
    to.priorities |= {index: wave.priority for index, wave in enumerate(event.waves)}


def _planned(to: Meters, event: d.PodPlanned, record: Record) -> None:
    pod = event.pod
    hooks: dict[str, str] = {each.name: each.hook.kind for each in pod.containers if each.hook is not None}
    short = pod.grace_seconds is not None and event.grace_seconds < pod.grace_seconds
    to.open_pods[pod.uid] = Pod(workload=f"{pod.namespace}/{workload(pod.name)}", hooks=hooks, short=short)


def _hook_ended(to: Meters, event: d.HookEnded, record: Record) -> None:
    pod = to.open_pods.get(event.uid)
    kind = pod.hooks.get(event.container, "unknown") if pod is not None else "unknown"
    _count(to.hooks, kind, event.result)
    _time(to.hook_times, kind, event.elapsed_ns)
    to.sleeps_early += event.early
    if pod is not None:
        pod.hook_cut |= event.result in ("timed-out", "cancelled") and not event.early


def _pod_ended(to: Meters, event: d.PodEnded, record: Record) -> None:
    to.pods[event.outcome] = to.pods.get(event.outcome, 0) + 1
    if event.means:
        _count(to.pods_by_means, event.means, event.outcome)
    pod = to.open_pods.pop(event.uid, None)
    wave = str(event.wave), str(to.priorities.get(event.wave, ""))
    _fate(to.last, (*wave, event.outcome, _cause(event.outcome, pod)))
    if event.outcome not in ("graceful", "killed"):
        return
    _time(to.stop_times, event.outcome, event.elapsed_ns)
    if pod is not None:
        need = to.need(pod.workload)
        if event.elapsed_ns >= need.longest_ns:
            need.longest_ns, need.needs_more = event.elapsed_ns, event.outcome == "killed"


def _handed_over(to: Meters, event: d.HandedOver, record: Record) -> None:
    to.handovers += 1


def _refused(to: Meters, event: d.DeleteRefused, record: Record) -> None:
    to.refused_deletes += 1


def _certified(to: Meters, event: d.DetachCertified, record: Record) -> None:
    verdict = "safe" if event.safe else "unsafe"
    to.certificates[verdict] = to.certificates.get(verdict, 0) + 1


def _rejected(to: Meters, event: d.PodRejected, record: Record) -> None:
    to.pods["rejected"] = to.pods.get("rejected", 0) + 1
    _fate(to.last, ("", "", "rejected", CAUSES["rejected"]))


def _released(to: Meters, event: d.ReleaseLock, record: Record) -> None:
    """The end of a shutdown; whether the machine did go down is counted when somebody knows (`_closed`)."""
    to.armed = to.lock_held = False
    if to.episode:
        to.last.end_wall_ns, to.last.outcome = record.wall_ns, "complete"
        to.last_graceful_wall_ns = record.wall_ns


def _closed(to: Meters, event: d.EpisodeClosed, record: Record) -> None:
    """A shutdown that was cut short has no end that anybody saw."""
    _count(to.shutdowns, to.last.kind, event.outcome)
    to.last.outcome = event.outcome
    if event.outcome == "cancelled":
        to.last.end_wall_ns = record.wall_ns
    to.episode, to.open_pods = 0, {}


CHANGES: dict[type[Event], Change] = {
    f.DaemonStarted: _started,
    f.LogindRead: _read,
    f.KubeletRead: _kubelet,
    f.RuntimeRead: _runtime,
    f.ApiRead: _api,
    f.StorageFailed: _storage_failed,
    f.DurabilityLate: _late,
    d.ConfigAdopted: _adopted,
    d.GrantAssessed: _assessed,
    d.Armed: _armed,
    d.Disarmed: _disarmed,
    d.ActorFailed: _failed,
    d.ShutdownBegan: _began,
    d.PlanMade: _plan,
    d.PodPlanned: _planned,
    d.HookEnded: _hook_ended,
    d.PodEnded: _pod_ended,
    d.PodRejected: _rejected,
    d.HandedOver: _handed_over,
    d.DeleteRefused: _refused,
    d.DetachCertified: _certified,
    d.ReleaseLock: _released,
    d.EpisodeClosed: _closed,
}

#: The tags of the records that change anything.
METERED = frozenset(kind.__name__ for kind in CHANGES)
