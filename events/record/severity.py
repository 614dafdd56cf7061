"""How bad a shutdown was, in one word: its mark and its colour wherever it is shown, and what stands first.

The outcome says what became of the machine; a machine that went down as asked may have killed every pod on
its way. So a verdict is always both. It follows from a shutdown's summary alone: the list of shutdowns, the
report and the daemon's status cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Literal, NamedTuple

from ebbtide.events.decisions import EpisodeOutcome

#: good: every pod ended by itself; mixed: some did not; bad: somebody should look before anything else.
Severity = Literal["good", "mixed", "bad"]

#: The sign that stands beside the colour, for who sees none.
SEVERITY_SIGNS: dict[Severity, str] = {"good": "✓", "mixed": "!", "bad": "✕"}

#: Of these the worst comes first.
SEVERITY_ORDER: tuple[Severity, ...] = ("bad", "mixed", "good")

#: With a larger share of its pods killed a shutdown was bad. A pod or two that are slow to end are an
#: ordinary night of a node; what more than a quarter have in common is not theirs: a runtime, a grant, a
#: period.
KILLED_SHARE_BAD = Fraction(1, 4)


class Summary(NamedTuple):
    """What the severity follows from. ``pods`` has a count by fate; ``gone``: so many of the unknown ones
    have ended, and only how is not known, or are the next shutdown's. ``lock_lost``: it was not held at the
    signal, or lost on the way. ``headless``: the record of its begin is lost.
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
        """Of the pods that were to be ended; a pod that was rejected or spared was not."""
        stopped = sum(self.count(fate) for fate in ("graceful", "killed", "failed", "unknown"))
        return Fraction(self.count("killed"), stopped) if stopped else Fraction(0)

    @property
    def is_killing(self) -> bool:
        """So many were killed that it is not about single pods."""
        return self.killed_share > KILLED_SHARE_BAD


class SeverityRow(NamedTuple):
    """Where ``holds``, the shutdown is at least so bad. ``because`` says why, in words."""

    severity: Severity
    because: str
    holds: Callable[[Summary], bool]


#: The only place that decides it; the first row that holds.
SEVERITY_TABLE: tuple[SeverityRow, ...] = (
    SeverityRow(
        "bad",
        "the machine went down before the release",
        lambda it: it.outcome in ("truncated", "never-begun"),
    ),
    SeverityRow("bad", "the delay lock was not held, or was lost", lambda it: it.lock_lost),
    SeverityRow("bad", "a pod could not be ended", lambda it: it.count("failed") > 0),
    # While it goes on every pod that has not ended counts as unknown.
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
