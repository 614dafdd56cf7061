"""Laws of the layout of a shutdown's time (actors.logic.budget)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ebbtide.actors.policy.grace_periods import FLOOR_NS, REAP_MARGIN_NS, RELEASE_MARGIN_NS, lay_out_times
from ebbtide.events.base import NS_PER_SECOND

times = st.integers(0, 10_000 * NS_PER_SECOND)


@given(times, times, times, times)
def test_points_come_in_order(now: int, grant: int, requested: int, reserve: int) -> None:
    """Nothing lies before now; the last SIGKILL comes before the release, that before logind's own timer."""
    layout = lay_out_times(now, grant, requested, reserve)
    assert now <= layout.kill_by_ns <= max(now, layout.release_by_ns)
    assert now <= layout.release_by_ns <= now + grant
    assert layout.give_up_ns <= layout.release_by_ns
    if layout.release_by_ns > now:
        assert layout.release_by_ns <= now + grant - min(RELEASE_MARGIN_NS, grant // 4)


@given(times, times, times, times)
def test_budget_is_the_smaller_of_grant_and_request(
    now: int, grant: int, requested: int, reserve: int
) -> None:
    """The reserve is asked for on top of the periods; it is never a cut of the budget (design, "Words")."""
    layout = lay_out_times(now, grant, requested, reserve)
    assert layout.deadline_ns == now + min(grant, requested)
    assert layout == lay_out_times(now, grant, requested, reserve)


@given(times, times, st.integers(3 * NS_PER_SECOND, 60 * NS_PER_SECOND))
def test_a_granted_reserve_holds_the_floor(now: int, requested: int, reserve: int) -> None:
    """With the reserve granted, a stop that began at the deadline has its 2 s, and time to be seen."""
    layout = lay_out_times(now, requested + reserve, requested, reserve)
    assert layout.kill_by_ns == layout.deadline_ns + FLOOR_NS
    assert layout.kill_by_ns + REAP_MARGIN_NS <= layout.give_up_ns


@given(times, times, times, times)
def test_more_grant_is_never_less_time(now: int, grant: int, more: int, requested: int) -> None:
    """A larger grant moves no point forward in time, but for the nanosecond that a share rounds away."""
    reserve = 5 * NS_PER_SECOND
    small, large = (lay_out_times(now, each, requested, reserve) for each in (grant, grant + more))
    assert all(a <= b + 1 for a, b in zip(small, large, strict=True))
