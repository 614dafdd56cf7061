"""Sends batches of spans, log records or metrics: OTLP over HTTP or gRPC, or another exporter of the SDK.

An exporter blocks and runs in a thread; the caller waits no longer than the destination's timeout. The SDK's
encoders make the bytes, but its own exporters of OTLP are not used: they take any 2xx or 3xx page and a
partial success for "taken", and try again on their own account.

From the environment only a proxy is used (``HTTPS_PROXY``, ``HTTP_PROXY``, ``NO_PROXY``).
"""

from __future__ import annotations

import gzip
import logging
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException, RemoteDisconnected
from importlib.metadata import entry_points
from typing import Any, Protocol

import requests
import trio
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
from ebbtide.otel.delivery.destination import BadDestination, Destination, SignalName
from ebbtide.otel.delivery.sending import Accepted, Again, Answer, Rejected

#: gRPC servers take 4 MiB by default, and collectors forward over gRPC.
REQUEST_BYTES_MAX = 3 * 1024 * 1024
USER_AGENT = "ebbtide-otlp/1"
#: After a request's timeout, for the library to notice it by itself.
SLACK_SECONDS = 0.1
#: The SDK's entry points, by the name in OTEL_TRACES_EXPORTER.
ENTRY_POINTS = "opentelemetry_traces_exporter"
#: While connecting or waiting for the answer, and while reading it.
TIMEOUTS = (requests.Timeout, TimeoutError)


class Exporter(Protocol):
    """Blocks. ``export`` returns None where only its log has a reason why it failed."""

    def export(self, batch: Any) -> Answer | None: ...

    def close(self) -> None: ...


class Sender:
    """One signal to one destination, one request at a time. ``make``: its exporter."""

    def __init__(self, destination: Destination, make: Callable[[], Exporter]) -> None:
        """Raises BadDestination."""
        self._make, self._exporter = make, make()
        self._timeout_seconds = destination.timeout_ns / NS_PER_SECOND

    async def send(self, batch: Any) -> Answer:
        """``batch`` in the SDK's types. Raises nothing but cancellation."""
        with trio.move_on_after(self._timeout_seconds + SLACK_SECONDS):
            return await trio.to_thread.run_sync(self._export, self._exporter, batch, abandon_on_cancel=True)
        # The thread may still use it.
        with suppress(BadDestination):
            self._exporter = self._make()
        return Again(f"no answer within {span_s(self._timeout_seconds)}")

    def _export(self, exporter: Exporter, batch: Any) -> Answer:
        with LastMessage() as logged:
            try:
                answer = exporter.export(batch)
            except Exception as error:
                return Again(f"the exporter failed: {printable_line(f'{type(error).__name__}: {error}')}")
        return answer or Again(printable_line(logged.text) or "the exporter failed, and gave no reason")

    async def close(self) -> None:
        await trio.to_thread.run_sync(self._exporter.close, abandon_on_cancel=True)


class LastMessage(logging.Handler):
    """``text``: the last message that was logged in this thread. None of it goes to standard error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._thread = threading.get_ident()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            with suppress(Exception):
                self.text = record.getMessage()

    def __enter__(self) -> LastMessage:
        logging.getLogger().addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger().removeHandler(self)


def sender_for(destination: Destination, signal: SignalName = "traces") -> Sender:
    """Raises BadDestination: unreadable certificates, or a library or an exporter that is not installed."""
    if destination.exporter:
        return Sender(destination, lambda: NamedExporter(destination.exporter))
    if destination.protocol == "grpc":
        try:
            from ebbtide.otel.delivery.otlp_grpc import GrpcExporter
        except ImportError as error:
            raise BadDestination(
                f"grpc needs the package grpcio: {install_command('grpc')}, or use http/protobuf"
            ) from error
        return Sender(destination, lambda: GrpcExporter(destination, signal))
    return Sender(destination, lambda: HttpExporter(destination, signal))


def encoder_of(signal: SignalName) -> Callable[[Any], bytes]:
    """Each signal loads its own messages. A request that cannot be encoded or is too large is a Rejected."""
    encode: Callable[[Any], Any]
    if signal == "traces":
        from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans as encode
    elif signal == "logs":
        from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs as encode
    else:
        from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics as encode
    return lambda batch: bytes(encode(batch).SerializeToString())


def encoded(encode: Callable[[Any], bytes], batch: Any) -> bytes | Rejected:
    """A Rejected: smaller requests find the span that is too large, or cannot be encoded."""
    try:
        request = encode(batch)
    except Exception as error:
        return Rejected(printable_line(f"{type(error).__name__}: {error}"), too_large=True)
    if len(request) > REQUEST_BYTES_MAX:
        return Rejected(f"a request of {len(request)} bytes is too large", too_large=True)
    return request


class NamedExporter:
    """An exporter of the SDK (``console``), or one that is installed. It reads its own variables."""

    def __init__(self, name: str) -> None:
        """Raises BadDestination."""
        found = list(entry_points(group=ENTRY_POINTS, name=name))
        if not found:
            installed = {each.name for each in entry_points(group=ENTRY_POINTS)}
            known = ", ".join(sorted({"otlp", "none"} | installed))
            raise BadDestination(f"OTEL_TRACES_EXPORTER: no exporter {name} is installed: there are {known}")
        # A library may log a variable that it cannot read, which may be a secret.
        with LastMessage():
            try:
                self._exporter = found[0].load()()
            except Exception as error:
                what = printable_line(f"{type(error).__name__}: {error}")
                problem = f"OTEL_TRACES_EXPORTER: the exporter {name} cannot be made: {what}"
                raise BadDestination(problem) from error

    def export(self, batch: Any) -> Answer | None:
        return Accepted() if self._exporter.export(batch).name == "SUCCESS" else None

    def close(self) -> None:
        with LastMessage(), suppress(Exception):
            self._exporter.shutdown()


# --- OTLP over HTTP --------------------------------------------------------------------------------


class HttpExporter:
    def __init__(self, destination: Destination, signal: SignalName) -> None:
        """Reads the certificates. Raises BadDestination."""
        self._destination, self._encode = destination, encoder_of(signal)
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

    def export(self, batch: Any) -> Answer:
        request = encoded(self._encode, batch)
        if isinstance(request, Rejected):
            return request
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
        return answer_of_http(response.status_code, kind, retry_after, self._mask(body), time.time())

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
