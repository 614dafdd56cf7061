"""Permits to be out of service: counts nodes for `actors.outage`, and queues requests in their order."""

from __future__ import annotations

import math
from collections.abc import Mapping

import trio

from ebbtide.actors.edges.kubernetes.node_view import ClusterView
from ebbtide.actors.interfaces import Edge, Effect, Ending, Outlet
from ebbtide.actors.outage import refusal
from ebbtide.events.base import Order
from ebbtide.events.outage_events import NodesCounted, RequestPermit, ReturnPermit
from ebbtide.outage.configuration import Brake

#: A refused node asks again after 15 s, unless it is back or has lost its proof.
WAITS_SECONDS_MAX = 20.0
#: After its actor ended without returning it: its taint may still come, within 10 s.
LEFT_SECONDS = 30.0
#: A new watch sees leases within milliseconds; a refused node would wait for 15 s.
SEES_SECONDS_MAX = 2.0


class Permits:
    def __init__(self, settings: Brake, view: ClusterView) -> None:
        self._settings, self._view = settings, view
        #: By node, the permit's end: infinite while its actor has it.
        self._permits: dict[str, float] = {}
        #: By node, in the order of first requests: the last one's time.
        self._waiting: dict[str, float] = {}
        #: By node: the last requester. The actor of a recreated Node's predecessor may still run.
        self.asked: dict[str, object] = {}

    def edge(self, node: str) -> Edge:
        return _PermitEdge(self, node)

    async def wait_seen(self, node: str) -> None:
        """Until the view sees renewals, or `SEES_SECONDS_MAX`."""
        with trio.move_on_after(SEES_SECONDS_MAX):
            while self._view.sees_since == math.inf:
                await self._view.of(node).news.wait()

    def request(self, node: str, key: str = "") -> tuple[NodesCounted, str]:
        """Take a place, or queue for one: the count, and the reason of a refusal. A refused node keeps its
        permit until `give_back`.
        """
        now = trio.current_time()
        self._permits = {each: until for each, until in self._permits.items() if until > now}
        self._waiting = {each: at for each, at in self._waiting.items() if now - at < WAITS_SECONDS_MAX}
        ahead = list(self._waiting).index(node) if node in self._waiting else len(self._waiting)
        # A node with a permit is counted again, but queues behind no other.
        counted = self.count(node, key, 0 if node in self._permits else ahead)
        refused = refusal(counted)
        if refused and node not in self._permits:
            self._waiting[node] = now
        elif not refused:
            self._waiting.pop(node, None)
            self._permits[node] = math.inf
        return counted, refused

    def give_back(self, node: str) -> None:
        """The permit or the place in the queue, if any."""
        self._permits.pop(node, None)
        self._waiting.pop(node, None)

    def leave(self, node: str) -> None:
        """The node's actor has ended and reports no taint any more."""
        if node in self._permits:
            self._permits[node] = min(self._permits[node], trio.current_time() + LEFT_SECONDS)
        self._waiting.pop(node, None)

    def count(self, asks: str, key: str = "", ahead: int = 0) -> NodesCounted:
        now = trio.current_time()
        others = [each for each in self._view.there() if each.name != asks]
        # A permit counts without a Node too: the view may be broken.
        out = {each.name for each in others if each.taint != "none"} | (self._permits.keys() - {asks})
        stay = [each for each in others if each.name not in out]
        healthy = sum(each.ready == "True" and self._view.silent_at(each.name) > now for each in stay)
        return NodesCounted(
            key=key,
            healthy=healthy,
            out=len(out),
            dead=len(stay) - healthy,
            ahead=ahead,
            max_nodes=self._settings.max_nodes,
            max_share_percent=self._settings.max_share_percent,
            min_healthy=self._settings.min_healthy,
            sees_leases=self._view.sees_since < math.inf,
        )


class _PermitEdge(Edge):
    def __init__(self, permits: Permits, node: str) -> None:
        self._permits, self._node = permits, node
        self._returned = 0
        self.effects: Mapping[type[Order], Effect] = {
            RequestPermit: self._request,
            ReturnPermit: self._give_back,
        }

    async def run(self, outlet: Outlet) -> None:
        """Until the node's actor ends."""
        try:
            await trio.sleep_forever()
        finally:
            if self._permits.asked.get(self._node) is self:
                del self._permits.asked[self._node]
                self._permits.leave(self._node)

    async def _request(self, order: RequestPermit, outlet: Outlet) -> Ending:
        returned = self._returned
        await self._permits.wait_seen(self._node)
        if returned != self._returned:
            return Ending("cancelled", "withdrawn")
        self._permits.asked[self._node] = self
        counted, refused = self._permits.request(self._node, order.key)
        await outlet.put(counted)
        return Ending("failed", refused) if refused else Ending()

    def _give_back(self, order: ReturnPermit, outlet: Outlet) -> Ending:
        self._returned += 1
        self._permits.give_back(self._node)
        return Ending()
