"""The resume table, over every combination that a start can find."""

from __future__ import annotations

from typing import get_args

import pytest

from ebbtide.actors.policy.resume import (
    MEANINGS,
    RESUME_TABLE,
    FoundAtStart,
    LastEpisode,
    ResumeAction,
    every_combination,
    matching_rows,
    resume_action,
)


@pytest.mark.parametrize("found", every_combination(), ids=lambda found: "-".join(map(str, found)))
def test_exactly_one_row_matches(found: FoundAtStart) -> None:
    """Design, "What each shutdown does", point 8."""
    assert len(matching_rows(found)) == 1


def test_every_row_and_every_action_is_in_use() -> None:
    met = {matching_rows(found)[0] for found in every_combination()}
    assert met == set(RESUME_TABLE)
    assert {row.action for row in RESUME_TABLE} == set(get_args(ResumeAction)) == set(MEANINGS)


@pytest.mark.parametrize("found", every_combination(), ids=lambda found: "-".join(map(str, found)))
def test_the_actions_follow_the_three_rules(found: FoundAtStart) -> None:
    """An episode ends with its userspace; only a release completes it; unknown stays unknown."""
    action = resume_action(found)
    same = found.same_boot and found.same_userspace
    left_over = found.last in ("open", "released")
    assert action.startswith("close-") == (left_over and not same)
    assert not (action.startswith("close-complete") and found.last != "released")
    assert not (action.startswith("close-truncated") and found.last != "open")
    assert (action == "begin" or action.endswith("-and-begin")) <= (found.preparing is True)
    assert (action == "release-again") <= found.lock_inherited


@pytest.mark.parametrize(
    "last, preparing, boot, userspace, lock, action",
    [
        ("none", None, True, True, True, "fresh"),
        ("closed", True, True, True, False, "begin"),
        ("open", None, True, True, True, "resume"),
        ("open", False, True, True, True, "cancelled-while-away"),
        ("open", None, True, False, True, "close-truncated"),
        ("open", True, False, False, False, "close-truncated-and-begin"),
        ("released", False, True, False, False, "close-complete"),
        ("released", True, False, True, True, "close-complete-and-begin"),
        ("released", False, True, True, True, "did-not-go-down"),
        ("released", None, True, True, True, "release-again"),
        ("released", True, True, True, False, "wait"),
    ],
)
def test_one_example_of_each_action(
    last: LastEpisode, preparing: bool | None, boot: bool, userspace: bool, lock: bool, action: str
) -> None:
    assert resume_action(FoundAtStart(last, preparing, boot, userspace, lock)) == action
