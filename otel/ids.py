"""Names of traces and spans that follow from the journal alone, and how they travel to other programs.

Everything that goes into a hash is length-prefixed, so that no two inputs run together to the same bytes, and
has a domain, so that no id of one kind is one of another. A span that belongs to an order has its id from the
order's key: whoever carries the order out can pass the context on before the span exists.

Nothing here needs an OpenTelemetry package: the daemon's edges import it.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from events.record import trace_id as shutdown_trace_id

#: Domains of the hashes. A change of one is a change of every id: never without a new projection version.
SPAN_DOMAIN = b"ebbtide.span.v1"
BOOT_DOMAIN = b"ebbtide.boot.v1"

TRACE_ID_BYTES, SPAN_ID_BYTES = 16, 8
_LENGTH_BYTES = 4


def framed(*parts: bytes) -> bytes:
    """Parts as one string of bytes that no other parts give."""
    return b"".join([len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in parts])


@lru_cache(maxsize=256)
def _framed_text(text: str) -> bytes:
    """Of roles and attempts, which are few."""
    return framed(text.encode())


def trace_id(first_record_hash: bytes) -> bytes:
    """The 16 bytes of a shutdown's trace, from the chain hash (32 bytes) of its first record."""
    return bytes.fromhex(shutdown_trace_id(first_record_hash))


def boot_trace_id(start_record_hash: bytes) -> bytes:
    """The trace of a boot that found a shutdown, from the chain hash of its first `DaemonStarted`."""
    return hashlib.sha256(framed(BOOT_DOMAIN, start_record_hash)).digest()[:TRACE_ID_BYTES]


def span_id(trace: bytes, role: str, key: str, attempt: int = 0) -> bytes:
    """The 8 bytes of a span's id: ``role`` is its name, ``key`` its subject's, ``attempt`` counts from 0."""
    return SpanIds(trace).of(role, key, attempt)


class SpanIds:
    """The span ids of one trace. What they have in common is hashed once."""

    def __init__(self, trace: bytes) -> None:
        self._begun = hashlib.sha256(framed(SPAN_DOMAIN, trace))

    def of(self, role: str, key: str, attempt: int = 0) -> bytes:
        hashed = self._begun.copy()
        hashed.update(_framed_text(role) + framed(key.encode()) + _framed_text(str(attempt)))
        return hashed.digest()[:SPAN_ID_BYTES]


#: Roles of the spans below a pod.
HOOK, STOP, KILL = "hook", "stop", "kill"

#: Type tag of an order to the role of its span.
ORDER_ROLES = {
    "TakeInventory": "inventory",
    "AnnounceNode": "announce",
    "RunHook": HOOK,
    "SendSignal": STOP,
    "KillContainer": KILL,
    "DeliverStatuses": "deliver",
    "FlushTraces": "export",
    "ReleaseLock": "release",
    "StopKubelet": "stop kubelet",
    "DeletePod": "delete",
    "WithdrawPods": "withdraw",
    "AwaitUnmounts": "unmounts",
    "AwaitStatuses": "await statuses",
    "CheckMounts": "check mounts",
    "PublishCertificate": "certify",
}


def order_span_id(trace: bytes, order: str, order_key: str) -> bytes:
    """The id of the span that an order will have; ``order`` is its type tag. Raises KeyError."""
    return span_id(trace, ORDER_ROLES[order], order_key)


def hook_span_id(trace: bytes, order_key: str) -> bytes:
    """The id of the span of a preStop hook that runs (``RunHook``), before it exists."""
    return order_span_id(trace, "RunHook", order_key)


def traceparent(trace: bytes, span: bytes) -> str:
    """The header ``traceparent`` (W3C Trace Context, level 1): sampled. Raises ValueError."""
    if len(trace) != TRACE_ID_BYTES or len(span) != SPAN_ID_BYTES or not any(trace) or not any(span):
        raise ValueError("a trace id has 16 bytes, a span id 8, and neither is all zero")
    return f"00-{trace.hex()}-{span.hex()}-01"
