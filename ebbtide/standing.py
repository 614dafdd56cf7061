"""How this node stands: a projection of the journal that ``status`` and the live view show.

Folded from records one by one, at a start from the last few megabytes of the journal; where those are not
enough, `ebbtide.recover` takes what the verbs need from the actors' states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ebbtide.standing_node import NODE_FOLD, NodeStanding
from events import decisions as d
from events import facts as f
from events.base import NS_PER_SECOND, Event
from events.model import PlannedWave
from events.record import Record


class PodStanding(msgspec.Struct, kw_only=True):
    """One pod of the current or last shutdown."""

    label: str
    wave: int
    grace_seconds: int
    priority: int
    phase: str = "waiting"
    reason: str = ""
    began_ns: int = 0
    elapsed_ns: int = 0


class WaveStanding(msgspec.Struct, kw_only=True):
    wave: int
    priority: int
    period_ns: int
    pods: int
    began_ns: int = 0
    deadline_ns: int = 0
    ended_ns: int = 0
    phase: str = "waiting"


class Standing(NodeStanding, kw_only=True):
    """``armed``: lock held and signal trusted. Times are monotonic nanoseconds of this boot."""

    enabled: bool = False
    armed: bool = False
    why_not: str = "not started"
    retry_at_ns: int = 0
    grant_ns: int = 0
    needed_ns: int = 0
    sufficient: bool = True
    scheduled_wall_ns: int = 0
    phase: str = "idle"
    #: The running or the last shutdown.
    last_episode: int = 0
    kind: str = ""
    began_wall_ns: int = 0
    began_ns: int = 0
    deadline_ns: int = 0
    released_ns: int = 0
    last_outcome: str = ""
    starts_wall_ns: int = 0
    waves: dict[int, WaveStanding] = {}
    pods: dict[str, PodStanding] = {}

    @property
    def labels(self) -> dict[str, str]:
        """The names of its pods, by UID."""
        return {uid: pod.label for uid, pod in self.pods.items()}

    def fold(self, records: Sequence[Record]) -> None:
        for record in records:
            change = FOLD.get(type(record.event))
            if change is not None:
                change(self, record.event, record)


def planned(index: int, wave: PlannedWave) -> WaveStanding:
    """A wave that has not begun."""
    return WaveStanding(
        wave=index, priority=wave.priority, period_ns=wave.period_seconds * NS_PER_SECOND, pods=len(wave.pods)
    )


def _adopted(to: Standing, event: d.ConfigAdopted, record: Record) -> None:
    """What is needed follows from the configuration: it must be known before logind was ever read."""
    to.enabled = event.enabled
    to.needed_ns = event.requested_ns + event.reserve_ns if event.enabled else 0


def _armed(to: Standing, event: d.Armed, record: Record) -> None:
    to.armed, to.why_not, to.retry_at_ns = True, "", 0


def _disarmed(to: Standing, event: d.Disarmed, record: Record) -> None:
    to.armed, to.why_not, to.retry_at_ns = False, event.reason, event.retry_at_ns


def _started(to: Standing, event: f.DaemonStarted, record: Record) -> None:
    to.armed, to.why_not = False, "starting"
    to.starts_wall_ns = record.wall_ns
    to.forget_health()


def _read(to: Standing, event: f.LogindRead, record: Record) -> None:
    to.grant_ns, to.kubelet_lock = event.grant_ns, event.kubelet_lock


def _assessed(to: Standing, event: d.GrantAssessed, record: Record) -> None:
    to.sufficient = event.sufficient


def _scheduled(to: Standing, event: f.ScheduleRead, record: Record) -> None:
    to.scheduled_wall_ns = event.at_wall_ns


def _began(to: Standing, event: d.ShutdownBegan, record: Record) -> None:
    to.phase, to.last_episode, to.kind = "running", record.episode, event.kind
    to.began_ns, to.began_wall_ns, to.deadline_ns = record.mono_ns, record.wall_ns, event.deadline_ns
    to.released_ns = 0
    to.waves, to.pods = {}, {}
    to.begin_shutdown()


def _plan(to: Standing, event: d.PlanMade, record: Record) -> None:
    to.waves |= {index: planned(index, wave) for index, wave in enumerate(event.waves)}


def _planned(to: Standing, event: d.PodPlanned, record: Record) -> None:
    to.pods[event.pod.uid] = PodStanding(
        label=event.pod.label,
        wave=event.wave,
        grace_seconds=event.grace_seconds,
        priority=event.pod.priority or 0,
    )


def _wave_started(to: Standing, event: d.WaveStarted, record: Record) -> None:
    wave = to.waves.get(event.wave)
    if wave is not None:
        wave.phase, wave.began_ns, wave.deadline_ns = "running", record.mono_ns, event.deadline_ns


def _wave_ended(to: Standing, event: d.WaveEnded, record: Record) -> None:
    wave = to.waves.get(event.wave)
    if wave is not None:
        wave.phase, wave.ended_ns = event.outcome, record.mono_ns


def _pod_phase(to: Standing, uid: str, phase: str, record: Record) -> None:
    pod = to.pods.get(uid)
    if pod is not None and pod.phase != "ended":
        pod.phase = phase
        pod.began_ns = pod.began_ns or record.mono_ns


def _hook_started(to: Standing, event: d.HookStarted, record: Record) -> None:
    _pod_phase(to, event.uid, f"preStop {event.kind}", record)


def _signalled(to: Standing, event: d.SendSignal, record: Record) -> None:
    _pod_phase(to, event.uid, event.signal, record)


def _deleted(to: Standing, event: d.DeletePod, record: Record) -> None:
    _pod_phase(to, event.uid, "deleted", record)


def _killed(to: Standing, event: d.KillContainer, record: Record) -> None:
    _pod_phase(to, event.uid, "SIGKILL", record)


def _pod_ended(to: Standing, event: d.PodEnded, record: Record) -> None:
    pod = to.pods.get(event.uid)
    if pod is not None:
        pod.phase, pod.reason, pod.elapsed_ns = event.outcome, event.reason, event.elapsed_ns


def _moved(to: Standing, event: d.DeadlineMoved, record: Record) -> None:
    to.deadline_ns = event.deadline_ns


def _released(to: Standing, event: d.ReleaseLock, record: Record) -> None:
    to.phase, to.last_outcome, to.released_ns = "released", "complete", record.mono_ns
    to.armed, to.why_not = False, "the lock was released, the machine may go"


def _cancelled(to: Standing, event: d.ShutdownCancelled, record: Record) -> None:
    to.phase = "cancelling"


def _closed(to: Standing, event: d.EpisodeClosed, record: Record) -> None:
    to.phase, to.last_outcome = "idle", event.outcome


FOLD: dict[type[Event], Callable[[Standing, Any, Record], None]] = {
    d.ConfigAdopted: _adopted,
    d.Armed: _armed,
    d.Disarmed: _disarmed,
    f.DaemonStarted: _started,
    f.LogindRead: _read,
    d.GrantAssessed: _assessed,
    f.ScheduleRead: _scheduled,
    d.ShutdownBegan: _began,
    d.PlanMade: _plan,
    d.PodPlanned: _planned,
    d.WaveStarted: _wave_started,
    d.WaveEnded: _wave_ended,
    d.HookStarted: _hook_started,
    d.DeletePod: _deleted,
    d.SendSignal: _signalled,
    d.KillContainer: _killed,
    d.PodEnded: _pod_ended,
    d.DeadlineMoved: _moved,
    d.ReleaseLock: _released,
    d.ShutdownCancelled: _cancelled,
    d.EpisodeClosed: _closed,
    **NODE_FOLD,
}

#: The tags of the records that change anything.
FOLDED = frozenset(kind.__name__ for kind in FOLD)
