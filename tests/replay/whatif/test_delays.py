"""Facts that come later, or not at all: what they touch, and what cannot be asked for together."""

from __future__ import annotations

import pytest

from ebbtide import replay
from ebbtide.events.facts import ContainerExited, InventoryTaken
from ebbtide.events.model import Hook
from ebbtide.replay.advise import NoEvidence
from ebbtide.replay.sim.scenario import HookPlan
from ebbtide.replay.whatif.record import Changes, WrongChange
from tests.replay.whatif.bed import SECOND, Recorded, behaves, pod, record, side


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


@pytest.mark.parametrize(
    "asked, said",
    [
        ({"drop": (0,), "delay": ((0, 1),)}, "is to be dropped and delayed: ask for one of the two"),
        ({"delay": ((0, 1), (0, 2))}, "has two delays: ask for one of them, or for their sum"),
    ],
)
def test_one_record_is_changed_in_one_way(
    known: Recorded, asked: dict[str, tuple[object, ...]], said: str
) -> None:
    """What contradicts itself is refused, with the record's number."""
    seq = known.seq_of(ContainerExited)
    named = {
        "drop": (seq,) * len(asked.get("drop", ())),
        "delay": tuple((seq, at + 1) for at, _ in enumerate(asked["delay"])),
    }
    with pytest.raises(WrongChange, match=f"record {seq} {said}"):
        known.ask(**named)


@pytest.mark.parametrize("wrong", [{"grant_ns": -5}, {"delay": ((3, -1),)}])
def test_no_time_is_negative(wrong: dict[str, object]) -> None:
    """A library's caller is told at once."""
    with pytest.raises(ValueError, match="is negative"):
        Changes(**wrong)  # type: ignore[arg-type]


def test_what_is_raised_has_a_name_in_the_library() -> None:
    """So that who asks can catch it without knowing where it lives."""
    assert replay.WrongChange is WrongChange
    assert replay.NoEvidence is NoEvidence
