"""The loop in virtual time: order of admission, ticks, moves, and its end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ebbtide.actors import runner as inbox
from ebbtide.actors.system import System
from ebbtide.events.base import NS_PER_SECOND, Record
from ebbtide.events.decisions import Arm, Armed
from ebbtide.events.facts import (
    BusLost,
    ContainerStarted,
    LogindRead,
    OrderEnded,
    PreparingRead,
    SettingsLoaded,
    Tick,
)
from ebbtide.events.model import Settings
from ebbtide.replay.sim import loop as loops
from ebbtide.replay.sim.loop import RANKS, Agenda, Loop, RanAway

SETTINGS = SettingsLoaded(settings=Settings(shutdown_grace_period_ns=10 * NS_PER_SECOND))


class Deaf:
    """A world that answers nothing and remembers what it was shown."""

    def __init__(self) -> None:
        self.seen: list[Record] = []

    def answer(self, records: Sequence[Record]) -> None:
        self.seen += records


class Prompt(Deaf):
    """Arming succeeds a millisecond later, with enough of a grant."""

    def __init__(self, agenda: Agenda) -> None:
        super().__init__()
        self.agenda = agenda

    def answer(self, records: Sequence[Record]) -> None:
        super().answer(records)
        for record in records:
            if isinstance(record.event, Arm):
                self.agenda.after(500_000, LogindRead(owner=":1.1", grant_ns=1 << 40, preparing=False))
                self.agenda.after(1_000_000, OrderEnded(key=record.event.key, result="done"))


def test_the_lanes_are_the_inbox_s() -> None:
    """Virtual time admits facts of one instant in the order in which the real inbox is emptied."""
    assert list(RANKS) == list(inbox.FACT_PRIORITIES)
    ranks = [(inbox.FACT_PRIORITIES[kind], RANKS[kind]) for kind in RANKS]
    assert all((one < other) == (mine < yours) for one, mine in ranks for other, yours in ranks)


def test_one_instant_goes_by_lane() -> None:
    """Moves first, then logind, outcomes and the rest; within a lane in the order of putting."""
    agenda, world = Agenda(), Deaf()
    agenda.put(5, ContainerStarted(uid="a", container="b"))
    agenda.put(5, OrderEnded(key="x", result="done"))
    agenda.put(5, PreparingRead(preparing=False))
    agenda.put(5, lambda: agenda.put(5, BusLost(error="moved")))
    Loop(System(), agenda, world, 0).run()
    assert [type(record.event).__name__ for record in world.seen] == [
        "PreparingRead",
        "BusLost",
        "OrderEnded",
        "ContainerStarted",
    ]


def test_a_tick_comes_at_its_deadline() -> None:
    """Arming that fails is tried again exactly when the actor's deadline has come."""
    agenda, world = Agenda(), Deaf()
    agenda.put(7, SETTINGS)
    loop = Loop(System(), agenda, world, 1000)
    loop.run()
    arm = next(record.event for record in world.seen if isinstance(record.event, Arm))
    agenda.put(9, OrderEnded(key=arm.key, result="failed", reason="no bus"))
    loop.run()
    tick = next(record for record in world.seen if isinstance(record.event, Tick))
    assert tick.mono_ns == 9 + NS_PER_SECOND
    assert tick.wall_ns == tick.mono_ns + 1000


def test_a_world_answers() -> None:
    """What the world puts on the agenda for an order comes back to the actor that gave it."""
    agenda = Agenda()
    world = Prompt(agenda)
    agenda.put(0, SETTINGS)
    Loop(System(), agenda, world, 0).run()
    assert any(isinstance(record.event, Armed) for record in world.seen)


def test_what_was_dropped_does_not_happen() -> None:
    """An entry that is taken off the agenda is skipped; nothing is in its place."""
    agenda, world = Agenda(), Deaf()
    agenda.drop(agenda.put(1, BusLost(error="no")))
    agenda.put(2, BusLost(error="yes"))
    agenda.drop(None)
    Loop(System(), agenda, world, 0).run()
    assert [record.mono_ns for record in world.seen] == [2]


def test_a_world_that_goes_in_circles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world that moves by itself for ever ends in an error that says so."""
    monkeypatch.setattr(loops, "STEPS_MAX", 1000)
    agenda = Agenda()

    def again() -> None:
        agenda.after(0, again)

    again()
    with pytest.raises(RanAway):
        Loop(System(), agenda, Deaf(), 0).run()
