"""The edges, simulated: the same contract as the real ones (`actors.interfaces.Edge`), on a simulated node.

Every touch of the node is a point at which the daemon can die, before it and after it. A dead daemon's code
still runs up to its next await, as Python code does; here it touches nothing any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import trio

from actors.interfaces import Effect, Ending, Outlet
from events.base import Order
from tests.world.draws import Draws
from tests.world.node import Node
from tests.world.trail import sleep_ns


class Life(Protocol):
    """The daemon's life as its edges see it."""

    number: int
    alive: bool

    def touch(self) -> bool:
        """A point at which the daemon may die. False: it is dead."""

    def begins(self, order: Order) -> bool:
        """The effect of ``order`` begins. True when its order is less durable than its barrier asks."""


class Edge:
    """What the three edges share. Latencies are drawn in microseconds."""

    effects: Mapping[type[Order], Effect]

    def __init__(self, life: Life, node: Node, draws: Draws) -> None:
        self._life, self._node, self._draws = life, node, draws
        self._detached = False

    def prewarm(self) -> None:
        """A simulated disk is not read late."""

    def detach(self) -> None:
        self._detached = True

    async def _take(self, low_us: int, high_us: int) -> None:
        """The time that an effect takes; a daemon that dies meanwhile never comes back from it."""
        await sleep_ns(self._draws.between(low_us, high_us) * 1000)
        if not self._life.touch():
            await trio.sleep_forever()

    async def _redo(self, order: Order, outlet: Outlet) -> Ending:
        ending = self.effects[type(order)](order, outlet)
        return ending if isinstance(ending, Ending) else await ending
