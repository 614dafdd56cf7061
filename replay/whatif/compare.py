"""Two runs side by side: what was, and what would have been, pod by pod and wave by wave.

The new run stands here twice, as a `Span`: its hopeful and its grim end. Where they agree it is as certain as
the pod's evidence says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from events.decisions import PodOutcome
from replay.whatif.evidence import Support
from replay.whatif.outline import Outline, PodLine, WaveLine
from replay.whatif.performing import Assumption, WhatIf

#: ``perhaps``: in one of the two runs only.
Change = Literal["same", "saved", "perhaps-saved", "lost", "perhaps-lost"]

#: What a pod may wish for: it ended by itself, or was left alone.
WELL: tuple[PodOutcome | None, ...] = ("graceful", "spared")


class Span(NamedTuple):
    """A time in both runs, in nanoseconds; None: it does not come to that in this run."""

    hopeful: int | None
    grim: int | None

    @property
    def is_one(self) -> bool:
        return self.hopeful == self.grim

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """The lower first; None is later than any time."""
        low, high = self
        return (high, low) if low is None or (high is not None and high < low) else (low, high)


class Need(NamedTuple):
    """From the beginning of its stop: what a pod took, or, ``at_least``, what it had when it was killed."""

    ns: int
    at_least: bool


class PodSide(NamedTuple):
    """A pod then and now; ``then`` None: it is new."""

    then: PodLine | None
    hopeful: PodLine | None
    grim: PodLine | None
    need: Need | None
    support: Support
    change: Change

    @property
    def line(self) -> PodLine:
        """Whichever there is, for what does not change."""
        found = self.then or self.hopeful or self.grim
        assert found is not None, "a row stands for a pod of one of the runs"
        return found

    def now(self, of: Callable[[PodLine], int | None]) -> Span:
        return Span(*(None if line is None else of(line) for line in (self.hopeful, self.grim)))

    @property
    def outcomes(self) -> tuple[PodOutcome | None, PodOutcome | None]:
        """Hopeful, grim; None: nothing was done about it, or the record ends before."""
        return _outcome(self.hopeful), _outcome(self.grim)


class WaveSide(NamedTuple):
    """A wave then and now, by its priority; None where only the other configuration has it."""

    priority: int
    then: WaveLine | None
    hopeful: WaveLine | None
    grim: WaveLine | None


class Comparison(NamedTuple):
    """``total``: from the signal to the release, or to the end of a cancelled shutdown."""

    then: Outline
    hopeful: Outline
    grim: Outline
    is_same: bool
    total: Span
    waves: tuple[WaveSide, ...]
    pods: tuple[PodSide, ...]
    assumptions: tuple[Assumption, ...]

    def changed(self, change: Change) -> tuple[PodSide, ...]:
        return tuple(pod for pod in self.pods if pod.change == change)


def compare(found: WhatIf) -> Comparison:
    """Pods in the order of the recorded plan, new ones last; waves by priority."""
    then, hopeful, grim = found.then, found.hopeful.outline, found.grim.outline
    uids = dict.fromkeys(uid for each in (then, hopeful, grim) for uid in each.pods)
    return Comparison(
        then=then,
        hopeful=hopeful,
        grim=grim,
        is_same=found.is_same,
        total=Span(hopeful.total_ns, grim.total_ns),
        waves=tuple(_waves(then, hopeful, grim)),
        pods=tuple(_pod(found, uid) for uid in uids),
        assumptions=found.assumptions,
    )


def _pod(found: WhatIf, uid: str) -> PodSide:
    then, *now = (each.pods.get(uid) for each in (found.then, found.hopeful.outline, found.grim.outline))
    hopeful, grim = now
    need = None if then is None else need_of(then, found.then.last_ns)
    return PodSide(then, hopeful, grim, need, found.support(uid), _change(then, hopeful, grim))


def need_of(line: PodLine, last_ns: int) -> Need | None:
    """What the record says of the time that this pod needs; None: nobody has really asked it to stop."""
    if line.began_ns is None or (line.refused and line.outcome != "graceful"):
        return None
    if line.outcome == "graceful" and line.ended_ns is not None:
        return Need(line.ended_ns - line.began_ns, at_least=False)
    ends = [each for each in (line.killed_ns, line.ended_ns, last_ns) if each is not None]
    return Need(max(0, ends[0] - line.began_ns), at_least=True)


def _outcome(line: PodLine | None) -> PodOutcome | None:
    return None if line is None else line.outcome


def _change(then: PodLine | None, hopeful: PodLine | None, grim: PodLine | None) -> Change:
    """A pod that the record does not have can be neither saved nor lost."""
    if then is None:
        return "same"
    was = then.outcome in WELL
    now = [_outcome(line) in WELL for line in (hopeful, grim)]
    if now == [was, was]:
        return "same"
    if was:
        return "perhaps-lost" if any(now) else "lost"
    return "saved" if all(now) else "perhaps-saved"


def _waves(then: Outline, hopeful: Outline, grim: Outline) -> list[WaveSide]:
    """Of several waves with one priority each keeps its place among them."""
    sides: dict[tuple[int, int], list[WaveLine | None]] = {}
    for side, run in enumerate((then, hopeful, grim)):
        seen: dict[int, int] = {}
        for wave in run.waves:
            nth = seen[wave.priority] = seen.get(wave.priority, -1) + 1
            sides.setdefault((wave.priority, nth), [None, None, None])[side] = wave
    return [WaveSide(priority, *sides[priority, nth]) for priority, nth in sorted(sides)]
