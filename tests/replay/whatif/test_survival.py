"""Kaplan-Meier, exactly: against a textbook's table, and against its own laws."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from ebbtide.replay.advise import LONGEST, MEDIAN, P95, Observation, survival

#: Weeks in remission under 6-mercaptopurine (Freireich and others, 1963); True: relapsed, False: censored.
FREIREICH = (
    *((6, True), (6, True), (6, True), (6, False), (7, True), (9, False), (10, True), (10, False)),
    *((11, False), (13, True), (16, True), (17, False), (19, False), (20, False), (22, True), (23, True)),
    *((25, False), (32, False), (32, False), (34, False), (35, False)),
)

observations = st.lists(st.builds(Observation, st.integers(0, 9), st.booleans()), max_size=12)


def test_the_textbook() -> None:
    """The curve of the data that every textbook has, in fractions."""
    curve = survival(Observation(*each) for each in FREIREICH)
    assert [(step.ns, step.share) for step in curve.steps] == [
        (6, Fraction(6, 7)),
        (7, Fraction(96, 119)),
        (10, Fraction(64, 85)),
        (13, Fraction(176, 255)),
        (16, Fraction(32, 51)),
        (22, Fraction(64, 119)),
        (23, Fraction(160, 357)),
    ]
    assert (curve.total, curve.censored) == (21, 12)
    assert curve.quantile_ns(MEDIAN) == 23
    assert curve.quantile_ns(P95) is None
    assert not curve.is_complete


def test_nobody_was_killed() -> None:
    """Without censoring a quantile is the ordinary one, and the last is the longest."""
    curve = survival(Observation(ns, True) for ns in range(1, 101))
    quantiles = [curve.quantile_ns(of) for of in (MEDIAN, P95, LONGEST)]
    assert quantiles == [50, 95, 100]


def test_everybody_was_killed() -> None:
    """Nothing is reached."""
    curve = survival([Observation(20, False), Observation(30, False)])
    assert curve.steps == ()
    assert curve.quantile_ns(MEDIAN) is None


def test_nothing_was_seen() -> None:
    """An empty record reaches nothing, and breaks nothing."""
    assert survival(()).quantile_ns(LONGEST) is None


@given(observations)
def test_laws(seen: list[Observation]) -> None:
    """The curve only falls; it comes down to 0 if and only if the longest of all ended by itself."""
    curve = survival(seen)
    shares = [step.share for step in curve.steps]
    assert shares == sorted(shares, reverse=True)
    assert all(0 <= share < 1 for share in shares)
    longest = max((each.ns for each in seen), default=None)
    ended_last = bool(seen) and all(each.ended for each in seen if each.ns == longest)
    assert curve.is_complete == ended_last


@given(observations, st.integers(10, 20))
def test_a_censored_pod_never_shortens_a_quantile(seen: list[Observation], ns: int) -> None:
    """One more pod that was killed makes no answer smaller: it can only be that more time is needed."""
    before, after = survival(seen), survival([*seen, Observation(ns, False)])
    for of in (MEDIAN, P95, LONGEST):
        known, now = before.quantile_ns(of), after.quantile_ns(of)
        assert now is None or (known is not None and now >= known)
