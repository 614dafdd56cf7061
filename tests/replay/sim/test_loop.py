"""The loop in virtual time: admission order, ticks, moves, and its end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ebbtide.actors.system import System
from ebbtide.events import facts
from ebbtide.events.base import NS_PER_SECOND, Record
from ebbtide.events.decisions import Arm
from ebbtide.events.values import Settings
from ebbtide.replay.sim import loop as loops
from ebbtide.replay.sim.loop import Agenda, Loop, RanAway

SETTINGS = facts.SettingsLoaded(settings=Settings(shutdown_grace_period_ns=10 * NS_PER_SECOND))


class Deaf:
    """A world without answers that stores what it receives."""

    def __init__(self) -> None:
        self.seen: list[Record] = []

    def answer(self, records: Sequence[Record]) -> None:
        self.seen += records


def test_one_instant_goes_by_lane() -> None:
    """Moves, then logind, outcomes and the rest; each lane in order."""
    agenda, world = Agenda(), Deaf()
    agenda.put(5, facts.ContainerStarted(uid="a", container="b"))
    agenda.put(5, facts.OrderEnded(key="x", result="done"))
    agenda.put(5, facts.PreparingRead(preparing=False))
    agenda.put(5, lambda: agenda.put(5, facts.BusLost(error="moved")))
    Loop(System(), agenda, world, 0).run()
    assert [type(record.event).__name__ for record in world.seen] == [
        "PreparingRead",
        "BusLost",
        "OrderEnded",
        "ContainerStarted",
    ]


def test_a_tick_comes_at_its_deadline() -> None:
    """A failed arming is retried exactly at the actor's deadline."""
    agenda, world = Agenda(), Deaf()
    agenda.put(7, SETTINGS)
    loop = Loop(System(), agenda, world, 1000)
    loop.run()
    arm = next(record.event for record in world.seen if isinstance(record.event, Arm))
    agenda.put(9, facts.OrderEnded(key=arm.key, result="failed", reason="no bus"))
    loop.run()
    tick = next(record for record in world.seen if isinstance(record.event, facts.Tick))
    assert tick.mono_ns == 9 + NS_PER_SECOND
    assert tick.wall_ns == tick.mono_ns + 1000


def test_a_world_that_goes_in_circles(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless world ends in an explicit error."""
    monkeypatch.setattr(loops, "STEPS_MAX", 1000)
    agenda = Agenda()

    def again() -> None:
        agenda.after(0, again)

    again()
    with pytest.raises(RanAway):
        Loop(System(), agenda, Deaf(), 0).run()
