"""Fakes for the runner's neighbours: a clock, a journal with settable progress, an edge."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from ebbtide.actors.interfaces import Edge, Effect, Ending, Outlet
from ebbtide.actors.runner import Effects, Inbox
from ebbtide.events.base import NS_PER_SECOND, Event, Fact, Order, Record
from ebbtide.events.decisions import DeliverStatuses, RunHook, SendSignal
from ebbtide.events.facts import OrderEnded

WALL_NS = 1_700_000_000 * NS_PER_SECOND


class TrioClock:
    """Both clocks under Trio's mock clock; ``shift_ns`` steps the wall clock."""

    def __init__(self) -> None:
        self.shift_ns = 0
        self.back_ns = 0

    def mono_ns(self) -> int:
        return round(trio.current_time() * NS_PER_SECOND) - self.back_ns

    def wall_ns(self) -> int:
        return WALL_NS + round(trio.current_time() * NS_PER_SECOND) + self.shift_ns


class FakeJournal:
    """Written and synced up to the test's number; ``hung`` never answers."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.at_once = at_once
        self.records: list[Record] = []
        self._reached = {"written": 0, "synced": 0}
        self._moved = trio.Event()

    def append(self, records: Sequence[Record]) -> None:
        self.records += records

    def reach(self, what: str, seq: int) -> None:
        self._reached[what] = seq
        self._moved.set()
        self._moved = trio.Event()

    async def wait_written(self, seq: int) -> bool:
        return await self._wait("written", seq)

    async def wait_synced(self, seq: int) -> bool:
        return await self._wait("synced", seq)

    async def _wait(self, what: str, seq: int) -> bool:
        while not self.at_once and self._reached[what] < seq:
            await self._moved.wait()
        return True


class FakeEdge:
    """The test's effects; ``lives``: `adopt`'s result for an order."""

    def __init__(self, effects: Mapping[type[Order], Effect], lives: Effect | None = None) -> None:
        self.effects = effects
        self._lives = lives
        self.detached = False

    async def run(self, outlet: Outlet) -> None:
        await trio.sleep_forever()

    def prewarm(self) -> None:
        """No late imports here."""

    def detach(self) -> None:
        self.detached = True

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        if self._lives is None:
            return None
        found: Any = self._lives(order, outlet)
        return found if isinstance(found, Ending) else await found


class Rig:
    """Running effects in a nursery, with their reports."""

    def __init__(self, edges: Sequence[Edge], journal: FakeJournal) -> None:
        self.inbox = Inbox()
        self.journal = journal
        self.effects = Effects(edges, self.inbox, journal, TrioClock())

    def facts(self) -> list[Fact]:
        """New facts in admission order."""
        found: list[Fact] = []
        while (group := self.inbox.take()) is not None:
            found += group
        return found

    def outcomes(self) -> list[tuple[str, str]]:
        return [(fact.key, fact.result) for fact in self.facts() if isinstance(fact, OrderEnded)]


@asynccontextmanager
async def rig(*edges: Edge, journal: FakeJournal | None = None) -> AsyncIterator[Rig]:
    made = Rig(edges, journal or FakeJournal())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.effects.run)
        yield made
        nursery.cancel_scope.cancel()


async def settle() -> None:
    """Wait until no task can run at this instant."""
    await trio.testing.wait_all_tasks_blocked()


def hook(key: str = "h") -> RunHook:
    return RunHook(key=key, uid="u", container="c", timeout_ns=NS_PER_SECOND)


def signal(key: str = "s") -> SendSignal:
    return SendSignal(key=key, uid="u", container="c", signal="SIGTERM")


def deliver(key: str = "d") -> DeliverStatuses:
    """An order whose effect outlives the boot waits for the sync."""
    return DeliverStatuses(key=key, statuses=())


def done(order: Event, outlet: Outlet) -> Ending:
    return Ending()
