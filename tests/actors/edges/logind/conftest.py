"""A real logind per test, the edge beside it, and its collected facts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from ebbtide.actors.edges.logind_edge import LogindEdge
from ebbtide.actors.interfaces import Ending
from ebbtide.events import bounds
from ebbtide.events.base import Fact, Order
from tests.beds.logind import LogindBed, logind_bed, missing
from tests.waiting import WATCHDOG_SECONDS

FactT = TypeVar("FactT", bound=Fact)


class Facts:
    """Collects facts; tests can wait for one."""

    def __init__(self) -> None:
        self.all: list[Fact] = []
        self._more = trio.Event()

    async def put(self, *facts: Fact) -> None:
        self.all.extend(facts)
        self._more.set()
        self._more = trio.Event()

    def of(self, kind: type[FactT]) -> list[FactT]:
        return [fact for fact in self.all if isinstance(fact, kind)]

    async def wait(
        self, kind: type[FactT], count: int = 1, where: Callable[[FactT], Any] = lambda _: True
    ) -> FactT:
        """The ``count``-th fact of a kind, now or later."""
        with trio.move_on_after(WATCHDOG_SECONDS):
            while True:
                found = [fact for fact in self.of(kind) if where(fact)]
                if len(found) >= count:
                    return found[count - 1]
                await self._more.wait()
        raise AssertionError(f"no {kind.__name__} number {count} in {self.all}")


class Rig:
    """An edge that runs, and its facts."""

    def __init__(self, edge: LogindEdge) -> None:
        self.edge, self.facts = edge, Facts()

    def die(self) -> None:
        """End the process abruptly: its descriptors close without a release."""
        for descriptor in self.edge.hand_over():
            os.close(descriptor)

    async def do(self, order: Order) -> Ending:
        """Execute an order as the runner does."""
        ending = self.edge.effects[type(order)](order, self.facts)
        return ending if isinstance(ending, Ending) else await ending


@contextlib.asynccontextmanager
async def running(edge: LogindEdge) -> AsyncIterator[Rig]:
    rig = Rig(edge)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(edge.run, rig.facts)
        try:
            yield rig
        finally:
            nursery.cancel_scope.cancel()
    for descriptor in edge.hand_over():
        os.close(descriptor)


@pytest.fixture
async def bed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LogindBed]:
    """A fresh logind on its own bus, with bounds that a slow machine does not reach."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    monkeypatch.setattr(bounds, "now", bounds.Bounds().widened(100))
    async with logind_bed() as started:
        yield started


@pytest.fixture
async def rig(bed: LogindBed) -> AsyncIterator[Rig]:
    async with running(LogindEdge(bed.address, root=bed.root)) as started:
        yield started


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty root for the parts that only read files."""
    return tmp_path
