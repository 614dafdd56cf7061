"""The inbox: lane order, unsplit groups, back-pressure."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from ebbtide.actors import runner
from ebbtide.actors.runner import QUEUE_GROUPS_MAX, Inbox
from ebbtide.events import facts as f
from ebbtide.events.base import Fact
from ebbtide.events.values import Pod
from tests.actors.runner_parts import settle

POD = f.PodAppeared(pod=Pod(uid="u", namespace="n", name="p"))


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
