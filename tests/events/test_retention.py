"""The rule of retention, case by case."""

from __future__ import annotations

import pytest

from ebbtide.events.retention import Held, Limits, removable

NOW_NS = 1_000_000
OLD_NS, YOUNG_NS = 0, NOW_NS - 1
LIMITS = Limits(total_bytes=250, age_ns=1_000, hard_bytes=450)


def held(count: int, *, checkpoint: bool = True, current: bool = True) -> list[Held]:
    """Segments of 100 bytes with 10 records each."""
    return [Held(100, YOUNG_NS, 10 * at + 1, checkpoint, current) for at in range(count)]


OLD = Held(100, OLD_NS, 1, checkpoint=True, current=True)


@pytest.mark.parametrize(
    ("segments", "keep_from_seq", "limits", "gone"),
    [
        pytest.param(held(2), None, LIMITS, 0, id="small and young"),
        pytest.param(held(4), None, LIMITS, 2, id="of 400 bytes 250 are allowed"),
        pytest.param([OLD, *held(2)[1:]], None, LIMITS, 1, id="old by its last write, whatever the size"),
        pytest.param([OLD], None, Limits(0, 0, 0), 0, id="the last one is being written"),
        pytest.param([OLD] * 9, None, Limits(0, 0, 0), 8, id="all but the last"),
        pytest.param([], None, LIMITS, 0, id="none"),
        pytest.param(held(6), 1, LIMITS, 2, id="all needed, but above the hard cap"),
        # An open episode, an undelivered status, an unexported span: from their first record.
        *(
            pytest.param(held(4), keep_from_seq, LIMITS, gone, id=f"needed from {keep_from_seq} on")
            for keep_from_seq, gone in ((1, 0), (10, 0), (11, 1), (15, 1), (20, 1), (21, 2), (99, 2))
        ),
    ],
)
def test_the_oldest_go_while_there_is_a_reason(
    segments: list[Held], keep_from_seq: int | None, limits: Limits, gone: int
) -> None:
    """By size or age; needed segments stay, up to the hard cap."""
    assert removable(segments, NOW_NS, keep_from_seq, limits) == gone


def test_what_is_left_begins_with_a_checkpoint() -> None:
    """A continuation after a failed file goes with its predecessor, or not at all."""
    segments = held(4)
    segments[2] = segments[2]._replace(checkpoint=False)
    assert removable(segments, NOW_NS, None, LIMITS) == 3
    segments[3] = segments[3]._replace(checkpoint=False)
    assert removable(segments, NOW_NS, None, LIMITS) == 1


def test_segments_that_nobody_continues_need_no_keeping() -> None:
    """Another journal's segments go by size and age only."""
    others = held(3, checkpoint=False, current=False)
    assert removable([*others, *held(2)], NOW_NS, 1, LIMITS) == 3


def test_a_copy_elsewhere_is_not_the_journal() -> None:
    """A segment in two locations counts once; its copy is no reason to remove it."""
    segments = held(3)
    segments[1] = segments[1]._replace(checkpoint=False)
    segments[2] = segments[1]._replace(current=False)
    assert removable(segments, NOW_NS, 11, LIMITS) == 0
