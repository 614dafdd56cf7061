"""What the demo tells at its end that the node's standing does not keep: autopsies, late pods, hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from events import decisions as d
from events import facts as f
from events.base import NS_PER_SECOND, Event
from events.record import Record


class Row(NamedTuple):
    """One pod's fate. ``wave`` and ``grace_seconds`` are None for a pod that was turned away."""

    pod: str
    wave: int | None
    grace_seconds: int | None
    outcome: str
    took_ns: int
    why: str


class Chronicle:
    """Folded from the records as they come."""

    def __init__(self) -> None:
        self.began_ns = 0
        self.ended_ns = 0
        self.kind = ""
        self.pods: dict[str, d.PodPlanned] = {}
        self.ends: dict[str, d.PodEnded] = {}
        self.rejected: dict[str, d.PodRejected] = {}
        self.notes: dict[str, list[str]] = {}
        self.hooks: dict[tuple[str, str], str] = {}
        self.exits: dict[str, int] = {}
        self.autopsies: list[f.AutopsyTaken] = []
        self.started: set[tuple[str, str]] = set()
        self.wanted: dict[str, int] = {}

    def fold(self, records: Sequence[Record]) -> None:
        for record in records:
            take = TAKE.get(type(record.event))
            if take is not None:
                take(self, record.event, record)

    def label(self, uid: str) -> str:
        return self.pods[uid].pod.label if uid in self.pods else uid

    @property
    def all_up(self) -> bool:
        """Every container of every pod that has appeared runs."""
        return bool(self.wanted) and len(self.started) >= sum(self.wanted.values())

    @property
    def took_ns(self) -> int:
        """From the signal to the release."""
        return self.ended_ns - self.began_ns

    def rows(self) -> list[Row]:
        """In the order of the waves; those that were turned away last."""
        planned = sorted(self.pods.items(), key=lambda item: item[1].wave)
        rejected = [Row(pod.label, None, None, "rejected", 0, pod.message) for pod in self.rejected.values()]
        return [self._row(uid, planned) for uid, planned in planned] + rejected

    def _row(self, uid: str, planned: d.PodPlanned) -> Row:
        end = self.ends.get(uid)
        label, wave, grace = planned.pod.label, planned.wave, planned.grace_seconds
        if end is None:
            return Row(label, wave, grace, "unknown", 0, "not ended when the machine was let go")
        why = [end.reason, *self.notes.get(uid, ()), *_cut(planned)]
        return Row(label, wave, grace, end.outcome, end.elapsed_ns, "; ".join(why))

    def note(self, uid: str, text: str) -> None:
        self.notes.setdefault(uid, []).append(text)


def _cut(planned: d.PodPlanned) -> list[str]:
    asked = planned.pod.grace_seconds
    if asked is None or asked <= planned.grace_seconds:
        return []
    return [f"asked for {asked} s, its wave has {planned.grace_seconds} s"]


def _seconds(ns: int) -> str:
    return f"{ns / NS_PER_SECOND:.1f} s"


def _appeared(to: Chronicle, event: f.PodAppeared, record: Record) -> None:
    if not to.began_ns:
        to.wanted[event.pod.uid] = len(event.pod.containers)


def _started(to: Chronicle, event: f.ContainerStarted, record: Record) -> None:
    to.started.add((event.uid, event.container))


def _began(to: Chronicle, event: d.ShutdownBegan, record: Record) -> None:
    to.began_ns, to.kind = record.mono_ns, event.kind


def _planned(to: Chronicle, event: d.PodPlanned, record: Record) -> None:
    to.pods[event.pod.uid] = event


def _hook_started(to: Chronicle, event: d.HookStarted, record: Record) -> None:
    to.hooks[event.uid, event.container] = event.kind


def _hook_ended(to: Chronicle, event: d.HookEnded, record: Record) -> None:
    """A hook that failed stands in the pod's reason already."""
    if event.result != "done":
        return
    hook = f"preStop {to.hooks.get((event.uid, event.container), 'hook')}"
    early = f" ended early, {event.reason}" if event.early else ""
    to.note(event.uid, f"{hook} {_seconds(event.elapsed_ns)}{early}")


def _signalled(to: Chronicle, event: d.SendSignal, record: Record) -> None:
    if event.signal != "SIGTERM":
        to.note(event.uid, f"stopped with {event.signal}")


def _exited(to: Chronicle, event: f.ContainerExited, record: Record) -> None:
    """A sidecar's end is told against that of the last container before it."""
    planned = to.pods.get(event.uid)
    sidecars = [each.name for each in planned.pod.containers if each.sidecar] if planned else []
    if event.container in sidecars and event.uid in to.exits:
        after = _seconds(record.mono_ns - to.exits[event.uid])
        to.note(event.uid, f"sidecar {event.container} ended {after} after the rest")
    to.exits[event.uid] = record.mono_ns


def _pod_ended(to: Chronicle, event: d.PodEnded, record: Record) -> None:
    to.ends[event.uid] = event


def _rejected(to: Chronicle, event: d.PodRejected, record: Record) -> None:
    to.rejected[event.uid] = event


def _autopsy(to: Chronicle, event: f.AutopsyTaken, record: Record) -> None:
    to.autopsies.append(event)


def _released(to: Chronicle, event: d.ReleaseLock, record: Record) -> None:
    to.ended_ns = record.mono_ns


TAKE: dict[type[Event], Callable[[Chronicle, Any, Record], None]] = {
    f.PodAppeared: _appeared,
    f.ContainerStarted: _started,
    f.AutopsyTaken: _autopsy,
    d.ShutdownBegan: _began,
    d.PodPlanned: _planned,
    f.ContainerExited: _exited,
    d.HookStarted: _hook_started,
    d.HookEnded: _hook_ended,
    d.SendSignal: _signalled,
    d.PodEnded: _pod_ended,
    d.PodRejected: _rejected,
    d.ReleaseLock: _released,
}
