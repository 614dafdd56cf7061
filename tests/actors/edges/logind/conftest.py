"""A real logind per test, the edge beside it, and its collected facts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from ebbtide.actors.edges.logind_edge import LogindEdge
from ebbtide.actors.interfaces import Ending
from ebbtide.events import bounds
from ebbtide.events.base import Order
from tests.actors.edges.process.process_bed import FactT, Outbox
from tests.beds.logind import LogindBed, logind_bed, missing


class Facts(Outbox):
    async def wait(
        self, kind: type[FactT], count: int = 1, where: Callable[[FactT], Any] = lambda _: True
    ) -> FactT:
        """The ``count``-th fact of a kind, now or later."""
        return (await self.wait_for(kind, count, where))[count - 1]


class Rig:
    def __init__(self, edge: Any) -> None:
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
