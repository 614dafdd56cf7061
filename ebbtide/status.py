"""The daemon's status: a fold of the journal, and what ``ebbtide status`` and the live view show of it.

Folded from records one by one, at a start from the last few megabytes of the journal; where those are not
enough, `ebbtide.recover` takes what the control socket's verbs need from the actors' states.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ebbtide.events import decisions as d
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Event, Record, episode_id
from ebbtide.events.model import PlannedWave, TerminationMode
from ebbtide.events.writer import Writer
from ebbtide.options import PROCESS

# A Kubernetes node: who answers, by which means its pods are ended, what is safe to detach. A part of
# `DaemonStatus`, folded from the same records; in mode process all of it stays as it is.


class DetachCertificate(msgspec.Struct, kw_only=True):
    """``running`` are UIDs; ``mounted`` are pairs of a UID (empty: a driver's) and a volume."""

    safe: bool
    ended: int = 0
    running: tuple[str, ...] = ()
    mounted: tuple[tuple[str, str], ...] = ()


class NodePartsStatus(msgspec.Struct, kw_only=True):
    """None: nobody has said since the process began. The rest is of the running or the last shutdown."""

    kubelet: bool | None = None
    runtime: bool | None = None
    api: bool | None = None
    #: Why the last two do not answer.
    runtime_error: str = ""
    api_error: str = ""
    #: Whether this identity may taint the node.
    may_taint: bool = True
    #: Another program called ``kubelet`` holds a delay lock on shutdown.
    kubelet_lock: bool = False
    #: Empty: not said, as in mode process.
    means: TerminationMode = ""
    means_reason: str = ""
    #: Why it was handed over to the runtime; empty: it was not.
    handed_over: str = ""
    #: None: nobody has looked.
    certificate: DetachCertificate | None = None
    #: UIDs of what the kubelet had not done at the release.
    left_undone: tuple[str, ...] = ()

    def forget_health(self) -> None:
        """Another process has to say anew who answers it."""
        self.kubelet = self.runtime = self.api = None
        self.runtime_error = self.api_error = ""

    def begin_shutdown(self) -> None:
        """What was said of the one before is over."""
        self.means, self.means_reason, self.handed_over = "", "", ""
        self.certificate, self.left_undone = None, ()


def _kubelet_lock_seen(to: NodePartsStatus, event: f.PrepareForShutdown, record: Record) -> None:
    """The signal that ends a shutdown says nothing of locks."""
    if event.active:
        to.kubelet_lock = event.kubelet_lock


def _kubelet_read(to: NodePartsStatus, event: f.KubeletRead, record: Record) -> None:
    to.kubelet = event.active


def _runtime_read(to: NodePartsStatus, event: f.RuntimeRead, record: Record) -> None:
    to.runtime, to.runtime_error = event.reachable, event.error


def _api_read(to: NodePartsStatus, event: f.ApiRead, record: Record) -> None:
    to.api, to.api_error, to.may_taint = event.reachable, event.error, event.taint


def _termination_mode_chosen(to: NodePartsStatus, event: d.MeansChosen, record: Record) -> None:
    to.means, to.means_reason = event.means, event.reason


def _handed_over(to: NodePartsStatus, event: d.HandedOver, record: Record) -> None:
    to.handed_over = event.reason


def _detach_certified(to: NodePartsStatus, event: d.DetachCertified, record: Record) -> None:
    to.certificate = DetachCertificate(
        safe=event.safe, ended=event.ended, running=event.running, mounted=event.mounted
    )


def _left_undone(to: NodePartsStatus, event: d.LeftUndone, record: Record) -> None:
    to.left_undone = tuple(dict.fromkeys((*event.running, *event.without_status)))


NODE_FOLD: dict[type[Event], Callable[[Any, Any, Record], None]] = {
    f.PrepareForShutdown: _kubelet_lock_seen,
    f.KubeletRead: _kubelet_read,
    f.RuntimeRead: _runtime_read,
    f.ApiRead: _api_read,
    d.MeansChosen: _termination_mode_chosen,
    d.HandedOver: _handed_over,
    d.DetachCertified: _detach_certified,
    d.LeftUndone: _left_undone,
}


# The whole: what the daemon knows of itself, and of the running or the last shutdown.


class PodStatus(msgspec.Struct, kw_only=True):
    """One pod of the current or last shutdown."""

    label: str
    wave: int
    grace_seconds: int
    priority: int
    phase: str = "waiting"
    reason: str = ""
    began_ns: int = 0
    elapsed_ns: int = 0


class WaveStatus(msgspec.Struct, kw_only=True):
    wave: int
    priority: int
    period_ns: int
    pods: int
    began_ns: int = 0
    deadline_ns: int = 0
    ended_ns: int = 0
    phase: str = "waiting"


class DaemonStatus(NodePartsStatus, kw_only=True):
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
    waves: dict[int, WaveStatus] = {}
    pods: dict[str, PodStatus] = {}

    @property
    def labels(self) -> dict[str, str]:
        """The names of its pods, by UID."""
        return {uid: pod.label for uid, pod in self.pods.items()}

    def fold(self, records: Sequence[Record]) -> None:
        for record in records:
            change = STATUS_FOLD.get(type(record.event))
            if change is not None:
                change(self, record.event, record)


def planned_wave(index: int, wave: PlannedWave) -> WaveStatus:
    """A wave that has not begun."""
    return WaveStatus(
        wave=index, priority=wave.priority, period_ns=wave.period_seconds * NS_PER_SECOND, pods=len(wave.pods)
    )


def _config_adopted(to: DaemonStatus, event: d.ConfigAdopted, record: Record) -> None:
    """What is needed follows from the configuration: it must be known before logind was ever read."""
    to.enabled = event.enabled
    to.needed_ns = event.requested_ns + event.reserve_ns if event.enabled else 0


def _armed(to: DaemonStatus, event: d.Armed, record: Record) -> None:
    to.armed, to.why_not, to.retry_at_ns = True, "", 0


def _disarmed(to: DaemonStatus, event: d.Disarmed, record: Record) -> None:
    to.armed, to.why_not, to.retry_at_ns = False, event.reason, event.retry_at_ns


def _daemon_started(to: DaemonStatus, event: f.DaemonStarted, record: Record) -> None:
    # A lock that was kept over the restart is not enough: the signal has to be trusted too, which takes a
    # look at logind by this process.
    to.armed, to.why_not = False, "starting"
    to.starts_wall_ns = record.wall_ns
    to.forget_health()


def _logind_read(to: DaemonStatus, event: f.LogindRead, record: Record) -> None:
    to.grant_ns, to.kubelet_lock = event.grant_ns, event.kubelet_lock


def _grant_assessed(to: DaemonStatus, event: d.GrantAssessed, record: Record) -> None:
    to.sufficient = event.sufficient


def _schedule_read(to: DaemonStatus, event: f.ScheduleRead, record: Record) -> None:
    to.scheduled_wall_ns = event.at_wall_ns


def _shutdown_began(to: DaemonStatus, event: d.ShutdownBegan, record: Record) -> None:
    to.phase, to.last_episode, to.kind = "running", record.episode, event.kind
    to.began_ns, to.began_wall_ns, to.deadline_ns = record.mono_ns, record.wall_ns, event.deadline_ns
    to.released_ns = 0
    to.waves, to.pods = {}, {}
    to.begin_shutdown()


def _plan_made(to: DaemonStatus, event: d.PlanMade, record: Record) -> None:
    to.waves |= {index: planned_wave(index, wave) for index, wave in enumerate(event.waves)}


def _pod_planned(to: DaemonStatus, event: d.PodPlanned, record: Record) -> None:
    to.pods[event.pod.uid] = PodStatus(
        label=event.pod.label,
        wave=event.wave,
        grace_seconds=event.grace_seconds,
        priority=event.pod.priority or 0,
    )


def _wave_started(to: DaemonStatus, event: d.WaveStarted, record: Record) -> None:
    # None where the part of the journal with the plan cannot be read: `ebbtide.recover` fills it in at the
    # end.
    wave = to.waves.get(event.wave)
    if wave is not None:
        wave.phase, wave.began_ns, wave.deadline_ns = "running", record.mono_ns, event.deadline_ns


def _wave_ended(to: DaemonStatus, event: d.WaveEnded, record: Record) -> None:
    wave = to.waves.get(event.wave)
    if wave is not None:
        wave.phase, wave.ended_ns = event.outcome, record.mono_ns


def _pod_phase(to: DaemonStatus, uid: str, phase: str, record: Record) -> None:
    pod = to.pods.get(uid)
    # "ended": known from the actors' states only (`ebbtide.recover`), which do not tell how.
    if pod is not None and pod.phase != "ended":
        pod.phase = phase
        # From its first stop on: its grace runs through hook, signal and SIGKILL.
        pod.began_ns = pod.began_ns or record.mono_ns


def _hook_started(to: DaemonStatus, event: d.HookStarted, record: Record) -> None:
    _pod_phase(to, event.uid, f"preStop {event.kind}", record)


def _signal_sent(to: DaemonStatus, event: d.SendSignal, record: Record) -> None:
    _pod_phase(to, event.uid, event.signal, record)


def _pod_deleted(to: DaemonStatus, event: d.DeletePod, record: Record) -> None:
    _pod_phase(to, event.uid, "deleted", record)


def _container_killed(to: DaemonStatus, event: d.KillContainer, record: Record) -> None:
    _pod_phase(to, event.uid, "SIGKILL", record)


def _pod_ended(to: DaemonStatus, event: d.PodEnded, record: Record) -> None:
    pod = to.pods.get(event.uid)
    if pod is not None:
        pod.phase, pod.reason, pod.elapsed_ns = event.outcome, event.reason, event.elapsed_ns


def _deadline_moved(to: DaemonStatus, event: d.DeadlineMoved, record: Record) -> None:
    to.deadline_ns = event.deadline_ns


def _lock_released(to: DaemonStatus, event: d.ReleaseLock, record: Record) -> None:
    to.phase, to.last_outcome, to.released_ns = "released", "complete", record.mono_ns
    to.armed, to.why_not = False, "the lock was released, the machine may go"


def _shutdown_cancelled(to: DaemonStatus, event: d.ShutdownCancelled, record: Record) -> None:
    to.phase = "cancelling"


def _episode_closed(to: DaemonStatus, event: d.EpisodeClosed, record: Record) -> None:
    to.phase, to.last_outcome = "idle", event.outcome


STATUS_FOLD: dict[type[Event], Callable[[DaemonStatus, Any, Record], None]] = {
    d.ConfigAdopted: _config_adopted,
    d.Armed: _armed,
    d.Disarmed: _disarmed,
    f.DaemonStarted: _daemon_started,
    f.LogindRead: _logind_read,
    d.GrantAssessed: _grant_assessed,
    f.ScheduleRead: _schedule_read,
    d.ShutdownBegan: _shutdown_began,
    d.PlanMade: _plan_made,
    d.PodPlanned: _pod_planned,
    d.WaveStarted: _wave_started,
    d.WaveEnded: _wave_ended,
    d.HookStarted: _hook_started,
    d.DeletePod: _pod_deleted,
    d.SendSignal: _signal_sent,
    d.KillContainer: _container_killed,
    d.PodEnded: _pod_ended,
    d.DeadlineMoved: _deadline_moved,
    d.ReleaseLock: _lock_released,
    d.ShutdownCancelled: _shutdown_cancelled,
    d.EpisodeClosed: _episode_closed,
    **NODE_FOLD,
}

#: The tags of the records that change anything.
FOLDED_TAGS = frozenset(kind.__name__ for kind in STATUS_FOLD)


# What ``ebbtide status`` shows, as data: made by the daemon, printed by the command.


def status_of(
    status: DaemonStatus, writer: Writer, trace_id: str, sleeps_terminated_early: int, now_ns: int
) -> dict[str, Any]:
    """``kind: Status``. Times are seconds; ``shutdown`` is the running or the last one, or null.

    ``node`` is nulls where the pods are local processes. ``sleeps_terminated_early`` counts over all that
    the journal remembers (KEP-3960).
    """
    shutdown = None
    if status.last_episode:
        # The deadline of one that is over may be another boot's, on another clock.
        left_ns = 0 if status.phase == "idle" else max(0, status.deadline_ns - now_ns)
        shutdown = {
            "id": episode_id(writer.journal_id, status.last_episode),
            "traceId": trace_id,
            "kind": status.kind,
            "began": status.began_wall_ns / NS_PER_SECOND,
            "leftSeconds": left_ns / NS_PER_SECOND,
            "waves": [
                {"wave": wave.wave, "priority": wave.priority, "pods": wave.pods, "phase": wave.phase}
                for wave in status.waves.values()
            ],
            "pods": [
                {"pod": pod.label, "wave": pod.wave, "phase": pod.phase, "reason": pod.reason}
                for pod in status.pods.values()
            ],
        }
    return {
        "kind": "Status",
        "version": 1,
        "enabled": status.enabled,
        "armed": status.armed,
        "whyNot": status.why_not,
        "grantSeconds": status.grant_ns / NS_PER_SECOND,
        "neededSeconds": status.needed_ns / NS_PER_SECOND,
        "sufficient": status.sufficient,
        "scheduledWallNs": status.scheduled_wall_ns,
        "phase": status.phase,
        "lastOutcome": status.last_outcome,
        "sleepActionTerminatedEarlyTotal": sleeps_terminated_early,
        "node": node_json(status),
        "journal": {
            "id": writer.journal_id.hex(),
            "location": writer.location,
            "writtenSeq": writer.written_seq,
            "syncedSeq": writer.synced_seq,
        },
        "shutdown": shutdown,
    }


# What ``ebbtide status`` says of a Kubernetes node: who answers, who ends its pods, what may be detached.


#: As the daemon writes it, beside its journal (`actors.edges.kubernetes.pods`).
POD_CACHE = Path("node", "pods.json")
POD_CACHE_BYTES_MAX = 16 * 1024 * 1024

_ANSWERS = {True: "answers", False: "does not answer", None: "nobody has said yet"}
_UNIT_STATES = {True: "active", False: "not active", None: "not known"}


class _CachedPods(msgspec.Struct):
    pods: list[msgspec.Raw] = []


def node_json(status: DaemonStatus) -> dict[str, Any]:
    """Null: nobody has said since the daemon began. ``means`` and what follows are of the running shutdown,
    or of the last.
    """
    certificate = status.certificate
    return {
        "kubelet": status.kubelet,
        "kubeletLock": status.kubelet_lock,
        "runtime": status.runtime,
        "runtimeError": status.runtime_error,
        "api": status.api,
        "apiError": status.api_error,
        "mayTaint": status.may_taint,
        "means": status.means,
        "meansReason": status.means_reason,
        "handedOver": status.handed_over,
        "leftUndone": [status.labels.get(uid, uid) for uid in status.left_undone],
        "certificate": certificate
        and {
            "safe": certificate.safe,
            "ended": certificate.ended,
            "running": [status.labels.get(uid, uid) for uid in certificate.running],
            "mounted": [[status.labels.get(uid, uid), name] for uid, name in certificate.mounted],
        },
    }


def cached_pods(journal: Path) -> dict[str, Any] | None:
    """How many pods the daemon knows, beside ``journal``, and when that last changed; None: no cache."""
    # From the file, which says it also where no daemon answers.
    path = journal.parent / POD_CACHE
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(POD_CACHE_BYTES_MAX), type=_CachedPods)
        changed = path.stat().st_mtime
    except (OSError, ValueError, msgspec.DecodeError):  # ValueError: bad UTF-8
        return None
    return {"pods": len(found.pods), "changedSecondsAgo": round(max(0.0, time.time() - changed), 1)}


def node_rows(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """For people; nothing where the pods are local processes, or an older daemon says nothing of it."""
    node, mode = document.get("node"), document.get("mode", PROCESS)
    if node is None or mode == PROCESS:
        return
    yield "mode", mode
    own = ", holds a delay lock of its own" if node["kubeletLock"] else ""
    yield "kubelet", _UNIT_STATES[node["kubelet"]] + own
    yield "runtime", _answer_text(node["runtime"], node["runtimeError"])
    taint = ", may not taint this node" if node["api"] and not node["mayTaint"] else ""
    yield "API server", _answer_text(node["api"], node["apiError"]) + taint
    if known := document.get("knownPods"):
        yield "pods known", f"{known['pods']}, last change {known['changedSecondsAgo']:g} s ago"
    if node["means"]:
        yield "pods ended by", f"{node['means']} ({node['meansReason']})"
    if node["handedOver"]:
        yield "handed over", node["handedOver"]
    if node["leftUndone"]:
        yield "left undone", ", ".join(node["leftUndone"])
    if certificate := node["certificate"]:
        running, mounted = len(certificate["running"]), len(certificate["mounted"])
        safe = f"safe to detach: {certificate['ended']} pods ended, nothing is mounted"
        unsafe = f"not safe to detach: {running} pods running, {mounted} volumes mounted"
        yield "volumes", safe if certificate["safe"] else unsafe


def _answer_text(reachable: bool | None, error: str) -> str:
    return _ANSWERS[reachable] + (f": {error}" if error and not reachable else "")
