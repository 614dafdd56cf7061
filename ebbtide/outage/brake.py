"""The storm brake: how many nodes may be out of service at once, counted over all of them.

When a rack, a zone or our own view is gone, many nodes look dead at the same moment. Each of them has its own
proof; the brake is for what one node's proof cannot show: that a source is wrong about all machines alike, or
that those that are left cannot take over so much.

A request is answered from what is seen at that moment, and nobody is ever called back: who is refused asks
again. A place that gets free goes to whoever has asked for the longest time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import trio

from ebbtide.actors.edges.kubernetes.node_view import ClusterView
from ebbtide.actors.interfaces import Edge, Effect, Ending, Outlet
from ebbtide.events.base import Order
from ebbtide.events.outage_events import RequestPermit, ReturnPermit
from ebbtide.outage.configuration import Brake

#: Who is refused asks again after 15 s. Who has not done so by now needs no place any more (its proof was
#: voided, it is back), and holds up nobody who waits behind it.
WAITS_SECONDS_MAX = 20.0
#: A permit whose actor has ended without returning it, because it failed or leads no longer: as long as a
#: taint may still be on its way, which is asked for 10 s. Then the taint is seen, or there is none.
LEFT_SECONDS = 30.0
#: Of the nodes that are not out of service so many in a hundred may be Not Ready or silent. Where there are
#: more it is likelier that we do not see them than that they have died, and those that are left could not
#: take over for them.
DEAD_PERCENT_MAX = 50

#: A leader that has just begun, or whose watch was cut, sees again after some milliseconds; who is refused
#: for that would wait for 15 s.
SEES_SECONDS_MAX = 2.0

NOT_SEEN, MANY_DEAD, BEHIND = (
    "the controller's own view is broken: it sees no lease renewed",
    "the controller's own view is broken: more than half of all nodes look dead at once",
    "the places that are free are for nodes that have asked before",
)


class Count(NamedTuple):
    """Of all nodes but one, which asks. ``healthy``: Ready, with a lease that is renewed; ``out``: tainted by
    whomever, or with a permit; ``dead``: the rest, be it that it starts.
    """

    healthy: int
    out: int
    dead: int


class StormBrake:
    """One for the process."""

    def __init__(self, settings: Brake, view: ClusterView) -> None:
        self._settings, self._view = settings, view
        #: By node: until when the permit counts; infinite while its actor has it.
        self._permits: dict[str, float] = {}
        #: By node, in the order in which they first asked: when each asked last.
        self._waiting: dict[str, float] = {}
        #: By node, who asked last: a Node that was made anew has the name of
        #: one whose actor is still there.
        self.asked: dict[str, object] = {}

    def edge(self, node: str) -> Edge:
        """For the orders about the node of that name."""
        return _BrakeEdge(self, node)

    async def wait_seen(self, node: str) -> None:
        """Until renewals are seen, but not for long."""
        with trio.move_on_after(SEES_SECONDS_MAX):
            while self._view.sees_since == math.inf:
                await self._view.of(node).news.wait()

    def request(self, node: str) -> str:
        """Why it may not be out of service; empty: it may, and has its permit."""
        now = trio.current_time()
        self._permits = {each: until for each, until in self._permits.items() if until > now}
        # Who had one is to be counted anew, but does not wait behind anybody.
        is_new = self._permits.pop(node, None) is None
        self._waiting = {each: at for each, at in self._waiting.items() if now - at < WAITS_SECONDS_MAX}
        ahead = list(self._waiting).index(node) if node in self._waiting else len(self._waiting)
        refused = self._refused(node, ahead if is_new else 0)
        if refused:
            self._waiting[node] = now
        else:
            self._waiting.pop(node, None)
            self._permits[node] = math.inf
        return refused

    def give_back(self, node: str) -> None:
        """The permit, or the place of who waits for one; of a node that has neither it is nothing."""
        self._permits.pop(node, None)
        self._waiting.pop(node, None)

    def leave(self, node: str) -> None:
        """Its actor is gone, and cannot say any more what became of its taint."""
        if node in self._permits:
            self._permits[node] = min(self._permits[node], trio.current_time() + LEFT_SECONDS)
        self._waiting.pop(node, None)

    def _limit(self, nodes: int) -> int:
        """How many of so many nodes may be out of service at once."""
        share = max(1, nodes * self._settings.max_share_percent // 100)
        return min(self._settings.max_nodes, share)

    def count(self, asks: str) -> Count:
        """As it is now, without the node ``asks``."""
        now = trio.current_time()
        others = [each for each in self._view.there() if each.name != asks]
        # A permit counts also where the Node is not seen any more: it may be a matter of the view.
        out = {each.name for each in others if each.taint != "none"} | (self._permits.keys() - {asks})
        stay = [each for each in others if each.name not in out]
        healthy = sum(each.ready == "True" and self._view.silent_at(each.name) > now for each in stay)
        return Count(healthy, len(out), len(stay) - healthy)

    def _refused(self, node: str, ahead: int) -> str:
        if self._view.sees_since == math.inf:
            return NOT_SEEN
        (healthy, out, dead), least = self.count(node), self._settings.min_healthy
        # Itself it is one of those that look dead.
        if (dead + 1) * 100 > (healthy + dead + 1) * DEAD_PERCENT_MAX:
            return MANY_DEAD
        if healthy < least:
            return f"healthy nodes: {healthy}, and at least {least} must be"
        places = self._limit(healthy + out + dead + 1)
        if out >= places:
            return f"out of service already: {out} of the {places} nodes that may be"
        return BEHIND if out + ahead >= places else ""


class _BrakeEdge:
    def __init__(self, brake: StormBrake, node: str) -> None:
        self._brake, self._node = brake, node
        self._returned = 0
        self.effects: Mapping[type[Order], Effect] = {
            RequestPermit: self._request,
            ReturnPermit: self._give_back,
        }

    async def run(self, outlet: Outlet) -> None:
        """It speaks when it is asked; cancelled, the node's actor is gone."""
        try:
            await trio.sleep_forever()
        finally:
            if self._brake.asked.get(self._node) is self:
                del self._brake.asked[self._node]
                self._brake.leave(self._node)

    def prewarm(self) -> None:
        """Nothing is to be opened."""

    def detach(self) -> None:
        """Nothing goes on without us."""

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """An earlier leader's permit went with it."""
        return None

    async def _request(self, order: RequestPermit, outlet: Outlet) -> Ending:
        returned = self._returned
        await self._brake.wait_seen(self._node)
        if returned != self._returned:
            return Ending("cancelled", "withdrawn")
        self._brake.asked[self._node] = self
        refused = self._brake.request(self._node)
        return Ending("failed", refused) if refused else Ending()

    def _give_back(self, order: ReturnPermit, outlet: Outlet) -> Ending:
        self._returned += 1
        self._brake.give_back(self._node)
        return Ending()
