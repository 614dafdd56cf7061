"""How bad a shutdown was, in one word: its sign, its colour, and its place in lists.

The outcome is about the machine; a machine that went down in order may have killed every pod. So a verdict
has both. It follows from a shutdown's summary alone: the list of shutdowns, the report and the daemon's
status cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    def killed_share(self) -> Fraction:
        """Of the pods that were to end, without rejected and spared ones."""
        stopped = sum(self.count(fate) for fate in ("graceful", "killed", "failed", "unknown"))
        return Fraction(self.count("killed"), stopped) if stopped else Fraction(0)

    @property
    def is_killing(self) -> bool:
        """Too many were killed for a fault of single pods."""
        return self.killed_share > KILLED_SHARE_BAD


class SeverityRow(NamedTuple):
    """If it ``holds``, the shutdown is at least so bad. ``because`` is the reason in words."""

    severity: Severity
    because: str
    holds: Callable[[Summary], bool]


#: The first row that holds decides.
SEVERITY_TABLE: tuple[SeverityRow, ...] = (
    SeverityRow(
        "bad",
        "the machine went down before the release",
        lambda it: it.outcome in ("truncated", "never-begun"),
    ),
    SeverityRow("bad", "the delay lock was not held, or was lost", lambda it: it.lock_lost),
    SeverityRow("bad", "a pod could not be ended", lambda it: it.count("failed") > 0),
    # In a running shutdown every open pod counts as unknown.
    SeverityRow(
        "bad",
        "of a pod nobody knows whether it has ended",
        lambda it: it.outcome != "running" and it.count("unknown") > it.gone,
    ),
    SeverityRow(
        "bad",
        f"more than {KILLED_SHARE_BAD} of the pods were killed",
        lambda it: it.is_killing,
    ),
    SeverityRow("mixed", "a pod was killed", lambda it: it.count("killed") > 0),
    SeverityRow("mixed", "how a pod ended is not known", lambda it: it.gone > 0),
    SeverityRow("mixed", "what became of its pods is not on record", lambda it: it.headless),
    SeverityRow("good", "every pod ended by itself", lambda it: True),
)


def severity_of(it: Summary) -> Severity:
    return next(row.severity for row in SEVERITY_TABLE if row.holds(it))
