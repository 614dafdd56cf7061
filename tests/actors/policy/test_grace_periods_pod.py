"""One pod's grace."""

from __future__ import annotations

import pytest

from ebbtide.actors.policy.grace_periods import CRITICAL_PRIORITY, FLOOR_SECONDS, pod_grace_seconds
from ebbtide.events.model import Pod


@pytest.mark.parametrize(
    "period_seconds, asked_seconds, expected",
    [
        (20, 120, 20),
        (20, 5, 5),
        (20, 20, 20),
        (20, None, 20),
        (0, 30, 0),
        (20, 0, 0),
        (20, -7, 0),
        (-3, 9, 0),
    ],
)
def test_grace_is_the_smaller_of_both_and_a_pod_that_asks_nothing_takes_the_wave(
    period_seconds: int, asked_seconds: int | None, expected: int
) -> None:
    """kubernetes#120271: nothing asked is not 30 s."""
    pod = Pod(uid="u", namespace="default", name="p", grace_seconds=asked_seconds)
    assert pod_grace_seconds(period_seconds, pod) == expected


def test_the_reference_constants() -> None:
    """The floor between stop signal and SIGKILL, and the border of critical pods."""
    assert (FLOOR_SECONDS, CRITICAL_PRIORITY) == (2, 2_000_000_000)
