"""What must hold in every world: what must in every simulation, and what only a real daemon can break."""

from __future__ import annotations

from collections.abc import Callable

from ebbtide.replay.sim.invariants import Breach, breaches
from ebbtide.replay.sim.world_view import BreachSentences
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
    """Every breach of every invariant. A world whose daemon fell over is not looked at further."""
    fallen = [
        Breach(processes.no_exceptions.__name__, sentence) for sentence in processes.no_exceptions(world)
    ]
    if fallen:
        return fallen
    return [
        *(Breach(rule.__name__, each) for rule in OF_WORLDS for each in rule(world)),
        *breaches(views(world)),
    ]
