"""OTLP: spans as requests, or as JSON for files; their sending over HTTP; what an answer means.

The SDK's own exporters do not fit: they count any 2xx or 3xx page and a partial success as success, and they
retry. From the environment this reads only the proxy. The SDK is large, so the daemon never imports this.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPException, RemoteDisconnected
from typing import Any, NamedTuple, Protocol, TypeVar

import requests
import trio
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from google.rpc import status_pb2
from google.rpc.error_details_pb2 import RetryInfo
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk import resources as sdk
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies
from urllib3.exceptions import HTTPError, TimeoutError

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.units import span_s
from ebbtide.extras import install_command
from ebbtide.otel.attributes import SCHEMA_URL
from ebbtide.otel.destination import BadDestination, Destination
from ebbtide.otel.sending import Accepted, Again, Answer, Refused, Rejected
from ebbtide.otel.span import Resource, Span

# --- spans in the SDK's types, and as JSON

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_UNSET = Status(StatusCode.UNSET)


def readable_spans(spans: Sequence[Span], resource: Resource) -> list[ReadableSpan]:
    # `Resource.create` would add attributes of the environment and of this machine.
    of_resource = sdk.Resource(dict(resource.attributes), SCHEMA_URL)
    scope = InstrumentationScope(resource.scope, str(resource.version), SCHEMA_URL)
    return [
        ReadableSpan(
            span.name,
            context=span_context(span.trace_id, span.span_id),
            parent=span_context(span.trace_id, span.parent_id) if span.parent_id else None,
            resource=of_resource,
            attributes=dict(span.attributes),
            events=[Event(event.name, dict(event.attributes), event.time_ns) for event in span.events],
            links=[
                Link(span_context(link.trace_id, link.span_id), dict(link.attributes)) for link in span.links
            ],
            kind=SpanKind.INTERNAL,
            status=Status(StatusCode.ERROR, span.status_text) if span.status == "error" else _UNSET,
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=scope,
        )
        for span in spans
    ]


def span_context(trace_id: bytes, span_id: bytes) -> SpanContext:
    return SpanContext(
        int.from_bytes(trace_id, "big"), int.from_bytes(span_id, "big"), is_remote=False, trace_flags=_SAMPLED
    )


#: In hex, unlike in protobuf's JSON (OTLP specification, "JSON Protobuf Encoding").
_IDS = ("traceId", "spanId", "parentSpanId")


def encode_traces_json(spans: Sequence[Span], resource: Resource) -> bytes:
    """OTLP/JSON in one line."""
    request = encode_spans(readable_spans(spans, resource))
    document = json_format.MessageToDict(request, use_integers_for_enums=True)
    scopes = (scope for each in document.get("resourceSpans", ()) for scope in each["scopeSpans"])
    for span in (span for scope in scopes for span in scope["spans"]):
        for message in (span, *span.get("links", ())):
            for name in _IDS:
                if name in message:
                    message[name] = base64.b64decode(message[name]).hex()
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


# --- sending

#: gRPC servers take 4 MiB by default, and collectors forward over gRPC.
REQUEST_BYTES_MAX = 3 * 1024 * 1024
USER_AGENT = "ebbtide-otlp/1"
#: After a request's timeout, so that the library can report it.
SLACK_SECONDS = 0.1
#: While waiting for the answer, and while reading it.
TIMEOUTS = (requests.Timeout, TimeoutError)


class Exporter(Protocol):
    """Blocks."""

    def export(self, request: bytes) -> Answer: ...

    def close(self) -> None: ...


class Sender:
    """One request at a time. ``make``: the exporter."""

    def __init__(self, destination: Destination, make: Callable[[], Exporter]) -> None:
        """Raises BadDestination."""
        self._make, self._exporter = make, make()
        self._timeout_seconds = destination.timeout_ns / NS_PER_SECOND

    async def send(self, spans: Sequence[Span], resource: Resource) -> Answer:
        """The same spans give the same bytes. Raises no error except a cancellation."""
        with trio.move_on_after(self._timeout_seconds + SLACK_SECONDS):
            return await trio.to_thread.run_sync(
                _export, self._exporter, spans, resource, abandon_on_cancel=True
            )
        # The thread may still use the old exporter.
        with suppress(BadDestination):
            self._exporter = self._make()
        return Again(f"no answer within {span_s(self._timeout_seconds)}")

    async def close(self) -> None:
        await trio.to_thread.run_sync(self._exporter.close, abandon_on_cancel=True)


def sender_for(destination: Destination) -> Sender:
    """Raises BadDestination: unreadable certificates, or a library that is not installed."""
    if destination.protocol == "grpc":
        try:
            from ebbtide.otel.otlp_grpc import GrpcExporter
        except ImportError as error:
            raise BadDestination(
                f"grpc needs the package grpcio: {install_command('grpc')}, or use http/protobuf"
            ) from error
        return Sender(destination, lambda: GrpcExporter(destination))
    return Sender(destination, lambda: HttpExporter(destination))


def _export(exporter: Exporter, spans: Sequence[Span], resource: Resource) -> Answer:
    """After a Rejected, smaller requests find the span that is too large or cannot be encoded."""
    try:
        request = bytes(encode_spans(readable_spans(spans, resource)).SerializeToString())
    except Exception as error:
        return Rejected(printable_line(f"{type(error).__name__}: {error}"), too_large=True)
    if len(request) > REQUEST_BYTES_MAX:
        return Rejected(f"a request of {len(request)} bytes is too large", too_large=True)
    try:
        return exporter.export(request)
    except Exception as error:
        return Again(f"the exporter failed: {printable_line(f'{type(error).__name__}: {error}')}")


class HttpExporter:
    def __init__(self, destination: Destination) -> None:
        """Raises BadDestination."""
        self._destination = destination
        self._timeout_seconds = destination.timeout_ns / NS_PER_SECOND
        self._headers = {"Content-Type": PROTOBUF, "User-Agent": USER_AGENT} | dict(destination.headers)
        if destination.compression == "gzip":
            self._headers["Content-Encoding"] = "gzip"
        self._mask = mask_for(destination.headers)
        self._session = requests.Session()
        # A login in ~/.netrc would replace a configured header, and REQUESTS_CA_BUNDLE the authorities.
        self._session.trust_env = False
        tls = destination.endpoint.startswith("https:")
        adapter = _Adapter(tls_context(destination) if tls else None)
        self._session.mount("http://", adapter)
        self._session.mount("https://", adapter)

    def export(self, request: bytes) -> Answer:
        url = self._destination.endpoint
        deadline = time.monotonic() + self._timeout_seconds
        try:
            with self._session.post(
                url,
                gzip.compress(request) if "Content-Encoding" in self._headers else request,
                headers=self._headers,
                timeout=self._timeout_seconds,
                proxies=get_environ_proxies(url, no_proxy=None),
                stream=True,
                # Send credentials only to the configured endpoint.
                allow_redirects=False,
            ) as response:
                body = b""
                # An endless answer would fill the memory before the timeout.
                while chunk := response.raw.read1(ANSWER_BYTES_MAX, decode_content=True):
                    body += chunk
                    if len(body) > ANSWER_BYTES_MAX:
                        return Again("the answer is too long for OTLP: is this the right endpoint?")
                    if time.monotonic() > deadline:
                        raise requests.Timeout
        except (OSError, HTTPError, HTTPException) as error:
            late = f"no answer within {span_s(self._timeout_seconds)}"
            return Again(late if isinstance(error, TIMEOUTS) else failure_text(error))
        kind, retry_after = (response.headers.get(name, "") for name in ("content-type", "retry-after"))
        return answer_of_http(response.status_code, kind, retry_after, self._mask(body))

    def close(self) -> None:
        self._session.close()


class _Adapter(HTTPAdapter):
    """Without retries, and with our TLS context."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def build_connection_pool_key_attributes(self, *args: Any, **kwargs: Any) -> Any:
        host, _ = super().build_connection_pool_key_attributes(*args, **kwargs)
        return host, {"ssl_context": self._context} if self._context is not None else {}

    def cert_verify(self, *args: Any, **kwargs: Any) -> None:
        """The context verifies."""


def tls_context(destination: Destination) -> ssl.SSLContext:
    """Raises BadDestination."""
    try:
        context = ssl.create_default_context(cafile=destination.certificate or None)
        if destination.client_certificate:
            # A key with a pass phrase must not ask at a terminal.
            key = destination.client_key
            context.load_cert_chain(destination.client_certificate, key, password=lambda: "")
    except OSError as error:
        names = (destination.certificate, destination.client_certificate, destination.client_key)
        named = ", ".join(name for name in names if name)
        reason = error.strerror or getattr(error, "reason", "") or "not readable"
        raise BadDestination(f"the certificates cannot be used ({named}): {reason}") from error
    return context


def failure_text(error: BaseException) -> str:
    """One line. The libraries' own texts may repeat a header."""
    where = "the proxy of the environment: " if isinstance(error, requests.exceptions.ProxyError) else ""
    # The libraries wrap the system's error several times, as a cause or as an argument.
    while inner := (
        error.__cause__
        or error.__context__
        or next((each for each in error.args if isinstance(each, BaseException)), None)
    ):
        error = inner
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{where}the server's certificate is not accepted: {printable_line(error.verify_message)}"
    if isinstance(error, RemoteDisconnected):
        return f"{where}the server closed the connection without an answer"
    if isinstance(error, HTTPException):
        return f"{where}the answer is not HTTP: is this the right endpoint?"
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
    return where + printable_line(str(reason))


# --- the messages of an answer

M = TypeVar("M", bound=Message)

#: A usual answer has a few hundred bytes.
ANSWER_BYTES_MAX = 64 * 1024
REASON_CHARACTERS_MAX = 300


class NotProtobuf(ValueError):
    pass


class StatusMessage(NamedTuple):
    """``retry_ns``: the pause that the server asks for."""

    reason: str = ""
    retry_ns: int | None = None


def parse_partial_success(data: bytes) -> Accepted:
    """From an ``ExportTraceServiceResponse``. Raises NotProtobuf."""
    partial = _parsed(ExportTraceServiceResponse(), data).partial_success
    return Accepted(max(0, partial.rejected_spans), printable_line(partial.error_message))


def parse_status(data: bytes) -> StatusMessage:
    """From a ``google.rpc.Status``. Raises NotProtobuf."""
    status, retry_ns = _parsed(status_pb2.Status(), data), None
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
    # A server's text goes to a terminal and to the daemon's log: it must not forge a line, nor move the
    # cursor.
    decoded = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    line = " ".join(decoded[: 2 * REASON_CHARACTERS_MAX].split())
    return "".join(each if each.isprintable() else "�" for each in line)[:REASON_CHARACTERS_MAX]


# --- what an answer means


#: A longer pause is a mistake.
AFTER_NS_MAX = 300 * NS_PER_SECOND

# From OTLP's specification. For any other status keep the spans: they have no fault.
HTTP_RETRYABLE = (429, 502, 503, 504)
HTTP_REJECTED = (400, 413, 415, 422)
HTTP_TOO_LARGE = 413
PROTOBUF = "application/x-protobuf"

#: CANCELLED, DEADLINE_EXCEEDED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS; INVALID_ARGUMENT;
#: RESOURCE_EXHAUSTED (google/rpc/code.proto). For any other code keep the spans.
GRPC_RETRYABLE = (1, 4, 10, 11, 14, 15)
GRPC_REJECTED = 3
GRPC_EXHAUSTED = 8


def answer_of_http(status: int, content_type: str, retry_after: str, body: bytes) -> Answer:
    """``body``: whole and uncompressed."""
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
        # Whole seconds, not a date: our clock may be wrong. int() of many digits is slow, and nine are above
        # the limit.
        pause = retry_after.strip()
        seconds = int(pause[:9]) if pause.isascii() and pause.isdecimal() else None
        return Again(reason, None if seconds is None else min(seconds * NS_PER_SECOND, AFTER_NS_MAX))
    if status in HTTP_REJECTED:
        return Rejected(reason, too_large=status == HTTP_TOO_LARGE)
    return Refused(reason)


def answer_of_grpc(code: int, name: str, text: str, details: bytes) -> Answer:
    """``details``: ``grpc-status-details-bin``, or empty."""
    try:
        retry_ns = parse_status(details).retry_ns
    except NotProtobuf:
        retry_ns = None
    # RESOURCE_EXHAUSTED without a pause: the request was too large (OTLP specification).
    text = printable_line(text)
    reason = f"gRPC {name}: {text}" if text else f"gRPC {name}"
    if code in GRPC_RETRYABLE or (code == GRPC_EXHAUSTED and retry_ns is not None):
        return Again(reason, None if retry_ns is None else min(retry_ns, AFTER_NS_MAX))
    if code in (GRPC_REJECTED, GRPC_EXHAUSTED):
        return Rejected(reason, too_large=code == GRPC_EXHAUSTED)
    return Refused(reason)


def acknowledged(body: bytes, protobuf: bool = True) -> Answer:
    # A web server on the wrong port answers 200 with its welcome page, and the spans would be lost.
    if not protobuf:
        return Again("the answer is not OTLP's: is this the right endpoint?")
    try:
        return parse_partial_success(body)
    except NotProtobuf as error:
        return Again(f"the answer cannot be read: {error}")


#: Shorter values are no secrets and occur in any text.
SHORT_BYTES_MAX = 4

Mask = Callable[[bytes], bytes]


def mask_for(headers: Sequence[tuple[str, str]]) -> Mask:
    """A server may repeat a request: put stars for the headers' values, and their parts after ``Bearer``."""
    parts = {part for _, value in headers for part in (value, value.partition(" ")[2].strip())}
    # The longest first: one value may contain another.
    found = sorted((part.encode() for part in parts if len(part) > SHORT_BYTES_MAX), key=len, reverse=True)
    if not found:
        return lambda data: data
    any_of_them = re.compile(b"|".join(map(re.escape, found)))
    return lambda data: any_of_them.sub(lambda match: b"*" * len(match[0]), data)
