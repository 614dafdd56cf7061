"""The rule of retention, case by case."""

from __future__ import annotations

import pytest

from ebbtide.events.retention import Held, Limits, removable

NOW_NS = 1_000_000
OLD_NS, YOUNG_NS = 0, NOW_NS - 1
LIMITS = Limits(total_bytes=250, age_ns=1_000, hard_bytes=450)


def held(
    count: int, *, modified_ns: int = YOUNG_NS, checkpoint: bool = True, current: bool = True
) -> list[Held]:
    """Segments of 100 bytes with 10 records each."""
    return [Held(100, modified_ns, 10 * at + 1, checkpoint, current) for at in range(count)]


def test_a_small_young_journal_stays() -> None:
    """Nothing goes without a reason."""
    assert removable(held(2), NOW_NS, None, LIMITS) == 0


def test_the_oldest_go_until_the_size_is_right() -> None:
    """400 bytes with 250 allowed: two go."""
    assert removable(held(4), NOW_NS, None, LIMITS) == 2


def test_old_segments_go_whatever_the_size() -> None:
    """By the time of their last write."""
    assert removable([*held(1, modified_ns=OLD_NS), *held(2)[1:]], NOW_NS, None, LIMITS) == 1


def test_the_last_segment_never_goes() -> None:
    """It is being written."""
    assert removable(held(1, modified_ns=OLD_NS), NOW_NS, None, Limits(0, 0, 0)) == 0
    assert removable(held(9, modified_ns=OLD_NS), NOW_NS, None, Limits(0, 0, 0)) == 8
    assert removable([], NOW_NS, None, LIMITS) == 0


@pytest.mark.parametrize(
    ("keep_from_seq", "gone"), [(1, 0), (10, 0), (11, 1), (15, 1), (20, 1), (21, 2), (99, 2)]
)
def test_what_somebody_still_needs_stays(keep_from_seq: int, gone: int) -> None:
    """An open episode, an undelivered status, an unexported span: from their first record on."""
    assert removable(held(4), NOW_NS, keep_from_seq, LIMITS) == gone


def test_above_the_hard_cap_even_that_goes() -> None:
    """600 bytes, all needed: two go, until 400 are below the cap of 450."""
    assert removable(held(6), NOW_NS, 1, LIMITS) == 2


def test_what_is_left_begins_with_a_checkpoint() -> None:
    """A segment that carries on from a failed file goes together with the one before it, or not at all."""
    segments = held(4)
    segments[2] = segments[2]._replace(checkpoint=False)
    assert removable(segments, NOW_NS, None, LIMITS) == 3
    segments[3] = segments[3]._replace(checkpoint=False)
    assert removable(segments, NOW_NS, None, LIMITS) == 1


def test_segments_that_nobody_continues_need_no_keeping() -> None:
    """Another journal in the same place goes by size and age alone."""
    others = held(3, checkpoint=False, current=False)
    assert removable([*others, *held(2)], NOW_NS, 1, LIMITS) == 3


def test_a_copy_elsewhere_is_not_the_journal() -> None:
    """A segment that stands in two locations is on the path once; its copy is no reason to remove it."""
    segments = held(3)
    segments[1] = segments[1]._replace(checkpoint=False)
    segments[2] = segments[1]._replace(current=False)
    assert removable(segments, NOW_NS, 11, LIMITS) == 0
