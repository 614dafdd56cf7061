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
        self.early: dict[str, str] = {}
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
        why = [end.reason, self.early.get(uid, ""), _cut(planned)]
        return Row(label, wave, grace, end.outcome, end.elapsed_ns, "; ".join(filter(None, why)))


def _cut(planned: d.PodPlanned) -> str:
    asked = planned.pod.grace_seconds
    if asked is None or asked <= planned.grace_seconds:
        return ""
    return f"asked for {asked} s, its wave has {planned.grace_seconds} s"


def _appeared(to: Chronicle, event: f.PodAppeared, record: Record) -> None:
    if not to.began_ns:
        to.wanted[event.pod.uid] = len(event.pod.containers)


def _started(to: Chronicle, event: f.ContainerStarted, record: Record) -> None:
    to.started.add((event.uid, event.container))


def _began(to: Chronicle, event: d.ShutdownBegan, record: Record) -> None:
    to.began_ns, to.kind = record.mono_ns, event.kind


def _planned(to: Chronicle, event: d.PodPlanned, record: Record) -> None:
    to.pods[event.pod.uid] = event


def _hook_ended(to: Chronicle, event: d.HookEnded, record: Record) -> None:
    if event.early and event.result == "done":
        seconds = event.elapsed_ns / NS_PER_SECOND
        to.early[event.uid] = f"preStop sleep of {event.container} ended early, after {seconds:.1f} s: {event.reason}"


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
    d.HookEnded: _hook_ended,
    d.PodEnded: _pod_ended,
    d.PodRejected: _rejected,
    d.ReleaseLock: _released,
}
