"""How long stopping takes, if some were killed before: the exact Kaplan-Meier estimate.

A pod that was killed after 20 s would have taken more: it is *censored*. Without it, or counted as 20 s,
stopping would look too quick. The estimate multiplies, over each time at which pods ended by themselves, the
share of the remaining ones that did not end then; a killed pod remains up to its time (Kaplan and Meier,
1958). If the longest times are all censored the curve stays above 0, and a quantile below its end is *not
reached*.

Whole numbers give the same answer on every machine. Only the counts of ended and censored stops by time
matter, so counts of many journals add up in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

MEDIAN, P95 = Fraction(1, 2), Fraction(19, 20)


class Observation(NamedTuple):
    """``ended`` False: it was killed, or its record ended, after that time."""

    ns: int
    ended: bool


class StopCounts(NamedTuple):
    """How many stops ended by themselves, and how many were censored, after each time in nanoseconds."""

    ended: Counter[int]
    censored: Counter[int]


def count_stops(observations: Iterable[Observation]) -> StopCounts:
    counts = StopCounts(Counter(), Counter())
    for each in observations:
        (counts.ended if each.ended else counts.censored)[each.ns] += 1
    return counts


def merge_counts(parts: Iterable[StopCounts]) -> StopCounts:
    """The sum, which is the same for any order and groups."""
    whole = StopCounts(Counter(), Counter())
    for part in parts:
        whole.ended.update(part.ended)
        whole.censored.update(part.censored)
    return whole


class Survival(NamedTuple):
    """``censored`` of ``total`` stops were killed. ``*_ns``: the time within which half of them, 95 % and all
    have ended; None: not reached. ``ended_ns``: the longest that ended by itself; None: none did.
    """

    total: int
    censored: int
    p50_ns: int | None
    p95_ns: int | None
    longest_ns: int | None
    ended_ns: int | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the curve reaches 0: the longest stop ended by itself."""
        return self.longest_ns is not None


def survival(counts: StopCounts) -> Survival:
    p50_ns, p95_ns = quantiles_ns(counts, (MEDIAN, P95))
    # At equal times the ended ones come first: the killed ones were still there.
    ended_ns = max(counts.ended, default=None)
    complete = ended_ns is not None and max(counts.censored, default=-1) < ended_ns
    censored = counts.censored.total()
    total = counts.ended.total() + censored
    return Survival(total, censored, p50_ns, p95_ns, ended_ns if complete else None, ended_ns)


#: Behind the binary point. The rounding of 2**40 stops stays below the distance of two steps of their curve,
#: so only a tie stays undecided.
_BITS = 128


def quantiles_ns(counts: StopCounts, of: Sequence[Fraction]) -> list[int | None]:
    """The times within which these shares have ended, in rising order below 1; None: not reached.

    Takes linear time, and a sort of the times.
    """
    # Exact fractions would take quadratic time. Between two times with a kill the product telescopes: the
    # share of the remaining ones, times a factor for each kill before. Carry bounds of that factor, rounded
    # down and up; work it out only if the share lies between them.
    found: list[int | None] = []
    total = left = counts.ended.total() + counts.censored.total()
    low = high = 1 << _BITS
    killed: list[tuple[int, int]] = []
    at_most = _left_at_most(total, of[0], low)
    for ns in sorted(counts.ended.keys() | counts.censored.keys()):
        if ended := counts.ended.get(ns):
            left -= ended
            while left <= at_most and _is_down(left, total, of[len(found)], high, killed):
                found.append(ns)
                if len(found) == len(of):
                    return found
                at_most = _left_at_most(total, of[len(found)], low)
        if censored := counts.censored.get(ns):
            after = left - censored
            if not after:
                break
            low, high = low * left // after, -(-high * left // after)
            at_most = _left_at_most(total, of[len(found)], low)
            killed.append((left, after))
            left = after
    return found + [None] * (len(of) - len(found))


def _left_at_most(total: int, of: Fraction, low: int) -> int:
    """With more remaining than these the share has not ended, even at the factor's lower bound."""
    return (total * (of.denominator - of.numerator) << _BITS) // (of.denominator * low)


def _is_down(left: int, total: int, of: Fraction, high: int, killed: Sequence[tuple[int, int]]) -> bool:
    """Whether that share has ended: at the factor's upper bound, or at the exact product."""
    here, there = left * of.denominator, total * (of.denominator - of.numerator)
    if here * high <= there << _BITS:
        return True
    return here * _product([before for before, _ in killed]) <= there * _product(
        [after for _, after in killed]
    )


def _product(numbers: Sequence[int]) -> int:
    """In halves: one factor after the other takes quadratic time."""
    if len(numbers) < 2:
        return numbers[0] if numbers else 1
    middle = len(numbers) // 2
    return _product(numbers[:middle]) * _product(numbers[middle:])
