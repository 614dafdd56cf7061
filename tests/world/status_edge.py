"""The simulated API server: shows the node and its pods to the cluster, late, never, or not at all."""

from __future__ import annotations

from typing import NamedTuple

import trio

from actors.interfaces import Ending, Outlet
from events.base import Order
from events.decisions import AnnounceNode, DeliverStatuses
from tests.world.draws import Draws
from tests.world.edge import Edge, Life
from tests.world.node import Node
from tests.world.trail import MS, sleep_ns


class StatusFault(NamedTuple):
    """How the API server behaves. ``takes_ns`` None: it never answers."""

    takes_ns: int | None = 2 * MS
    fails: bool = False


class StatusEdge(Edge):
    """Shows the node and its pods to the cluster."""

    def __init__(self, life: Life, node: Node, draws: Draws, fault: StatusFault) -> None:
        super().__init__(life, node, draws)
        self._fault = fault
        self.effects = {AnnounceNode: self._announce, DeliverStatuses: self._deliver}

    async def run(self, outlet: Outlet) -> None:
        await trio.sleep_forever()

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        return None if self._draws.chance(1, 2) else await self._redo(order, outlet)

    async def _call(self) -> bool:
        """Whether the API server took it."""
        if self._fault.takes_ns is None:
            await trio.sleep_forever()
        await sleep_ns(self._fault.takes_ns or 0)
        return self._life.touch() and not self._fault.fails

    async def _announce(self, order: AnnounceNode, outlet: Outlet) -> Ending:
        late = self._life.begins(order)
        if not await self._call():
            return Ending("failed", "the API server refuses")
        self._node.shown_ready = order.ready
        word = "ready" if order.ready else "going down"
        self._node.trail.note("announce", detail=word, life=self._life.number, late=late)
        return Ending()

    async def _deliver(self, order: DeliverStatuses, outlet: Outlet) -> Ending:
        late = self._life.begins(order)
        if not await self._call():
            return Ending("failed", "the API server refuses")
        for uid, phase, _, _ in order.statuses:
            self._node.trail.note("status", uid, detail=phase, life=self._life.number, late=late)
        return Ending()
