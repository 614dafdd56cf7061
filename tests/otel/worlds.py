"""Whole-system runs of the test world, with what stood on the disk at the end of each boot."""

from __future__ import annotations

from functools import lru_cache

import trio
from trio.testing import MockClock

from ebbtide.events.codec import FLAG_LAST, RawRecord
from ebbtide.events.reader import Batch
from ebbtide.events.segment import Header
from ebbtide.otel.span import Span
from ebbtide.otel.traces.projection import Projection
from ebbtide.replay.sim.scenario import Draws
from tests.otel.records import documented
from tests.world.daemon import Life
from tests.world.node import Node
from tests.world.runs import StepCounter, _without_collections, scheduled_by
from tests.world.scenario import BootPlan
from tests.world.world import World
from tests.world.worlds import Name, scenario_of

Step = tuple[Header, list[RawRecord]]


class Kept(World):
    """``journals``: what a reader found after each boot; empty where it was damaged."""

    def _look_back(self, node: Node, plan: BootPlan, lives: list[Life]) -> None:
        super()._look_back(node, plan, lives)
        history = self._history()
        batches = list(history.batches())
        self.journals = [*getattr(self, "journals", []), batches]
        self.journal_id = history.journal_id


@lru_cache(maxsize=256)
def journals(seed: int | None, cut_at: int = 0) -> tuple[bytes, list[list[Batch]]]:
    """The journal's id, and its batches as they stood after each boot of a world."""
    scenario, draws_seed = scenario_of(Name(seed, cut_at=cut_at))
    world = Kept(scenario, draws_seed)
    with _without_collections(), scheduled_by(Draws(draws_seed).fork("scheduler")):
        trio.run(world.run, clock=MockClock(autojump_threshold=0), instruments=[StepCounter(world)])
    return world.journal_id, world.journals


def steps(batches: list[Batch]) -> list[Step]:
    """The same records one step at a time, the finest way that they can come."""
    found: list[Step] = []
    step: list[RawRecord] = []
    for header, records in batches:
        for raw in records:
            step.append(raw)
            if raw.flags & FLAG_LAST:
                found.append((header, step))
                step = []
    return found


def project(told: list[Step] | list[Batch], journal_id: bytes) -> list[Span]:
    projection = Projection()
    spans = (span for header, records in told for span in projection.feed(header, records, journal_id))
    return documented(list(spans))
