"""The storm brake: may one more node be out of service?

Each outage has its own proof. The brake limits what one proof cannot show: that a source is wrong about every
machine, that the controller's own view is broken, or that the rest cannot carry the lost nodes' work. It
decides from one recorded fact, so a replay decides the same.
"""

from __future__ import annotations

import re

from ebbtide.events.outage_events import NodesCounted

#: Above this share of the nodes in service a broken view is likelier than so many dead nodes, and the rest
#: could not take over their work.
DEAD_PERCENT_MAX = 50

NOT_SEEN, MANY_DEAD, FEW_HEALTHY, NO_PLACE, BEHIND = REFUSALS = (
    "the controller's own view is broken: it sees no lease renewed",
    "the controller's own view is broken: more than half of all nodes look dead at once",
    "healthy nodes: {}; at least {} must be",
    "nodes out of service: {}; at most {} may be",
    "the free places are for nodes that asked earlier",
)
#: Every reason that `refusal` gives.
REFUSAL = re.compile("|".join(re.escape(each).replace(r"\{\}", r"\d+") for each in REFUSALS))


def refusal(counted: NodesCounted) -> str:
    """Why the node may not be out of service; empty: it may."""
    healthy, out, dead = counted.healthy, counted.out, counted.dead
    if not counted.sees_leases:
        return NOT_SEEN
    # The node that asks looks dead as well.
    if (dead + 1) * 100 > (healthy + dead + 1) * DEAD_PERCENT_MAX:
        return MANY_DEAD
    if healthy < counted.min_healthy:
        return FEW_HEALTHY.format(healthy, counted.min_healthy)
    nodes = healthy + out + dead + 1
    places = min(counted.max_nodes, max(1, nodes * counted.max_share_percent // 100))
    if out >= places:
        return NO_PLACE.format(out, places)
    return BEHIND if out + counted.ahead >= places else ""
