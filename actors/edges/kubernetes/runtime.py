"""The edge once it is awake: the connection, the warm watch, the cache behind it, and the writers behind the
orders.

Imported by `actors.edges.kubernetes.edge` when the node is armed, with the client and all that it brings.

What a shutdown writes to the API server: deletes, statuses, Events, and what others see of the node. Each
writer is bounded and repeatable, and ends in words: none raises, so a server that is slow, angry or gone
costs a reason and no more. None decides: what is written where follows from the order and from what is
there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio

from ebbtide.actors.edges.kubernetes.calls import ApiCaller
from ebbtide.actors.edges.kubernetes.client import ApiClient
from ebbtide.actors.edges.kubernetes.event_writes import EventWriter
from ebbtide.actors.edges.kubernetes.node_writes import DetachCertificates, NodeAnnouncements, NodeWriter
from ebbtide.actors.edges.kubernetes.pod_writes import (
    LateStatuses,
    PodDeletes,
    PodWithdrawals,
    StatusDelivery,
    StatusWait,
)
from ebbtide.actors.edges.kubernetes.pods import (
    PodCache,
    PodLookup,
    PodStore,
)
from ebbtide.actors.edges.kubernetes.watch import ApiHealth, PodWatch
from ebbtide.actors.interfaces import Effect, Ending, Outlet, Tell, TraceContext
from ebbtide.events.base import Order
from ebbtide.events.decisions import (
    AnnounceNode,
    AwaitStatuses,
    DeletePod,
    DeliverStatuses,
    PostEvent,
    PublishCertificate,
    WithdrawPods,
)


class Runtime:
    """Lives as long as `run`. ``kubeconfig`` None: as the pod that we run in."""

    def __init__(
        self,
        kubeconfig: Path | None,
        node: str,
        store: PodStore,
        cache: PodCache,
        context: TraceContext,
        tell: Tell,
    ) -> None:
        self._node, self._store, self._cache = node, store, cache
        self._link = ApiClient(kubeconfig, tell)
        self._writes = Writes(self._link, store, node, context, tell, cache.folder)

    async def run(self, outlet: Outlet, task_status: trio.TaskStatus[None]) -> None:
        """Until cancelled; calls under way are given up. Raises ClientMissing, and whatever is a bug here."""
        async with trio.open_nursery() as nursery:
            # Connected before anything asks: the watch would else begin with a failure, and a pause.
            await nursery.start(self._link.run)
            health = ApiHealth(self._link, self._node, outlet)
            nursery.start_soon(PodWatch(self._link, self._node, self._store, health).run)
            nursery.start_soon(self._cache.follow, self._store)
            task_status.started()

    async def carry_out(self, order: Order, outlet: Outlet) -> Ending:
        """One order. It waits for the API server as long as it is willing to."""
        ending = self._writes.effects[type(order)](order, outlet)
        return ending if isinstance(ending, Ending) else await ending


class Writes:
    """``context`` gives the ``traceparent`` of an order's key, or nothing; ``tell`` takes a line for the
    operator with its sd-daemon(3) level. ``node`` is the name of the Node object; ``folder`` outlives a
    reboot, None: no status is delivered later than in its shutdown.
    """

    def __init__(
        self,
        caller: ApiCaller,
        lookup: PodLookup,
        node: str,
        context: TraceContext = lambda key: "",
        tell: Tell = lambda level, line: None,
        folder: Path | None = None,
    ) -> None:
        # One writer for all that is written to the Node: announcement and certificate overtake each other by
        # rule, not by accident.
        ours = NodeWriter(caller, node)
        announcements = NodeAnnouncements(ours, context, tell)
        statuses = StatusDelivery(caller, lookup, node, context, LateStatuses(folder, tell))
        self.effects: Mapping[type[Order], Effect] = {
            AnnounceNode: announcements.announce,
            AwaitStatuses: StatusWait(caller, lookup, node, context).wait,
            DeletePod: PodDeletes(caller, lookup, context, announcements.wait_tainted).delete,
            DeliverStatuses: statuses.deliver,
            PostEvent: EventWriter(caller, node, context).post,
            PublishCertificate: DetachCertificates(ours, context).publish,
            WithdrawPods: PodWithdrawals(caller, lookup, node, context, statuses.final).withdraw,
        }

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """Whatever was open is said again: preconditions, names and notes make each of these orders
        repeatable. None for an order that is not ours.
        """
        effect: Any = self.effects.get(type(order))
        return None if effect is None else await effect(order, outlet)
