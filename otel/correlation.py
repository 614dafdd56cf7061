"""Which span a record belongs to, so that a log line about it stands beside that span.

Ids follow from the journal, so a line can name a span that is not finished, or never will be.
"""

from __future__ import annotations

from typing import Any

from events.base import Event, Order
from otel.ids import ORDER_ROLES, SpanIds, order_span_id

ROOT, POD, WAVE = "shutdown", "pod", "wave"


def span_of(trace_id: bytes, event: Event) -> bytes:
    """The order's own span, else its pod's, its wave's, or the shutdown's. ``trace_id`` has 16 bytes."""
    tag, fields = type(event).__name__, _fields(event)
    if isinstance(event, Order) and tag in ORDER_ROLES:
        return order_span_id(trace_id, tag, event.key)
    if fields.get("uid"):
        return SpanIds(trace_id).of(POD, str(fields["uid"]))
    if "wave" in fields:
        return SpanIds(trace_id).of(WAVE, str(fields["wave"]))
    return SpanIds(trace_id).of(ROOT, "")


def _fields(event: Event) -> dict[str, Any]:
    """What says whom an event is about: its pod's UID, its wave's index."""
    pod = getattr(event, "pod", None)
    found = {"uid": getattr(event, "uid", "") or getattr(pod, "uid", "")}
    return found | ({"wave": event.wave} if hasattr(event, "wave") else {})
