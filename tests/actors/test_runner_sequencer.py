"""The sequencer: admission order, stamps, and a step's consequences."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors import runner
from ebbtide.actors.interfaces import Ending, Outlet
from ebbtide.actors.runner import CLOCK_STEP_NS, QUEUE_GROUPS_MAX, Effects, Inbox, Sequencer
from ebbtide.actors.system import System
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Event, Fact, Order, Record, Stamp
from ebbtide.events.decisions import Arm, Leave
from ebbtide.events.values import Pod, Settings
from tests.actors.runner_parts import FakeEdge, FakeJournal, TrioClock, settle
from tests.journals import step

POD = f.PodAppeared(pod=Pod(uid="u", namespace="n", name="p"))
BUS = f.BusLost(error="x")
ENDED = f.OrderEnded(key="k", result="done")
STOP = f.StopRequested(system_stopping=False)


class FakeSystem:
    """Records each admission with its time; ``deadlines`` are monotonic nanoseconds, one `Tick` each."""

    def __init__(self, *deadlines: int, answers: dict[type[Fact], Sequence[Event]] | None = None) -> None:
        self.deadlines = list(deadlines)
        self.answers = answers or {}
        self.seen: list[tuple[Event, Stamp]] = []
        self.next_seq = 1

    def step(self, fact: Event, stamp: Stamp) -> list[Record]:
        self.seen.append((fact, stamp))
        if isinstance(fact, f.Tick):
            self.deadlines = [each for each in self.deadlines if each > stamp.mono_ns]
        events = [fact, *self.answers.get(type(fact), ())]  # type: ignore[call-overload]  # facts only
        first, self.next_seq = self.next_seq, self.next_seq + len(events)
        return step(*events, first_seq=first, at=stamp)

    def next_deadline_ns(self) -> int | None:
        return min(self.deadlines, default=None)


class FakeEffects:
    def __init__(self) -> None:
        self.held: list[tuple[Order, int]] = []

    def hold(self, order: Order, seq: int) -> None:
        self.held.append((order, seq))


class Bed:
    def __init__(self, system: FakeSystem) -> None:
        self.system = system
        self.inbox, self.journal, self.effects = Inbox(), FakeJournal(), FakeEffects()
        self.clock = TrioClock()
        self.sequencer = Sequencer(
            system,  # type: ignore[arg-type]  # what the sequencer asks of it
            self.inbox,
            self.journal,
            self.effects,  # type: ignore[arg-type]
            self.clock,
        )

    def admitted(self) -> list[Event]:
        return [fact for fact, _ in self.system.seen]

    async def run(self, for_seconds: float = 0) -> list[Event]:
        """Run for so long and until idle; returns the admitted facts."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.sequencer.run)
            await trio.sleep(for_seconds)
            await settle()
            nursery.cancel_scope.cancel()
        return self.admitted()


LEAVES = {f.StopRequested: [Leave(reason="told to")]}


# --- order


async def test_urgent_facts_then_ticks_then_the_rest(autojump_clock: MockClock) -> None:
    """A due tick waits for logind, and precedes outcomes and inventories."""
    bed = Bed(FakeSystem(0, answers=LEAVES))
    for fact in (POD, ENDED, BUS):
        bed.inbox.push(fact)
    assert await bed.run() == [BUS, f.Tick(), ENDED, POD]


async def test_overdue_ticks_come_first_after_a_resume(autojump_clock: MockClock) -> None:
    """One overdue tick precedes everything that waits."""
    await trio.sleep(10)
    bed = Bed(FakeSystem(3 * NS_PER_SECOND, 5 * NS_PER_SECOND, answers=LEAVES))
    bed.inbox.push(ENDED)
    bed.inbox.push(f.ContainerExited(uid="u", container="c"))
    assert await bed.run() == [f.Tick(), ENDED, f.ContainerExited(uid="u", container="c")]


async def test_a_group_is_admitted_as_a_whole(autojump_clock: MockClock) -> None:
    """Not even urgent facts split a group."""
    parts = [f.InventoryTaken(key="k", as_of_ns=0, source="s", part=part, parts=2) for part in (1, 2)]
    bed = Bed(FakeSystem())
    bed.sequencer.observers.append(lambda records: bed.inbox.push(BUS) if records[0].seq == 1 else None)
    bed.inbox.push(*parts)
    assert await bed.run() == [*parts, BUS]


async def test_a_tick_comes_when_its_deadline_does(autojump_clock: MockClock) -> None:
    """The sequencer sleeps until the earliest deadline, no longer and no shorter."""
    bed = Bed(FakeSystem(2 * NS_PER_SECOND, 7 * NS_PER_SECOND))
    await bed.run(for_seconds=10)
    for (_, stamp), due_seconds in zip(bed.system.seen, (2, 7), strict=True):
        assert 0 <= stamp.mono_ns - due_seconds * NS_PER_SECOND < 1_000_000


async def test_a_full_inbox_starves_nobody(autojump_clock: MockClock) -> None:
    """Between steps other tasks have their turn, however much waits."""
    bed = Bed(FakeSystem())
    for _ in range(100):
        bed.inbox.push(ENDED)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        nursery.start_soon(bed.sequencer.run)
        while len(bed.system.seen) < 100:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert turns >= 100 // 16


async def test_whoever_asks_hears_that_it_comes_round(autojump_clock: MockClock) -> None:
    """Idle, busy or late, the sequencer answers; stopped or mid-step it does not."""
    bed = Bed(FakeSystem(7 * NS_PER_SECOND))
    with trio.move_on_after(1) as scope:
        await bed.sequencer.turned()
    assert scope.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bed.sequencer.run)
        for facts in (0, 1, 40):
            for _ in range(facts):
                bed.inbox.push(ENDED)
            with trio.fail_after(1):
                await bed.sequencer.turned()
        await settle()
        nursery.cancel_scope.cancel()
    assert bed.admitted() == [ENDED] * 41


# --- stamps


async def test_the_monotonic_stamp_never_goes_back(autojump_clock: MockClock) -> None:
    bed = Bed(FakeSystem())
    await trio.sleep(5)
    bed.sequencer.admit(ENDED)
    bed.clock.back_ns = 3 * NS_PER_SECOND
    bed.clock.shift_ns = -3 * NS_PER_SECOND
    bed.sequencer.admit(ENDED)
    stamps = [stamp.mono_ns for _, stamp in bed.system.seen]
    assert stamps == sorted(stamps)
    assert stamps[0] == stamps[-1]


async def test_a_step_of_the_wall_clock_is_a_fact(autojump_clock: MockClock) -> None:
    """It is admitted before the fact that noticed it, with how far it went; it moves no deadline."""
    bed = Bed(FakeSystem(100 * NS_PER_SECOND))
    bed.sequencer.admit(ENDED)
    bed.clock.shift_ns = 3600 * NS_PER_SECOND
    await trio.sleep(1)
    bed.sequencer.admit(ENDED)
    bed.sequencer.admit(ENDED)
    assert bed.admitted() == [ENDED, f.ClockStepped(delta_ns=3600 * NS_PER_SECOND), ENDED, ENDED]
    assert bed.system.next_deadline_ns() == 100 * NS_PER_SECOND


async def test_a_slewed_clock_is_no_step(autojump_clock: MockClock) -> None:
    """Small corrections of the wall clock are not worth a record."""
    bed = Bed(FakeSystem())
    for _ in range(5):
        bed.sequencer.admit(ENDED)
        bed.clock.shift_ns += CLOCK_STEP_NS // 2
    assert bed.admitted() == [ENDED] * 5


# --- what follows


async def test_orders_wait_for_the_end_of_their_step(autojump_clock: MockClock) -> None:
    """A step is appended whole; each of its orders is held until the step's last record is durable."""
    orders = [Arm(key="1"), Arm(key="2")]
    bed = Bed(FakeSystem(answers={f.SettingsLoaded: [*orders, Leave(reason="")]}))
    bed.sequencer.admit(f.SettingsLoaded(settings=Settings()))
    assert [record.seq for record in bed.journal.records] == [1, 2, 3, 4]
    assert bed.effects.held == [(orders[0], 4), (orders[1], 4)]


async def test_observers_see_whole_steps(autojump_clock: MockClock) -> None:
    """Projections are fed after the journal, step by step."""
    bed = Bed(FakeSystem(answers=LEAVES))
    steps: list[list[str]] = []
    bed.sequencer.observers.append(lambda records: steps.append([type(r.event).__name__ for r in records]))
    bed.sequencer.admit(POD)
    bed.sequencer.admit(STOP)
    assert steps == [["PodAppeared"], ["StopRequested", "Leave"]]


async def test_leaving_ends_the_run(autojump_clock: MockClock) -> None:
    """The run returns the decision's reason; waiting facts are not admitted."""
    bed = Bed(FakeSystem(answers=LEAVES))
    bed.inbox.push(STOP)
    bed.inbox.push(POD)
    assert await bed.sequencer.run() == "told to"
    assert bed.admitted() == [STOP]


# --- the real system


async def test_arming_is_tried_again_by_the_clock(autojump_clock: MockClock) -> None:
    """Real system, real effects: an edge that never answers well is asked again after 1 s, 2 s, 4 s."""
    asked: list[int] = []

    def fails(order: Order, outlet: Outlet) -> Ending:
        asked.append(clock.mono_ns())
        return Ending("failed", "no bus")

    inbox, journal, clock = Inbox(), FakeJournal(), TrioClock()
    effects = Effects([FakeEdge({Arm: fails})], inbox, journal, clock)
    sequencer = Sequencer(System(), inbox, journal, effects, clock)
    start = f.DaemonStarted(
        version="0", pid=1, mode="process", node="n", boot_id="b", userspace_id="u", preparing=False
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(effects.run)
        inbox.push(start)
        inbox.push(f.SettingsLoaded(settings=Settings(shutdown_grace_period_ns=30 * NS_PER_SECOND)))
        nursery.start_soon(sequencer.run)
        await trio.sleep(10)
        inbox.push(STOP)
        await settle()
        nursery.cancel_scope.cancel()
    assert [round(at / NS_PER_SECOND) for at in asked] == [0, 1, 3, 7]


# --- the inbox


def ended(key: str) -> f.OrderEnded:
    return f.OrderEnded(key=key, result="done")


def drain(inbox: Inbox) -> list[Fact]:
    found: list[Fact] = []
    while (group := inbox.take()) is not None:
        found += group
    return found


def test_logind_and_people_come_before_outcomes_before_the_rest() -> None:
    """A signal or a human order precedes all other lanes."""
    inbox = Inbox()
    urgent = [f.PreparingRead(preparing=True), f.BusLost(error="x"), f.HurryRequested(pod="p", asked_by=0)]
    outcomes = [ended("a"), f.ContainerExited(uid="u", container="c")]
    for fact in (POD, *outcomes, *urgent):
        inbox.push(fact)
    assert drain(inbox) == [*urgent, *outcomes, POD]


def test_a_second_life_begins_before_it_ends() -> None:
    """A restart's end does not overtake its start."""
    inbox = Inbox()
    end = f.ContainerExited(uid="u", container="c")
    lives = [end, f.PodJoined(pod=POD.pod), end]
    for fact in (POD, *lives):
        inbox.push(fact)
    assert drain(inbox) == [*lives, POD]


def test_only_urgent_facts_on_demand() -> None:
    """Before a tick only the urgent lane is emptied."""
    inbox = Inbox()
    inbox.push(ended("a"))
    assert inbox.take(urgent_only=True) is None
    inbox.push(f.BusLost(error="x"))
    assert inbox.take(urgent_only=True) == (f.BusLost(error="x"),)


async def test_a_group_stays_together(autojump_clock: MockClock) -> None:
    """A group stays together and in order, in its first fact's lane."""
    inbox = Inbox()
    parts = [f.InventoryTaken(key="k", as_of_ns=0, source="s", part=part, parts=3) for part in (1, 2, 3)]
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(inbox.put, *parts)
    assert [inbox.take() for _ in range(3)] == [tuple(parts)] * 3


async def test_a_full_lane_makes_its_edge_wait(autojump_clock: MockClock) -> None:
    """A put into a full lane waits; other lanes do not."""
    inbox = Inbox()
    for _ in range(QUEUE_GROUPS_MAX):
        await inbox.put(POD)
    waited = trio.Event()

    async def one_more() -> None:
        await inbox.put(POD)
        waited.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one_more)
        await settle()
        assert not waited.is_set()
        await inbox.put(f.PreparingRead(preparing=True))
        assert inbox.take() == (f.PreparingRead(preparing=True),)
        assert inbox.take() == (POD,)
        await settle()
        assert waited.is_set()


async def test_everybody_who_waits_gets_in(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many edges at a full lane: each fact arrives once."""
    inbox = Inbox()
    monkeypatch.setattr(runner, "QUEUE_GROUPS_MAX", 32)
    many = 64
    taken = 0
    async with trio.open_nursery() as nursery:
        for _ in range(many):
            nursery.start_soon(inbox.put, POD)
        await settle()
        while taken < many:
            assert inbox.take() == (POD,)
            taken += 1
            await settle()
    assert inbox.take() is None


async def test_outcomes_are_never_refused(autojump_clock: MockClock) -> None:
    """At most one per order, so their lane is unbounded: an effect's end never waits."""
    inbox = Inbox()
    for at in range(QUEUE_GROUPS_MAX + 10):
        inbox.push(ended(str(at)))
    assert len(drain(inbox)) == QUEUE_GROUPS_MAX + 10


async def test_an_arrival_wakes_whoever_waits(autojump_clock: MockClock) -> None:
    """No wake-up is lost between looking and waiting."""
    inbox = Inbox()
    inbox.push(ended("a"))
    arrived = inbox.rearm()
    assert drain(inbox) == [ended("a")]
    assert not arrived.is_set()
    inbox.push(ended("b"))
    assert arrived.is_set()
