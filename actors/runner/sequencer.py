"""The sequencer: stamps facts, runs the step, writes it down, hands its orders on.

The order of admission may be as accidental as it likes, because it is recorded; everything after it is a
function. This is the only place that reads the clock for the core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from actors.interfaces import Clock
from actors.logic.system import System
from actors.runner.effects import Durable, Effects
from actors.runner.inbox import Inbox
from events.base import NS_PER_SECOND, Fact, Order
from events.decisions import Leave
from events.facts import ClockStepped, Tick
from events.record import Record, Stamp

#: A wall clock that moved by more than this against the monotonic one was stepped, not slewed.
CLOCK_STEP_NS = NS_PER_SECOND

#: Steps between two chances for other tasks, so that a full inbox starves no effect.
STEPS_PER_TURN = 16


class Sink(Durable, Protocol):
    """What the sequencer needs of the journal."""

    def append(self, records: Sequence[Record]) -> object:
        """Queue whole steps; never waits."""


Observer = Callable[[Sequence[Record]], None]


class Sequencer:
    """One per process. ``run`` returns the reason once an actor has decided to `Leave`."""

    def __init__(self, system: System, inbox: Inbox, journal: Sink, effects: Effects, clock: Clock) -> None:
        self.system = system
        self._inbox = inbox
        self._journal = journal
        self._effects = effects
        self._clock = clock
        self._last_mono_ns = 0
        self._offset_ns: int | None = None
        self._leave = ""
        self.observers: list[Observer] = []

    async def run(self) -> str:
        while not self._leave:
            for _ in range(STEPS_PER_TURN):
                if not self._turn():
                    break
            else:
                await trio.lowlevel.checkpoint()
                continue
            await self._idle()
        return self._leave

    def _turn(self) -> bool:
        """Admit one group, or one `Tick`. Urgent facts come first, then ticks, then the rest."""
        group = self._inbox.take(urgent_only=True)
        if group is None:
            group = (Tick(),) if self._tick_due() else self._inbox.take()
        for fact in group or ():
            self.admit(fact)
        return group is not None and not self._leave

    async def _idle(self) -> None:
        """Sleep until something arrives or the earliest deadline comes."""
        arrived = self._inbox.rearm()
        if self._leave or self._turn():
            return
        deadline_ns = self.system.next_deadline_ns()
        if deadline_ns is None:
            await arrived.wait()
            return
        with trio.move_on_after(max(0, deadline_ns - self._clock.mono_ns()) / NS_PER_SECOND):
            await arrived.wait()

    def _tick_due(self) -> bool:
        deadline_ns = self.system.next_deadline_ns()
        return deadline_ns is not None and deadline_ns <= self._mono_ns()

    def admit(self, fact: Fact) -> None:
        """One step: stamped, run to quiescence, written, its orders held behind their barriers."""
        stamp = self._stamp()
        stepped_ns = self._wall_step(stamp)
        if stepped_ns:
            self._step(ClockStepped(delta_ns=stepped_ns), stamp)
        self._step(fact, stamp)

    def _step(self, fact: Fact, stamp: Stamp) -> None:
        records = self.system.step(fact, stamp)
        self._journal.append(records)
        for record in records:
            if isinstance(record.event, Order):
                self._effects.hold(record.event, records[-1].seq)
            elif isinstance(record.event, Leave):
                self._leave = record.event.reason
        for observe in self.observers:
            observe(records)

    def _mono_ns(self) -> int:
        """Never decreasing, whatever the clock does."""
        self._last_mono_ns = max(self._last_mono_ns, self._clock.mono_ns())
        return self._last_mono_ns

    def _stamp(self) -> Stamp:
        return Stamp(self._mono_ns(), self._clock.wall_ns())

    def _wall_step(self, stamp: Stamp) -> int:
        offset_ns = stamp.wall_ns - stamp.mono_ns
        before, self._offset_ns = self._offset_ns, offset_ns
        if before is None or abs(offset_ns - before) <= CLOCK_STEP_NS:
            return 0
        return offset_ns - before
