"""How bad a shutdown was, in one word: its sign, its colour, and its place in lists.

The outcome is about the machine; a machine that went down in order may have killed every pod. So a verdict
has both. It follows from a shutdown's summary alone: the list of shutdowns, the report and the daemon's
status cannot disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Literal, NamedTuple

from ebbtide.events.decisions import EpisodeOutcome

#: good: every pod ended by itself; mixed: some did not; bad: look at it first.
Severity = Literal["good", "mixed", "bad"]

#: The sign beside the colour.
SEVERITY_SIGNS: dict[Severity, str] = {"good": "✓", "mixed": "!", "bad": "✕"}

#: The worst first.
SEVERITY_ORDER: tuple[Severity, ...] = ("bad", "mixed", "good")

#: A larger share of killed pods is bad. A slow pod or two are an ordinary night; a fault of more than a
#: quarter is not theirs: a runtime, a grant, a period.
KILLED_SHARE_BAD = Fraction(1, 4)


class Summary(NamedTuple):
    """The input of the severity. ``pods`` has a count by fate; ``gone``: how many of the unknown ones have
    ended, or are the next shutdown's. ``lock_lost``: not held at the signal, or lost later. ``headless``: the
    record of its begin is lost.
    """

    outcome: EpisodeOutcome
    pods: Mapping[str, int]
    gone: int = 0
    lock_lost: bool = False
    headless: bool = False

    def count(self, fate: str) -> int:
        return self.pods.get(fate, 0)

    @property
    def is_killing(self) -> bool:
        """Too many of the pods that were to end were killed, for a fault of single pods."""
        stopped = sum(self.count(fate) for fate in ("graceful", "killed", "failed", "unknown"))
        return self.count("killed") > KILLED_SHARE_BAD * stopped


def severity_of(it: Summary) -> Severity:
    # In a running shutdown every open pod counts as unknown.
    lost = it.outcome != "running" and it.count("unknown") > it.gone
    cut_short = it.outcome in ("truncated", "never-begun")
    if cut_short or it.lock_lost or it.count("failed") or lost or it.is_killing:
        return "bad"
    return "mixed" if it.count("killed") or it.gone or it.headless else "good"
