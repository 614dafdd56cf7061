"""What is done for the node as a whole: listing the pods, announcing, delivering statuses, the release.

Each is the span of one order, from its record to its outcome. An order whose outcome was lost with a daemon
is given once more: that is another span, linked to the one before.
"""

from __future__ import annotations

from events.decisions import (
    AnnounceNode,
    DeliverStatuses,
    FlushTraces,
    PlanMade,
    PodsEnded,
    ReleaseLock,
    StatusesSettled,
    TakeInventory,
)
from events.facts import InventoryTaken, OrderEnded
from otel import attributes as at
from otel.ids import ORDER_ROLES
from otel.span import Attributes
from otel.traces.containers import hook_outcome
from otel.traces.trace import Trace, counted


def begin_for_node(
    trace: Trace, order: str, key: str, attributes: Attributes, parent: bytes | None = None
) -> None:
    """Below the shutdown, or ``parent``. The next of its kind after one that was lost is a retry."""
    role = ORDER_ROLES[order]
    before = trace.lost.pop(role, b"")
    below = trace.root.span_id if parent is None else parent
    trace.orders[key] = trace.begin_again(role, key, below, (*attributes, (at.ORDER, key)), before)


def order_ended(trace: Trace, event: OrderEnded) -> None:
    span = trace.orders.pop(event.key, None)
    if span is None:
        hook_outcome(trace, event)
        return
    if event.result == "unknown" or (span.name == "inventory" and event.result != "done"):
        trace.lost[span.name] = span.span_id
    attributes: Attributes = ((at.RESULT, event.result),)
    if event.reason:
        attributes = (*attributes, (at.REASON, event.reason))
    if event.result == "timed-out":
        trace.fail(span, "deadline-missed", event.reason or "not done in time", attributes)
    else:
        trace.end(span, attributes)


# --- inventory and plan ------------------------------------------------------------------------


def listing_ordered(trace: Trace, event: TakeInventory) -> None:
    begin_for_node(trace, "TakeInventory", event.key, ((at.REFRESH, event.refresh),))


def listed(trace: Trace, event: InventoryTaken) -> None:
    span = trace.orders.get(event.key)
    if span is None:
        return
    before = trace.listed.pop(event.key, 0)
    if event.part < event.parts:
        trace.listed[event.key] = before + len(event.pods)
    else:
        span.attributes.update({at.FOUND: before + len(event.pods), at.SOURCE: event.source})


def planned(trace: Trace, event: PlanMade) -> None:
    attributes: Attributes = ((at.WAVES, len(event.waves)), (at.PODS, event.pods))
    trace.point("plan", "", trace.root.span_id, attributes)


# --- node and statuses -------------------------------------------------------------------------


def announced(trace: Trace, event: AnnounceNode) -> None:
    begin_for_node(trace, "AnnounceNode", event.key, ((at.READY, event.ready),))


def delivered(trace: Trace, event: DeliverStatuses) -> None:
    begin_for_node(trace, "DeliverStatuses", event.key, ((at.STATUSES, len(event.statuses)),))


def export_ordered(trace: Trace, event: FlushTraces) -> None:
    """The wait for the back end. It is part of what took the time, so it is a span like any other."""
    begin_for_node(trace, "FlushTraces", event.key, ())


def pods_ended(trace: Trace, event: PodsEnded) -> None:
    """From here on only statuses are waited for."""
    trace.left_behind(len(event.unfinished))
    if "flush" not in trace.named:
        trace.named["flush"] = trace.begin("flush", "", trace.root.span_id)


def settled(trace: Trace, event: StatusesSettled) -> None:
    flush = trace.named.pop("flush", None)
    if flush is None:
        return
    attributes = ((at.UNDELIVERED, event.undelivered),)
    if event.undelivered:
        text = f"{counted(event.undelivered, 'status')} not delivered in time"
        trace.fail(flush, "deadline-missed", text, attributes)
    else:
        trace.end(flush, attributes)


def release_ordered(trace: Trace, event: ReleaseLock) -> None:
    """Its outcome may be lost with the machine: the shutdown does not wait for it, nor does its span."""
    begin_for_node(trace, "ReleaseLock", event.key, ())
