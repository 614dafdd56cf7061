"""When the runtime counts as away, in virtual time."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors.edges.cri.cri_client import Lost, RuntimeReach, RuntimeRefused
from ebbtide.events.bounds import Bounds
from ebbtide.events.facts import RuntimeRead
from ebbtide.events.units import bound_text
from tests.actors.edges.process.process_bed import Outbox

BOUNDS = Bounds()
ERROR = "the runtime is away for 1 s"


class Line:
    """A connection that the test cuts and restores."""

    def __init__(self) -> None:
        self.up = True
        #: When a call is answered, in Trio's time.
        self.answers_at = 0.0

    async def ready(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            while not self.up:
                await trio.sleep(0.01)
            return
        raise Lost(f"the runtime is away for {bound_text(seconds)}")

    async def call(self, request: object, seconds: float) -> None:
        await trio.sleep_until(self.answers_at)

    async def gone(self) -> None:
        while self.up:
            await trio.sleep(0.01)


class Rig:
    def __init__(self) -> None:
        self.line, self.outbox, self.said = Line(), Outbox(), list[str]()
        self.reach = RuntimeReach(self.line, self.outbox, lambda level, line: self.said.append(line))
        self.back, self.asked = trio.open_memory_channel[None](1)

    def facts(self) -> list[tuple[bool, str]]:
        return [(fact.reachable, fact.error) for fact in self.outbox.of(RuntimeRead)]


@pytest.fixture
async def rig(nursery: trio.Nursery) -> Rig:
    """It follows its connection."""
    made = Rig()
    nursery.start_soon(made.reach.follow, made.back)
    await made.asked.receive()
    return made


async def test_a_connection_that_breaks(rig: Rig, autojump_clock: MockClock) -> None:
    """Reported after a second with the reason. Once restored, the runtime is asked at once."""
    await rig.reach.answers()
    rig.line.up = False
    await trio.sleep(BOUNDS.runtime_away_seconds + 0.1)
    assert rig.facts() == [(True, ""), (False, ERROR)]
    assert rig.reach.away
    rig.line.up = True
    await rig.asked.receive()
    await rig.reach.answers()
    assert rig.facts()[2:] == [(True, "")]
    assert [line.partition(";")[0] for line in rig.said] == [
        f"container runtime: {ERROR}",
        "container runtime: it answers again",
    ]


async def test_a_short_break_is_no_fact(rig: Rig, autojump_clock: MockClock) -> None:
    """A runtime restart within a second is not reported."""
    await rig.reach.answers()
    rig.line.up = False
    await trio.sleep(BOUNDS.runtime_away_seconds / 2)
    rig.line.up = True
    await rig.asked.receive()
    await trio.sleep(2 * BOUNDS.runtime_away_seconds)
    assert (rig.facts(), rig.said) == ([(True, "")], [])


async def test_a_runtime_that_hangs(rig: Rig, autojump_clock: MockClock) -> None:
    """Repeated failed looks report it, even on an open connection; one does not."""
    await rig.reach.fails(RuntimeRefused("no"), trio.current_time())
    assert rig.facts() == []
    await trio.sleep(BOUNDS.runtime_hangs_seconds + 0.1)
    await rig.reach.fails(RuntimeRefused("no"), trio.current_time())
    assert rig.facts() == [(False, "no")]
    await rig.reach.answers()
    await rig.reach.fails(RuntimeRefused("once"), trio.current_time())
    assert rig.facts() == [(False, "no"), (True, "")]


@pytest.mark.parametrize(("answers_after", "away"), [(0.0, False), (0.9, False), (60.0, True)])
async def test_a_question_at_the_signal(autojump_clock: MockClock, answers_after: float, away: bool) -> None:
    """A runtime that hangs is on record within the bound. One that is slow is not, nor one whose answer lies
    unread because the daemon was stopped itself: it is asked twice.
    """
    rig = Rig()
    await rig.reach.answers()
    began = trio.current_time()
    rig.line.answers_at = began + answers_after
    await rig.reach.ask(BOUNDS.runtime_signal_seconds)
    assert [reachable for reachable, _ in rig.facts()] == [True, False][: 1 + away]
    assert trio.current_time() - began == pytest.approx(min(answers_after, 1.1))
