"""A span: its data, its ids, which follow from the journal alone, and the span of a record.

The key of an order's span is the order's: its executor can pass the context on (`traceparent`) before the
span exists.

This module needs no OpenTelemetry package: the daemon imports it.
"""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

from ebbtide.events.base import Event, Order, shutdown_trace_id
from ebbtide.events.decisions import PodEnded, PodPlanned, PodRejected

#: A value of an attribute, as in OTLP.
AttributeValue = str | int | bool | tuple[str, ...]
Attributes = tuple[tuple[str, AttributeValue], ...]
Status = Literal["unset", "error"]


class SpanLink(NamedTuple):
    """To a span of this trace, or of another one."""

    trace_id: bytes
    span_id: bytes
    attributes: Attributes = ()


class SpanEvent(NamedTuple):
    """An event within a span. ``time_ns``: wall clock."""

    name: str
    time_ns: int
    attributes: Attributes = ()


class Span(NamedTuple):
    """``trace_id`` has 16 bytes, ``span_id`` and ``parent_id`` 8 (``parent_id`` is empty for a root).

    Times are wall-clock nanoseconds: the anchor plus the monotonic difference. ``seq``: the record that ended
    it, which must be durable before an export. ``episode``: the number of its shutdown's first record.
    """

    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    name: str
    start_ns: int
    end_ns: int
    attributes: Attributes
    episode: int
    seq: int
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanLink, ...] = ()
    status: Status = "unset"
    status_text: str = ""


class Resource(NamedTuple):
    """The common attributes of an episode's spans, constant since its begin.

    ``scope`` is the instrumentation scope, its ``version`` the projection's.
    """

    attributes: Attributes
    version: int
    scope: str = "ebbtide.shutdown"


# --- ids ------------------------------------------------------------------------------------------

#: Domains of the hashes. A change of one changes every id.
SPAN_DOMAIN = b"ebbtide.span.v1"
BOOT_DOMAIN = b"ebbtide.boot.v1"

TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
_LENGTH_BYTES = 4


def length_prefixed(*parts: bytes) -> bytes:
    """Different parts never give the same bytes."""
    return b"".join([len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in parts])


def trace_id_of(first_record_hash: bytes) -> bytes:
    """The 16 bytes of a shutdown's trace, from the chain hash (32 bytes) of its first record."""
    return bytes.fromhex(shutdown_trace_id(first_record_hash))


def boot_trace_id(start_record_hash: bytes) -> bytes:
    """The trace of a boot that found a shutdown, from the chain hash of its first `DaemonStarted`."""
    return hashlib.sha256(length_prefixed(BOOT_DOMAIN, start_record_hash)).digest()[:TRACE_ID_BYTES]


def span_id_of(trace: bytes, role: str, key: str, attempt: int = 0) -> bytes:
    """The 8 bytes of a span's id: ``attempt`` counts the spans of that role and key from 0."""
    return SpanIds(trace).of(role, key, attempt)


class SpanIds:
    """The span ids of one trace. Hashes their common part once."""

    def __init__(self, trace: bytes) -> None:
        # Copy it for each id: a shutdown of a thousand pods has ten thousand, with one begin.
        self._begun = hashlib.sha256(length_prefixed(SPAN_DOMAIN, trace))

    def of(self, role: str, key: str, attempt: int = 0) -> bytes:
        hashed = self._begun.copy()
        hashed.update(length_prefixed(role.encode(), key.encode(), b"%d" % attempt))
        return hashed.digest()[:SPAN_ID_BYTES]


#: Roles of the spans below a pod.
HOOK_ROLE, STOP_ROLE, KILL_ROLE, DELETE_ROLE = "hook", "stop", "kill", "delete"


def hook_span_id(trace: bytes, order_key: str) -> bytes:
    """The id of a preStop hook's span (``RunHook``), before it exists."""
    return span_id_of(trace, HOOK_ROLE, order_key)


def traceparent(trace: bytes, span: bytes) -> str:
    """The header ``traceparent`` (W3C Trace Context, level 1): sampled."""
    return f"00-{trace.hex()}-{span.hex()}-01"


# A log line can name an unfinished span, but never a span that will not exist: then it names the shutdown's.

ROOT_ROLE, POD_ROLE, WAVE_ROLE, REJECT_ROLE = "shutdown", "pod", "wave", "reject"


def span_of(trace_id: bytes, event: Event) -> bytes:
    """The order's own span, else its pod's, its wave's, or the shutdown's. ``trace_id`` has 16 bytes."""
    ids, uid = SpanIds(trace_id), event.pod_uid
    if isinstance(event, Order) and event.span_role:
        return ids.of(event.span_role, event.key)
    # Without a plan there is no span as a pod: the rejection is one.
    if isinstance(event, PodRejected):
        return ids.of(REJECT_ROLE, uid)
    if uid:
        # A pod has no span until its stop begins, and never if the machine goes down before. An unobserved
        # end after no time may be of such a pod.
        has_no_span = isinstance(event, PodPlanned)
        if isinstance(event, PodEnded):
            has_no_span = event.outcome == "unknown" and not event.elapsed_ns
        return ids.of(ROOT_ROLE, "") if has_no_span else ids.of(POD_ROLE, uid)
    wave = getattr(event, "wave", None)
    return ids.of(ROOT_ROLE, "") if wave is None else ids.of(WAVE_ROLE, str(wave))
