"""Crossed worlds whose journal is blocked at times: a dead webhook, a full quota, a lost right.

Facts go on, and orders that change nothing. An order that changes the cluster waits until its record is
stored. A leader that dies meanwhile takes its unstored records with it: the next one continues from the last
stored one.
"""

from __future__ import annotations

from collections.abc import Sequence

from ebbtide.actors.system import as_checkpoint, restore
from ebbtide.events.base import Order, Record
from ebbtide.replay.sim.sim_outage import END_MS, Leader
from tests.outage_world.crossed import CrossedWorld

#: The last one ends so long before the world's end that every promise can be kept.
LONGEST_MS, CALM_MS = 200_000, 200_000


class BlockedWorld(CrossedWorld):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.blocks = self.draws.fork("blocked")
        self.blocked = False
        self.unstored: list[Record] = []
        self.held: list[Order] = []
        #: Records that a dying leader took with it, and orders that waited for theirs.
        self.dropped = self.waited = 0

    def run(self) -> BlockedWorld:
        self.after(self.blocks.below(60_000), self._block)
        super().run()
        return self

    def _block(self) -> None:
        if self.now + LONGEST_MS + CALM_MS < END_MS:
            self.note("the journal was blocked")
            self.blocked = True
            self._remember()
            self.after(1_000 + self.blocks.below(LONGEST_MS), self._unblock)

    def _unblock(self) -> None:
        self.note("the journal went on")
        self.blocked = False
        self.keep(self.unstored)
        self.store.records += self.unstored
        self.unstored, held, self.held = [], self.held, []
        for order in held:
            assert self.acting is not None
            self.acting.begin(order)
        if self.back_since >= 0:
            self.back_since = self.now
        self.after(5_000 + self.blocks.below(100_000), self._block)

    def _remember(self) -> None:
        system = self.loop.system
        self.stored = self.store, as_checkpoint(system), system.next_seq

    def answer(self, records: Sequence[Record]) -> None:
        if not self.blocked:
            super().answer(records)
            return
        assert self.acting is not None
        self.unstored += records
        for record in records:
            event = record.event
            if isinstance(event, Order) and event.barrier == "confirmed":
                self.held.append(event)
                # A `CancelOrder` overtakes it.
                self.acting._waiting[event.key] = None
                self.waited += 1
            elif isinstance(event, Order):
                self.acting.begin(event)

    def replace_leader(self) -> Leader:
        if self.blocked:
            self.dropped += len(self.unstored)
            self.unstored, self.held = [], []
            store, checkpoint, next_seq = self.stored
            if store is self.store:
                self.loop.system = restore(checkpoint, next_seq)
            self._remember()
        return super().replace_leader()
