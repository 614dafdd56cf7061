"""Periods: migration, gates, order, and the shares of a grant."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.actors.policy.grace_periods import (
    CRITICAL_PRIORITY,
    GATE_BY_PRIORITY,
    GATE_SHUTDOWN,
    effective_periods,
    migrate_two_values,
    requested_seconds,
    share_grant,
    shutdown_enabled,
)
from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.model import Period, Settings

PRIORITIES = st.integers(-(2**31), 2**31 - 1)
PERIODS = st.lists(
    st.builds(Period, priority=PRIORITIES, seconds=st.integers(0, 10_000)), min_size=1, max_size=8
).map(lambda periods: effective_periods(Settings(by_pod_priority=tuple(periods))))


def listed(*pairs: tuple[int, int]) -> tuple[Period, ...]:
    return tuple(Period(priority=priority, seconds=seconds) for priority, seconds in pairs)


@pytest.mark.parametrize(
    "total_ns, critical_ns, expected",
    [
        (30 * NS_PER_SECOND, 10 * NS_PER_SECOND, ((0, 20), (CRITICAL_PRIORITY, 10))),
        (1_500_000_000, 1_000_000_000, ((0, 0), (CRITICAL_PRIORITY, 1))),
        (3_900_000_000, 1_950_000_000, ((0, 1), (CRITICAL_PRIORITY, 1))),
        (10 * NS_PER_SECOND, 10 * NS_PER_SECOND, ((0, 0), (CRITICAL_PRIORITY, 10))),
        (0, 0, ()),
        (0, -1, ()),
        (10, -1, ()),
        (-5, -9, ()),
        (5, 6, ()),
    ],
)
def test_migration_cuts_each_share_to_whole_seconds(
    total_ns: int, critical_ns: int, expected: tuple[tuple[int, int], ...]
) -> None:
    """KEP-2712's migration, with its ways to switch the feature off."""
    assert migrate_two_values(total_ns, critical_ns) == listed(*expected)


def test_the_list_counts_only_with_both_gates_on() -> None:
    """Gate by gate: off altogether, or back to the two-value form."""
    both = Settings(
        shutdown_grace_period_ns=30 * NS_PER_SECOND,
        by_pod_priority=listed((7, 3)),
    )
    assert effective_periods(both) == listed((7, 3))
    without_list = Settings(
        shutdown_grace_period_ns=30 * NS_PER_SECOND,
        by_pod_priority=listed((7, 3)),
        gates={GATE_BY_PRIORITY: False},
    )
    assert effective_periods(without_list) == listed((0, 30), (CRITICAL_PRIORITY, 0))
    assert not shutdown_enabled(Settings(by_pod_priority=listed((7, 3)), gates={GATE_SHUTDOWN: False}))
    assert shutdown_enabled(Settings(by_pod_priority=listed((7, 0))))
    assert not shutdown_enabled(Settings())


def test_periods_come_in_ascending_priority_and_duplicates_in_their_order() -> None:
    """The sort is stable, and negative seconds count as none."""
    given_list = listed((5, 1), (-1, 2), (5, -3), (0, 4))
    assert effective_periods(Settings(by_pod_priority=given_list)) == listed((-1, 2), (0, 4), (5, 1), (5, 0))


@settings(deadline=None)
@given(periods=PERIODS, grant_seconds=st.integers(-10, 100_000))
def test_shares_use_the_grant_up_and_cut_low_priorities_first(
    periods: tuple[Period, ...], grant_seconds: int
) -> None:
    """Nothing is lost or invented, no wave gets more than its period, and below a cut one all get nothing."""
    shared = share_grant(periods, grant_seconds)
    assert [each.priority for each in shared] == [each.priority for each in periods]
    assert requested_seconds(shared) == min(max(0, grant_seconds), requested_seconds(periods))
    got = [(share_.seconds, period.seconds) for share_, period in zip(shared, periods, strict=True)]
    assert all(0 <= seconds <= asked for seconds, asked in got)
    cut = [index for index, (seconds, asked) in enumerate(got) if seconds < asked]
    assert not cut or all(seconds == 0 for seconds, _ in got[: max(cut)])
