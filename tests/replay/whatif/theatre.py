"""Shutdowns played by hand, for what the simulator does not do: any facts, orders answered at once."""

from __future__ import annotations

from ebbtide.actors.system import System
from ebbtide.events import facts as f
from ebbtide.events.base import NS_PER_SECOND, Fact, Order, Record, Stamp
from ebbtide.events.decisions import SendSignal, TakeInventory
from ebbtide.events.reader import History
from ebbtide.events.segment import Identity
from ebbtide.events.values import Pod, Settings
from ebbtide.replay.sim.simulate import SimulatedJournal
from tests.journals import started

MS = 1_000_000
WALL_NS = 1_700_000_000 * NS_PER_SECOND


class Theatre:
    """A daemon that has armed. ``mute``: types of orders that are not answered."""

    def __init__(self, pods: tuple[Pod, ...], settings: Settings, grant_ns: int) -> None:
        self.system, self.journal = System(), SimulatedJournal(bytes(range(16)))
        self.pods, self.mute = pods, tuple[type[Order], ...]()
        self.mono_ns = NS_PER_SECOND
        self.journal.begin(Identity("node-1", "machine-1", "boot-1", "1"), self.system, self._stamp())
        self.feed(started(version="1", pid=1))
        self.feed(f.SettingsLoaded(settings=settings))
        self.feed(f.LogindRead(owner=":1.1", grant_ns=grant_ns, preparing=False))

    def feed(self, fact: Fact, after_ms: int = 1) -> list[Record]:
        """One step, so long after the one before, and what is answered to it."""
        self.mono_ns += after_ms * MS
        records = self.system.step(fact, self._stamp())
        self.journal.append(records)
        for record in records:
            if isinstance(record.event, Order) and not isinstance(record.event, self.mute):
                self._answer(record.event)
        return records

    def until(self, at_ns: int) -> None:
        """Time passes; each deadline gets its tick."""
        while (due_ns := self.system.next_deadline_ns()) is not None and due_ns <= at_ns:
            self.mono_ns = max(self.mono_ns, due_ns)
            self.feed(f.Tick(), 0)
        self.mono_ns = at_ns

    def _answer(self, order: Order) -> None:
        if isinstance(order, TakeInventory):
            self.feed(f.InventoryTaken(key=order.key, as_of_ns=0, source="theatre", pods=self.pods))
        self.feed(f.OrderEnded(key=order.key, result="done"))
        if isinstance(order, SendSignal):
            self.feed(f.ContainerExited(uid=order.uid, container=order.container, exit_code=0), 100)

    def _stamp(self) -> Stamp:
        return Stamp(self.mono_ns, WALL_NS + self.mono_ns)

    def history(self) -> History:
        return History([self.journal.source()])
