"""What lies beyond the network: the API server, and the back end that traces are sent to.

The API server shows the node and its pods to the cluster, late, never, or not at all. The exporter is only
waited for where traces are configured; it takes a moment, and a network that hangs takes all its time.
"""

from __future__ import annotations

from functools import partial
from typing import cast

from events.base import Order
from events.decisions import AnnounceNode, DeliverStatuses, FlushTraces
from replay.virtual.draws import Draws
from replay.virtual.effects import Carry, Effects, Work
from replay.virtual.plan import Faults
from replay.virtual.trail import MS, Trail


class Shown:
    """What the cluster believes of a node."""

    ready = True


class ApiServer:
    """One process's connection to it."""

    def __init__(self, shown: Shown, draws: Draws, faults: Faults, trail: Trail, life: int) -> None:
        self.effects: Effects
        self._shown, self._draws, self._faults = shown, draws, faults
        self._trail, self._life = trail, life
        self.table: dict[type[Order], Carry] = {
            AnnounceNode: self._call,
            DeliverStatuses: self._call,
            FlushTraces: self._flush,
        }

    def _call(self, work: Work) -> None:
        """One that never answers keeps its order open: nobody waits for it beyond a bound."""
        if self._faults.api != "hangs":
            takes_ns = self._faults.api_takes_ns + self._draws.between(0, 8 * MS)
            self.effects.then(work, takes_ns, partial(self._answer, work))

    def _answer(self, work: Work) -> None:
        if self._faults.api == "fails":
            self.effects.end(work, "failed", "the API server refuses")
            return
        if isinstance(work.order, AnnounceNode):
            self._shown.ready = work.order.ready
            word = "ready" if work.order.ready else "going down"
            self._trail.note("announce", detail=word, life=self._life)
        else:
            for uid, phase, _, _ in cast(DeliverStatuses, work.order).statuses:
                self._trail.note("status", uid, detail=phase, life=self._life)
        self.effects.end(work)

    def _flush(self, work: Work) -> None:
        """At its time's end it is over, whatever the back end does."""
        timeout_ns = cast(FlushTraces, work.order).timeout_ns
        takes_ns = self._draws.between(20, 250) * MS
        if self._faults.api == "hangs" or takes_ns > timeout_ns:
            self.effects.then(work, timeout_ns, partial(self.effects.end, work, "timed-out"))
        else:
            self.effects.then(work, takes_ns, partial(self.effects.end, work))
