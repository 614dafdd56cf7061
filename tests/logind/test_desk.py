"""A logind that answers late: what is read in between holds no signal up."""

from __future__ import annotations

from typing import cast

import pytest
import trio
import trio.testing

from actors.edges.bus import Bus, BusError
from actors.edges.logind import reader
from actors.edges.logind.desk import ATTEMPTS_MAX, LOOK_SECONDS_MAX, Desk
from actors.edges.logind.dropins import DropIns
from actors.edges.logind.link import Link
from actors.edges.logind.lock import DelayLock
from actors.edges.logind.schedule import Schedule
from events.base import Fact

#: logind waits for a disk.
LATE_SECONDS = 4.0


class SlowLink:
    """A link whose logind answers late."""

    owner = ":1.1"
    pending = False

    async def bus(self) -> Bus:
        return cast(Bus, self)


class Nobody:
    async def put(self, *facts: Fact) -> None:
        raise AssertionError(facts)


def desk_of() -> Desk:
    nothing = object()
    return Desk(
        cast(Link, SlowLink()), cast(DelayLock, nothing), cast(DropIns, nothing), cast(Schedule, nothing)
    )


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(*_: object) -> bool:
        await trio.sleep(LATE_SECONDS)
        return False

    for name in ("grant", "kubelet_lock", "kind_now"):
        monkeypatch.setattr(reader, name, late)

    async def going(*_: object) -> bool:
        return False

    monkeypatch.setattr(reader, "preparing", going)


async def turn_taken_after(desk: Desk) -> float:
    """How long a signal that comes now waits for its turn, in seconds."""
    began = trio.current_time()
    async with desk.turn:
        return trio.current_time() - began


@pytest.mark.usefixtures("slow")
async def test_a_look_in_between_ends_within_its_bound(autojump_clock: trio.testing.MockClock) -> None:
    """However many properties it reads, the next signal waits for all of them no longer than the bound."""
    desk = desk_of()
    desk.owner = SlowLink.owner
    async with desk.turn:
        await desk.report_changes(Nobody())
    assert trio.current_time() == pytest.approx(LOOK_SECONDS_MAX)


@pytest.mark.usefixtures("slow")
async def test_a_whole_reading_lets_a_signal_in(autojump_clock: trio.testing.MockClock) -> None:
    """A reading that logind does not answer is tried again, and the signal comes in between."""
    desk = desk_of()
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            with pytest.raises(BusError, match="too slow"):
                await desk.report_state(Nobody())

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        assert await turn_taken_after(desk) <= LOOK_SECONDS_MAX
    assert trio.current_time() == pytest.approx(ATTEMPTS_MAX * LOOK_SECONDS_MAX)
