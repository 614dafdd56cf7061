"""A run of a shutdown in outline: its waves and pods, folded from events alone.

The recorded run and the new ones are folded by the same function, so that only what was decided differs.
All times are nanoseconds since the signal; None: it did not come to that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from events.base import NS_PER_SECOND, Event
from events.decisions import (
    EpisodeClosed,
    EpisodeOutcome,
    KillContainer,
    PlanMade,
    PodEnded,
    PodOutcome,
    PodPlanned,
    PodsEnded,
    PodStopBegan,
    ReleaseLock,
    SendSignal,
    ShutdownBegan,
    ShutdownWithdrawn,
    WaveEnded,
    WaveStarted,
)
from events.facts import OrderEnded
from events.model import Pod


@dataclass
class WaveLine:
    """One wave of the plan. ``period_ns`` is what it really had, once it began."""

    wave: int
    priority: int
    period_ns: int
    pods: int = 0
    began_ns: int | None = None
    ended_ns: int | None = None
    #: complete, overran, cancelled; open where it began and did not end, waiting where it did not begin.
    outcome: str = "waiting"


@dataclass
class PodLine:
    """One pod. ``grace_ns``: by the plan, and from the beginning of its stop on what it really had."""

    pod: Pod
    wave: int
    grace_ns: int
    began_ns: int | None = None
    killed_ns: int | None = None
    ended_ns: int | None = None
    #: The runtime would not send a stop signal to one of its containers.
    refused: bool = False
    outcome: PodOutcome | None = None
    reason: str = ""

    @property
    def took_ns(self) -> int | None:
        """From the beginning of its stop to its end."""
        if self.began_ns is None or self.ended_ns is None:
            return None
        return self.ended_ns - self.began_ns


@dataclass
class Outline:
    """``total_ns``: from the signal to the release, or to the end of a cancelled shutdown."""

    began: bool = False
    grant_ns: int = 0
    requested_ns: int = 0
    budget_ns: int = 0
    waves: list[WaveLine] = field(default_factory=list)
    pods: dict[str, PodLine] = field(default_factory=dict)
    pods_ended_ns: int | None = None
    released_ns: int | None = None
    closed_ns: int | None = None
    closed: EpisodeOutcome | None = None
    last_ns: int = 0
    #: Stop signals under way: the pod by the order's key.
    signals: dict[str, str] = field(default_factory=dict)

    @property
    def total_ns(self) -> int | None:
        return self.closed_ns if self.closed == "cancelled" else self.released_ns

    @property
    def outcome(self) -> EpisodeOutcome:
        if not self.began:
            return "never-begun"
        if self.closed == "cancelled":
            return "cancelled"
        return "complete" if self.released_ns is not None else "truncated"


def outline(events: Iterable[tuple[int, Event]], signal_ns: int) -> Outline:
    """``events`` are (monotonic nanoseconds, event) in their order."""
    made = Outline()
    for mono_ns, event in events:
        made.last_ns = mono_ns - signal_ns
        fold = _FOLDS.get(type(event))
        if fold is not None:
            fold(made, event, made.last_ns)
    return made


def _began(made: Outline, event: ShutdownBegan, now: int) -> None:
    made.began = True
    made.grant_ns, made.requested_ns, made.budget_ns = event.grant_ns, event.requested_ns, event.budget_ns


def _planned(made: Outline, event: PlanMade, now: int) -> None:
    made.waves = [
        WaveLine(index, wave.priority, wave.period_seconds * NS_PER_SECOND, len(wave.pods))
        for index, wave in enumerate(event.waves)
    ]


def _pod_planned(made: Outline, event: PodPlanned, now: int) -> None:
    if event.late and 0 <= event.wave < len(made.waves):
        made.waves[event.wave].pods += 1
    line = PodLine(event.pod, event.wave, event.grace_seconds * NS_PER_SECOND)
    made.pods.setdefault(event.pod.uid, line)


def _wave_started(made: Outline, event: WaveStarted, now: int) -> None:
    if event.wave < len(made.waves):
        wave = made.waves[event.wave]
        wave.began_ns, wave.outcome, wave.period_ns = now, "open", event.period_ns


def _wave_ended(made: Outline, event: WaveEnded, now: int) -> None:
    if event.wave < len(made.waves):
        made.waves[event.wave].ended_ns, made.waves[event.wave].outcome = now, event.outcome


def _stop_began(made: Outline, event: PodStopBegan, now: int) -> None:
    line = made.pods.get(event.uid)
    if line is not None and line.began_ns is None:
        line.began_ns, line.grace_ns = now, event.grace_ns


def _signalled(made: Outline, event: SendSignal, now: int) -> None:
    made.signals[event.key] = event.uid


def _answered(made: Outline, event: OrderEnded, now: int) -> None:
    line = made.pods.get(made.signals.pop(event.key, ""))
    if line is not None and event.result == "failed":
        line.refused = True


def _killed(made: Outline, event: KillContainer, now: int) -> None:
    line = made.pods.get(event.uid)
    if line is not None and line.killed_ns is None:
        line.killed_ns = now


def _pod_ended(made: Outline, event: PodEnded, now: int) -> None:
    line = made.pods.get(event.uid)
    if line is not None:
        line.ended_ns, line.outcome, line.reason = now, event.outcome, event.reason


def _pods_ended(made: Outline, event: PodsEnded, now: int) -> None:
    made.pods_ended_ns = now


def _released(made: Outline, event: ReleaseLock, now: int) -> None:
    made.released_ns = now if made.released_ns is None else made.released_ns


def _withdrawn(made: Outline, event: ShutdownWithdrawn, now: int) -> None:
    if event.reason == "cancelled":
        made.released_ns = None


def _closed(made: Outline, event: EpisodeClosed, now: int) -> None:
    made.closed, made.closed_ns = event.outcome, now


_FOLDS: dict[type[Event], Callable[[Outline, Any, int], None]] = {
    ShutdownBegan: _began,
    PlanMade: _planned,
    PodPlanned: _pod_planned,
    WaveStarted: _wave_started,
    WaveEnded: _wave_ended,
    PodStopBegan: _stop_began,
    SendSignal: _signalled,
    OrderEnded: _answered,
    KillContainer: _killed,
    PodEnded: _pod_ended,
    PodsEnded: _pods_ended,
    ReleaseLock: _released,
    ShutdownWithdrawn: _withdrawn,
    EpisodeClosed: _closed,
}
