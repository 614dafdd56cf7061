"""Running a world: the mock clock, a schedule that is drawn, and a count of every step of every task."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio
from trio.testing import MockClock

from ebbtide import daemon
from ebbtide.replay.sim.scenario import Draws
from tests.world.scenario import Scenario
from tests.world.world import Read, Watch, World, ignore


class SchedulerDraws(Draws):
    """One stream of draws, which can also give a fraction."""

    def random(self) -> float:
        """0.0 up to, but without, 1.0; only for Trio's scheduler."""
        return (self.bits() >> 11) / (1 << 53)


class StepCounter(trio.abc.Instrument):
    """Tells the world of every step of every task."""

    def __init__(self, world: World) -> None:
        self._world = world

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._world.before_task_step(task)


def run(scenario: Scenario, seed: int, watch: Watch = ignore, read: Read = ignore) -> World:
    """One world from its first boot to its end. Not to be called from inside a running Trio."""
    world = World(scenario, seed, watch, read)
    with _without_collections(), scheduled_by(SchedulerDraws(seed).fork("scheduler")):
        trio.run(world.run, clock=MockClock(autojump_threshold=0), instruments=[StepCounter(world)])
    return world


class _NoCollector:
    """What the daemon asks of the collector once it is armed."""

    @staticmethod
    def collect() -> int:
        return 0

    @staticmethod
    def freeze() -> None:
        return None

    @staticmethod
    def unfreeze() -> None:
        return None


@contextmanager
def _without_collections() -> Iterator[None]:
    """A full collection for each daemon that arms would take most of a run's time, and none of its clock."""
    before = getattr(daemon, "gc", None)
    setattr(daemon, "gc", _NoCollector)
    try:
        yield
    finally:
        setattr(daemon, "gc", before)


@contextmanager
def scheduled_by(draws: Draws) -> Iterator[None]:
    """Trio shuffles each batch of runnable tasks: with our draws, from a fixed order.

    There is no public way; these two names are what Trio's own plugin for hypothesis sets.
    """
    from trio._core import _run as scheduler

    names: dict[str, Any] = {"_ALLOW_DETERMINISTIC_SCHEDULING": True, "_r": draws}
    before = {name: getattr(scheduler, name) for name in names}
    for name, value in names.items():
        setattr(scheduler, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(scheduler, name, value)
