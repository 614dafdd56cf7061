"""The daemon's status: a fold of the journal, and what ``ebbtide status`` and the live view show of it.

Folded from records one by one, at a start from the last few megabytes of the journal; where those are not
enough, `ebbtide.recover` takes what the control socket's verbs need from the actors' states.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from ebbtide.actors.policy.planning import first_names
from ebbtide.events import decisions as d
from ebbtide.events.base import NS_PER_SECOND, Event, Record, episode_id, head_text
from ebbtide.events.messages import boot_end_text
from ebbtide.events.record.format import rfc3339, utc_text
from ebbtide.events.record.node_state import NODE_EVENTS, NOT_STARTED, STARTING, NodeState
from ebbtide.events.units import json_seconds, short_span
from ebbtide.events.values import PlannedWave, TerminationMode
from ebbtide.events.writer import Writer
from ebbtide.options import PROCESS
from ebbtide.otel.metric_table import ShippingState

#: ``none``: the shutdown began without one; ``lost``: a process that was started in it has not got it back.
ShutdownLock = Literal["", "held", "none", "lost", "released"]


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


class DaemonStatus(NodeState):
    """The node, and its running or last shutdown. ``*_ns`` are monotonic nanoseconds of this boot."""

    phase: str = "idle"
    #: The running or the last shutdown.
    last_episode: int = 0
    kind: str = ""
    began_wall_ns: int = 0
    began_ns: int = 0
    deadline_ns: int = 0
    released_ns: int = 0
    last_outcome: str = ""
    #: The lock in the running shutdown; empty: none runs.
    lock: ShutdownLock = ""
    waves: dict[int, WaveStatus] = {}
    pods: dict[str, PodStatus] = {}
    #: By which means the pods of the running or the last shutdown are ended; empty: not said.
    means: TerminationMode = ""
    means_reason: str = ""
    #: Why it was handed over to the runtime; empty: it was not.
    handed_over: str = ""
    #: None: nobody has looked.
    certificate: d.DetachCertified | None = None
    #: UIDs of what the kubelet had not done at the release.
    left_undone: tuple[str, ...] = ()

    @property
    def starting(self) -> bool:
        """It is not known yet whether it will be armed."""
        return self.phase == "idle" and self.why_not in (NOT_STARTED, STARTING)

    @property
    def unheard(self) -> str:
        """On a node that is armed: of whom nobody has said yet whether they answer; empty: of nobody. Who
        answers has listed its pods; who does not has its reason on record.
        """
        if not self.armed or self.phase != "idle":
            return ""
        asked = {"the container runtime": self.runtime, "the API server": self.api}
        return " and ".join(name for name, answers in asked.items() if answers is None)

    @property
    def labels(self) -> dict[str, str]:
        """The names of its pods, by UID."""
        return {uid: pod.label for uid, pod in self.pods.items()}

    def fold(self, records: Sequence[Record]) -> None:
        """Take in a step's records. What is matched here is listed in `FOLDED`, by which a start filters; a
        test (tests/daemon/test_status.py) holds the two equal.
        """
        for record in records:
            event = record.event
            if type(event) not in FOLDED:
                continue
            self.see(record)
            match event:
                case d.Resumed():
                    # logind gives none while the machine goes down: one that is lost stays lost.
                    if event.action == "resume" and self.lock == "held" and not self.lock_inherited:
                        self.lock = "lost"
                # --- a shutdown ---
                case d.ShutdownBegan():
                    self.phase, self.last_episode, self.kind = "running", record.episode, event.kind
                    self.began_ns, self.began_wall_ns = record.mono_ns, record.wall_ns
                    self.deadline_ns, self.released_ns = event.deadline_ns, 0
                    self.lock = "held" if event.lock_held else "none"
                    self.waves, self.pods = {}, {}
                    self.means, self.means_reason, self.handed_over = "", "", ""
                    self.certificate, self.left_undone = None, ()
                case d.MeansChosen():
                    self.means, self.means_reason = event.means, event.reason
                case d.HandedOver():
                    self.handed_over = event.reason
                case d.PlanMade():
                    self.waves |= {index: planned_wave(index, wave) for index, wave in enumerate(event.waves)}
                case d.DeadlineMoved():
                    self.deadline_ns = event.deadline_ns
                case d.DetachCertified():
                    self.certificate = event
                case d.LeftUndone():
                    self.left_undone = tuple(dict.fromkeys((*event.running, *event.without_status)))
                case d.ReleaseLock():
                    self.phase, self.last_outcome, self.released_ns = "released", "complete", record.mono_ns
                    self.lock = "released"
                case d.ShutdownCancelled():
                    self.phase = "cancelling"
                case d.EpisodeClosed():
                    self.phase, self.last_outcome, self.lock = "idle", event.outcome, ""
                # --- its waves, which are missing where the journal's part with the plan cannot be read ---
                case d.WaveStarted():
                    if wave := self.waves.get(event.wave):
                        wave.phase, wave.began_ns = "running", record.mono_ns
                        wave.deadline_ns = event.deadline_ns
                case d.WaveEnded():
                    if wave := self.waves.get(event.wave):
                        wave.phase, wave.ended_ns = event.outcome, record.mono_ns
                # --- its pods, likewise ---
                case d.PodPlanned():
                    self.pods[event.pod.uid] = PodStatus(
                        label=event.pod.label,
                        wave=event.wave,
                        grace_seconds=event.grace_seconds,
                        priority=event.pod.priority or 0,
                    )
                case d.HookStarted():
                    self._stop_pod(event.uid, f"preStop {event.kind}", record.mono_ns)
                case d.DeletePod():
                    self._stop_pod(event.uid, "deleted", record.mono_ns)
                case d.SendSignal():
                    self._stop_pod(event.uid, event.signal, record.mono_ns)
                case d.KillContainer():
                    self._stop_pod(event.uid, "SIGKILL", record.mono_ns)
                case d.PodEnded():
                    if pod := self.pods.get(event.uid):
                        pod.phase, pod.reason = event.outcome, event.reason
                        pod.elapsed_ns = event.elapsed_ns

    def _stop_pod(self, uid: str, phase: str, now_ns: int) -> None:
        pod = self.pods.get(uid)
        # "ended": known from the actors' states only (`ebbtide.recover`), which do not tell how.
        if pod is not None and pod.phase != "ended":
            pod.phase = phase
            # From its first stop on: its grace runs through hook, signal and SIGKILL.
            pod.began_ns = pod.began_ns or now_ns


#: The events that change anything. Most records are of others, and a start need not even decode those.
FOLDED: frozenset[type[Event]] = frozenset(
    (
        *NODE_EVENTS,
        *(d.Resumed, d.ShutdownBegan, d.MeansChosen, d.HandedOver, d.PlanMade, d.DeadlineMoved),
        *(d.DetachCertified, d.LeftUndone, d.ReleaseLock, d.ShutdownCancelled, d.EpisodeClosed),
        *(d.WaveStarted, d.WaveEnded),
        *(d.PodPlanned, d.HookStarted, d.DeletePod, d.SendSignal, d.KillContainer, d.PodEnded),
    )
)
FOLDED_TAGS = frozenset(kind.__name__ for kind in FOLDED)


def planned_wave(index: int, wave: PlannedWave) -> WaveStatus:
    """A wave that has not begun."""
    return WaveStatus(
        wave=index, priority=wave.priority, period_ns=wave.period_seconds * NS_PER_SECOND, pods=len(wave.pods)
    )


# What ``ebbtide status`` shows, as data: made by the daemon, printed by the command.


def status_of(
    status: DaemonStatus, writer: Writer, trace_id: str, sleeps_terminated_early: int, now_ns: int
) -> dict[str, Any]:
    """``kind: Status``. Durations are seconds; ``shutdown`` is the running or the last one, or null. A moment
    is RFC 3339 under a key that ends in ``Time``; the same in seconds since 1970 is of earlier releases.

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
            "beganTime": rfc3339(status.began_wall_ns),
            "leftSeconds": json_seconds(left_ns),
            "lock": status.lock or None,
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
        "armedSince": rfc3339(status.armed_wall_ns) if status.armed_wall_ns else None,
        "whyNot": status.why_not,
        "grantSeconds": json_seconds(status.grant_ns),
        "neededSeconds": json_seconds(status.needed_ns),
        "sufficient": status.sufficient,
        "scheduledWallNs": status.scheduled_wall_ns,
        "scheduledTime": rfc3339(status.scheduled_wall_ns) if status.scheduled_wall_ns else None,
        "phase": status.phase,
        "lastOutcome": status.last_outcome,
        "lastBoot": None if status.last_boot is None else last_boot_json(status.last_boot),
        "sleepActionTerminatedEarlyTotal": sleeps_terminated_early,
        "node": node_json(status),
        "journal": {
            "id": writer.journal_id.hex(),
            "location": writer.location,
            "writtenSeq": writer.written_seq,
            "syncedSeq": writer.synced_seq,
            "head": head_text(*writer.head),
        },
        "shutdown": shutdown,
    }


#: What a pod's phase is called when nothing more is to come of it; ``ended``: by actors' states only, which
#: do not tell how.
OVER = (*get_args(d.PodOutcome), "ended")

#: What it means that logind waits for nobody.
UNPROTECTED = "logind waits for nobody: the machine may go down before the pods have ended"
LOCK_TEXTS = {
    "lost": "LOCK LOST: the daemon was started again in this shutdown and did not get its lock back; "
    + UNPROTECTED,
    "none": f"NO LOCK: this shutdown began without one; {UNPROTECTED}",
}


def progress_text(shutdown: dict[str, Any]) -> str:
    """``2 of 4 pods ended, wave 1 (2 of 3), 12 s left``: of a shutdown that runs."""
    pods, waves = shutdown["pods"], shutdown["waves"]
    ended = sum(pod["phase"] in OVER for pod in pods)
    running = [number for number, wave in enumerate(waves, start=1) if wave["phase"] == "running"]
    at = ", ".join(f"wave {waves[number - 1]['wave']} ({number} of {len(waves)})" for number in running)
    left = f"{short_span(shutdown['leftSeconds'])} left"
    return ", ".join(part for part in (f"{ended} of {len(pods)} pods ended", at, left) if part)


def ended_text(labels: Sequence[str]) -> str:
    """Of pods of mode process that stay down: nobody starts a local process again that has ended."""
    have, them = ("has ended and is", "it") if len(labels) == 1 else ("have ended and are", "them")
    return f"{first_names(labels)} {have} not started again: write the manifest anew (touch) to start {them}"


def last_boot_json(said: d.LastBootEnded) -> dict[str, Any]:
    """``wave`` null: it was not cut short in one; ``alive`` (the last sign of life) null: none is left."""
    return {
        "bootId": said.boot_id,
        "ending": said.ending,
        "why": said.why,
        "wave": said.wave if said.wave >= 0 else None,
        "alive": said.alive_wall_ns / NS_PER_SECOND if said.alive_wall_ns else None,
        "aliveTime": rfc3339(said.alive_wall_ns) if said.alive_wall_ns else None,
    }


def last_boot_text(said: dict[str, Any]) -> str:
    """The same for people."""
    wave, alive = said["wave"], said["alive"]
    text = boot_end_text(said["ending"], said["why"], -1 if wave is None else wave)
    # Of a boot that ended in order its shutdown says when.
    seen = alive is not None and said["ending"] != "graceful"
    return f"{text}; last seen {utc_text(round(alive * NS_PER_SECOND))}" if seen else text


def shipping_json(state: ShippingState | None) -> dict[str, Any]:
    """``pending`` null: nobody has looked since the daemon began. ``oldestTime``: when the oldest closed
    segment that is not in the store was last written; null: there is none. ``lost``: removed here before.
    """
    if state is None:
        return {"pending": None, "oldestTime": None, "reason": "", "lost": None}
    oldest = rfc3339(state.oldest_wall_ns) if state.oldest_wall_ns else None
    return {"pending": state.pending, "oldestTime": oldest, "reason": state.reason, "lost": state.lost}


def shipping_text(said: dict[str, Any]) -> str:
    """The same for people."""
    pending, oldest = said["pending"], said["oldestTime"]
    if pending is None:
        return "nobody has looked yet"
    text = (
        f"{pending} closed segments wait for the store"
        if pending
        else "no closed segment waits for the store"
    )
    since = f", the oldest since {time_text(oldest)}" if oldest else ""
    reason = f": {said['reason']}" if said["reason"] else ""
    lost = f"; {said['lost']} were removed before they were known to be there" if said["lost"] else ""
    return f"{text}{since}{reason}{lost}"


def time_text(time: str) -> str:
    """``2026-03-01 12:00:00.000 UTC``, of an RFC 3339 time in UTC."""
    return f"{time[:10]} {time[11:23]} UTC"


# What ``ebbtide status`` says of a Kubernetes node: who answers, who ends its pods, what may be detached.


#: As the daemon writes it, beside its journal (`actors.edges.kubernetes.known_pods`).
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
            "restarts": certificate.restarts,
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
    except (OSError, ValueError, RecursionError):  # damaged: as good as none
        return None
    return {"pods": len(found.pods), "changedSecondsAgo": round(max(0.0, time.time() - changed), 1)}


def node_rows(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """For people; nothing where the pods are local processes, or an older daemon says nothing of it."""
    node = document.get("node")
    if node is None or document.get("mode", PROCESS) == PROCESS:
        return
    own = ", holds a delay lock of its own" if node["kubeletLock"] else ""
    yield "kubelet", _UNIT_STATES[node["kubelet"]] + own
    yield "runtime", _answer_text(node["runtime"], node["runtimeError"])
    taint = ", may not taint this node" if node["api"] and not node["mayTaint"] else ""
    yield "API server", _answer_text(node["api"], node["apiError"]) + taint
    if known := document.get("knownPods"):
        yield "pods known", f"{known['pods']}, last change {short_span(known['changedSecondsAgo'])} ago"
    if node["means"]:
        yield "pods ended by", f"{node['means']} ({node['meansReason']})"
    if node["handedOver"]:
        yield "handed over", node["handedOver"]
    if node["leftUndone"]:
        yield "left undone", ", ".join(node["leftUndone"])
    if certificate := node["certificate"]:
        running, mounted = len(certificate["running"]), len(certificate["mounted"])
        safe = f"safe to detach: {certificate['ended']} pods ended, nothing is mounted"
        again = ", the kubelet may have started pods again" if certificate["restarts"] else ""
        unsafe = f"not safe to detach: {running} pods running, {mounted} volumes mounted{again}"
        yield "volumes", safe if certificate["safe"] else unsafe


def _answer_text(reachable: bool | None, error: str) -> str:
    return _ANSWERS[reachable] + (f": {error}" if error and not reachable else "")
