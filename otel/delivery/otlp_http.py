"""OTLP over HTTP/protobuf: one connection, one request at a time, every end of it an answer.

Nothing that a server does raises here: one that is down, slow, half open or speaks another language is a
reason to come again. Redirects are not followed: credentials stay with the endpoint that was named.
"""

from __future__ import annotations

import gzip
import ssl
import time
from typing import NamedTuple
from urllib.parse import urlsplit

import h11
import trio

from ebbtide.events.base import NS_PER_SECOND
from ebbtide.otel.delivery.answers import (
    ANSWER_BYTES_MAX,
    PROTOBUF,
    Again,
    Answer,
    answer_of_http,
    mask_for,
    printable_line,
)
from ebbtide.otel.delivery.destination import BadDestination, Destination

RECEIVE_BYTES = 16 * 1024
USER_AGENT = "ebbtide-otlp/1"
PORTS = {"http": 80, "https": 443}

#: What a request may fail with; anything else is a bug here. (``ssl.SSLError`` is an OSError.)
FAILURES = (OSError, h11.ProtocolError, trio.BrokenResourceError, trio.ClosedResourceError)


class Response(NamedTuple):
    status: int
    content_type: str
    retry_after: str
    body: bytes


class AnswerTooLarge(OSError):
    """The answer is longer than any of OTLP's."""


class ConnectionGone(OSError):
    """The server closed the connection before it answered."""


class HttpSender:
    """Sends to one destination. Not for two tasks at once."""

    def __init__(self, destination: Destination) -> None:
        """Reads the certificates. Raises BadDestination."""
        parts = urlsplit(destination.endpoint)
        self._host, self._tls = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or PORTS[parts.scheme]
        self._target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        self._gzip = destination.compression == "gzip"
        self._timeout_seconds = destination.timeout_ns / NS_PER_SECOND
        self._context = tls_context(destination) if self._tls else None
        bracketed = f"[{self._host}]" if ":" in self._host else self._host
        self._headers = (
            ("host", bracketed if parts.port is None else f"{bracketed}:{parts.port}"),
            ("user-agent", USER_AGENT),
            *((name, value) for name, value in destination.headers if name != "user-agent"),
            ("content-type", PROTOBUF),
            *((("content-encoding", "gzip"),) if self._gzip else ()),
        )
        self._mask = mask_for(destination.headers)
        self._stream: trio.abc.Stream | None = None
        self._connection = h11.Connection(h11.CLIENT)

    async def send(self, payload: bytes) -> Answer:
        """Until it is answered or its time is over; raises nothing but cancellation."""
        # No time in the header of the compressed bytes: the same spans are the same request.
        body = gzip.compress(payload, compresslevel=6, mtime=0) if self._gzip else payload
        try:
            with trio.fail_after(self._timeout_seconds):
                # A connection that was kept may have been closed meanwhile: then once more on a new one.
                response = None
                if self._stream is not None:
                    try:
                        response = await self._request(self._stream, body)
                    except FAILURES:
                        await self._drop()
                if response is None:
                    response = await self._request(await self._connect(), body)
        except trio.TooSlowError:
            await self._drop()
            return Again(f"no answer within {self._timeout_seconds:g} s")
        except FAILURES as error:
            await self._drop()
            return Again(_failure_text(error))
        except BaseException:
            await self._drop()
            raise
        body = self._mask(response.body)
        return answer_of_http(response.status, response.content_type, response.retry_after, body, time.time())

    async def aclose(self) -> None:
        await self._drop()

    async def _connect(self) -> trio.abc.Stream:
        # Ours from here on: where the handshake fails or takes too long, `_drop` finds it and closes it.
        plain_stream = await trio.open_tcp_stream(self._host, self._port)
        self._stream = plain_stream
        if self._context is not None:
            stream = trio.SSLStream(
                plain_stream, self._context, server_hostname=self._host, https_compatible=True
            )
            self._stream = stream
            await stream.do_handshake()
        self._connection = h11.Connection(h11.CLIENT)
        assert self._stream is not None
        return self._stream

    async def _request(self, stream: trio.abc.Stream, body: bytes) -> Response:
        connection = self._connection
        headers = [*self._headers, ("content-length", str(len(body)))]
        events = (
            h11.Request(method="POST", target=self._target, headers=headers),
            h11.Data(data=body),
            h11.EndOfMessage(),
        )
        await stream.send_all(b"".join(connection.send(event) or b"" for event in events))
        response = await self._response(stream)
        # Kept only where both sides are through and neither said "close": else the next request would find it
        # dead, and wait for the answer of nobody.
        if connection.our_state is h11.DONE and connection.their_state is h11.DONE:
            connection.start_next_cycle()
        else:
            await self._drop()
        return response

    async def _response(self, stream: trio.abc.Stream) -> Response:
        head, parts, size = None, [], 0
        while True:
            event = self._connection.next_event()
            if event is h11.NEED_DATA:
                data = bytes(await stream.receive_some(RECEIVE_BYTES))
                if not data and head is None:
                    raise ConnectionGone("the server closed the connection without an answer")
                self._connection.receive_data(data)
            elif isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
                size += len(event.data)
                # An endless answer would fill our memory before our time is over.
                if size > ANSWER_BYTES_MAX:
                    raise AnswerTooLarge("the answer is too long for OTLP: is this the right endpoint?")
            # 1xx is not the answer yet; everything else that is left is its end.
            elif not isinstance(event, h11.InformationalResponse):
                break
        if head is None:
            raise ConnectionGone("the server closed the connection without an answer")
        found = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        return Response(
            head.status_code, found.get("content-type", ""), found.get("retry-after", ""), b"".join(parts)
        )

    async def _drop(self) -> None:
        stream, self._stream = self._stream, None
        # Without TLS' goodbye: a server that is slow to say it would have our time.
        if stream is not None:
            await trio.aclose_forcefully(stream)


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


def _failure_text(error: Exception) -> str:
    # One line for the record, and never a header: what h11 and ssl say of themselves may repeat what was
    # sent.
    if isinstance(error, h11.ProtocolError):
        return "the answer is not HTTP: is this the right endpoint?"
    if isinstance(error, trio.BrokenResourceError | trio.ClosedResourceError):
        cause = error.__cause__
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the server's certificate is not accepted: {printable_line(cause.verify_message)}"
        return f"the connection broke: {printable_line(str(cause))}" if cause else "the connection broke"
    first = error.__cause__
    while isinstance(first, BaseExceptionGroup):  # several addresses were tried
        first = first.exceptions[0]
    for each in (first, error):
        if isinstance(each, OSError) and each.strerror:
            return printable_line(each.strerror)
    return printable_line(str(first or error) or type(error).__name__)
