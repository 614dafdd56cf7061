"""A tracing back end's answer: taken, again later, never, or not now (OTLP specification, "Failures").

A server may repeat the request in its text. `mask_for` stars out the values of our headers, in place: a
protobuf message keeps its length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.otel.delivery.sending import Accepted, Again, Answer, Refused, Rejected

M = TypeVar("M", bound=Message)

# --- the messages of an answer ---------------------------------------------------------------------

#: A usual answer has a few hundred bytes at most.
ANSWER_BYTES_MAX = 64 * 1024
REASON_CHARACTERS_MAX = 300


class NotProtobuf(ValueError):
    """These bytes are no protobuf message."""


class StatusMessage(NamedTuple):
    """``retry_ns``: the pause that the server asks for."""

    reason: str = ""
    retry_ns: int | None = None


def parse_partial_success(data: bytes) -> Accepted:
    """Of an ``ExportTraceServiceResponse``; empty: all was taken. Raises NotProtobuf."""
    partial = _parsed(ExportTraceServiceResponse(), data).partial_success
    return Accepted(max(0, partial.rejected_spans), printable_line(partial.error_message))


def parse_status(data: bytes) -> StatusMessage:
    """A ``google.rpc.Status``. Raises NotProtobuf."""
    status, retry_ns = _parsed(Status(), data), None
    for detail in status.details:
        if retry_ns is None and detail.Is(RetryInfo.DESCRIPTOR):
            delay = _parsed(RetryInfo(), detail.value).retry_delay
            retry_ns = max(0, delay.seconds * NS_PER_SECOND + delay.nanos)
    return StatusMessage(printable_line(status.message), retry_ns)


def _parsed(message: M, data: bytes) -> M:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise NotProtobuf(printable_line(str(error))) from None
    return message


def printable_line(text: bytes | str) -> str:
    """A server's text in one printable line of bounded length."""
    # It goes to a terminal and to the daemon's log: it must not forge a line, nor move the cursor.
    decoded = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    line = " ".join(decoded[: 2 * REASON_CHARACTERS_MAX].split())
    return "".join(each if each.isprintable() else "�" for each in line)[:REASON_CHARACTERS_MAX]


# --- what an answer means -------------------------------------------------------------------------


#: A longer pause is a mistake.
AFTER_NS_MAX = 300 * NS_PER_SECOND

# OTLP's specification. Any other status is the fault of no span, so the spans are kept.
HTTP_RETRYABLE = (429, 502, 503, 504)
HTTP_REJECTED = (400, 413, 415, 422)
HTTP_TOO_LARGE = 413
PROTOBUF = "application/x-protobuf"

#: gRPC's codes (grpc/status.proto): CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE,
#: DATA_LOSS; INVALID_ARGUMENT; RESOURCE_EXHAUSTED. Any other code refuses for now.
GRPC_RETRYABLE = (1, 4, 10, 11, 14, 15)
GRPC_REJECTED = 3
GRPC_EXHAUSTED = 8


def answer_of_http(status: int, content_type: str, retry_after: str, body: bytes) -> Answer:
    """``body`` is whole and uncompressed."""
    named = content_type.partition(";")[0].strip().lower()
    protobuf = named == PROTOBUF
    if 200 <= status < 300:
        return acknowledged(body, protobuf or not (named or body))
    text = printable_line(body) if not protobuf else ""
    if protobuf:
        with suppress(NotProtobuf):
            text = parse_status(body).reason
    reason = f"HTTP {status}: {text}" if text else f"HTTP {status}"
    if status in HTTP_RETRYABLE:
        return Again(reason, _parse_retry_after(retry_after))
    if status in HTTP_REJECTED:
        return Rejected(reason, too_large=status == HTTP_TOO_LARGE)
    return Refused(reason)


def answer_of_grpc(code: int, name: str, text: str, details: bytes) -> Answer:
    """``details``: ``grpc-status-details-bin``, if the server sent it."""
    try:
        retry_ns = parse_status(details).retry_ns
    except NotProtobuf:
        retry_ns = None
    # RESOURCE_EXHAUSTED without a pause means that the request was too large (OTLP specification).
    text = printable_line(text)
    reason = f"gRPC {name}: {text}" if text else f"gRPC {name}"
    if code in GRPC_RETRYABLE or (code == GRPC_EXHAUSTED and retry_ns is not None):
        return Again(reason, None if retry_ns is None else min(retry_ns, AFTER_NS_MAX))
    if code in (GRPC_REJECTED, GRPC_EXHAUSTED):
        return Rejected(reason, too_large=code == GRPC_EXHAUSTED)
    return Refused(reason)


def acknowledged(body: bytes, protobuf: bool = True) -> Answer:
    """The answer to a successful request."""
    # A web server on the wrong port answers 200 with its welcome page: spans sent there would be lost.
    if not protobuf:
        return Again("the answer is not OTLP's: is this the right endpoint?")
    try:
        return parse_partial_success(body)
    except NotProtobuf as error:
        return Again(f"the answer cannot be read: {error}")


def _parse_retry_after(text: str) -> int | None:
    """Whole seconds. A date is no pause: our clock may be wrong."""
    text = text.strip()
    # int() of many digits is slow, and nine are beyond the limit.
    seconds = int(text[:9]) if text.isascii() and text.isdecimal() else None
    return None if seconds is None else min(seconds * NS_PER_SECOND, AFTER_NS_MAX)


# --- a server's text without our secrets ----------------------------------------------------------

#: Shorter values hide nothing, and occur in any text.
SHORT_BYTES_MAX = 4

Mask = Callable[[bytes], bytes]


def mask_for(headers: Sequence[tuple[str, str]]) -> Mask:
    """Stars out the values, and their parts after a scheme (``Bearer``)."""
    parts = {part for _, value in headers for part in (value, value.partition(" ")[2].strip())}
    # The longest first: one value may contain another.
    found = sorted((part.encode() for part in parts if len(part) > SHORT_BYTES_MAX), key=len, reverse=True)
    if not found:
        return lambda data: data
    any_of_them = re.compile(b"|".join(map(re.escape, found)))
    return lambda data: any_of_them.sub(lambda match: b"*" * len(match[0]), data)
