"""When the runtime is said to answer, and when no longer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from actors.edges.cri.errors import Lost, RuntimeRefused
from actors.edges.cri.notes import Notes
from actors.edges.cri.reach import AWAY_SECONDS, HANGS_SECONDS, Reach
from events.facts import RuntimeRead
from tests.process.process_bed import Outbox

ERROR = "the runtime is away for 1.0 s"


class Line:
    """A connection that is cut and mended by the test."""

    def __init__(self) -> None:
        self.up = True

    async def ready(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            while not self.up:
                await trio.sleep(0.01)
            return
        raise Lost(f"the runtime is away for {seconds:.1f} s")

    async def gone(self) -> None:
        while self.up:
            await trio.sleep(0.01)


class Rig:
    def __init__(self) -> None:
        self.line, self.outbox, self.said = Line(), Outbox(), list[str]()
        self.reach = Reach(self.line, Notes(lambda level, line: self.said.append(line)))
        self.back, self.asked = trio.open_memory_channel[None](1)

    def facts(self) -> list[tuple[bool, str]]:
        return [(fact.reachable, fact.error) for fact in self.outbox.of(RuntimeRead)]


@asynccontextmanager
async def following() -> AsyncIterator[Rig]:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.reach.follow, rig.outbox, rig.back)
        await rig.asked.receive()
        yield rig
        nursery.cancel_scope.cancel()


async def test_it_answers_once_it_has_told_something(autojump_clock: trio.testing.MockClock) -> None:
    """A connection alone is no answer; and the same is not said twice."""
    async with following() as rig:
        assert rig.facts() == []
        assert not rig.reach.known.is_set()
        for _ in range(2):
            await rig.reach.answers(rig.outbox)
        assert rig.facts() == [(True, "")]
        assert rig.reach.known.is_set()


async def test_a_connection_that_breaks(autojump_clock: trio.testing.MockClock) -> None:
    """After a second it is said, with the reason; when it is mended, the runtime is asked at once."""
    async with following() as rig:
        await rig.reach.answers(rig.outbox)
        rig.line.up = False
        await trio.sleep(AWAY_SECONDS + 0.1)
        assert rig.facts() == [(True, ""), (False, ERROR)]
        assert rig.reach.away
        rig.line.up = True
        await rig.asked.receive()
        await rig.reach.answers(rig.outbox)
        assert rig.facts()[2:] == [(True, "")]
    assert [line.partition(";")[0] for line in rig.said] == [
        f"container runtime: {ERROR}",
        "container runtime: it answers again",
    ]


async def test_a_short_break_is_passed_over(autojump_clock: trio.testing.MockClock) -> None:
    """A runtime that is restarted within a second is no record; but it is asked again."""
    async with following() as rig:
        await rig.reach.answers(rig.outbox)
        rig.line.up = False
        await trio.sleep(AWAY_SECONDS / 2)
        rig.line.up = True
        await rig.asked.receive()
        await trio.sleep(2 * AWAY_SECONDS)
        assert rig.facts() == [(True, "")]


async def test_a_runtime_that_hangs(autojump_clock: trio.testing.MockClock) -> None:
    """Looks that fail again and again say it, also while the connection stands; one does not."""
    async with following() as rig:
        await rig.reach.fails(RuntimeRefused("no"), trio.current_time(), rig.outbox)
        assert rig.facts() == []
        await trio.sleep(HANGS_SECONDS + 0.1)
        await rig.reach.fails(RuntimeRefused("no"), trio.current_time(), rig.outbox)
        assert rig.facts() == [(False, "no")]
        await rig.reach.answers(rig.outbox)
        await rig.reach.fails(RuntimeRefused("once"), trio.current_time(), rig.outbox)
        assert rig.facts() == [(False, "no"), (True, "")]
