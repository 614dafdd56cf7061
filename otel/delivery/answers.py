"""What a back end's answer means for the batch that it answers: taken, again later, not ever, or not now.

First the messages of an answer: ``ExportTraceServiceResponse`` (how many spans were not taken, and why),
``google.rpc.Status`` (why a request was refused) and the ``RetryInfo`` in it (when to come again). The bytes
are anybody's: nonsense ends in one exception.

Then two tables, one for HTTP's status codes and one for gRPC's (OTLP specification, "Failures"); everything
that a transport learns becomes one of four values, so that what is done about it stands in one place.

Last, a server's text without our secrets: one that repeats the request it got would carry the values of
headers into the log, the cursor, and the terminal. What is found is starred out in place: the length stays,
so that a protobuf message stays one.
"""

from __future__ import annotations

import base64
import email.utils
import html
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar
from urllib.parse import quote

from google.protobuf.message import DecodeError, Message
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ebbtide.events.base import NS_PER_SECOND

M = TypeVar("M", bound=Message)

# --- the messages of an answer ---------------------------------------------------------------------

#: An answer of a few hundred bytes is a long one; more is not an answer to us.
ANSWER_BYTES_MAX = 64 * 1024
REASON_CHARACTERS_MAX = 300


class NotProtobuf(ValueError):
    """These bytes are no protobuf message."""


class PartialSuccess(NamedTuple):
    """``rejected``: spans that were not taken and must not be sent again."""

    rejected: int = 0
    reason: str = ""


class StatusMessage(NamedTuple):
    """A ``google.rpc.Status``. ``retry_ns``: when to come again, None if nothing is said."""

    code: int = 0
    reason: str = ""
    retry_ns: int | None = None


def parse_partial_success(data: bytes) -> PartialSuccess:
    """Of an ``ExportTraceServiceResponse``, whose fields have the numbers of the other signals'; empty bytes
    are one, and mean that all was taken. Raises NotProtobuf.
    """
    partial = _parsed(ExportTraceServiceResponse(), data).partial_success
    # No server means a negative count; it is a number of spans here, and goes into sums.
    return PartialSuccess(max(0, partial.rejected_spans), printable_line(partial.error_message))


def parse_status(data: bytes) -> StatusMessage:
    """Of a ``google.rpc.Status``. Raises NotProtobuf."""
    status, retry_ns = _parsed(Status(), data), None
    for detail in status.details:
        if retry_ns is None and detail.Is(RetryInfo.DESCRIPTOR):
            delay = _parsed(RetryInfo(), detail.value).retry_delay
            retry_ns = max(0, delay.seconds * NS_PER_SECOND + delay.nanos)
    return StatusMessage(status.code, printable_line(status.message), retry_ns)


def _parsed(message: M, data: bytes) -> M:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise NotProtobuf(printable_line(str(error))) from None
    return message


def printable_line(text: bytes | str) -> str:
    """A server's text in one printable line of bounded length."""
    # It ends up in a terminal and in the daemon's log: no line feed may begin a line there that looks like
    # one of ours, and no escape sequence may move the cursor.
    decoded = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    line = " ".join(decoded[: 2 * REASON_CHARACTERS_MAX].split())
    return "".join(each if each.isprintable() else "�" for each in line)[:REASON_CHARACTERS_MAX]


# --- what an answer means -------------------------------------------------------------------------


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

# As OTLP's specification has them. What stands in none of these is the fault of no span (credentials, a path,
# a server that fails): such spans are kept, because the same bytes may be welcome once somebody has mended
# it.
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


def answer_of_http(
    status: int, content_type: str, retry_after: str, body: bytes, now_wall_s: float
) -> Answer:
    """``body`` is the whole answer's, uncompressed; ``now_wall_s`` is what a date in Retry-After is measured
    by.
    """
    named = content_type.partition(";")[0].strip().lower()
    protobuf = named == PROTOBUF
    if 200 <= status < 300:
        return _acknowledged(body, protobuf or not (named or body))
    text = printable_line(body) if not protobuf else ""
    if protobuf:
        with suppress(NotProtobuf):
            text = parse_status(body).reason
    reason = f"HTTP {status}: {text}" if text else f"HTTP {status}"
    if status in HTTP_RETRYABLE:
        return Again(reason, _parse_retry_after(retry_after, now_wall_s))
    if status in HTTP_REJECTED:
        return Rejected(reason, too_large=status == HTTP_TOO_LARGE)
    return Refused(reason)


def answer_of_grpc(code: int, name: str, text: str, details: bytes) -> Answer:
    """``details`` are the bytes of ``grpc-status-details-bin``, if the server sent them."""
    try:
        retry_ns = parse_status(details).retry_ns
    except NotProtobuf:
        retry_ns = None
    # RESOURCE_EXHAUSTED is "not now" only where the server says when to come again; else the request was
    # larger than it takes (OTLP specification, "Failures").
    text = printable_line(text)
    reason = f"gRPC {name}: {text}" if text else f"gRPC {name}"
    if code in GRPC_RETRYABLE or (code == GRPC_EXHAUSTED and retry_ns is not None):
        return Again(reason, None if retry_ns is None else min(retry_ns, AFTER_NS_MAX))
    if code in GRPC_REJECTED or code == GRPC_EXHAUSTED:
        return Rejected(reason, too_large=code == GRPC_EXHAUSTED)
    return Refused(reason)


def answer_of_message(body: bytes) -> Answer:
    """A successful call's message."""
    return _acknowledged(body, protobuf=True)


def _acknowledged(body: bytes, protobuf: bool) -> Answer:
    # Only an answer that OTLP knows is an acknowledgement. A web server on the wrong port answers 200 with
    # its welcome page to whatever it is sent, and spans that went there would be lost without a word.
    if not protobuf:
        return Again("the answer is not OTLP's: is this the right endpoint?")
    try:
        rejected, reason = parse_partial_success(body)
    except NotProtobuf as error:
        return Again(f"the answer cannot be read: {error}")
    return Accepted(rejected, reason)


def _parse_retry_after(text: str, now_wall_s: float) -> int | None:
    """Retry-After: whole seconds or a date (RFC 9110, 10.2.3); what cannot be read says nothing."""
    text = text.strip()
    # Nine digits are far beyond the most that is believed; of more, int() of a hostile header takes its time.
    if text.isascii() and text.isdecimal():
        return min(int(text[:9]) * NS_PER_SECOND, AFTER_NS_MAX)
    try:
        seconds = email.utils.parsedate_to_datetime(text).timestamp() - now_wall_s
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0, int(seconds * NS_PER_SECOND)), AFTER_NS_MAX)


# --- a server's text without our secrets ----------------------------------------------------------

#: Shorter values are found as whole words only: as letters they are in every sentence.
SHORT_BYTES_MAX = 4
BASIC_SCHEME = "basic"

Mask = Callable[[bytes], bytes]


def mask_for(headers: Sequence[tuple[str, str]]) -> Mask:
    """Stars out the values, their parts behind a scheme (``Bearer``), and Basic's name and password, also
    escaped as in HTML, JSON or a URL.
    """
    found: set[bytes] = set()
    for _, value in headers:
        scheme, _, rest = value.partition(" ")
        parts = [value, rest.strip()]
        if scheme.lower() == BASIC_SCHEME:
            # A server that repeats a login says it in plain text.
            with suppress(ValueError):
                login = base64.b64decode(rest.strip()).decode()
                parts += (login, login.partition(":")[2])
        for part in parts:
            forms = (part, html.escape(part), json.dumps(part)[1:-1], quote(part, safe=""))
            found.update(form.encode() for form in forms)
    patterns = []
    # The longest first: of a value that holds another one the rest would else stay readable.
    for text in sorted(found - {b""}, key=len, reverse=True):
        whole = re.escape(text)
        patterns.append(whole if len(text) > SHORT_BYTES_MAX else rb"(?<!\w)" + whole + rb"(?!\w)")
    if not patterns:
        return lambda data: data
    any_of_them = re.compile(b"|".join(patterns))
    return lambda data: any_of_them.sub(lambda match: b"*" * len(match[0]), data)
