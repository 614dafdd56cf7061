"""The daemon's status: the node's state and the record of its last shutdown, for ``ebbtide status`` and the
live view.

A start folds the last few megabytes of the journal. `ebbtide.recover` adds what these lack.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Literal

import msgspec

from ebbtide.events import decisions as d
from ebbtide.events.base import Record, Stamp, episode_id, head_text
from ebbtide.events.record.fold import (
    NODE_EVENTS,
    NOT_STARTED,
    STARTING,
    NodeState,
    RecordPoint,
    ShutdownFold,
)
from ebbtide.events.record.format import document, json_object, rfc3339
from ebbtide.events.record.shutdown_record import BY_KUBELET_TEXTS, PodRecord, ShutdownRecord, WaveRecord
from ebbtide.events.units import json_seconds
from ebbtide.events.writer import Writer
from ebbtide.otel.metric_table import ShippingState

#: ``none``: the shutdown began without one; ``lost``: a process that started in it did not get it back.
ShutdownLock = Literal["", "held", "none", "lost", "released"]


class DaemonStatus(NodeState):
    """``*_ns`` are monotonic nanoseconds of this boot."""

    phase: str = "idle"
    last_outcome: str = ""
    #: The running or the last one; number 0: there was none.
    shutdown: ShutdownFold = msgspec.field(default_factory=lambda: ShutdownFold(0, Stamp(0, 0)))

    @property
    def starting(self) -> bool:
        """Not armed yet, without a reason."""
        return self.phase == "idle" and self.why_not in (NOT_STARTED, STARTING)

    @property
    def unheard(self) -> str:
        """On an armed node: the parts with an unknown state. A part that answers has listed its pods; another
        has its reason on record.
        """
        if not self.armed or self.phase != "idle":
            return ""
        asked = {"the container runtime": self.runtime, "the API server": self.api}
        return " and ".join(name for name, answers in asked.items() if answers is None)

    @property
    def record(self) -> ShutdownRecord:
        return self.shutdown.record

    @property
    def last_episode(self) -> int:
        return self.shutdown.number

    @property
    def kind(self) -> str:
        return self.record.kind

    @property
    def began_wall_ns(self) -> int:
        return self.record.started_wall_ns

    @property
    def began_ns(self) -> int:
        return self.record.started_mono_ns

    @property
    def deadline_ns(self) -> int:
        return self.began_ns + self.record.deadline_ns

    @property
    def released_ns(self) -> int:
        since_ns = self.shutdown.released_ns
        return 0 if since_ns is None else self.began_ns + since_ns

    @property
    def lock(self) -> ShutdownLock:
        """Empty: no shutdown runs."""
        if self.phase == "idle":
            return ""
        if self.released_ns:
            return "released"
        if not self.record.lock_held:
            return "none"
        return "held" if self.record.lock_lost_ns is None else "lost"

    @property
    def pods(self) -> dict[str, PodRecord]:
        """In the order of the plan, then the others."""
        shutdown = self.shutdown
        return {uid: shutdown.pods[uid] for uid in dict.fromkeys((*shutdown.planned, *shutdown.pods))}

    @property
    def labels(self) -> dict[str, str]:
        """By UID."""
        return {uid: pod.label for uid, pod in self.shutdown.pods.items() if pod.namespace}

    def fold(self, records: Sequence[Record]) -> None:
        """`FOLDED_TAGS` has every type that counts."""
        for record in records:
            event = record.event
            if type(event) in NODE_EVENTS:
                self.see(record)
            if isinstance(event, d.ShutdownBegan):
                self.phase = "running"
                self.shutdown = ShutdownFold(record.episode, Stamp(record.mono_ns, record.wall_ns))
            fold = self.shutdown
            # A start in the middle is a record of no shutdown.
            if fold.number and (self.phase != "idle" or record.episode == fold.number):
                fold.point = RecordPoint(record.seq, record.mono_ns - fold.started.mono_ns, True)
                fold.see(event)
            match event:
                case d.ReleaseLock():
                    self.phase, self.last_outcome = "released", "complete"
                case d.ShutdownCancelled():
                    self.phase = "cancelling"
                case d.EpisodeClosed():
                    self.phase, self.last_outcome = "idle", event.outcome


def pod_phase(pod: PodRecord) -> str:
    """Its fate, or the last step of its stop."""
    if pod.outcome or pod.gone:
        return pod.outcome or "ended"
    asked = BY_KUBELET_TEXTS.get(pod.means, "deleted")
    steps: list[tuple[int | None, str]] = [(hook.began_ns, f"preStop {hook.kind}") for hook in pod.hooks]
    for each in pod.containers:
        steps += ((each.asked_ns, asked), (each.signalled_ns, each.stop_signal), (each.killed_ns, "SIGKILL"))
    known = [(at_ns, name) for at_ns, name in steps[::-1] if at_ns is not None]
    return max(known, key=itemgetter(0), default=(0, "waiting"))[1]


def wave_phase(wave: WaveRecord) -> str:
    return "running" if wave.outcome == "open" else wave.outcome


#: Frequent in a shutdown's record, and not shown in the status.
_NOT_SHOWN = ("OrderEnded", "HookEnded", "ContainerExited", "AutopsyTaken")
#: A start need not decode other types.
FOLDED_TAGS = frozenset(kind.__name__ for kind in NODE_EVENTS).union(
    tag for tag in ShutdownFold.handlers if tag not in _NOT_SHOWN
)


#: The fields that keep their names.
_OF_STATUS = (
    *("enabled", "armed", "why_not", "grant_ns", "needed_ns"),
    *("sufficient", "phase", "last_outcome"),
)
_OF_BOOT = ("boot_id", "ending", "why")
_OF_NODE = (
    *("kubelet", "kubelet_lock", "runtime", "runtime_error"),
    *("api", "api_error", "may_taint"),
)


def status_of(status: DaemonStatus, writer: Writer, trace_id: str, now_ns: int) -> dict[str, Any]:
    """``kind: Status``. ``shutdown`` is the running or the last one, or null. ``node`` is nulls in mode
    process. Of the last boot, ``wave`` null: not cut short in one; ``alive`` null: no sign of life on record.
    """
    shutdown, last_boot = None, None
    if status.last_episode:
        # A finished shutdown's deadline may be on another boot's clock.
        left_ns = 0 if status.phase == "idle" else max(0, status.deadline_ns - now_ns)
        shutdown = {
            "id": episode_id(writer.journal_id, status.last_episode),
            "traceId": trace_id,
            "kind": status.kind,
            "beganTime": rfc3339(status.began_wall_ns),
            "leftSeconds": json_seconds(left_ns),
            "lock": status.lock or None,
            "waves": [
                {"wave": of.index, "priority": of.priority, "pods": len(of.pods), "phase": wave_phase(of)}
                for of in status.shutdown.waves
            ],
            "pods": [
                {"pod": pod.label, "wave": pod.wave, "phase": pod_phase(pod), "reason": pod.reason}
                for pod in status.pods.values()
            ],
        }
    if (said := status.last_boot) is not None:
        wave, alive_ns = said.wave if said.wave >= 0 else None, said.alive_wall_ns or None
        fields = {name: getattr(said, name) for name in _OF_BOOT}
        last_boot = json_object(fields | {"wave": wave, "alive_time_wall_ns": alive_ns})
    return document(
        "Status",
        1,
        **{name: getattr(status, name) for name in _OF_STATUS},
        armed_since_wall_ns=status.armed_wall_ns or None,
        scheduled_time_wall_ns=status.scheduled_wall_ns or None,
        last_boot=last_boot,
        node=node_json(status),
        journal={
            "id": writer.journal_id.hex(),
            "location": writer.location,
            "writtenSeq": writer.written_seq,
            "syncedSeq": writer.synced_seq,
            "head": head_text(*writer.head),
        },
        shutdown=shutdown,
    )


def shipping_json(state: ShippingState | None) -> dict[str, Any]:
    """``pending`` null: not checked since the daemon began. ``oldestTime``: the last write of the oldest
    closed segment that is not in the store; null: none. ``lost``: removed here before.
    """
    if state is None:
        return {"pending": None, "oldestTime": None, "reason": "", "lost": None}
    oldest = rfc3339(state.oldest_wall_ns) if state.oldest_wall_ns else None
    return {"pending": state.pending, "oldestTime": oldest, "reason": state.reason, "lost": state.lost}


def node_json(status: DaemonStatus) -> dict[str, Any]:
    """Null: unknown since the daemon began. ``means`` and later keys: of the running or the last shutdown."""
    by, labels = status.record.by, status.labels
    fields = json_object({name: getattr(status, name) for name in _OF_NODE})
    fields |= {"means": by.means, "meansReason": by.reason, "handedOver": by.handed_over_reason}
    left = dict.fromkeys((*by.left_running, *by.left_without_status))
    fields["leftUndone"] = [labels.get(uid, uid) for uid in left]
    certificate = by.certificate
    fields["certificate"] = certificate and {
        "safe": certificate.safe,
        "ended": certificate.ended,
        "running": [labels.get(uid, uid) for uid in certificate.running],
        "mounted": [[labels.get(uid, uid), name] for uid, name in certificate.mounted],
        "restarts": certificate.restarts,
    }
    return fields
