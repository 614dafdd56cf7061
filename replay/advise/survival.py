"""How long stopping takes, where some were killed before it was over: the Kaplan-Meier estimate, exactly.

A pod that was killed after 20 s did not take 20 s; it is *censored*: it would have taken more. To leave it
out would make stopping look quicker than it is, and so would counting it as 20 s. The estimate multiplies,
over each time at which pods ended by themselves, the share of those still there that did not end then; what
was killed counts as still there up to its time (Kaplan and Meier, 1958). Where the longest times are all
censored the curve does not come down to 0, and a quantile below its end is *not reached*: nobody can say it.

All is in whole numbers and fractions, so that every machine gives the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

MEDIAN, P95, LAST = Fraction(1, 2), Fraction(19, 20), Fraction(1)


class Observation(NamedTuple):
    """``ended`` False: it was killed, or no longer seen, after that time."""

    ns: int
    ended: bool


class Step(NamedTuple):
    """From ``ns`` on so large a share is still there."""

    ns: int
    share: Fraction


class Survival(NamedTuple):
    """The curve: ``steps`` by time, from a share of 1 down; ``censored`` of ``total`` were killed."""

    steps: tuple[Step, ...]
    total: int
    censored: int

    def quantile_ns(self, of: Fraction) -> int | None:
        """The time within which that share has ended; None: not reached. 1 is the longest of all."""
        return next((step.ns for step in self.steps if step.share <= 1 - of), None)

    @property
    def is_complete(self) -> bool:
        """Whether it comes down to 0: the longest of all ended by itself."""
        return self.quantile_ns(LAST) is not None


def survival(observations: Iterable[Observation]) -> Survival:
    """At equal times those that ended come first: who was killed then was still there."""
    ordered = sorted(observations, key=lambda each: (each.ns, not each.ended))
    return Survival(tuple(_steps(ordered)), len(ordered), sum(not each.ended for each in ordered))


def _steps(ordered: Sequence[Observation]) -> Iterable[Step]:
    share, at = Fraction(1), 0
    while at < len(ordered):
        ns, left = ordered[at].ns, len(ordered) - at
        together = _together(ordered, at)
        ended = sum(each.ended for each in together)
        at += len(together)
        if ended:
            share *= Fraction(left - ended, left)
            yield Step(ns, share)


def _together(ordered: Sequence[Observation], at: int) -> Sequence[Observation]:
    """All with the same time as the one at ``at``."""
    end = at
    while end < len(ordered) and ordered[end].ns == ordered[at].ns:
        end += 1
    return ordered[at:end]
