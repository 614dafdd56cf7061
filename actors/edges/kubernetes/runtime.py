"""The edge once it is awake: the connection, the warm watch, the cache behind it, and the orders.

Imported by `actors.edges.kubernetes.edge` when the node is armed, with the client and all that it brings.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import trio

from actors.edges.kubernetes.cache import Cache
from actors.edges.kubernetes.health import Health
from actors.edges.kubernetes.link import Link
from actors.edges.kubernetes.store import Store
from actors.edges.kubernetes.watch import Watch
from actors.edges.kubernetes.writes import Writes
from actors.interfaces import Ending, Outlet
from events.base import Order


class Runtime:
    """Lives as long as `run`. ``kubeconfig`` None: as the pod that we run in."""

    def __init__(
        self,
        kubeconfig: Path | None,
        node: str,
        store: Store,
        cache: Cache,
        context: Callable[[str], str],
        tell: Callable[[int, str], None],
    ) -> None:
        self._node, self._store, self._cache = node, store, cache
        self._link = Link(kubeconfig, tell)
        self._writes = Writes(self._link, store, node, context, tell, cache.folder)

    async def run(self, outlet: Outlet, task_status: trio.TaskStatus[None]) -> None:
        """Until cancelled; calls under way are given up. Raises light.Missing, and whatever is a bug here."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._link.run)
            health = Health(self._link, self._node, outlet)
            nursery.start_soon(Watch(self._link, self._node, self._store, health).run)
            nursery.start_soon(self._cache.follow, self._store)
            task_status.started()

    async def carry_out(self, order: Order, outlet: Outlet) -> Ending:
        """One order. It waits for the API server as long as it is willing to."""
        ending = self._writes.effects[type(order)](order, outlet)
        return ending if isinstance(ending, Ending) else await ending
