"""Sends batches of spans: OTLP over HTTP or gRPC.

An exporter blocks and runs in a thread; the caller waits no longer than the destination's timeout. The SDK's
own exporters take any 2xx or 3xx page and a partial success for "taken", and try again by themselves.

From the environment only a proxy is used (``HTTPS_PROXY``, ``HTTP_PROXY``, ``NO_PROXY``).
"""

from __future__ import annotations

import gzip
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.client import HTTPException, RemoteDisconnected
from typing import Any, Protocol

import requests
import trio
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies
from urllib3.exceptions import HTTPError, TimeoutError

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.units import span_s
from ebbtide.extras import install_command
from ebbtide.otel.delivery.answers import (
    ANSWER_BYTES_MAX,
    PROTOBUF,
    answer_of_http,
    mask_for,
    printable_line,
)
from ebbtide.otel.delivery.destination import BadDestination, Destination
from ebbtide.otel.delivery.sending import Again, Answer, Rejected
from ebbtide.otel.sdk import readable_spans
from ebbtide.otel.span import Resource, Span

#: gRPC servers take 4 MiB by default, and collectors forward over gRPC.
REQUEST_BYTES_MAX = 3 * 1024 * 1024
USER_AGENT = "ebbtide-otlp/1"
#: After a request's timeout, for the library to notice it by itself.
SLACK_SECONDS = 0.1
#: While connecting or waiting for the answer, and while reading it.
TIMEOUTS = (requests.Timeout, TimeoutError)


class Exporter(Protocol):
    """Blocks."""

    def export(self, request: bytes) -> Answer: ...

    def close(self) -> None: ...


class Sender:
    """Spans to one destination, one request at a time. ``make``: its exporter."""

    def __init__(self, destination: Destination, make: Callable[[], Exporter]) -> None:
        """Raises BadDestination."""
        self._make, self._exporter = make, make()
        self._timeout_seconds = destination.timeout_ns / NS_PER_SECOND

    async def send(self, spans: Sequence[Span], resource: Resource) -> Answer:
        """The same spans give the same bytes each time. Raises nothing but cancellation."""
        with trio.move_on_after(self._timeout_seconds + SLACK_SECONDS):
            return await trio.to_thread.run_sync(
                _export, self._exporter, spans, resource, abandon_on_cancel=True
            )
        # The thread may still use it.
        with suppress(BadDestination):
            self._exporter = self._make()
        return Again(f"no answer within {span_s(self._timeout_seconds)}")

    async def close(self) -> None:
        await trio.to_thread.run_sync(self._exporter.close, abandon_on_cancel=True)


def sender_for(destination: Destination) -> Sender:
    """Raises BadDestination: unreadable certificates, or a library that is not installed."""
    if destination.protocol == "grpc":
        try:
            from ebbtide.otel.delivery.otlp_grpc import GrpcExporter
        except ImportError as error:
            raise BadDestination(
                f"grpc needs the package grpcio: {install_command('grpc')}, or use http/protobuf"
            ) from error
        return Sender(destination, lambda: GrpcExporter(destination))
    return Sender(destination, lambda: HttpExporter(destination))


def _export(exporter: Exporter, spans: Sequence[Span], resource: Resource) -> Answer:
    """A Rejected: smaller requests find the span that is too large, or cannot be encoded."""
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


# --- OTLP over HTTP --------------------------------------------------------------------------------


class HttpExporter:
    def __init__(self, destination: Destination) -> None:
        """Reads the certificates. Raises BadDestination."""
        self._destination = destination
        self._timeout_seconds = destination.timeout_ns / NS_PER_SECOND
        self._headers = {"Content-Type": PROTOBUF, "User-Agent": USER_AGENT} | dict(destination.headers)
        if destination.compression == "gzip":
            self._headers["Content-Encoding"] = "gzip"
        self._mask = mask_for(destination.headers)
        self._session = requests.Session()
        # Or a login in ~/.netrc would replace a configured header, and REQUESTS_CA_BUNDLE the authorities.
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
                # Credentials stay with the endpoint that was named.
                allow_redirects=False,
            ) as response:
                body = b""
                # An endless answer would fill the memory before the time is over.
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
    """Without retries, and with a TLS context that verifies everything."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def build_connection_pool_key_attributes(self, *args: Any, **kwargs: Any) -> Any:
        host, _ = super().build_connection_pool_key_attributes(*args, **kwargs)
        return host, {"ssl_context": self._context} if self._context is not None else {}

    def cert_verify(self, *args: Any, **kwargs: Any) -> None:
        """The context does it."""


def tls_context(destination: Destination) -> ssl.SSLContext:
    """Reads the certificates. Raises BadDestination."""
    try:
        context = ssl.create_default_context(cafile=destination.certificate or None)
        if destination.client_certificate:
            # A key with a pass phrase must not wait at a terminal.
            key = destination.client_key
            context.load_cert_chain(destination.client_certificate, key, password=lambda: "")
    except OSError as error:
        names = (destination.certificate, destination.client_certificate, destination.client_key)
        named = ", ".join(name for name in names if name)
        reason = error.strerror or getattr(error, "reason", "") or "not readable"
        raise BadDestination(f"the certificates cannot be used ({named}): {reason}") from error
    return context


def failure_text(error: BaseException) -> str:
    """One line for the record. The libraries' own texts may repeat a header."""
    where = "the proxy of the environment: " if isinstance(error, requests.exceptions.ProxyError) else ""
    # The libraries wrap an error several times, as a cause or as an argument. The innermost is the system's.
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
