"""Every world has a name: what it is called on the command line, and in the message of a test that failed.

seed N                a scenario drawn from a seed
no seed               the small shutdown (`scenario.two_waves`)
crash-at K, cut-at K  its daemon killed, the machine's power cut at point K, on top of what the scenario says
without PART          a part of the scenario left out: a pod, a misfortune, a death of the daemon
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import trio
from trio.testing import MockClock

from ebbtide import daemon
from ebbtide.replay.sim.scenario import Draws
from tests.long_run import Tried, refuse_unknown, shrink
from tests.world import drawing, scenario
from tests.world.world import Read, Watch, World, ignore
from tests.world.world_invariants import check

#: The small shutdown's fixed schedule.
SMALL_SEED = 1


class Name(NamedTuple):
    """A seed, or None for the small shutdown; a point of 0 for none. ``without``: names of `parts`."""

    seed: int | None = None
    crash_at: int = 0
    cut_at: int = 0
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        options = [
            f" --{field.replace('_', '-')} {' '.join(value) if isinstance(value, tuple) else value}"
            for field, value in self._asdict().items()
            if value
        ]
        zero = " --seed 0" if self.seed == 0 else "" if options else " --small"
        return f"python -m tests.world{zero}{''.join(options)}"


def scenario_of(name: Name) -> tuple[scenario.Scenario, int]:
    """The scenario and the seed that it runs with."""
    chosen = scenario.two_waves() if name.seed is None else drawing.draw(name.seed)
    if name.crash_at:
        chosen = chosen._replace(crash_at=tuple(sorted((*chosen.crash_at, name.crash_at))))
    seed = SMALL_SEED if name.seed is None else name.seed
    return _leave_out(chosen, name.without)._replace(cut_at=name.cut_at), seed


def parts(whole: scenario.Scenario) -> list[str]:
    """Removable parts of a scenario: ``boot.0.act.2``, ``pod.1``, ``crash.0``."""
    return [
        *(f"boot.{at}.act.{index}" for at, boot in enumerate(whole.boots) for index in range(len(boot.acts))),
        *(f"crash.{index}" for index in range(len(whole.crash_at))),
        *(f"pod.{index}" for index in range(len(whole.pods))),
    ]


def _leave_out(whole: scenario.Scenario, without: Sequence[str]) -> scenario.Scenario:
    refuse_unknown(without, parts(whole))

    def kept(place: str, all_of_it: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(each for index, each in enumerate(all_of_it) if f"{place}.{index}" not in without)

    return whole._replace(
        boots=tuple(
            boot._replace(acts=kept(f"boot.{at}.act", boot.acts)) for at, boot in enumerate(whole.boots)
        ),
        crash_at=kept("crash", whole.crash_at),
        pods=kept("pod", whole.pods),
    )


Result = Tried[Name, World]


def try_out(name: Name, watch: Watch = ignore, read: Read = ignore) -> Result:
    """Run a world and look at it."""
    world = run(*scenario_of(name), watch, read)
    return Result(name, world, check(world))


def fewest(broken: Result) -> Result:
    """The same breach with the fewest parts: about twenty parts, a fifth of a second each."""
    return shrink(broken, parts(scenario_of(broken.name._replace(without=()))[0]), try_out)


def every_point(name: Name, kind: str) -> list[Name]:
    """The world once per point: ``kind`` is "crash-at" or "cut-at"."""
    points = range(1, try_out(name).run.points + 1)
    if kind == "crash-at":
        return [name._replace(crash_at=point) for point in points]
    return [name._replace(cut_at=point) for point in points]


# --- one run: the mock clock, a drawn schedule, and a count of every task's steps


class StepCounter(trio.abc.Instrument):
    """Reports every step of every task to the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._world.before_task_step(task)


def run(chosen: scenario.Scenario, seed: int, watch: Watch = ignore, read: Read = ignore) -> World:
    """Run a world from first boot to end. Not inside a running Trio."""
    world = World(chosen, seed, watch, read)
    run_world(world)
    return world


def run_world(world: World) -> None:
    """Without collections: a full one per arming would take most of a run's time."""
    with patch.object(daemon, "gc", NO_COLLECTOR), scheduled_by(Draws(world.seed).fork("scheduler")):
        trio.run(world.run, clock=MockClock(autojump_threshold=0), instruments=[StepCounter(world)])


#: The daemon's use of the garbage collector after arming.
NO_COLLECTOR = SimpleNamespace(collect=lambda: 0, freeze=lambda: None, unfreeze=lambda: None)


def scheduled_by(draws: Draws) -> AbstractContextManager[object]:
    """Trio shuffles runnable tasks with our draws, from a fixed order.

    There is no public API; Trio's hypothesis plugin sets the same two names.
    """
    from trio._core import _run as scheduler

    return patch.multiple(scheduler, _ALLOW_DETERMINISTIC_SCHEDULING=True, _r=draws)
