"""How long stopping takes, if some were killed before: the Kaplan-Meier estimate in whole numbers.

A pod that was killed after 20 s would have taken more: it is *censored*. Without it, or counted as 20 s,
stopping would look too quick. The estimate multiplies, over each time at which pods ended by themselves, the
share of the remaining ones that did not end then; a killed pod remains up to its time (Kaplan and Meier,
1958). If the longest times are all censored the curve stays above 0, and a quantile below its end is *not
reached*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from ebbtide.events.base import FrozenStruct

MEDIAN, P95 = Fraction(1, 2), Fraction(19, 20)

#: The share of the remaining ones, as an integer. Each step rounds it down by less than one part, so that
#: every machine gives the same answer.
_WHOLE = 1 << 128


class StopCounts(NamedTuple):
    """How many stops ended by themselves, and how many were censored, after each time in nanoseconds."""

    ended: Counter[int]
    censored: Counter[int]


def merge_counts(parts: Iterable[StopCounts]) -> StopCounts:
    """The sum, which is the same for any order and groups."""
    whole = StopCounts(Counter(), Counter())
    for part in parts:
        whole.ended.update(part.ended)
        whole.censored.update(part.censored)
    return whole


class Survival(FrozenStruct):
    """``censored`` of ``stops`` were killed. The time within which half of them, 95 % and all have ended;
    None: not reached. ``ended_ns``: the longest that ended by itself; None: none did.
    """

    stops: int
    censored: int
    p50_ns: int | None
    p95_ns: int | None
    max_ns: int | None
    ended_ns: int | None

    @property
    def is_complete(self) -> bool:
        """Whether the curve reaches 0: the longest stop ended by itself."""
        return self.max_ns is not None


def survival(counts: StopCounts) -> Survival:
    censored = counts.censored.total()
    left = stops = counts.ended.total() + censored
    share, reached = _WHOLE, dict[Fraction, int]()
    for ns in sorted(counts.ended.keys() | counts.censored.keys()):
        # At equal times the ended ones come first: the killed ones were still there.
        share = share * (left - counts.ended[ns]) // left
        for quantile in (MEDIAN, P95):
            if share <= (1 - quantile) * _WHOLE:
                reached.setdefault(quantile, ns)
        left -= counts.ended[ns] + counts.censored[ns]
    ended_ns = max(counts.ended, default=None)
    complete = ended_ns is not None and max(counts.censored, default=-1) < ended_ns
    return Survival(
        stops=stops,
        censored=censored,
        p50_ns=reached.get(MEDIAN),
        p95_ns=reached.get(P95),
        max_ns=ended_ns if complete else None,
        ended_ns=ended_ns,
    )
