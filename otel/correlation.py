"""Which span a record belongs to, so that a log line about it stands beside that span.

Ids follow from the journal, so a line can name a span that is not finished, or never will be.
"""

from __future__ import annotations

from events.base import Event, Order
from otel.ids import ORDER_ROLES, SpanIds, order_span_id

ROOT, POD, WAVE = "shutdown", "pod", "wave"


def span_of(trace_id: bytes, event: Event) -> bytes:
    """The order's own span, else its pod's, its wave's, or the shutdown's. ``trace_id`` has 16 bytes."""
    tag, ids, uid = type(event).__name__, SpanIds(trace_id), pod_of(event)
    if isinstance(event, Order) and tag in ORDER_ROLES:
        return order_span_id(trace_id, tag, event.key)
    if uid:
        return ids.of(POD, uid)
    wave = getattr(event, "wave", None)
    return ids.of(ROOT, "") if wave is None else ids.of(WAVE, str(wave))


def pod_of(event: Event) -> str:
    """The UID of the one pod that an event is about; empty for one about no pod, or many."""
    pod = getattr(event, "pod", None)
    return str(getattr(event, "uid", "") or getattr(pod, "uid", ""))
