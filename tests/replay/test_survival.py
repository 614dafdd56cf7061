"""Kaplan-Meier in integers: equal to fractions, in linear time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from ebbtide.replay.advise import MEDIAN, P95, Survival, survival

#: Weeks in remission under 6-mercaptopurine (Freireich and others, 1963); True: relapsed, False: censored.
FREIREICH = (
    *((6, True), (6, True), (6, True), (6, False), (7, True), (9, False), (10, True), (10, False)),
    *((11, False), (13, True), (16, True), (17, False), (19, False), (20, False), (22, True), (23, True)),
    *((25, False), (32, False), (32, False), (34, False), (35, False)),
)


class Observation(NamedTuple):
    """``ended`` False: it was killed after that time."""

    ns: int
    ended: bool


def survival_of(seen: Sequence[Observation]) -> Survival:
    return survival((each.ended, Counter([each.ns])) for each in seen)


seen_stops = st.lists(st.builds(Observation, st.integers(0, 9), st.booleans()), max_size=12)
many_stops = st.lists(st.builds(Observation, st.integers(0, 40), st.booleans()), max_size=80)


def curve(seen: Sequence[Observation]) -> list[tuple[int, Fraction]]:
    """The definition in fractions: the surviving share from each time on."""
    share, found = Fraction(1), []
    for ns in sorted({each.ns for each in seen}):
        there = sum(each.ns >= ns for each in seen)
        ended = sum(each.ns == ns and each.ended for each in seen)
        if ended:
            share *= Fraction(there - ended, there)
            found.append((ns, share))
    return found


def by_fractions(seen: Sequence[Observation], of: Fraction) -> int | None:
    return next((ns for ns, share in curve(seen) if share <= 1 - of), None)


def test_the_textbook() -> None:
    seen = [Observation(*each) for each in FREIREICH]
    assert curve(seen) == [
        (6, Fraction(6, 7)),
        (7, Fraction(96, 119)),
        (10, Fraction(64, 85)),
        (13, Fraction(176, 255)),
        (16, Fraction(32, 51)),
        (22, Fraction(64, 119)),
        (23, Fraction(160, 357)),
    ]
    assert astuple(survival_of(seen)) == (21, 12, 23, None, None, 23)


@given(seen_stops | many_stops)
def test_it_is_the_estimate_in_fractions(seen: list[Observation]) -> None:
    """Median, 95 % and maximum, with ties; it reaches 0 only if the longest ended by itself."""
    found = survival_of(seen)
    expected = [by_fractions(seen, of) for of in (MEDIAN, P95, Fraction(1))]
    assert [found.p50_ns, found.p95_ns, found.max_ns] == expected
    longest = max((each.ns for each in seen), default=None)
    ended_last = bool(seen) and all(each.ended for each in seen if each.ns == longest)
    assert found.is_complete == ended_last
