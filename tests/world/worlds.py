"""Every world has a name: what it is called on the command line, and in the message of a test that failed.

seed N                a scenario drawn from a seed
no seed               the small shutdown (`scenario.two_waves`)
crash-at K, cut-at K  its daemon killed, the machine's power cut at point K, on top of what the scenario says
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ebbtide.replay.sim.invariants import Breach
from tests.world import drawing, scenario
from tests.world.invariants import check
from tests.world.runs import run
from tests.world.world import Read, Watch, World, ignore

#: The schedule of the small shutdown: one of many, always the same.
SMALL_SEED = 1


class Name(NamedTuple):
    """A seed, or None for the small shutdown; a point of 0 for none."""

    seed: int | None = None
    crash_at: int = 0
    cut_at: int = 0

    def __str__(self) -> str:
        options = [
            f" --{field.replace('_', '-')} {value}" for field, value in self._asdict().items() if value
        ]
        zero = " --seed 0" if self.seed == 0 else "" if options else " --small"
        return f"python -m tests.world{zero}{''.join(options)}"


def scenario_of(name: Name) -> tuple[scenario.Scenario, int]:
    """The scenario and the seed that it runs with."""
    chosen = scenario.two_waves() if name.seed is None else drawing.draw(name.seed)
    if name.crash_at:
        chosen = chosen._replace(crash_at=tuple(sorted((*chosen.crash_at, name.crash_at))))
    seed = SMALL_SEED if name.seed is None else name.seed
    return chosen._replace(cut_at=name.cut_at), seed


class Result(NamedTuple):
    """A world that has been run. Empty ``breaches``: everything held."""

    name: Name
    world: World
    breaches: Sequence[Breach]

    def __str__(self) -> str:
        lines = [f"{breach.invariant}: {breach.sentence}" for breach in self.breaches]
        return "\n".join([f"{self.name}", *lines])


def try_out(name: Name, watch: Watch = ignore, read: Read = ignore) -> Result:
    """Run a world and look at it."""
    world = run(*scenario_of(name), watch, read)
    return Result(name, world, check(world))


def every_point(name: Name, kind: str) -> list[Name]:
    """The same world once for each of its points: ``kind`` is "crash-at" or "cut-at"."""
    points = range(1, try_out(name).world.points + 1)
    if kind == "crash-at":
        return [name._replace(crash_at=point) for point in points]
    return [name._replace(cut_at=point) for point in points]
