"""What a back end's answer means for the batch that it answers: taken, again later, not ever, or not now.

Two tables, one for HTTP's status codes and one for gRPC's (OTLP specification, "Failures"); everything that a
transport learns becomes one of four values, so that what is done about it stands in one place.
"""

from __future__ import annotations

import email.utils
from typing import NamedTuple

from otel.delivery.wire import NS_PER_SECOND, NotWire, partial_success, plain, refusal


class Accepted(NamedTuple):
    """The spans have arrived, but for ``rejected`` of them, which must not be sent again."""

    rejected: int = 0
    reason: str = ""


class Again(NamedTuple):
    """Not taken now; the same bytes may be sent later, not before ``after_ns`` where the server said so."""

    reason: str
    after_ns: int | None = None


class Rejected(NamedTuple):
    """These spans will never be taken: they go on record with the reason. ``too_large``: smaller ones may
    be.
    """

    reason: str
    too_large: bool = False


class Refused(NamedTuple):
    """The fault is not the spans' (credentials, a wrong path, a server's bug): kept for another start."""

    reason: str


Answer = Accepted | Again | Rejected | Refused

#: Longer than that is no advice but a mistake.
AFTER_NS_MAX = 300 * NS_PER_SECOND

HTTP_RETRYABLE = (429, 502, 503, 504)
HTTP_REJECTED = (400, 413, 415, 422)
HTTP_TOO_LARGE = 413
PROTOBUF = "application/x-protobuf"

#: gRPC's codes by number (grpc/status.proto); what is in no row refuses for now.
GRPC_RETRYABLE = {
    1: "CANCELLED",
    4: "DEADLINE_EXCEEDED",
    10: "ABORTED",
    11: "OUT_OF_RANGE",
    14: "UNAVAILABLE",
    15: "DATA_LOSS",
}
GRPC_REJECTED = {3: "INVALID_ARGUMENT"}
GRPC_EXHAUSTED = 8


def of_http(status: int, content_type: str, retry_after: str, body: bytes, now_wall_s: float) -> Answer:
    """``body`` is the whole answer's, uncompressed; ``now_wall_s`` is what a date in Retry-After is measured
    by.
    """
    named = content_type.partition(";")[0].strip().lower()
    protobuf = named == PROTOBUF
    if 200 <= status < 300:
        return _taken(body, protobuf or not (named or body))
    words = _words(body, protobuf)
    reason = f"HTTP {status}: {words}" if words else f"HTTP {status}"
    if status in HTTP_RETRYABLE:
        return Again(reason, _after_ns(retry_after, now_wall_s))
    if status in HTTP_REJECTED:
        return Rejected(reason, too_large=status == HTTP_TOO_LARGE)
    return Refused(reason)


def of_grpc(code: int, name: str, words: str, details: bytes) -> Answer:
    """``details`` are the bytes of ``grpc-status-details-bin``, if the server sent them."""
    try:
        retry_ns = refusal(details).retry_ns
    except NotWire:
        retry_ns = None
    words = plain(words)
    reason = f"gRPC {name}: {words}" if words else f"gRPC {name}"
    if code in GRPC_RETRYABLE or (code == GRPC_EXHAUSTED and retry_ns is not None):
        return Again(reason, None if retry_ns is None else min(retry_ns, AFTER_NS_MAX))
    if code in GRPC_REJECTED or code == GRPC_EXHAUSTED:
        return Rejected(reason, too_large=code == GRPC_EXHAUSTED)
    return Refused(reason)


def of_response(body: bytes) -> Answer:
    """A successful call's message."""
    return _taken(body, protobuf=True)


def _taken(body: bytes, protobuf: bool) -> Answer:
    """Only an answer that OTLP knows is an acknowledgement: a welcome page is not, an empty one neither."""
    if not protobuf:
        return Again("the answer is not OTLP's: is this the right endpoint?")
    try:
        rejected, reason = partial_success(body)
    except NotWire as error:
        return Again(f"the answer cannot be read: {error}")
    return Accepted(rejected, reason)


def _words(body: bytes, protobuf: bool) -> str:
    """The server's reason: of a Status message, or of a plain text."""
    if not protobuf:
        return plain(body)
    try:
        return refusal(body).reason
    except NotWire:
        return ""


def _after_ns(text: str, now_wall_s: float) -> int | None:
    """Retry-After: whole seconds or a date (RFC 9110, 10.2.3); what cannot be read says nothing."""
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return min(int(text[:9]) * NS_PER_SECOND, AFTER_NS_MAX)
    try:
        seconds = email.utils.parsedate_to_datetime(text).timestamp() - now_wall_s
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0, int(seconds * NS_PER_SECOND)), AFTER_NS_MAX)
