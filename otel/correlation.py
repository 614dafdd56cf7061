"""Which span a record belongs to, so that a log line about it stands beside that span.

Ids follow from the journal, so a line can name a span that is not finished. It names none that will never be:
a line about a pod that may not get a span stands beside the shutdown's.
"""

from __future__ import annotations

from collections.abc import Container

from events.base import Event, Order
from events.decisions import PodEnded, PodPlanned, PodRejected
from otel.ids import ORDER_ROLES, SpanIds, order_span_id

ROOT, POD, WAVE, REJECT = "shutdown", "pod", "wave", "reject"


def span_of(trace_id: bytes, event: Event, begun: Container[str] = ()) -> bytes:
    """The order's own span, else its pod's, its wave's, or the shutdown's. ``trace_id`` has 16 bytes.

    ``begun``: UIDs of pods whose stop is known to have begun in this shutdown, if somebody keeps them.
    """
    tag, ids, uid = type(event).__name__, SpanIds(trace_id), pod_of(event)
    if isinstance(event, Order) and tag in ORDER_ROLES:
        return order_span_id(trace_id, tag, event.key)
    if isinstance(event, PodRejected):
        return ids.of(REJECT, uid)
    if uid:
        return ids.of(ROOT, "") if _may_have_none(event, begun) else ids.of(POD, uid)
    wave = getattr(event, "wave", None)
    return ids.of(ROOT, "") if wave is None else ids.of(WAVE, str(wave))


def _may_have_none(event: Event, begun: Container[str]) -> bool:
    """A pod has no span until its stop begins, and never one if the machine went down before that."""
    if isinstance(event, PodEnded):
        return event.outcome == "unknown" and not event.elapsed_ns and event.uid not in begun
    return isinstance(event, PodPlanned)


def pod_of(event: Event) -> str:
    """The UID of the one pod that an event is about; empty for one about no pod, or many."""
    pod = getattr(event, "pod", None)
    return str(getattr(event, "uid", "") or getattr(pod, "uid", ""))
