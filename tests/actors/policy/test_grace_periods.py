"""Periods, waves and graces: migration, gates, grouping, the shares of a grant, and the layout in time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ebbtide.actors.policy.grace_periods import (
    CRITICAL_PRIORITY,
    FLOOR_NS,
    GATE_BY_PRIORITY,
    GATE_SHUTDOWN,
    REAP_MARGIN_NS,
    RELEASE_MARGIN_NS,
    effective_periods,
    group_index,
    group_pods,
    lay_out_times,
    migrate_two_values,
    pod_grace_seconds,
    requested_seconds,
    share_grant,
    shutdown_enabled,
    wait_until_ns,
)
from ebbtide.events.base import FLOOR_SECONDS, NS_PER_SECOND
from ebbtide.events.values import Deletion, Period, Pod, Settings

PRIORITIES = st.integers(-(2**31), 2**31 - 1)
SMALL = st.integers(-6, 6)
PERIODS = st.lists(
    st.builds(Period, priority=PRIORITIES, seconds=st.integers(0, 10_000)), min_size=1, max_size=8
).map(lambda periods: effective_periods(Settings(by_pod_priority=tuple(periods))))
TIMES = st.integers(0, 10_000 * NS_PER_SECOND)


def listed(*pairs: tuple[int, int]) -> tuple[Period, ...]:
    return tuple(Period(priority=priority, seconds=seconds) for priority, seconds in pairs)


def waves(*priorities: int) -> tuple[Period, ...]:
    return effective_periods(Settings(by_pod_priority=listed(*((priority, 1) for priority in priorities))))


def pod(name: str, priority: int | None, grace_seconds: int | None = None) -> Pod:
    return Pod(uid=name, namespace="default", name=name, priority=priority, grace_seconds=grace_seconds)


def test_the_reference_constants() -> None:
    assert (FLOOR_SECONDS, CRITICAL_PRIORITY) == (2, 2_000_000_000)


# --- periods


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
    both = Settings(shutdown_grace_period_ns=30 * NS_PER_SECOND, by_pod_priority=listed((7, 3)))
    assert effective_periods(both) == listed((7, 3))
    both.gates[GATE_BY_PRIORITY] = False
    assert effective_periods(both) == listed((0, 30), (CRITICAL_PRIORITY, 0))
    assert not shutdown_enabled(Settings(by_pod_priority=listed((7, 3)), gates={GATE_SHUTDOWN: False}))
    assert shutdown_enabled(Settings(by_pod_priority=listed((7, 0))))
    assert not shutdown_enabled(Settings())


def test_periods_come_in_ascending_priority_and_duplicates_in_their_order() -> None:
    """The sort is stable, and negative seconds count as none."""
    given_list = listed((5, 1), (-1, 2), (5, -3), (0, 4))
    assert effective_periods(Settings(by_pod_priority=given_list)) == listed((-1, 2), (0, 4), (5, 1), (5, 0))


# --- waves


@settings(deadline=None)
@given(priorities=st.sets(SMALL, min_size=1).map(sorted), priority=st.integers(-9, 9))
def test_the_wave_is_the_largest_priority_that_is_not_above_the_pods(
    priorities: list[int], priority: int
) -> None:
    """And the lowest wave for a pod below them all (KEP-2712)."""
    reachable = [each for each in priorities if each <= priority]
    expected = max(reachable) if reachable else min(priorities)
    assert priorities[group_index(waves(*priorities), priority)] == expected


@pytest.mark.parametrize(
    "priority, index", [(-1, 0), (0, 0), (4, 0), (5, 1), (6, 3), (8, 3), (9, 4), (2_000_001_000, 4)]
)
def test_of_duplicates_the_first_takes_equals_and_the_last_takes_what_lies_above(
    priority: int, index: int
) -> None:
    """The reference's binary search does so; we follow it to the letter."""
    assert group_index(waves(0, 5, 5, 5, 9), priority) == index


def test_a_pod_without_a_priority_counts_as_zero() -> None:
    """Static pods with a class name only are such pods (kubernetes#113940)."""
    unset, low, high = pod("unset", None), pod("low", -1), pod("high", 10)
    assert group_pods(waves(-10, 0, 10), [unset, low, high]) == [[low], [unset], [high]]


@settings(deadline=None)
@given(priorities=st.lists(SMALL, min_size=1), pods=st.lists(st.none() | SMALL))
def test_every_pod_is_in_one_wave_and_keeps_its_place(priorities: list[int], pods: list[int | None]) -> None:
    """Waves hold all pods, each once, in the order of the inventory."""
    inventory = [pod(str(number), priority) for number, priority in enumerate(pods)]
    groups = group_pods(waves(*priorities), inventory)
    assert sorted((each for members in groups for each in members), key=lambda p: int(p.uid)) == inventory
    assert all(members == [each for each in inventory if each in members] for members in groups)


def test_without_periods_there_are_no_waves() -> None:
    assert group_pods((), [pod("a", 1)]) == []
    with pytest.raises(ValueError, match="no periods"):
        group_index((), 0)


# --- graces and the grant


@pytest.mark.parametrize(
    "period_seconds, asked_seconds, deleted, expected",
    [
        (20, 120, None, 20),
        (20, 5, None, 5),
        (20, 20, None, 20),
        (20, None, None, 20),
        (0, 30, None, 1),
        (20, 0, None, 1),
        (20, -7, None, 1),
        (-3, 9, None, 1),
        (20, 30, (2, 8), 6),
        (20, 30, (2, 60), 20),
        (20, 5, (2, 60), 5),
        (20, None, (3, 9), 6),
        (20, 30, (9, 8), 1),
        (20, 30, (0, 0), 1),
    ],
)
def test_grace_is_the_smallest_and_a_pod_that_asks_nothing_takes_the_wave(
    period_seconds: int, asked_seconds: int | None, deleted: tuple[int, int] | None, expected: int
) -> None:
    """At least 1 s, as in the kubelet. kubernetes#120271: no own grace is not 30 s."""
    asked, now_ns = pod("p", 0, asked_seconds), 100 * NS_PER_SECOND
    if deleted is not None:
        ago_seconds, grace_seconds = deleted
        since_ns = now_ns - ago_seconds * NS_PER_SECOND
        asked = replace(asked, deletion=Deletion(since_ns=since_ns, grace_seconds=grace_seconds))
    assert pod_grace_seconds(period_seconds, asked, now_ns) == expected


@settings(deadline=None)
@given(periods=PERIODS, grant_seconds=st.integers(-10, 100_000))
def test_shares_use_the_grant_up_and_cut_low_priorities_first(
    periods: tuple[Period, ...], grant_seconds: int
) -> None:
    """The shares sum to the grant, no wave exceeds its period, and waves below a cut one get no time."""
    shared = share_grant(periods, grant_seconds)
    assert [each.priority for each in shared] == [each.priority for each in periods]
    assert requested_seconds(shared) == min(max(0, grant_seconds), requested_seconds(periods))
    got = [(share_.seconds, period.seconds) for share_, period in zip(shared, periods, strict=True)]
    assert all(0 <= seconds <= asked for seconds, asked in got)
    cut = [index for index, (seconds, asked) in enumerate(got) if seconds < asked]
    assert not cut or all(seconds == 0 for seconds, _ in got[: max(cut)])


# --- the layout in time


@given(TIMES, TIMES, TIMES, TIMES)
def test_points_come_in_order_and_the_budget_is_the_smaller_of_grant_and_request(
    now: int, grant: int, requested: int, reserve: int
) -> None:
    """The order: now, the last SIGKILL, the release, logind's timer. The reserve is added to the periods;
    it never cuts the budget.
    """
    layout = lay_out_times(now, grant, requested, reserve)
    assert now <= layout.kill_by_ns <= max(now, layout.release_by_ns)
    assert now <= layout.release_by_ns <= now + grant
    assert wait_until_ns(layout.kill_by_ns, layout.release_by_ns) <= layout.release_by_ns
    if layout.release_by_ns > now:
        assert layout.release_by_ns <= now + grant - min(RELEASE_MARGIN_NS, grant // 4)
    assert layout.deadline_ns == now + min(grant, requested)


@given(TIMES, TIMES, st.integers(3 * NS_PER_SECOND, 60 * NS_PER_SECOND))
def test_a_granted_reserve_holds_the_floor(now: int, requested: int, reserve: int) -> None:
    """With the reserve, a stop at the deadline keeps its 2 s floor and time to be seen."""
    layout = lay_out_times(now, requested + reserve, requested, reserve)
    assert layout.kill_by_ns == layout.deadline_ns + FLOOR_NS
    assert layout.kill_by_ns + REAP_MARGIN_NS <= wait_until_ns(layout.kill_by_ns, layout.release_by_ns)


@given(TIMES, TIMES, TIMES, TIMES)
def test_more_grant_is_never_less_time(now: int, grant: int, more: int, requested: int) -> None:
    """Up to the nanosecond that rounding costs."""
    reserve = 5 * NS_PER_SECOND
    small, large = (lay_out_times(now, each, requested, reserve)[:3] for each in (grant, grant + more))
    assert all(a <= b + 1 for a, b in zip(small, large, strict=True))
