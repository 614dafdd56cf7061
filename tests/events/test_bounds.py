"""The product's bounds: one value, widened as a whole."""

from __future__ import annotations

import pytest

from ebbtide.events.base import BARRIER_NS_MAX, FLOOR_SECONDS, NS_PER_SECOND
from ebbtide.events.bounds import Bounds, bounds_of


def test_a_factor_widens_every_bound() -> None:
    assert Bounds().widened(1) == Bounds()
    assert bounds_of("1.5") == Bounds(*(1.5 * each for each in Bounds()))


@pytest.mark.parametrize("factor", ["", "ten", "10x", "0", "0.99", "-2", "nan", "inf"])
def test_a_factor_that_is_none(factor: str) -> None:
    with pytest.raises(ValueError, match="give a number from 1 on, or leave it out"):
        bounds_of(factor)


def test_what_a_bound_has_to_fit_into() -> None:
    """A pod without grace gets its stop signal before SIGKILL, whatever its delete did."""
    normal = Bounds()
    assert normal.mark_seconds + normal.taint_seconds < normal.delete_seconds < FLOOR_SECONDS
    assert normal.barrier_seconds * NS_PER_SECOND == BARRIER_NS_MAX
    assert 2 * normal.boot_log_seconds < normal.boot_source_seconds
    assert normal.disk_sync_seconds < normal.disk_starved_seconds
