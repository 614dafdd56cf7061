"""Run a world: the mock clock, a drawn schedule, and a count of every task's steps."""

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
    def random(self) -> float:
        """From 0.0 up to but excluding 1.0; only for Trio's scheduler."""
        return (self.bits() >> 11) / (1 << 53)


class StepCounter(trio.abc.Instrument):
    """Reports every step of every task to the world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._world.before_task_step(task)


def run(scenario: Scenario, seed: int, watch: Watch = ignore, read: Read = ignore) -> World:
    """Run a world from first boot to end. Not inside a running Trio."""
    world = World(scenario, seed, watch, read)
    with _without_collections(), scheduled_by(SchedulerDraws(seed).fork("scheduler")):
        trio.run(world.run, clock=MockClock(autojump_threshold=0), instruments=[StepCounter(world)])
    return world


class _NoCollector:
    """The daemon's use of the garbage collector after arming."""

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
    """A full collection per arming would take most of a run's time."""
    before = getattr(daemon, "gc", None)
    setattr(daemon, "gc", _NoCollector)
    try:
        yield
    finally:
        setattr(daemon, "gc", before)


@contextmanager
def scheduled_by(draws: Draws) -> Iterator[None]:
    """Trio shuffles runnable tasks with our draws, from a fixed order.

    There is no public API; Trio's hypothesis plugin sets the same two names.
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
