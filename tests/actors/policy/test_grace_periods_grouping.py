"""Which wave a pod belongs to, compared with the rule as it is stated."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.actors.policy.grace_periods import effective_periods, group_index, group_pods
from ebbtide.events.model import Period, Pod, Settings

SMALL = st.integers(-6, 6)


def waves(*priorities: int) -> tuple[Period, ...]:
    listed = tuple(Period(priority=priority, seconds=1) for priority in priorities)
    return effective_periods(Settings(by_pod_priority=listed))


def pod(name: str, priority: int | None) -> Pod:
    return Pod(uid=name, namespace="default", name=name, priority=priority)


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
    periods = waves(-10, 0, 10)
    assert group_pods(periods, [pod("unset", None), pod("low", -1), pod("high", 10)]) == [
        [pod("low", -1)],
        [pod("unset", None)],
        [pod("high", 10)],
    ]


@settings(deadline=None)
@given(priorities=st.lists(SMALL, min_size=1), pods=st.lists(st.none() | SMALL))
def test_every_pod_is_in_one_wave_and_keeps_its_place(priorities: list[int], pods: list[int | None]) -> None:
    """Waves hold all pods, each once, in the order of the inventory."""
    inventory = [pod(str(number), priority) for number, priority in enumerate(pods)]
    groups = group_pods(waves(*priorities), inventory)
    assert sorted((each for members in groups for each in members), key=lambda p: int(p.uid)) == inventory
    assert all(members == [each for each in inventory if each in members] for members in groups)


def test_without_periods_there_are_no_waves() -> None:
    """Nobody may ask for a wave then."""
    assert group_pods((), [pod("a", 1)]) == []
    with pytest.raises(ValueError, match="no periods"):
        group_index((), 0)
