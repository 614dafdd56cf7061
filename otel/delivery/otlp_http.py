"""OTLP over HTTP: the SDK's exporters, with a session of requests that says what the server said.

By itself the SDK's exporter knows "taken" and "failed" only: it counts any page with 200, a redirect and a
partial success as taken, and tries again for as long as it thinks right. The session hears each answer
before it, makes one of the four of `answers` of it, and lets the SDK see either a plain success or an
exception that it does not try again.

What the SDK and requests would take from the environment of their own accord counts nothing here: the
destination is what `destination.resolve` made of all sources. Only a proxy of the environment is used, as
everywhere (``HTTPS_PROXY``, ``HTTP_PROXY``, ``NO_PROXY``).
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import MutableMapping
from contextlib import suppress
from http.client import HTTPException, RemoteDisconnected
from typing import Any

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, TimeoutError

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.events.units import span_s
from ebbtide.otel.delivery.answers import (
    ANSWER_BYTES_MAX,
    Accepted,
    Again,
    Answer,
    answer_of_http,
    mask_for,
    printable_line,
)
from ebbtide.otel.delivery.destination import BadDestination, Destination, SignalName

#: gRPC servers take 4 MiB unless told otherwise, and collectors hand on by gRPC.
REQUEST_BYTES_MAX = 3 * 1024 * 1024
#: In front of the SDK's own.
USER_AGENT = "ebbtide-otlp/1"
_COMPRESSIONS = {"none": Compression.NoCompression, "gzip": Compression.Gzip}
#: What the SDK and requests have to say about a request; any other header is the destination's.
_OF_REQUEST = ("content-type", "content-encoding", "content-length", "user-agent")


#: While it connects or waits for the answer, and while that is read.
TIMEOUTS = (requests.Timeout, TimeoutError)


class NotTaken(Exception):
    """The server did not take it: the session's ``answer`` says why. The SDK tries this not again."""


class HttpSession(requests.Session):
    """``answer``: what the last request got. Used in one thread at a time; `close` from any."""

    def __init__(self, destination: Destination) -> None:
        """Reads the certificates. Raises BadDestination."""
        super().__init__()
        # Or a login in ~/.netrc would replace a configured header, and REQUESTS_CA_BUNDLE the authorities.
        self.trust_env = False
        self.answer: Answer | None = None
        tls = destination.endpoint.startswith("https:")
        self._adapter = _Adapter(tls_context(destination) if tls else None)
        self.mount("http://", self._adapter)
        self.mount("https://", self._adapter)
        self._ours = {name: value for name, value in destination.headers if name not in _OF_REQUEST}
        self._mask = mask_for(destination.headers)
        self._timeout_seconds = destination.timeout_ns / NS_PER_SECOND

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Raises NotTaken; the reason is in ``answer``."""
        self._set_headers(request.headers)
        proxies = get_environ_proxies(request.url or "", no_proxy=None)
        # Its own time-out too: what the SDK passes is what its wall clock leaves of it.
        given = {"proxies": proxies, "timeout": self._timeout_seconds, "stream": True, "verify": True}
        try:
            self.answer, response = self._ask(request, kwargs | given)
        except (OSError, HTTPError, HTTPException) as error:
            late = f"no answer within {span_s(self._timeout_seconds)}"
            self.answer = Again(late if isinstance(error, TIMEOUTS) else failure_text(error))
            raise NotTaken from None
        if not isinstance(self.answer, Accepted):
            raise NotTaken
        return response

    def _set_headers(self, headers: MutableMapping[str, Any]) -> None:
        for name in [name for name in headers if name.lower() not in _OF_REQUEST]:
            del headers[name]
        headers.update(self._ours)
        headers["User-Agent"] = f"{USER_AGENT} {headers.get('User-Agent', '')}".strip()

    def _ask(
        self, request: requests.PreparedRequest, kwargs: dict[str, Any]
    ) -> tuple[Answer, requests.Response]:
        deadline = time.monotonic() + self._timeout_seconds
        with super().send(request, **kwargs) as response:
            body = b""
            # An endless answer would fill our memory before our time is over.
            while chunk := response.raw.read1(ANSWER_BYTES_MAX, decode_content=True):
                body += chunk
                if len(body) > ANSWER_BYTES_MAX:
                    return Again("the answer is too long for OTLP: is this the right endpoint?"), response
                if time.monotonic() > deadline:
                    raise requests.Timeout
        kind, retry_after = (response.headers.get(name, "") for name in ("content-type", "retry-after"))
        answer = answer_of_http(response.status_code, kind, retry_after, self._mask(body), time.time())
        return answer, response

    def close(self) -> None:
        """Also what another thread is waiting for ends now."""
        super().close()
        self._adapter.abort()


class _Adapter(HTTPAdapter):
    """One connection at a time, under our own TLS context; `abort` cuts it."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._made: list[HTTPConnection] = []
        super().__init__(pool_connections=1, pool_maxsize=1, max_retries=0)

    def build_connection_pool_key_attributes(self, *args: Any, **kwargs: Any) -> Any:
        host, _ = super().build_connection_pool_key_attributes(*args, **kwargs)
        return host, {"ssl_context": self._context} if self._context is not None else {}

    def cert_verify(self, *args: Any, **kwargs: Any) -> None:
        """Everything that has to be verified is in the context."""

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool, made = super().get_connection_with_tls_context(*args, **kwargs), self._made
        if pool.ConnectionCls in (HTTPConnection, HTTPSConnection):

            class Known(pool.ConnectionCls):  # type: ignore[name-defined, misc]
                def connect(self) -> None:
                    made[:] = [self]
                    super().connect()

            pool.ConnectionCls = Known
        return pool

    def abort(self) -> None:
        for connection in self._made:
            # Of a connection that is being made there is none yet; its time-out is near.
            with suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)


def http_exporter(destination: Destination, signal: SignalName, session: HttpSession) -> Any:
    """The SDK's exporter of this signal; the endpoint is the whole URL."""
    given: dict[str, Any] = {
        "endpoint": destination.endpoint,
        "timeout": destination.timeout_ns / NS_PER_SECOND,
        "compression": _COMPRESSIONS[destination.compression],
        "session": session,
        "max_request_size": REQUEST_BYTES_MAX,
    }
    # Each loads its own messages, and who only wants spans needs no others.
    if signal == "traces":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(**given)
    if signal == "logs":
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

        return OTLPLogExporter(**given)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter(**given)


def tls_context(destination: Destination) -> ssl.SSLContext:
    """Reads the certificates. Raises BadDestination."""
    try:
        context = ssl.create_default_context(cafile=destination.certificate or None)
        if destination.client_certificate:
            # A key that wants a pass phrase must not wait for somebody at a terminal.
            key = destination.client_key
            context.load_cert_chain(destination.client_certificate, key, password=lambda: "")
    except OSError as error:
        names = (destination.certificate, destination.client_certificate, destination.client_key)
        named = ", ".join(name for name in names if name)
        reason = error.strerror or getattr(error, "reason", "") or "not readable"
        raise BadDestination(f"the certificates cannot be used ({named}): {reason}") from error
    return context


def failure_text(error: BaseException) -> str:
    """One line for the record, and never a header: what the libraries say of themselves may repeat what was
    sent.
    """
    where = "the proxy of the environment: " if isinstance(error, requests.exceptions.ProxyError) else ""
    # The libraries wrap what happened several times, as a cause or as an argument; the innermost is what the
    # system or the server said.
    while inner := error.__cause__ or error.__context__ or _argument(error):
        error = inner
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"{where}the server's certificate is not accepted: {printable_line(error.verify_message)}"
    if isinstance(error, RemoteDisconnected):
        return f"{where}the server closed the connection without an answer"
    if isinstance(error, HTTPException):
        return f"{where}the answer is not HTTP: is this the right endpoint?"
    said = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
    return where + printable_line(str(said))


def _argument(error: BaseException) -> BaseException | None:
    return next((each for each in error.args if isinstance(each, BaseException)), None)
