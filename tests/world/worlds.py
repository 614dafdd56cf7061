"""Every world has a name: what it is called on the command line, and in the message of a test that failed.

seed N            drawn from a seed
crash-at K        the small shutdown (`scenario.two_waves`), its daemon killed at point K
cut-at K          the same, the machine's power cut at point K
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tests.world import drawing, scenario
from tests.world.invariants import Breach, check
from tests.world.runs import run
from tests.world.world import Read, Watch, World, ignore

#: The schedule of the exhaustive runs: one of many, always the same.
EXHAUSTIVE_SEED = 1


class Name(NamedTuple):
    """``kind`` is the option that names it; ``number`` its value."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"python -m tests.world --{self.kind} {self.number}"


def scenario_of(name: Name) -> tuple[scenario.Scenario, int]:
    """The scenario and its seed."""
    if name.kind == "seed":
        return drawing.draw(name.number), name.number
    small = scenario.two_waves()
    if name.kind == "crash-at":
        return small._replace(crash_at=(name.number,) if name.number else ()), EXHAUSTIVE_SEED
    return small._replace(cut_at=name.number), EXHAUSTIVE_SEED


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


def points() -> int:
    """How many points the small shutdown has when nothing goes wrong."""
    return try_out(Name("crash-at", 0)).world.points
