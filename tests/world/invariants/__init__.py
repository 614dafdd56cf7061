"""The invariants of every world: the simulation's, and the real daemon's own."""

from __future__ import annotations

from collections.abc import Callable

from ebbtide.replay.sim.invariants import Breach, BreachSentences, breaches
from tests.world.invariants import processes
from tests.world.view import views
from tests.world.world import World

OF_WORLDS: tuple[Callable[[World], BreachSentences], ...] = (
    processes.no_exceptions,
    processes.barriers_hold,
    processes.what_is_shown_is_so,
    processes.the_journal_is_sound,
    processes.the_journal_replays,
)


def check(world: World) -> list[Breach]:
    """All breaches. After a daemon's crash nothing else is checked."""
    fallen = [
        Breach(processes.no_exceptions.__name__, sentence) for sentence in processes.no_exceptions(world)
    ]
    if fallen:
        return fallen
    return [
        *(Breach(rule.__name__, each) for rule in OF_WORLDS for each in rule(world)),
        *breaches(views(world)),
    ]
