"""What a shutdown writes to the API server: deletes, statuses, Events, and what others see of the node.

Each writer is bounded and repeatable, and ends in words: none raises, so a server that is slow, angry or gone
costs a reason and no more. None decides: what is written where follows from the order and from what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from actors.edges.kubernetes.calling import Caller, Lookup
from actors.edges.kubernetes.late import Late
from actors.edges.kubernetes.writes.awaiting import Awaiting
from actors.edges.kubernetes.writes.certificate import Certificates
from actors.edges.kubernetes.writes.deletes import Deletes
from actors.edges.kubernetes.writes.halves import NodeWrites
from actors.edges.kubernetes.writes.node import Announcements
from actors.edges.kubernetes.writes.reports import Reports
from actors.edges.kubernetes.writes.statuses import Statuses
from actors.edges.kubernetes.writes.withdrawals import Withdrawals
from actors.interfaces import Effect, Ending, Outlet
from events.base import Order
from events.decisions import (
    AnnounceNode,
    AwaitStatuses,
    DeletePod,
    DeliverStatuses,
    PostEvent,
    PublishCertificate,
    WithdrawPods,
)


class Writes:
    """``context`` gives the ``traceparent`` of an order's key, or nothing; ``tell`` takes a line for the
    operator with its sd-daemon(3) level. ``node`` is the name of the Node object; ``folder`` outlives a
    reboot, None: no status is delivered later than in its shutdown.
    """

    def __init__(
        self,
        caller: Caller,
        lookup: Lookup,
        node: str,
        context: Callable[[str], str] = lambda key: "",
        tell: Callable[[int, str], None] = lambda level, line: None,
        folder: Path | None = None,
    ) -> None:
        ours = NodeWrites(caller, node)
        announcements = Announcements(ours, context, tell)
        statuses = Statuses(caller, lookup, node, context, Late(folder, tell))
        self.effects: Mapping[type[Order], Effect] = {
            AnnounceNode: announcements.announce,
            AwaitStatuses: Awaiting(caller, lookup, node, context).wait,
            DeletePod: Deletes(caller, lookup, context, announcements.wait_tainted).delete,
            DeliverStatuses: statuses.deliver,
            PostEvent: Reports(caller, node, context).post,
            PublishCertificate: Certificates(ours, context).publish,
            WithdrawPods: Withdrawals(caller, lookup, node, context, statuses.final).withdraw,
        }

    async def adopt(self, order: Order, outlet: Outlet) -> Ending | None:
        """Whatever was open is said again: preconditions, names and notes make each of these orders
        repeatable. None for an order that is not ours.
        """
        effect: Any = self.effects.get(type(order))
        return None if effect is None else await effect(order, outlet)
