"""A span: its data, its ids, which follow from the journal alone, and the span of a record.

An order's span has the order's key, so its executor can pass the context on (`traceparent`) before the span
exists. The daemon imports this module, so it needs no OpenTelemetry package.
"""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

from ebbtide.events.base import Event, Order, shutdown_trace_id
from ebbtide.events.decisions import PodEnded, PodPlanned, PodRejected

#: As in OTLP.
AttributeValue = str | int | bool | tuple[str, ...]
Attributes = tuple[tuple[str, AttributeValue], ...]
Status = Literal["unset", "error"]


class SpanLink(NamedTuple):
    trace_id: bytes
    span_id: bytes
    attributes: Attributes = ()


class SpanEvent(NamedTuple):
    """``time_ns``: wall clock."""

    name: str
    time_ns: int
    attributes: Attributes = ()


class Span(NamedTuple):
    """``trace_id`` has 16 bytes, ``span_id`` and ``parent_id`` 8 (``parent_id`` is empty for a root).

    Times are wall-clock nanoseconds: the anchor plus the monotonic difference. ``seq``: the record that ended
    it, which must be durable before an export. ``episode``: its shutdown's first record.
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
    """The common attributes of an episode's spans. ``version``: the projection's."""

    attributes: Attributes
    version: int
    scope: str = "ebbtide.shutdown"


#: A change of one changes every id.
SPAN_DOMAIN = b"ebbtide.span.v1"
BOOT_DOMAIN = b"ebbtide.boot.v1"

TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
_LENGTH_BYTES = 4


def length_prefixed(*parts: bytes) -> bytes:
    """Different parts never give the same bytes."""
    return b"".join([len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in parts])


def trace_id_of(first_record_hash: bytes) -> bytes:
    """16 bytes, from the chain hash of the shutdown's first record."""
    return bytes.fromhex(shutdown_trace_id(first_record_hash))


def boot_trace_id(start_record_hash: bytes) -> bytes:
    """For a boot that found a shutdown, from the chain hash of its first `DaemonStarted`."""
    return hashlib.sha256(length_prefixed(BOOT_DOMAIN, start_record_hash)).digest()[:TRACE_ID_BYTES]


def span_id_of(trace: bytes, role: str, key: str, attempt: int = 0) -> bytes:
    """8 bytes; ``attempt`` counts the spans of that role and key from 0."""
    return SpanIds(trace).of(role, key, attempt)


class SpanIds:
    def __init__(self, trace: bytes) -> None:
        # Hash the common part once: a shutdown of a thousand pods has ten thousand ids.
        self._begun = hashlib.sha256(length_prefixed(SPAN_DOMAIN, trace))

    def of(self, role: str, key: str, attempt: int = 0) -> bytes:
        hashed = self._begun.copy()
        hashed.update(length_prefixed(role.encode(), key.encode(), b"%d" % attempt))
        return hashed.digest()[:SPAN_ID_BYTES]


#: Roles of the spans below a pod.
HOOK_ROLE, STOP_ROLE, KILL_ROLE, DELETE_ROLE = "hook", "stop", "kill", "delete"


def hook_span_id(trace: bytes, order_key: str) -> bytes:
    """For a ``RunHook``, before the span exists."""
    return span_id_of(trace, HOOK_ROLE, order_key)


def traceparent(trace: bytes, span: bytes) -> str:
    """The header of W3C Trace Context, level 1: sampled."""
    return f"00-{trace.hex()}-{span.hex()}-01"


# A log line may name an unfinished span. If that may never exist, the line names the shutdown's span.

ROOT_ROLE, POD_ROLE, WAVE_ROLE, REJECT_ROLE = "shutdown", "pod", "wave", "reject"


def span_of(trace_id: bytes, event: Event) -> bytes:
    """The order's own span, else its pod's, its wave's, or the shutdown's."""
    ids, uid = SpanIds(trace_id), event.pod_uid
    if isinstance(event, Order) and event.span_role:
        return ids.of(event.span_role, event.key)
    # A rejected pod has only this span.
    if isinstance(event, PodRejected):
        return ids.of(REJECT_ROLE, uid)
    if uid:
        # A pod whose stop never begins has no span. An unobserved end after no time may be such a pod's.
        has_no_span = isinstance(event, PodPlanned)
        if isinstance(event, PodEnded):
            has_no_span = event.outcome == "unknown" and not event.elapsed_ns
        return ids.of(ROOT_ROLE, "") if has_no_span else ids.of(POD_ROLE, uid)
    wave = getattr(event, "wave", None)
    return ids.of(ROOT_ROLE, "") if wave is None else ids.of(WAVE_ROLE, str(wave))
