"""Facts that come later, or not at all: what they touch."""

from __future__ import annotations

import pytest

from events.facts import InventoryTaken
from events.model import Hook
from replay.virtual.manner import HookPlan
from tests.whatif.bed import SECOND, Recorded, behaves, pod, record, side


@pytest.fixture(scope="module")
def known() -> Recorded:
    """A pod that stops, and one whose life is over in its sleep."""
    sleepy = pod("orders", hook=Hook(kind="sleep", sleep_seconds=3))
    ends = behaves(sleepy, 30, HookPlan(), lives_ns=11 * SECOND)
    return record([behaves(pod("web"), 2), ends])


def test_who_ended_before_a_late_inventory_is_found_gone(known: Recorded) -> None:
    """Nobody looks at a container before it is listed: its exit is heard of then, and nobody is killed."""
    found = known.compare(delay=((known.seq_of(InventoryTaken), 5 * SECOND),))
    orders = side(found, "orders")
    assert (orders.outcomes, orders.change) == (("graceful", "graceful"), "same")
    assert orders.grim is not None
    assert orders.grim.took_ns is not None
    assert orders.grim.took_ns < SECOND
    assert found.then.total_ns is not None
    assert found.total.is_one
    assert found.total.grim == found.then.total_ns + 5 * SECOND
