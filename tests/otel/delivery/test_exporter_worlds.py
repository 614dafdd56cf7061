"""The exporter beside simulated nodes: kills, power cuts, disk failures, lost answers.

In the end the back end has each span once, with one set of bytes, and no span that a power cut revoked.
``python -m tests.world --seed N -v`` prints a failed seed's story.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import trio

from ebbtide.events.reader import History
from ebbtide.follower import follow
from ebbtide.otel.cursor import Cursor
from ebbtide.otel.otlp_sink import OtlpSink, Tail
from ebbtide.otel.sending import Accepted, Again, Answer
from ebbtide.otel.span import Resource, Span
from ebbtide.replay.sim.scenario import Draws
from tests.conftest import Sample
from tests.otel.delivery.spans import encode_traces
from tests.otel.records import project
from tests.world.disk import FALLBACK
from tests.world.node import Node
from tests.world.world import World
from tests.world.worlds import Name, every_point, run_world, scenario_of

#: About 200 ms each.
SEEDS = 200
PARTS = 3
#: Every fourth point of the small shutdown; the projection's tests visit each.
EVERY = 4
#: A sample of these.
ONE_OF = 15

#: An exporter's longest life, in microseconds: most die while busy.
LIFE_US_MAX = 20_000_000


class BackEnd:
    """By draw it stores without acknowledging, stays silent, or answers late."""

    def __init__(self, draws: Draws) -> None:
        self._draws = draws
        self.kept: dict[tuple[bytes, bytes], bytes] = {}
        self.traces: dict[tuple[bytes, bytes], Span] = {}
        self.changed: list[Span] = []
        self.repeated = 0
        self.friendly = False

    async def send(self, spans: Sequence[Span], resource: Resource) -> Answer:
        await trio.sleep(self._draws.between(0, 40_000) / 1e6)
        what = 9 if self.friendly else self._draws.between(0, 9)
        if what == 0:
            return Again("busy")
        self._keep(spans, resource)
        if what == 1:
            return Again("kept, and the answer was lost")
        if what == 2:
            await trio.sleep(self._draws.between(0, 3_000_000) / 1e6)
        return Accepted()

    def _keep(self, spans: Sequence[Span], resource: Resource) -> None:
        for span in spans:
            key, data = (span.trace_id, span.span_id), encode_traces([span], resource)
            self.repeated += key in self.kept
            self.traces[key] = span
            if self.kept.setdefault(key, data) != data:
                self.changed.append(span)

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()

    def log(self, level: int, text: str) -> None:
        """Drop log lines."""

    def well(self, reason: str) -> None:
        """Ignore the exporter's report."""


async def at_once(work: Callable[..., Any], *args: Any) -> Any:
    """Read simulated disks without threads, so that a seed is deterministic."""
    await trio.lowlevel.checkpoint()
    return work(*args)


class Exported(World):
    """A world with an exporter per boot; its cursor survives everything."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._chance = Draws(self.seed).fork("exporter")
        self.back_end = BackEnd(self._chance.fork("back end"))
        self.cursor: Cursor | None = None

    async def _serve(self, node: Node) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._export)
            await super()._serve(node)
            nursery.cancel_scope.cancel()

    async def _export(self) -> None:
        while True:
            with trio.move_on_after(self._chance.between(1, LIFE_US_MAX) / 1e6):
                await follow(self.sink(), self.back_end.log, at_once)
            await trio.sleep(self._chance.between(0, 1_000_000) / 1e6)

    def sink(self) -> OtlpSink:
        tail = Tail([_Now(self, 0), _Now(self, 1)], volatile=(FALLBACK,))
        end = self.back_end
        made = OtlpSink(tail, end, end, self._keep, lambda: self.cursor)
        made.sending.draw = lambda: 0.5
        return made

    def _keep(self, cursor: Cursor) -> None:
        if self._chance.between(0, 9):
            self.cursor = cursor
        else:
            raise OSError("no")

    async def run(self) -> None:
        """Finally deliver everything that can be delivered."""
        await super().run()
        self.back_end.friendly = True
        last = self.sink()
        last.learn(10**18)
        last.leave()
        with trio.fail_after(600):
            await follow(last, self.back_end.log, at_once)


class _Now:
    """A location's present state: a crash replaces it."""

    def __init__(self, world: World, which: int) -> None:
        self._world, self._which = world, which

    @property
    def _source(self) -> Any:
        return self._world.disks.places[self._which].source

    @property
    def location(self) -> str:
        return str(self._source.location)

    def files(self) -> Any:
        return self._source.files()

    def read(self, name: str, offset: int, size: int) -> bytes:
        return bytes(self._source.read(name, offset, size))


def play(name: Name) -> Exported:
    world = Exported(*scenario_of(name))
    run_world(world)
    return world


def check(world: Exported, where: str) -> None:
    history = world._history()
    final = project(history.batches(), history.journal_id)
    begin_seq = history.verdict.first_seq
    before = _of_other_journals(world, history)
    expected = {(span.trace_id, span.span_id): span for span in final}
    kept = world.back_end.traces
    assert not world.back_end.changed, where
    missing = [span.name for key, span in expected.items() if key not in kept]
    assert not missing, (where, missing)
    # Memory-only records that a later segment on disk confirms were durable when sent.
    taken_back = [
        span.name
        for key, span in kept.items()
        if key not in expected and span.episode >= begin_seq and key not in before
    ]
    assert not taken_back, (where, taken_back)
    assert all(kept[key] == span for key, span in expected.items()), where
    for trace in {span.trace_id for span in final if span.name == "shutdown"}:
        roots = [span for span in kept.values() if span.trace_id == trace and not span.parent_id]
        assert len(roots) == 1, where


def _of_other_journals(world: Exported, history: History) -> set[tuple[bytes, bytes]]:
    """An unreadable journal is followed by a new one beside it."""
    sources = [place.source for place in world.disks.places]
    found = set()
    for other in history.path.others:
        old = History(sources, journal=other)
        found |= {(span.trace_id, span.span_id) for span in project(old.batches(), old.journal_id)}
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_each_shutdown_arrives_once_and_whole(part: int, sample: Sample) -> None:
    """Drawn scenarios: crashes, power cuts, cancels, full and failing disks."""
    repeated = 0
    for seed in sample(range(SEEDS), ONE_OF)[part::PARTS]:
        world = play(Name(seed))
        check(world, f"seed {seed}")
        repeated += world.back_end.repeated
    # Otherwise the test is void: answers get lost and cursors lag.
    assert repeated


@pytest.mark.parametrize("part", range(PARTS))
def test_the_power_may_go_at_every_point(part: int, sample: Sample) -> None:
    """One small shutdown, cut at many points."""
    for name in sample(every_point(Name(), "cut-at")[::EVERY], ONE_OF)[part::PARTS]:
        check(play(name), str(name))
